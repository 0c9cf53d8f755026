//! The forms that Go gives to values: durations, quoted strings, JSON.
//!
//! Texts that users see and hashes that upgrades hang on were fixed by a program in Go.

pub mod duration;
pub mod json;
pub mod quote;
pub mod types;
pub mod yaml;

pub use json::{to_go_json, to_go_value};
pub use types::Root;
