//! The parts of `manta` that tests and fuzzers call without the command line.

pub mod lint;
