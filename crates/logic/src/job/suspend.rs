//! Suspending and retrying: every created object is deleted; then the job is suspended, or starts again.
//!
//! The batch scheduler is updated last. Both finish whatever happens to `spec.suspend` meanwhile.

use super::Planner;
use super::mode::Mode;
use super::phase::deployment;
use super::submitter;
use crate::action::{Kind, Step};
use crate::reasons;
use crate::scheduler;

/// Deletes cluster and submitter, clears them from the status, and enters the next phase.
pub(super) fn plan_teardown(planner: &mut Planner<'_>, mode: Mode, next: &'static str) {
    let cluster_gone = delete_cluster(planner);
    let submitter_gone = matches!(mode, Mode::Http | Mode::Sidecar) || submitter::delete(planner);
    if !cluster_gone || !submitter_gone {
        planner.wait_for("the RayCluster and the submitter to be gone");
        return;
    }
    if let Some(step) = scheduler::shrink_job_gang(planner.seen, planner.config) {
        planner.then(step);
    }
    let status = &mut planner.draft.now;
    status.ray_cluster_status = None;
    status.ray_cluster_name = None;
    status.dashboard_url = None;
    status.job_id = None;
    status.message = None;
    status.reason = None;
    status.ray_job_info = None;
    status.job_status_check_failure_start_time = None;
    status.job_status = None;
    planner.draft.enter(next);
}

/// Suspended: nothing happens until the user resumes.
pub(super) fn plan_suspended(planner: &mut Planner<'_>) {
    if planner.seen.is_suspended() {
        planner.wait_for("spec.suspend to be false");
        return;
    }
    planner.draft.now.job_status = None;
    planner.draft.enter(deployment::NEW);
}

/// Deletes the cluster that was created for the job. Returns whether there is none any more.
pub(super) fn delete_cluster(planner: &mut Planner<'_>) -> bool {
    if planner.seen.selected_cluster().is_some() {
        return true;
    }
    let Some(cluster) = planner.seen.own_cluster() else { return true };
    if cluster.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let path = planner.seen.path(name);
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    planner.then(
        Step::delete(planner.seen.key(Kind::RayCluster, name), uid, "the job does not need its cluster any more")
            .on_success(reasons::DELETED_RAY_CLUSTER, format!("Deleted cluster {path}"))
            .on_failure(reasons::FAILED_TO_DELETE_RAY_CLUSTER, format!("Failed to delete cluster {path}: ")),
    );
    false
}
