//! The RayCluster that a RayJob makes.

use super::mode::Mode;
use super::phase::Attempt;
use super::plan::Pass;
use crate::action::{Accept, Action, Body, Event, Kind, ObjectKey, Step};
use crate::build::owner::controller_reference;
use crate::build::submitter::{Submitter, SubmitterError};
use crate::go;
use crate::labels::{self, annotation};
use crate::scheduler;
use k8s_openapi::api::core::v1::PodSpec;
use manta_api::{API_VERSION, RayCluster, RayJob};
use serde_json::{Value, json};

/// Adds the creation of the cluster to the plan. False if it cannot be made.
pub(super) fn create(pass: &mut Pass<'_>, mode: Mode, attempt: &Attempt) -> bool {
    let name = &attempt.cluster;
    let path = pass.path(name);
    let failed = |error: &str| {
        Event::warning("FailedToCreateRayCluster", "Create", format!("Failed to create RayCluster {path}: {error}"))
    };
    let body = match body(pass, mode, attempt) {
        Ok(body) => body,
        Err(error) => {
            pass.event(failed(&error.to_string()));
            pass.back_off();
            return false;
        }
    };
    let key = ObjectKey::new(Kind::RayCluster, pass.seen.namespace(), name);
    pass.then(
        Step::new(Action::Create { key, body: Body::of(&body) }, "the job needs a cluster")
            .done(Event::normal("CreatedRayCluster", "Create", format!("Created RayCluster {path}")))
            .failed(failed(""))
            // The name is this attempt's alone: it is the cluster of a pass whose watch is late.
            .accept(Accept::AlreadyExists),
    );
    true
}

/// Warns that the cluster of `clusterSelector` is not there.
pub(super) fn miss(pass: &mut Pass<'_>, name: &str) {
    let path = pass.path(name);
    pass.event(Event::warning(
        "RayClusterNotFound",
        "Validate",
        format!("RayCluster {path} set in the clusterSelector is not found. It must be created manually"),
    ));
    pass.wait_for(format!("RayCluster {path} of the clusterSelector"));
}

fn body(pass: &Pass<'_>, mode: Mode, attempt: &Attempt) -> Result<Value, SubmitterError> {
    let job = &pass.seen.job;
    let mut cluster = RayCluster::new(&attempt.cluster, job.spec.ray_cluster_spec.clone().unwrap_or_default());
    cluster.metadata.namespace = job.metadata.namespace.clone();
    cluster.metadata.owner_references = Some(vec![controller_reference(RayJob::KIND, &job.metadata)]);
    let mut labels = job.metadata.labels.clone().unwrap_or_default();
    labels.insert(labels::ORIGINATED_FROM_CR_NAME.to_owned(), pass.seen.name().to_owned());
    labels.insert(labels::ORIGINATED_FROM_CRD.to_owned(), "RayJob".to_owned());
    labels.insert(labels::JOB_SUBMISSION_MODE.to_owned(), mode.as_str().to_owned());
    cluster.metadata.labels = Some(labels);
    let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
    if mode == Mode::Sidecar {
        annotations.insert(annotation::DISABLE_HEAD_RESTART.to_owned(), "true".to_owned());
        let sidecar =
            Submitter { job, mode, cluster: &cluster, job_id: &attempt.job_id, dashboard_url: "", config: pass.config }
                .sidecar()?;
        let pod = cluster.spec.head_group_spec.template.spec.get_or_insert_with(PodSpec::default);
        pod.containers.push(sidecar);
        pod.restart_policy = Some("Never".to_owned());
    }
    cluster.metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
    if mode == Mode::K8sJob {
        // Only here the submitter is a Pod beside those of the cluster.
        scheduler::mark_cluster(job, pass.config, &mut cluster.metadata);
    }
    Ok(json!({
        "apiVersion": API_VERSION,
        "kind": RayCluster::KIND,
        "metadata": cluster.metadata,
        "spec": go::cluster_spec(&cluster.spec),
    }))
}
