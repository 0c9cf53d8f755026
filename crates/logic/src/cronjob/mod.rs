//! What to do next for a RayCronJob.
