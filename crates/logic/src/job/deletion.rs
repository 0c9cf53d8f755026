//! Deletion of a RayJob: its Ray job is stopped.
//!
//! A cluster of `clusterSelector` stays and would continue to run the job, so stopping comes first and is tried until half a
//! minute after the deletion, at least once. A cluster of its own is deleted with the RayJob: Ray is asked once to stop the
//! job, and nothing waits for that. A missing token or a dead dashboard never blocks a deletion.

use super::Planner;
use super::dashboard::{JobPoll, StopAttempt};
use super::phase::Ended;
use crate::action::{Action, Kind, Step};
use crate::cluster_spec::{auth_secret_name, is_token_auth};
use crate::dashboard::{DashboardEndpoint, RayRequest};
use crate::finalizer;
use crate::labels::finalizer::RAY_JOB;
use crate::names;
use jiff::{SignedDuration, Timestamp};

/// How long after the deletion the operator tries to stop a job on a cluster that stays.
const STOP_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);
/// How long after a failed attempt the next one is made.
const STOP_AGAIN: SignedDuration = SignedDuration::from_secs(2);

pub(super) fn plan(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    if !finalizer::has(&seen.job.metadata, RAY_JOB) {
        return;
    }
    if let Some(poll) = running_job(planner) {
        if seen.selected_cluster().is_none() {
            planner.push(request(planner, &poll));
        } else if !stop(planner, &poll) {
            planner.wait_for("the Ray job to be stopped");
            planner.poll = Some(poll);
            return;
        }
    }
    let key = seen.key(Kind::RayJob, seen.name());
    planner.push(finalizer::remove(key, &seen.job.metadata, RAY_JOB, "nothing of the Ray job is left to stop"));
    planner.end_stage();
}

/// Returns the job that may still be running.
fn running_job(planner: &Planner<'_>) -> Option<JobPoll> {
    let status = planner.seen.job.status.as_ref()?;
    let some = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if Ended::read(status.job_status.as_deref().unwrap_or_default()).is_some() {
        return None;
    }
    let (job_id, address) = (some(&status.job_id)?, some(&status.dashboard_url)?);
    let endpoint = endpoint(planner, address, &some(&status.ray_cluster_name)?);
    Some(JobPoll { endpoint, job_id, fresher_than: None })
}

/// Stops a job on a cluster that stays. Returns whether it is stopped or the time for trying is over.
fn stop(planner: &mut Planner<'_>, poll: &JobPoll) -> bool {
    let seen = planner.seen;
    match seen.dashboard.stop {
        Some(StopAttempt::Done) => return true,
        Some(StopAttempt::Failed { at }) => {
            let deleted = seen.job.metadata.deletion_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
            if planner.reached_or_wake_at(deleted.checked_add(STOP_TIMEOUT).ok()) {
                return true;
            }
            if !planner.reached_or_wake_at(at.checked_add(STOP_AGAIN).ok()) {
                return false;
            }
        }
        None => {}
    }
    planner.finally(request(planner, poll));
    false
}

/// Returns the request to stop the job.
fn request(planner: &Planner<'_>, poll: &JobPoll) -> Step {
    let action = Action::Ray {
        key: planner.seen.key(Kind::RayCluster, planner.seen.cluster_name()),
        endpoint: poll.endpoint.clone(),
        request: RayRequest::StopJob { job_id: poll.job_id.clone() },
    };
    Step::new(action, "the RayJob is being deleted")
}

/// Returns the dashboard of the RayJob's cluster.
///
/// The address comes from the status, which others may be allowed to write: the token goes to no host but the cluster's
/// own head Service.
pub(super) fn endpoint(planner: &Planner<'_>, address: String, cluster: &str) -> DashboardEndpoint {
    let object = planner.seen.cluster.as_ref();
    let status = object.and_then(|cluster| cluster.status.as_ref());
    let service = status.and_then(|status| status.head.as_ref()).and_then(|head| head.service_name.clone());
    let generated = || match object {
        Some(object) => names::head_service(cluster, &object.spec),
        None => names::owner_head_service(cluster),
    };
    let own_host = names::fqdn(&generated(), planner.seen.namespace(), &planner.config.cluster_domain);
    let is_own = address.rsplit_once(':').is_some_and(|(host, _)| host == own_host);
    DashboardEndpoint {
        namespace: planner.seen.namespace().to_owned(),
        address,
        service: service.filter(|name| !name.is_empty()).unwrap_or_else(generated),
        token_secret: object.filter(|cluster| is_own && is_token_auth(&cluster.spec)).map(auth_secret_name),
    }
}
