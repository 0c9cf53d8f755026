//! Switches with which tests show that a guard is what stops an attack.
//!
//! Without the feature `test-guards`, which only the tests of this crate turn on, every guard is always on.

/// A guard that has a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Claims are looked up and their folder is worked out.
    ClaimLookup = 1,
    /// `subPath` is resolved without following links.
    SubPath = 2,
    /// Containers make only the system calls of the default list.
    Seccomp = 4,
}

#[cfg(not(feature = "test-guards"))]
pub(crate) const fn is_on(_: Guard) -> bool {
    true
}

#[cfg(feature = "test-guards")]
mod switches {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Guard;

    static OFF: AtomicU8 = AtomicU8::new(0);

    pub(crate) fn is_on(guard: Guard) -> bool {
        OFF.load(Ordering::SeqCst) & guard as u8 == 0
    }

    /// Turns a guard off for all containers that are started from now on.
    pub fn turn_off(guard: Guard) {
        OFF.fetch_or(guard as u8, Ordering::SeqCst);
    }

    /// Turns a guard on again.
    pub fn turn_on(guard: Guard) {
        OFF.fetch_and(!(guard as u8), Ordering::SeqCst);
    }
}

#[cfg(feature = "test-guards")]
pub(crate) use switches::is_on;
#[cfg(feature = "test-guards")]
pub use switches::{turn_off, turn_on};
