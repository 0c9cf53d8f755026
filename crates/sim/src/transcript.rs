//! What happened, line by line.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// The log of a world; equal for equal scripts.
#[derive(Clone, Debug)]
pub(crate) struct Transcript {
    start: Instant,
    text: Arc<Mutex<String>>,
}

impl Transcript {
    /// Returns an empty transcript that counts time from now.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), text: Arc::default() }
    }

    /// Adds a line.
    pub(crate) fn line(&self, who: &str, what: impl std::fmt::Display) {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:>9.3}  {who:<8}  {what}", self.start.elapsed().as_secs_f64());
    }

    /// Forgets everything so far.
    pub(crate) fn clear(&self) {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns everything so far.
    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
