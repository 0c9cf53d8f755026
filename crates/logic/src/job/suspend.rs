//! Suspending and retrying: everything that was made goes; then the job rests, or starts again.
//!
//! The batch scheduler is told last. Both finish whatever happens to `spec.suspend` meanwhile.

use super::mode::Mode;
use super::phase::deployment;
use super::plan::Pass;
use crate::action::{Accept, Action, Event, Kind, ObjectKey, Step};
use crate::scheduler;

/// Removes cluster and submitter, forgets them, and enters the next phase.
pub(super) fn plan_teardown(pass: &mut Pass<'_>, mode: Mode, next: &'static str) {
    let cluster_gone = delete_cluster(pass);
    let submitter_gone = matches!(mode, Mode::Http | Mode::Sidecar) || delete_submitter(pass);
    if !cluster_gone || !submitter_gone {
        pass.wait_for("the RayCluster and the submitter to be gone");
        return;
    }
    if let Some(step) = scheduler::shrink_job_gang(pass.seen, pass.config) {
        pass.then(step);
    }
    let status = &mut pass.draft.now;
    status.ray_cluster_status = None;
    status.ray_cluster_name = None;
    status.dashboard_url = None;
    status.job_id = None;
    status.message = None;
    status.reason = None;
    status.ray_job_info = None;
    status.job_status_check_failure_start_time = None;
    status.job_status = None;
    pass.draft.enter(next);
}

/// Suspended: nothing happens until the user resumes.
pub(super) fn plan_suspended(pass: &mut Pass<'_>) {
    if pass.seen.is_suspended() {
        pass.wait_for("spec.suspend to be false");
        return;
    }
    pass.draft.now.job_status = None;
    pass.draft.enter(deployment::NEW);
}

/// Deletes the cluster that was made for the job. True if there is none any more.
pub(super) fn delete_cluster(pass: &mut Pass<'_>) -> bool {
    if pass.seen.selected_cluster().is_some() {
        return true;
    }
    let Some(cluster) = pass.seen.own_cluster() else { return true };
    if cluster.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let path = pass.path(name);
    let action = Action::Delete {
        key: ObjectKey::new(Kind::RayCluster, pass.seen.namespace(), name),
        uid: cluster.metadata.uid.clone().unwrap_or_default(),
        force: false,
    };
    pass.then(
        Step::new(action, "the job does not need its cluster any more")
            .done(Event::normal("DeletedRayCluster", "Delete", format!("Deleted cluster {path}")))
            .failed(Event::warning("FailedToDeleteRayCluster", "Delete", format!("Failed to delete cluster {path}: ")))
            .accept(Accept::NotFound),
    );
    false
}

fn delete_submitter(pass: &mut Pass<'_>) -> bool {
    let Some(submitter) = pass.seen.own_submitter() else { return true };
    if submitter.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let path = pass.path(&submitter.metadata.name);
    let action = Action::Delete {
        key: ObjectKey::new(Kind::Job, pass.seen.namespace(), &submitter.metadata.name),
        uid: submitter.metadata.uid.clone(),
        force: false,
    };
    pass.then(
        Step::new(action, "the job does not need its submitter any more")
            .done(Event::normal("DeletedRayJobSubmitter", "Delete", format!("Deleted submitter K8s Job {path}")))
            .failed(Event::warning(
                "FailedToDeleteRayJobSubmitter",
                "Delete",
                format!("Failed to delete submitter K8s Job {path}: "),
            ))
            .accept(Accept::NotFound),
    );
    false
}
