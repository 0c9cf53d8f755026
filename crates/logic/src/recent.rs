//! Shares equal values among the objects that are read close together, such as the Pods of one worker group.

use std::cell::RefCell;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

/// How many values a new one may be shared with.
pub(crate) const SLOTS: usize = 256;

/// The last values that were read, by their hash.
pub(crate) struct Recent<T>(RefCell<Vec<Option<Arc<T>>>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(RefCell::new(std::iter::repeat_with(|| None).take(SLOTS).collect()))
    }
}

impl<T: Hash + Eq> Recent<T> {
    /// Returns this value, or an equal one that was read lately.
    pub(crate) fn share(&self, value: T) -> Arc<T> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&value);
        let mut recent = self.0.borrow_mut();
        let slot = &mut recent[hash as usize % SLOTS];
        match slot {
            Some(equal) if **equal == value => Arc::clone(equal),
            _ => Arc::clone(slot.insert(Arc::new(value))),
        }
    }
}
