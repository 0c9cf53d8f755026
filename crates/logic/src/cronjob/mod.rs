//! What to do next for a RayCronJob.

pub mod schedule;
