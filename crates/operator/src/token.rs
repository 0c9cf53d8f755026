//! Random values: tokens that Ray clusters authenticate with, and seeds for names.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Returns 32 random bytes in base64.
pub(crate) fn generate() -> String {
    STANDARD.encode(random::<32>())
}

/// Returns a seed for the random names of one pass.
pub(crate) fn seed() -> u64 {
    u64::from_ne_bytes(random())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without system randomness no token is safe and no name is unique, so there is no fallback.
    #[expect(clippy::expect_used)]
    getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
    bytes
}
