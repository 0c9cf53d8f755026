//! Clusters that belong to no slot go, after a delay; and the finalizer that waits for them.
//!
//! The moment is written on the cluster itself, so that a restart of the operator does not begin the delay anew.

use super::plan::{Pass, name_of};
use super::{conditions, services};
use crate::action::{Accept, Action, Event, Kind, Step};
use crate::build::cluster_facts as facts;
use crate::go::{Root, to_go_value};
use crate::labels::annotation::DELETE_AFTER;
use crate::labels::{CLUSTER, finalizer};
use jiff::{SignedDuration, Timestamp};
use manta_api::RayCluster;
use serde_json::{Value, json};

/// The delay, if the spec names none.
const DELAY: i32 = 60;
/// How much longer a cluster may stay because requests still reach it.
const DRAINING: SignedDuration = SignedDuration::from_secs(60);

/// Lets go of the clusters that are in no slot, or of all if the RayService is being deleted.
pub(super) fn plan(pass: &mut Pass<'_>) {
    let seen = pass.seen;
    let deleting = seen.service.metadata.deletion_timestamp.is_some();
    if !deleting && conditions::is_true(&pass.status, conditions::SUSPENDING) {
        return;
    }
    let status = seen.service.status.as_ref();
    let slots = [
        status.and_then(|status| name_of(&status.active_service_status)),
        status.and_then(|status| name_of(&status.pending_service_status)),
    ];
    for cluster in &seen.clusters {
        let name = facts::name(cluster);
        let leaving = cluster.metadata.deletion_timestamp.is_some();
        if leaving || (slots.contains(&Some(name)) && !deleting) {
            continue;
        }
        if deleting {
            pass.in_the_end(delete(pass, cluster, "the RayService is being deleted", ""));
            continue;
        }
        let moment = facts::annotation(cluster, DELETE_AFTER).and_then(|text| text.parse::<Timestamp>().ok());
        match moment {
            None => schedule(pass, name),
            Some(moment) if !pass.is_past(moment) => {}
            Some(_) if is_selected(pass, name) => {
                pass.wait_for(format!("the Services to lead to another cluster than {}", seen.path(name)));
            }
            Some(moment)
                if is_reached(pass, name) && !pass.is_past(moment.saturating_add(DRAINING).unwrap_or(moment)) =>
            {
                pass.wait_for(format!("RayCluster {} to drain", seen.path(name)));
            }
            Some(_) => pass.in_the_end(delete(pass, cluster, "another cluster has taken its place", "")),
        }
    }
}

/// Deletes a cluster of the RayService. `when` ends the event, e.g. ` during suspend`.
pub(super) fn delete(pass: &Pass<'_>, cluster: &RayCluster, why: &str, when: &str) -> Step {
    let name = facts::name(cluster);
    let path = pass.seen.path(name);
    let key = pass.key(Kind::RayCluster, name);
    let action = Action::Delete { key, uid: facts::uid(cluster).to_owned(), force: false };
    let note = format!("Deleted the RayCluster {path}{when}");
    let failure = format!("Failed to delete the RayCluster {path}{when}: ");
    Step::new(action, why)
        .done(Event::normal("DeletedRayCluster", "Delete", note))
        .failed(Event::warning("FailedToDeleteRayCluster", "Delete", failure))
        .accept(Accept::NotFound)
}

/// Writes down when a cluster may go.
fn schedule(pass: &mut Pass<'_>, name: &str) {
    let delay = pass.seen.service.spec.ray_cluster_deletion_delay_seconds.unwrap_or(DELAY).max(0);
    let moment = pass.now.saturating_add(SignedDuration::from_secs(delay.into())).unwrap_or(pass.now);
    let patch = json!({"metadata": {"annotations": {DELETE_AFTER: moment.to_string()}}});
    let action = Action::Merge { key: pass.key(Kind::RayCluster, name), patch: Box::new(patch) };
    pass.in_the_end(Step::new(action, "the cluster is in use no more").accept(Accept::NotFound));
}

/// Whether a Service still leads to a cluster: then nobody has taken its place, whatever the status says.
fn is_selected(pass: &Pass<'_>, name: &str) -> bool {
    let seen = pass.seen;
    let own = [crate::names::owner_head_service(seen.name()), services::serve_name(&seen.service)];
    let services = own.iter().filter_map(|service| seen.service(service));
    services.into_iter().any(|service| service.spec.selector.get(CLUSTER) == Some(name))
}

/// Whether requests may still come to a cluster: a Service or the route leads there, or its Pods are endpoints.
fn is_reached(pass: &Pass<'_>, name: &str) -> bool {
    let seen = pass.seen;
    let serve = services::serve_name(&seen.service);
    let mut uids =
        seen.pods.iter().filter(|pod| pod.metadata.label(CLUSTER) == Some(name)).map(|pod| &pod.metadata.uid);
    let is_endpoint = |uid: &String| {
        let slices = seen.slices.iter().filter(|slice| slice.service() == Some(serve.as_str()));
        slices.flat_map(|slice| &slice.endpoints).any(|endpoint| endpoint.uid() == Some(uid))
    };
    let own = crate::names::serve_service(name);
    let in_route = seen.http_route.as_ref().is_some_and(|route| {
        let rules = route.object["spec"]["rules"].as_array().into_iter().flatten();
        rules
            .flat_map(|rule| rule["backendRefs"].as_array().into_iter().flatten())
            .any(|backend| backend["name"] == own)
    });
    in_route || uids.any(is_endpoint)
}

/// Adds the finalizer. Answers whether it was missing.
pub(super) fn add_finalizer(pass: &mut Pass<'_>) -> bool {
    let service = &pass.seen.service;
    let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|name| name == finalizer::RAY_SERVICE) {
        return false;
    }
    finalizers.push(finalizer::RAY_SERVICE.to_owned());
    // KubeRay writes the whole object here, which leaves Go's empty structs in the spec, and drops empty texts.
    let before = json!({"spec": service.spec});
    let after = to_go_value(&before, Root::RayService);
    let patch = json!({
        "metadata": {"finalizers": finalizers, "resourceVersion": service.metadata.resource_version},
        "spec": turning(&before["spec"], &after["spec"]),
    });
    let action = Action::Merge { key: pass.key(Kind::RayService, pass.seen.name()), patch: Box::new(patch) };
    pass.then(Step::new(action, "its clusters must go before the RayService does"));
    pass.wait_for("the finalizer to be stored");
    true
}

/// The merge patch that turns one value into the other.
fn turning(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else { return after.clone() };
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept = after.iter().map(|(key, value)| (key.clone(), turning(before.get(key).unwrap_or(&Value::Null), value)));
    gone.chain(kept).collect()
}

/// Removes the finalizer once no cluster is left.
pub(super) fn release(pass: &mut Pass<'_>) {
    let service = &pass.seen.service;
    let finalizers = service.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|name| name == finalizer::RAY_SERVICE) {
        return;
    }
    if !pass.seen.clusters.is_empty() {
        pass.wait_for("its RayClusters to be deleted");
        return;
    }
    let left: Vec<_> = finalizers.into_iter().filter(|name| name != finalizer::RAY_SERVICE).collect();
    let patch = json!({"metadata": {"finalizers": left, "resourceVersion": service.metadata.resource_version}});
    let action = Action::Merge { key: pass.key(Kind::RayService, pass.seen.name()), patch: Box::new(patch) };
    pass.then(Step::new(action, "no cluster of the RayService is left").accept(Accept::NotFound));
}
