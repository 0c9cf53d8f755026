//! Random values: tokens that Ray clusters authenticate with, identities of leaders, and seeds for names.

use crate::lock::lock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use manta_logic::splitmix;
use std::sync::{Arc, Mutex};

/// The source of random values.
#[derive(Clone, Debug, Default)]
pub enum Random {
    /// The operating system.
    #[default]
    System,
    /// A generator that gives the same values for the same seed, for simulations.
    Seeded(Arc<Mutex<u64>>),
}

impl Random {
    /// Returns a generator that gives the same values for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self::Seeded(Arc::new(Mutex::new(seed)))
    }

    /// Returns 32 random bytes in base64.
    pub(crate) fn token(&self) -> String {
        let words: [[u8; 8]; 4] = std::array::from_fn(|_| self.number().to_le_bytes());
        STANDARD.encode(words.as_flattened())
    }

    /// Returns a random (version 4) UUID.
    pub(crate) fn uuid(&self) -> String {
        let words = [self.number(), self.number()].map(u64::to_le_bytes);
        let mut bytes = <[u8; 16]>::try_from(words.as_flattened()).unwrap_or_default();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// Returns a random number.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::System => {
                let mut bytes = [0; 8];
                // Without system randomness no token is safe and no name is unique, so there is no fallback.
                #[expect(clippy::expect_used)]
                getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
                u64::from_ne_bytes(bytes)
            }
            Self::Seeded(state) => splitmix::next(&mut lock(state)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_32_random_bytes() {
        let (one, two) = (Random::System.token(), Random::System.token());
        assert_ne!(one, two);
        assert_eq!(STANDARD.decode(one).unwrap().len(), 32);
    }

    #[test]
    fn uuids_are_unique() {
        let (one, two) = (Random::System.uuid(), Random::System.uuid());
        assert_ne!(one, two);
        assert_eq!((one.len(), &one[14..15]), (36, "4"));
    }

    #[test]
    fn the_same_seed_gives_the_same_values() {
        let draw = |seed| {
            let random = Random::seeded(seed);
            (random.number(), random.token(), random.clone().number())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let (first, _, third) = draw(1);
        assert_ne!(first, third, "clones share the generator");
    }
}
