//! The RayCluster that a RayJob makes.

use super::Planner;
use super::mode::Mode;
use super::phase::Attempt;
use crate::action::{Accept, Event, Kind, Step};
use crate::build::owner::controller_reference;
use crate::build::submitter::{Submitter, SubmitterError};
use crate::go;
use crate::labels::{self, annotation};
use crate::reasons;
use crate::scheduler;
use k8s_openapi::api::core::v1::PodSpec;
use manta_api::{API_VERSION, RayCluster, RayJob};
use serde_json::{Value, json};

/// Creates the cluster. Returns whether it can be built.
pub(super) fn create(planner: &mut Planner<'_>, mode: Mode, attempt: &Attempt) -> bool {
    let name = &attempt.cluster;
    let path = planner.seen.path(name);
    let failed = |error: &str| format!("Failed to create RayCluster {path}: {error}");
    let body = match body(planner, mode, attempt) {
        Ok(body) => body,
        Err(error) => {
            planner.event(Event::warning(reasons::FAILED_TO_CREATE_RAY_CLUSTER, "Create", failed(&error.to_string())));
            planner.back_off();
            return false;
        }
    };
    planner.then(
        Step::create(planner.seen.key(Kind::RayCluster, name), &body, "the job needs a cluster")
            .on_success(reasons::CREATED_RAY_CLUSTER, format!("Created RayCluster {path}"))
            .on_failure(reasons::FAILED_TO_CREATE_RAY_CLUSTER, failed(""))
            // Only this attempt has the name, so the cluster is from an earlier pass that the watch does not show yet.
            .accept(Accept::AlreadyExists),
    );
    true
}

/// Warns that the cluster of `clusterSelector` is not there.
pub(super) fn report_missing(planner: &mut Planner<'_>, name: &str) {
    let path = planner.seen.path(name);
    planner.event(Event::warning(
        reasons::RAY_CLUSTER_NOT_FOUND,
        "Validate",
        format!("RayCluster {path} set in the clusterSelector is not found. It must be created manually"),
    ));
    planner.wait_for(format!("RayCluster {path} of the clusterSelector"));
}

fn body(planner: &Planner<'_>, mode: Mode, attempt: &Attempt) -> Result<Value, SubmitterError> {
    let job = &planner.seen.job;
    let mut cluster = RayCluster::new(&attempt.cluster, job.spec.ray_cluster_spec.clone().unwrap_or_default());
    cluster.metadata.namespace = job.metadata.namespace.clone();
    cluster.metadata.owner_references = Some(vec![controller_reference(RayJob::KIND, &job.metadata)]);
    let mut labels = job.metadata.labels.clone().unwrap_or_default();
    labels.insert(labels::ORIGINATED_FROM_CR_NAME.to_owned(), planner.seen.name().to_owned());
    labels.insert(labels::ORIGINATED_FROM_CRD.to_owned(), "RayJob".to_owned());
    labels.insert(labels::JOB_SUBMISSION_MODE.to_owned(), mode.as_str().to_owned());
    cluster.metadata.labels = Some(labels);
    let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
    if mode == Mode::Sidecar {
        annotations.insert(annotation::DISABLE_HEAD_RESTART.to_owned(), "true".to_owned());
        let sidecar = Submitter {
            job,
            mode,
            cluster: &cluster,
            job_id: &attempt.job_id,
            dashboard_url: "",
            config: planner.config,
        }
        .sidecar()?;
        let pod = cluster.spec.head_group_spec.template.spec.get_or_insert_with(PodSpec::default);
        pod.containers.push(sidecar);
        pod.restart_policy = Some("Never".to_owned());
    }
    cluster.metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
    if mode == Mode::K8sJob {
        // Only here the submitter is a Pod beside those of the cluster.
        scheduler::mark_cluster(job, planner.config, &mut cluster.metadata);
    }
    Ok(json!({
        "apiVersion": API_VERSION,
        "kind": RayCluster::KIND,
        "metadata": cluster.metadata,
        "spec": go::cluster_spec(&cluster.spec),
    }))
}
