//! Tests of RayJobs in a world of plain values, without a server.

mod deletion;
mod faults;
pub(crate) mod fixture;
mod gang;
mod lifecycle;
mod properties;
mod replay;
mod suspend;
