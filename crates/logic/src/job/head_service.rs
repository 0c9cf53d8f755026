//! The RayJob's own head Service, which selects the cluster of the current attempt.

use super::Planner;
use crate::action::{Accept, Kind, Step};
use crate::build::owner_head_service;
use crate::cluster_spec::Creator;
use crate::labels;
use crate::reasons;
use manta_api::RayCluster;
use serde_json::json;

/// Creates the Service, or points it at the current cluster.
pub(super) fn plan(planner: &mut Planner<'_>, cluster: &RayCluster) {
    let service = owner_head_service(Creator::RayJob, &planner.seen.job.metadata, cluster, planner.config);
    let name = service.metadata.name.clone().unwrap_or_default();
    let key = planner.seen.key(Kind::Service, &name);
    let path = planner.seen.path(&name);
    let Some(existing) = &planner.seen.head_service else {
        return planner.then(
            Step::create(key, &service, "the job's head needs a stable name")
                .on_success(reasons::CREATED_SERVICE, format!("Created the service {path}"))
                .on_failure(reasons::FAILED_TO_CREATE_SERVICE, format!("Failed to create the service {path}, "))
                .accept(Accept::AlreadyExists),
        );
    };
    let wanted = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()?.get(labels::CLUSTER));
    if existing.spec.selector.get(labels::CLUSTER) == wanted.map(String::as_str) {
        return;
    }
    let mut spec = json!(service.spec);
    // The address stays: it is what makes the name stable.
    spec.as_object_mut().map(|spec| spec.remove("clusterIP"));
    let patch = json!({"metadata": {"resourceVersion": existing.metadata.resource_version}, "spec": spec});
    planner.then(
        Step::merge(key, patch, "the job runs on another cluster now")
            .on_success(reasons::UPDATED_SERVICE, format!("Updated the service {path}"))
            .on_failure(reasons::FAILED_TO_UPDATE_SERVICE, format!("Failed to update the service {path}, ")),
    );
}
