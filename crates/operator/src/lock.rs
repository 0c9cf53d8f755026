//! Locks that a panicked task cannot take away from the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one whose holder has panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
