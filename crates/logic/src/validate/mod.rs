//! The rules for a spec beyond its schema, with one file or folder per kind.
//!
//! [`ValidCluster`] and [`ValidCronJob`] prove that an object has passed; builders and plans take them.

pub mod cluster;
pub mod cronjob;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod job;
pub mod kubernetes_names;
pub mod service;
pub mod warnings;

pub use cluster::{ValidCluster, cluster_problems, cluster_spec_problems, validate_cluster_spec};
pub use cronjob::ValidCronJob;
pub use job::{validate_job, validate_job_spec};
pub use service::validate_service;
pub use warnings::{Warning, cluster_warnings};

use crate::action::Event;
use crate::reasons;

/// A rule that an object breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Invalid {
    pub part: Part,
    /// The rule in KubeRay's words.
    pub text: String,
}

/// The part of an object that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    ClusterMetadata,
    ClusterSpec,
    ClusterUpgradeStrategy,
    ClusterStatus,
    JobMetadata,
    JobSpec,
    JobStatus,
    ServiceMetadata,
    ServiceSpec,
    CronJobSpec,
}

impl Part {
    /// Returns whether the part is the metadata of its object.
    pub fn is_metadata(self) -> bool {
        matches!(self, Part::ClusterMetadata | Part::JobMetadata | Part::ServiceMetadata)
    }
}

impl Invalid {
    /// Returns the reason of the event.
    pub fn reason(&self) -> &'static str {
        match self.part {
            Part::ClusterMetadata => reasons::INVALID_RAY_CLUSTER_METADATA,
            Part::ClusterSpec | Part::ClusterUpgradeStrategy => reasons::INVALID_RAY_CLUSTER_SPEC,
            Part::ClusterStatus => reasons::INVALID_RAY_CLUSTER_STATUS,
            Part::JobMetadata => reasons::INVALID_RAY_JOB_METADATA,
            Part::JobSpec => reasons::INVALID_RAY_JOB_SPEC,
            Part::JobStatus => reasons::INVALID_RAY_JOB_STATUS,
            Part::ServiceMetadata => reasons::INVALID_RAY_SERVICE_METADATA,
            Part::ServiceSpec => reasons::INVALID_RAY_SERVICE_SPEC,
            Part::CronJobSpec => reasons::INVALID_RAY_CRON_JOB_SPEC,
        }
    }

    /// Returns the event that reports the broken rule.
    pub fn event(&self, namespace: &str, name: &str) -> Event {
        let (path, text) = (format!("{namespace}/{name}"), &self.text);
        let note = match self.part {
            Part::ClusterMetadata => format!("The RayCluster metadata is invalid {path}: {text}"),
            Part::ClusterSpec => format!("The RayCluster spec is invalid {path}: {text}"),
            Part::ClusterUpgradeStrategy => format!("The RayCluster UpgradeStrategy is invalid {path}: {text}"),
            Part::ClusterStatus => format!("The RayCluster status is invalid {path}, {text}"),
            _ => format!("{path}: {text}"),
        };
        Event::warning(self.reason(), "Validate", note)
    }
}

/// Returns a function that turns the text of a broken rule into an error about a part.
fn invalid(part: Part) -> impl Fn(String) -> Invalid {
    move |text| Invalid { part, text }
}

/// Returns an error with a text if a rule is broken.
fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}
