//! Randomness: tokens that Ray clusters authenticate with, and seeds of names.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// 32 random bytes, as text.
pub(crate) fn generate() -> String {
    STANDARD.encode(random::<32>())
}

/// Where the random names of one pass come from.
pub(crate) fn seed() -> u64 {
    u64::from_ne_bytes(random())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without randomness from the system no token is safe and no name is free: there is no way on.
    #[expect(clippy::expect_used)]
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}
