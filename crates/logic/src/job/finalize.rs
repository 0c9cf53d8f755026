//! Deletion of a RayJob: its Ray job is stopped first.
//!
//! The cluster goes with the RayJob by garbage collection, but a cluster of `clusterSelector` stays
//! and would go on running the job. There stopping is tried for half a minute; for a cluster of its own
//! one try is enough. A missing token or a dead dashboard never blocks a deletion.

use super::dashboard::{Ask, DashboardEndpoint, Stop, Watch};
use super::phase::Ended;
use super::plan::Pass;
use crate::action::{Accept, Action, Kind, ObjectKey, Step};
use crate::build::cluster_facts::{auth_secret_name, is_token_auth};
use crate::labels::finalizer;
use crate::names;
use jiff::SignedDuration;
use serde_json::json;

/// How long a job on a cluster that stays is tried to be stopped.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

pub(super) fn plan(pass: &mut Pass<'_>) {
    let seen = pass.seen;
    let finalizers = seen.job.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|name| name == finalizer::RAY_JOB) {
        return;
    }
    if let Some(watch) = to_stop(pass)
        && !gave_up(pass)
    {
        pass.wait_for("the Ray job to be stopped");
        pass.watch = Some(watch);
        return;
    }
    let left: Vec<_> = finalizers.into_iter().filter(|name| name != finalizer::RAY_JOB).collect();
    let patch = json!({
        "metadata": {"finalizers": left, "resourceVersion": seen.job.metadata.resource_version},
    });
    let key = ObjectKey::new(Kind::RayJob, seen.namespace(), seen.name());
    let action = Action::Merge { key, patch: Box::new(patch) };
    pass.then(Step::new(action, "nothing of the Ray job is left to stop").accept(Accept::NotFound));
}

/// The job that may still be running.
fn to_stop(pass: &Pass<'_>) -> Option<Watch> {
    let status = pass.seen.job.status.as_ref()?;
    let some = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if Ended::read(status.job_status.as_deref().unwrap_or_default()).is_some() {
        return None;
    }
    let (job_id, address) = (some(&status.job_id)?, some(&status.dashboard_url)?);
    let endpoint = endpoint(pass, address, &some(&status.ray_cluster_name)?);
    Some(Watch { endpoint, job_id, ask: Ask::Stop, fresher_than: None })
}

/// The dashboard of the RayJob's cluster.
pub(super) fn endpoint(pass: &Pass<'_>, address: String, cluster: &str) -> DashboardEndpoint {
    let object = pass.seen.cluster.as_ref();
    let status = object.and_then(|cluster| cluster.status.as_ref());
    let service = status.and_then(|status| status.head.as_ref()).and_then(|head| head.service_name.clone());
    let generated = || match object {
        Some(object) => names::head_service(cluster, &object.spec),
        None => names::owner_head_service(cluster),
    };
    DashboardEndpoint {
        namespace: pass.seen.namespace().to_owned(),
        address,
        service: service.filter(|name| !name.is_empty()).unwrap_or_else(generated),
        token_secret: object.filter(|cluster| is_token_auth(&cluster.spec)).map(auth_secret_name),
    }
}

/// Whether there is no more to be tried: it is stopped, or it cannot be.
fn gave_up(pass: &mut Pass<'_>) -> bool {
    match pass.seen.dashboard.stop {
        None => false,
        Some(Stop::Done) => true,
        Some(Stop::Failed { since }) => {
            pass.seen.selected_cluster().is_none() || pass.is_past(since.checked_add(PATIENCE).ok())
        }
    }
}
