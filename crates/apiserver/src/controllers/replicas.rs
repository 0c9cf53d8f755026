//! ReplicaSets and Deployments on one node.
//!
//! A ReplicaSet keeps its number of pods. A Deployment keeps one ReplicaSet per template: the new one is
//! brought up in full, and the old ones go down once it is available. There is no surge.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{BURST, Informer, Worker, controller_of, has_condition, int, is_scheduled, owner_reference, record};
use crate::ops::{Cluster, DeleteOptions, Target, WriteOptions};
use crate::store::{Change, Entry, Event, ListRange, ObjectKey, Uid};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

type Keys = BTreeSet<(Box<str>, Box<str>)>;

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut deployments = Informer::new(&cluster, "deployments.apps");
    let mut sets = Informer::new(&cluster, "replicasets.apps");
    let mut pods = Informer::new(&cluster, "pods");
    loop {
        let (mut due_deployments, mut due_sets): (Keys, Keys) = Default::default();
        tokio::select! {
            biased;
            events = deployments.next() => due_deployments.extend(events.iter().map(|event| key(&event.entry))),
            events = sets.next() => {
                due_sets.extend(events.iter().map(|event| key(&event.entry)));
                due_deployments.extend(events.iter().filter_map(|event| owner(event, "Deployment")));
            }
            events = pods.next() => {
                // Only pods from templates carry this label, so others are not even parsed.
                let ours = events.iter().filter(|event| !event.entry.owners.is_empty() && event.entry.label("batch.kubernetes.io/job-name").is_none());
                for event in ours {
                    let Some(set) = owner(event, "ReplicaSet") else { continue };
                    if event.change == Change::Deleted {
                        due_deployments.extend(deployment_of(&cluster, &set));
                    }
                    due_sets.insert(set);
                }
            }
        }
        for (namespace, name) in due_sets {
            let key = ObjectKey { namespace, name };
            worker.handle("replicasets.apps", &key, || sync_set(&cluster, &key.namespace, &key.name));
        }
        for (namespace, name) in due_deployments {
            let key = ObjectKey { namespace, name };
            worker.handle("deployments.apps", &key, || sync_deployment(&cluster, &key.namespace, &key.name));
        }
    }
}

fn key(entry: &Entry) -> (Box<str>, Box<str>) {
    (entry.key.namespace.clone(), entry.key.name.clone())
}

fn owner(event: &Arc<Event>, kind: &str) -> Option<(Box<str>, Box<str>)> {
    let value = event.entry.value();
    let owner = controller_of(&value).filter(|owner| owner["kind"] == kind && owner["apiVersion"] == "apps/v1")?;
    Some((event.entry.key.namespace.clone(), owner["name"].as_str()?.into()))
}

/// Returns the Deployment of a ReplicaSet.
fn deployment_of(cluster: &Cluster, set: &(Box<str>, Box<str>)) -> Option<(Box<str>, Box<str>)> {
    let key = ObjectKey { namespace: set.0.clone(), name: set.1.clone() };
    let set = cluster.store.get("replicasets.apps", &key)?.value();
    let owner = controller_of(&set).filter(|owner| owner["kind"] == "Deployment")?;
    Some((key.namespace, owner["name"].as_str()?.into()))
}

/// Returns the objects of a table whose controller is `owner`.
fn managed(cluster: &Cluster, table: &str, namespace: &str, owner: &Value) -> Vec<Value> {
    let uid = &owner["metadata"]["uid"];
    let wanted = Uid::parse(uid.as_str().unwrap_or(""));
    let span = ListRange { namespace: Some(namespace), ..ListRange::default() };
    let page = cluster.store.list(table, &span, |entry| entry.owners.contains(&wanted));
    let values = page.map(|page| page.entries).unwrap_or_default().into_iter().map(|entry| entry.value());
    values.filter(|value| controller_of(value).is_some_and(|owner| owner["uid"] == *uid)).collect()
}

fn sync_set(cluster: &Cluster, namespace: &str, name: &str) {
    let sets = cluster.registry.builtin("apps", "replicasets");
    let target = Target { resource: &sets, namespace, name };
    let Ok(entry) = cluster.get(target) else { return };
    if entry.deleting {
        return;
    }
    let set = entry.value();
    let mut pods = managed(cluster, "pods", namespace, &set);
    pods.retain(|pod| !pod["metadata"]["deletionTimestamp"].is_string() && is_unfinished(pod));
    let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0);
    let resource = cluster.registry.builtin("", "pods");
    let unscheduled = pods.iter().filter(|pod| !is_scheduled(pod)).count();
    let most = pods.len().saturating_add(BURST.saturating_sub(unscheduled));
    for _ in pods.len()..wanted.min(most) {
        let template = &set["spec"]["template"];
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["generateName"] = format!("{name}-").into();
        pod["metadata"]["ownerReferences"] = json!([owner_reference(&set)]);
        match cluster.create(&resource, namespace, pod, &WriteOptions::default()) {
            Ok(written) => {
                let message = format!("Created pod: {}", written.entry.key.name);
                record(cluster, &set, "replicaset-controller", "Normal", "SuccessfulCreate", &message);
                pods.push(written.entry.value());
            }
            Err(error) => {
                let message = format!("Error creating: {error}");
                record(cluster, &set, "replicaset-controller", "Warning", "FailedCreate", &message);
                break;
            }
        }
    }
    // Those that serve nobody yet go first.
    pods.sort_by_key(|pod| !has_condition(pod, "Ready"));
    for pod in pods.split_off(wanted.min(pods.len())) {
        let pod = pod["metadata"]["name"].as_str().unwrap_or("");
        if cluster.delete(Target { resource: &resource, namespace, name: pod }, &DeleteOptions::default()).is_ok() {
            let message = format!("Deleted pod: {pod}");
            record(cluster, &set, "replicaset-controller", "Normal", "SuccessfulDelete", &message);
        }
    }
    let ready = pods.iter().filter(|pod| has_condition(pod, "Ready")).count();
    let mut status = json!({"replicas": pods.len(), "observedGeneration": set["metadata"]["generation"]});
    for (name, number) in [("fullyLabeledReplicas", pods.len()), ("readyReplicas", ready), ("availableReplicas", ready)]
    {
        if number > 0 {
            status[name] = number.into();
        }
    }
    write_status(cluster, target, &set, status);
}

fn sync_deployment(cluster: &Cluster, namespace: &str, name: &str) {
    let deployments = cluster.registry.builtin("apps", "deployments");
    let target = Target { resource: &deployments, namespace, name };
    let Ok(entry) = cluster.get(target) else { return };
    if entry.deleting {
        return;
    }
    let deployment = entry.value();
    let sets = managed(cluster, "replicasets.apps", namespace, &deployment);
    let (current, old): (Vec<Value>, Vec<Value>) =
        sets.into_iter().partition(|set| same_template(&set["spec"]["template"], &deployment["spec"]["template"]));
    // With Recreate the new pods wait until the old ones are gone.
    if deployment["spec"]["strategy"]["type"] == "Recreate" {
        let left = old.iter().any(|set| managed(cluster, "pods", namespace, set).iter().any(is_unfinished));
        for set in old.iter().filter(|set| int(&set["spec"]["replicas"]) > 0) {
            scale(cluster, namespace, set, 0);
        }
        if left {
            return;
        }
    }
    let current = match current.into_iter().next() {
        Some(set) => set,
        None => match make_set(cluster, namespace, &deployment, &old) {
            Some(set) => set,
            None => return,
        },
    };
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    scale(cluster, namespace, &current, wanted);
    let available = int(&current["status"]["availableReplicas"]);
    if available >= wanted {
        for set in old.iter().filter(|set| int(&set["spec"]["replicas"]) > 0) {
            scale(cluster, namespace, set, 0);
        }
    }
    let all: Vec<&Value> = old.iter().chain([&current]).collect();
    let sum = |key: &str| all.iter().map(|set| int(&set["status"][key])).fold(0, i64::saturating_add);
    let mut status = json!({"observedGeneration": deployment["metadata"]["generation"]});
    let numbers = [
        ("replicas", sum("replicas")),
        ("updatedReplicas", int(&current["status"]["replicas"])),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", sum("availableReplicas")),
        ("unavailableReplicas", wanted.saturating_sub(sum("availableReplicas")).max(0)),
    ];
    for (name, number) in numbers {
        if number > 0 {
            status[name] = number.into();
        }
    }
    let done = available >= wanted && sum("replicas") == wanted;
    let enough = available >= wanted - (wanted / 4).max(0);
    let set_name = current["metadata"]["name"].as_str().unwrap_or("");
    let conditions = [
        match enough {
            true => {
                ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.".to_owned())
            }
            false => (
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.".into(),
            ),
        },
        match done {
            true => (
                "Progressing",
                "True",
                "NewReplicaSetAvailable",
                format!("ReplicaSet {set_name:?} has successfully progressed."),
            ),
            false => ("Progressing", "True", "ReplicaSetUpdated", format!("ReplicaSet {set_name:?} is progressing.")),
        },
    ];
    let now = cluster.clock.stamp();
    let known: Vec<Value> = deployment["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let conditions: Vec<Value> = conditions
        .into_iter()
        .map(|(kind, value, reason, message)| {
            let before = known.iter().find(|one| one["type"] == kind);
            let kept = |key: &str, same: bool| match before.filter(|_| same) {
                Some(before) => before[key].clone(),
                None => now.as_str().into(),
            };
            let steady = before.is_some_and(|before| before["status"] == value);
            let same = steady && before.is_some_and(|before| before["reason"] == reason && before["message"] == message.as_str());
            json!({"type": kind, "status": value, "reason": reason, "message": message,
                "lastTransitionTime": kept("lastTransitionTime", steady), "lastUpdateTime": kept("lastUpdateTime", same)})
        })
        .collect();
    status["conditions"] = conditions.into();
    write_status(cluster, target, &deployment, status);
}

fn is_unfinished(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn same_template(set: &Value, wanted: &Value) -> bool {
    let mut set = set.clone();
    if let Some(labels) = set["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    set == *wanted
}

fn make_set(cluster: &Cluster, namespace: &str, deployment: &Value, old: &[Value]) -> Option<Value> {
    let template = &deployment["spec"]["template"];
    let mut hasher = std::hash::DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    let hash = crate::clock::safe_encode(hasher.finish(), 10);
    let revision = old
        .iter()
        .filter_map(|set| set["metadata"]["annotations"][REVISION].as_str()?.parse::<u64>().ok())
        .max()
        .unwrap_or(0)
        .saturating_add(1);
    let name = deployment["metadata"]["name"].as_str().unwrap_or("");
    let mut template = template.clone();
    template["metadata"]["labels"][HASH] = hash.as_str().into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = hash.as_str().into();
    let set = json!({
        "metadata": {
            "name": format!("{name}-{hash}"),
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision.to_string()},
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {"replicas": deployment["spec"]["replicas"], "selector": selector, "template": template},
    });
    let sets = cluster.registry.builtin("apps", "replicasets");
    match cluster.create(&sets, namespace, set, &WriteOptions::default()) {
        Ok(written) => {
            let message =
                format!("Scaled up replica set {name}-{hash} from 0 to {}", int(&deployment["spec"]["replicas"]));
            if int(&deployment["spec"]["replicas"]) > 0 {
                record(cluster, deployment, "deployment-controller", "Normal", "ScalingReplicaSet", &message);
            }
            let deployments = cluster.registry.builtin("apps", "deployments");
            let noted = cluster.edit(Target { resource: &deployments, namespace, name }, |deployment| {
                if !deployment["metadata"]["annotations"].is_object() {
                    deployment["metadata"]["annotations"] = json!({});
                }
                deployment["metadata"]["annotations"][REVISION] = revision.to_string().into();
            });
            if let Err(error) = noted {
                tracing::debug!(%error, name, "cannot record the revision of a Deployment");
            }
            Some(written.entry.value())
        }
        Err(error) => {
            tracing::warn!(%error, name, "cannot create a replica set");
            None
        }
    }
}

fn scale(cluster: &Cluster, namespace: &str, set: &Value, replicas: i64) {
    if int(&set["spec"]["replicas"]) == replicas {
        return;
    }
    let sets = cluster.registry.builtin("apps", "replicasets");
    let name = set["metadata"]["name"].as_str().unwrap_or("");
    let target = Target { resource: &sets, namespace, name };
    let scaled = cluster.edit(target, |set| set["spec"]["replicas"] = replicas.into());
    if let Err(error) = scaled {
        tracing::warn!(%error, name, "cannot scale a replica set");
    }
}

fn write_status(cluster: &Cluster, target: Target<'_>, seen: &Value, status: Value) {
    if seen["status"] == status {
        return;
    }
    if let Err(error) = cluster.edit_status(target, |value| value["status"] = status.clone()) {
        tracing::debug!(%error, name = target.name, "cannot write a status");
    }
}
