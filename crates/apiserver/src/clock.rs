//! Time and randomness, injected so that a simulation can control both.

use std::io::Read;
use std::sync::Mutex;

use jiff::Timestamp;

/// The source of time and of random names.
pub struct Clock {
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    random: Mutex<u64>,
}

/// The alphabet of `generateName` suffixes; it has no vowels, so that suffixes spell no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Clock {
    /// Returns the system clock, seeded from the system's entropy.
    pub fn system() -> Clock {
        let seed = u64::from_le_bytes(random_bytes());
        Clock::new(Timestamp::now, seed)
    }

    /// Creates a clock from a time source and a seed; the same seed yields the same names and uids.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static, seed: u64) -> Clock {
        Clock { now: Box::new(now), random: Mutex::new(seed) }
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Returns the current time in the format of `metav1.Time`: UTC, whole seconds.
    pub fn stamp(&self) -> String {
        seconds(self.now())
    }

    /// Returns the current time in the format of `metav1.MicroTime`.
    pub fn micro_stamp(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }

    /// Returns a new version 4 uid.
    pub fn uid(&self) -> String {
        let (a, b) = (self.next(), self.next());
        let high = (a & !0xf000) | 0x4000;
        let low = (b & !(0b11 << 62)) | (0b10 << 62);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Returns a suffix of `len` letters, as `generateName` adds it.
    pub fn suffix(&self, len: usize) -> String {
        (0..len).map(|_| char::from(ALPHABET[(self.next() % ALPHABET.len() as u64) as usize])).collect()
    }

    /// Returns the next random number (splitmix64: short, and good enough for names).
    pub fn next(&self) -> u64 {
        let mut state = self.random.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Formats a time as `metav1.Time` does: UTC, whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Adds seconds to a time; the result stays within the years 1 and 9999, which RFC 3339 can express.
pub fn add_seconds(time: Timestamp, seconds: i64) -> Timestamp {
    const YEAR_ONE: i64 = -62_135_596_800;
    let second = time.as_second().saturating_add(seconds).clamp(YEAR_ONE, Timestamp::MAX.as_second());
    Timestamp::from_second(second).unwrap_or(time)
}

/// Encodes a number in `len` letters of the alphabet of generated names.
pub(crate) fn safe_encode(mut number: u64, len: usize) -> String {
    let base = ALPHABET.len() as u64;
    (0..len)
        .map(|_| {
            let letter = ALPHABET[(number % base) as usize];
            number /= base;
            char::from(letter)
        })
        .collect()
}

/// Returns cryptographically random bytes.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if filled.is_err() {
        // Without /dev/urandom the hasher's keys are the standard library's only source of entropy.
        for chunk in bytes.chunks_mut(8) {
            use std::hash::{BuildHasher, Hasher};
            let word = std::collections::hash_map::RandomState::new().build_hasher().finish().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_names() {
        let make = || Clock::new(|| Timestamp::UNIX_EPOCH, 7);
        assert_eq!(make().uid(), make().uid());
        assert_eq!(make().suffix(5), make().suffix(5));
        assert_ne!(Clock::system().uid(), Clock::system().uid());
    }

    #[test]
    fn extreme_durations_stay_in_range() {
        for seconds in [i64::MIN, -1, 0, 1, 1_000_000_000_000, i64::MAX] {
            let text = super::seconds(add_seconds(Timestamp::UNIX_EPOCH, seconds));
            assert!(text.parse::<Timestamp>().is_ok(), "{seconds}: {text}");
        }
        assert_eq!(add_seconds(Timestamp::UNIX_EPOCH, 5), Timestamp::from_second(5).expect("in range"));
    }

    #[test]
    fn uids_are_of_version_four() {
        let uid = Clock::new(|| Timestamp::UNIX_EPOCH, 1).uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!(matches!(&uid[19..20], "8" | "9" | "a" | "b"), "{uid}");
    }

    #[test]
    fn times_print_as_kubernetes_prints_them() {
        let clock = Clock::new(|| Timestamp::new(1, 234_567_000).expect("in range"), 1);
        assert_eq!(clock.stamp(), "1970-01-01T00:00:01Z");
        assert_eq!(clock.micro_stamp(), "1970-01-01T00:00:01.234567Z");
    }
}
