//! When a record is written.

use crate::action::{Action, Kind, ObjectKey, Stage};
use crate::view::PodView;
use manta_api::RayJobStatus;

/// Why a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occasion {
    /// A RayJob, or one attempt of it, has ended.
    Ended,
    /// A Pod of a RayCluster has failed and is about to be replaced.
    PodFailed,
    /// The object is about to be deleted, or was.
    Deleted,
}

impl Occasion {
    /// Returns its name in the names of records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::PodFailed => "failed",
            Self::Deleted => "deleted",
        }
    }
}

/// Returns whether a RayJob ends, or an attempt of it, with a status that was written.
pub fn job_ended(before: Option<&RayJobStatus>, after: &RayJobStatus) -> bool {
    let of = |status: &RayJobStatus| status.job_deployment_status.clone().unwrap_or_default();
    let after = of(after);
    ["Complete", "Failed", "Retrying"].contains(&after.as_str()) && before.map(of) != Some(after)
}

/// Returns the object to record before a stage destroys evidence, and why.
///
/// A RayJob that deletes its cluster was recorded when it ended. The clusters that a RayService replaces, and the failed Pods
/// that a RayCluster replaces, go without such a moment.
pub fn before_stage(
    owner: &ObjectKey,
    stage: &Stage,
    has_failed: impl Fn(&str) -> bool,
) -> Option<(ObjectKey, Occasion)> {
    stage.into_iter().find_map(|step| {
        let Action::Delete { key, .. } = &step.action else { return None };
        match (owner.kind, key.kind) {
            (Kind::RayService, Kind::RayCluster) => Some((key.clone(), Occasion::Deleted)),
            (Kind::RayCluster, Kind::Pod) if has_failed(&key.name) => Some((owner.clone(), Occasion::PodFailed)),
            _ => None,
        }
    })
}

/// Returns whether an object that was deleted by others is worth a record: one that has ended has got one, and a cluster
/// that belongs to another object is part of its record.
pub fn on_deletion(kind: Kind, has_controller: bool, job: Option<&RayJobStatus>) -> bool {
    let status = job.and_then(|status| status.job_deployment_status.as_deref());
    let has_ended = status.is_some_and(|status| ["Complete", "Failed"].contains(&status));
    let is_part = kind == Kind::RayCluster && has_controller;
    matches!(kind, Kind::RayCluster | Kind::RayJob | Kind::RayService) && !is_part && !has_ended
}

/// Returns whether a Pod, or a container of it, ended with an error.
pub fn has_failed(pod: &PodView) -> bool {
    let containers = &pod.status.container_statuses;
    let failed = containers.iter().filter_map(|status| status.state.terminated.as_ref());
    pod.status.phase == "Failed" || failed.into_iter().any(|ended| ended.exit_code != 0)
}
