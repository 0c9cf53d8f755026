//! The one source of randomness of a simulation.

use manta_logic::splitmix;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A generator that every part of a world shares.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Arc<Mutex<u64>>);

impl Rng {
    /// Returns the generator of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(seed)))
    }

    /// Returns the next number.
    pub(crate) fn next(&self) -> u64 {
        splitmix::next(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a number of a range.
    pub(crate) fn within(&self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    /// Returns true this many times out of a hundred.
    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.within(0..100) < chance
    }

    /// Returns one of the choices.
    pub(crate) fn pick<'a, T>(&self, choices: &'a [T]) -> &'a T {
        &choices[self.within(0..choices.len() as u64) as usize]
    }
}
