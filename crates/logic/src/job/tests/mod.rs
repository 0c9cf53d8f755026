//! RayJobs played through: a world of plain values in which plans are carried out.

mod deletion;
mod faults;
pub(crate) mod fixture;
mod gang;
mod lifecycle;
mod properties;
mod replay;
mod suspend;
