//! The hash of a cluster spec that upgrades are detected by.
