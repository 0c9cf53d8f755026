//! One file per kind: what a pass over an object of that kind does.

pub mod cluster;
pub mod cronjob;
pub mod job;
pub mod service;
