//! Every decision of the operator, as pure functions.
//!
//! `plan(&Observed, now, &Config) -> Plan` per kind, built from validation ([`validate`]), builders
//! ([`build`]) and one file per behaviour. Nothing here awaits, reads a clock, the environment or a
//! random source: time, settings and seeds come in as arguments, so the same inputs always give
//! the same plan.

pub mod action;
pub mod admission;
pub mod build;
pub mod cluster;
pub mod cluster_spec;
pub mod conditions;
pub mod config;
pub mod cronjob;
pub mod dashboard;
pub mod explain;
#[cfg(test)]
mod fake_api;
mod finalizer;
pub mod go;
pub mod hash;
pub mod job;
pub mod labels;
mod leftovers;
pub mod names;
mod observed_names;
pub mod pass;
pub mod plan;
pub mod post_mortem;
#[cfg(test)]
mod properties;
pub mod reasons;
mod recent;
pub mod scheduler;
pub mod service;
pub mod splitmix;
pub mod text_map;
pub mod validate;
pub mod version;
pub mod view;
