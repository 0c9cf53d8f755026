//! The RayJob's own head Service, which leads to whatever cluster the job runs on now.

use super::plan::Pass;
use crate::action::{Accept, Action, Body, Event, Kind, ObjectKey, Step};
use crate::build::cluster_facts::Creator;
use crate::build::owner_head_service;
use crate::labels;
use manta_api::RayCluster;
use serde_json::{Value, json};

/// Makes the Service, or turns it to the current cluster.
pub(super) fn plan(pass: &mut Pass<'_>, cluster: &RayCluster) {
    let service = owner_head_service(Creator::RayJob, &pass.seen.job.metadata, cluster, pass.config);
    let name = service.metadata.name.clone().unwrap_or_default();
    let key = ObjectKey::new(Kind::Service, pass.seen.namespace(), &name);
    let path = pass.path(&name);
    let Some(existing) = &pass.seen.head_service else {
        let body = serde_json::to_value(&service).unwrap_or_default();
        let step = Step::new(Action::Create { key, body: Body::of(&body) }, "the job's head needs a stable name")
            .done(Event::normal("CreatedService", "Create", format!("Created the service {path}")))
            .failed(Event::warning("FailedToCreateService", "Create", format!("Failed to create the service {path}, ")))
            .accept(Accept::AlreadyExists);
        pass.then(step);
        return;
    };
    let wanted = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()?.get(labels::CLUSTER));
    if existing.spec.selector.get(labels::CLUSTER) == wanted.map(String::as_str) {
        return;
    }
    let mut spec = service.spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok()).unwrap_or_default();
    // The address stays: it is what makes the name stable.
    spec.as_object_mut().map(|spec| spec.remove("clusterIP"));
    let patch: Value = json!({"metadata": {"resourceVersion": existing.metadata.resource_version}, "spec": spec});
    let step = Step::new(Action::Merge { key, patch: Box::new(patch) }, "the job runs on another cluster now")
        .done(Event::normal("UpdatedService", "Update", format!("Updated the service {path}")))
        .failed(Event::warning("FailedToUpdateService", "Update", format!("Failed to update the service {path}, ")));
    pass.then(step);
}
