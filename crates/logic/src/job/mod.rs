//! What to do next for a RayJob.
