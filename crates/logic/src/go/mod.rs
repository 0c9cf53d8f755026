//! Values in the text forms of Go: durations, quoted strings, JSON, YAML.
//!
//! KubeRay is written in Go, and its messages and the hashes that it stores depend on these forms.

pub mod duration;
pub mod json;
pub mod quote;
pub mod types;
pub mod yaml;

pub use json::{cluster_spec, job_spec, to_go_json, to_go_value};
pub use types::Root;
