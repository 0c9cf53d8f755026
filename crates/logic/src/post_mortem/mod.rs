//! Post-mortems: what the operator keeps of objects that ended, failed or were deleted.
//!
//! A record is the [`Evidence`](crate::explain::Evidence) about an object at its end, without secrets and bounded in size, in a
//! ConfigMap of the object's namespace. Nobody owns it, so it stays when the object is deleted; its age and the number of
//! records are bounded instead. `manta explain`, `manta logs` and `manta history` read it.

mod kept;
mod occasion;
mod record;
mod redact;

pub use kept::{Kept, kept_about};
pub use occasion::{Occasion, before_stage, has_failed, job_ended, on_deletion};
pub use record::{LABEL, Record, Summary, config_map, expired};
pub use redact::{redact, secrets_in, withhold};

use std::time::Duration;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records in one namespace.
    pub count: usize,
    pub age: Duration,
    /// The compressed size of one record.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { count: 50, age: Duration::from_secs(7 * 24 * 3600), bytes: 128 << 10 }
    }
}

#[cfg(test)]
mod tests;
