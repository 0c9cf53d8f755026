//! The parts of `manta` that tests and fuzz targets call directly.

pub mod lint;
pub mod suggest;
