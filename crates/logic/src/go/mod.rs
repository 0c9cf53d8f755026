//! The forms that Go gives to values: durations, quoted strings, JSON.
//!
//! Texts that users see and hashes that upgrades hang on were fixed by a program in Go.

pub mod duration;
pub mod quote;
pub mod yaml;
