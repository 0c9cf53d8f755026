//! Keeps the ReplicaSets of one Deployment: one per template, the newest of which gets the pods.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::adoption::claim;
use super::super::{controller_of, int, owner_reference, record};
use super::rollout::{self, Bounds, DESIRED, MAXIMUM, Size};
use super::{Incomplete, Outcome, REPLICA_SETS, set_condition, write_status};
use crate::clock::add_seconds;
use crate::error::ApiError;
use crate::ops::{Cluster, DeleteOptions, Target, WriteOptions};
use crate::selector::{LabelRule, labels_match};
use crate::store::{Change, Entry, Event, ListRange, ObjectKey};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The annotations of a Deployment that its ReplicaSets do not inherit.
const OWN_ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
];

/// Returns the Deployments that an event of a ReplicaSet concerns.
pub(super) fn deployments_of(cluster: &Cluster, event: &Arc<Event>) -> Vec<ObjectKey> {
    let mut found: Vec<ObjectKey> =
        [Some(&event.entry), event.before.as_ref()].into_iter().flatten().filter_map(|entry| owner_of(entry)).collect();
    found.dedup();
    if event.entry.owners.is_empty() && event.change != Change::Deleted {
        let range = ListRange { namespace: Some(&event.entry.key.namespace), ..ListRange::default() };
        let matches = |deployment: &Entry| {
            let rules = LabelRule::from_object(&deployment.value()["spec"]["selector"]);
            !rules.is_empty() && labels_match(&rules, &event.entry)
        };
        let adopters = cluster.store.list("deployments.apps", &range, matches);
        let adopters = adopters.map(|page| page.entries).unwrap_or_default();
        found.extend(adopters.iter().map(|deployment| ObjectKey::clone(&deployment.key)));
    }
    found
}

fn owner_of(entry: &Entry) -> Option<ObjectKey> {
    if entry.owners.is_empty() {
        return None;
    }
    let value = entry.value();
    let owner = controller_of(&value).filter(|owner| owner["kind"] == "Deployment")?;
    Some(ObjectKey { namespace: entry.key.namespace.clone(), name: owner["name"].as_str()?.into() })
}

/// Returns the Deployment of a ReplicaSet.
pub(super) fn deployment_of(cluster: &Cluster, set: &ObjectKey) -> Option<ObjectKey> {
    owner_of(&*cluster.store.get("replicasets.apps", set)?)
}

/// A Deployment and its ReplicaSets.
struct Rollout<'a> {
    cluster: &'a Cluster,
    key: &'a ObjectKey,
    deployment: Value,
    bounds: Bounds,
    /// The ReplicaSet of the current template.
    new: Option<Value>,
    /// The others, oldest first.
    old: Vec<Value>,
    created: bool,
}

/// Reconciles one Deployment.
pub(super) fn sync(cluster: &Cluster, key: &ObjectKey) -> Outcome {
    let resource = cluster.registry.builtin("apps", "deployments");
    let Ok(entry) = cluster.get(Target { resource: &resource, namespace: &key.namespace, name: &key.name }) else {
        return Ok(None);
    };
    let deployment = entry.value();
    let sets = REPLICA_SETS.resource(cluster);
    let rules = LabelRule::from_object(&deployment["spec"]["selector"]);
    let mut owned = claim(cluster, &sets, &deployment, &rules, |_, _| ());
    owned.sort_by_cached_key(|set| {
        let text = |key: &str| set["metadata"][key].as_str().unwrap_or("").to_owned();
        (text("creationTimestamp"), text("name"))
    });
    let is_current = |set: &Value| same_template(&set["spec"]["template"], &deployment["spec"]["template"]);
    let at = owned.iter().position(is_current);
    let new = at.map(|at| owned.remove(at));
    let bounds = Bounds::of(&deployment);
    let mut rollout = Rollout { cluster, key, deployment, bounds, new, old: owned, created: false };
    let done = if entry.deleting { Ok(()) } else { rollout.advance() };
    let wake = rollout.report(&resource);
    match done {
        Ok(()) => Ok(wake),
        Err(error) => {
            tracing::debug!(%error, name = &*key.name, "cannot reconcile a Deployment yet");
            Err(Incomplete(wake))
        }
    }
}

impl Rollout<'_> {
    fn sets(&self) -> impl Iterator<Item = &Value> {
        self.old.iter().chain(&self.new)
    }

    fn sum(&self, key: &str) -> i64 {
        self.sets().map(|set| int(&set["status"][key])).fold(0, i64::saturating_add)
    }

    fn wanted(&self) -> i64 {
        self.sets().map(|set| int(&set["spec"]["replicas"])).fold(0, i64::saturating_add)
    }

    fn is_rolling(&self) -> bool {
        self.deployment["spec"]["strategy"]["type"] != "Recreate"
    }

    /// Takes the next step of the rollout.
    fn advance(&mut self) -> Result<(), ApiError> {
        let paused = self.deployment["spec"]["paused"] == true;
        if self.new.is_some() {
            self.keep_new()?;
        }
        if paused || self.is_resized() {
            self.rescale()?;
            return if paused { self.clean_up() } else { Ok(()) };
        }
        if self.is_rolling() {
            self.roll()?
        } else {
            self.recreate()?
        }
        if self.is_complete() { self.clean_up() } else { Ok(()) }
    }

    fn roll(&mut self) -> Result<(), ApiError> {
        if self.new.is_none() {
            let size = rollout::grow(&self.bounds, true, 0, self.wanted());
            return self.make_new(size);
        }
        let new = self.new.clone().unwrap_or_default();
        let size = rollout::grow(&self.bounds, true, int(&new["spec"]["replicas"]), self.wanted());
        if self.resize(&new, size)? {
            return Ok(());
        }
        let old: Vec<Size> = self.old.iter().map(Size::of).collect();
        for (set, size) in self.old.clone().iter().zip(rollout::shrink(&self.bounds, &Size::of(&new), &old)) {
            self.resize(set, size)?;
        }
        Ok(())
    }

    /// Stops the old pods, and starts the new ones once the last of them is gone.
    fn recreate(&mut self) -> Result<(), ApiError> {
        let mut scaled = false;
        for set in self.old.clone() {
            scaled |= self.resize(&set, 0)?;
        }
        if scaled || self.old.iter().any(|set| self.has_pods(set)) {
            return Ok(());
        }
        match self.new.clone() {
            None => self.make_new(self.bounds.replicas),
            Some(new) => self.resize(&new, self.bounds.replicas).map(|_| ()),
        }
    }

    fn has_pods(&self, set: &Value) -> bool {
        let uid = &set["metadata"]["uid"];
        let wanted = crate::store::Uid::parse(uid.as_str().unwrap_or(""));
        let pods = self.cluster.store.dependents(wanted);
        let pods = pods.iter().filter(|(table, _)| &**table == "pods");
        let pods = pods.filter_map(|(_, key)| self.cluster.store.get("pods", key));
        pods.map(|pod| pod.value()).any(|pod| super::set::is_unfinished(&pod))
    }

    /// Returns whether the number of replicas has changed since the sets were last scaled.
    fn is_resized(&self) -> bool {
        self.sets().filter(|set| int(&set["spec"]["replicas"]) > 0).any(|set| {
            let desired = set["metadata"]["annotations"][DESIRED].as_str().and_then(|text| text.parse::<i64>().ok());
            desired.is_some_and(|desired| desired != self.bounds.replicas)
        })
    }

    /// Brings the sets to a changed number of replicas: the only active one, or all of them in proportion.
    fn rescale(&mut self) -> Result<(), ApiError> {
        let is_active = |set: &&Value| int(&set["spec"]["replicas"]) > 0;
        let active: Vec<Value> = self.sets().filter(is_active).cloned().collect();
        let only = match active.as_slice() {
            [] => self.new.clone().or_else(|| self.old.last().cloned()),
            [only] => Some(only.clone()),
            _ => None,
        };
        if let Some(only) = only {
            return self.resize(&only, self.bounds.replicas).map(|_| ());
        }
        if self.new.as_ref().is_some_and(|new| self.is_saturated(new)) {
            for set in self.old.clone().iter().filter(is_active) {
                self.resize(set, 0)?;
            }
            return Ok(());
        }
        if !self.is_rolling() {
            return Ok(());
        }
        let mut order = active;
        let grows = self.bounds.maximum() > self.wanted();
        // The largest first; of two that are as large the newer when growing, the older when shrinking.
        if grows {
            order.reverse();
        }
        order.sort_by_key(|set| std::cmp::Reverse(int(&set["spec"]["replicas"])));
        let sizes: Vec<Size> = order.iter().map(Size::of).collect();
        let current = int(&self.deployment["status"]["replicas"]);
        for (set, size) in order.iter().zip(rollout::scale(&self.bounds, current, &sizes)) {
            self.resize(set, size)?;
        }
        Ok(())
    }

    fn is_saturated(&self, set: &Value) -> bool {
        let desired = set["metadata"]["annotations"][DESIRED].as_str().and_then(|text| text.parse::<i64>().ok());
        int(&set["spec"]["replicas"]) == self.bounds.replicas
            && desired == Some(self.bounds.replicas)
            && int(&set["status"]["availableReplicas"]) == self.bounds.replicas
    }

    /// Resizes a set and notes the size of the Deployment on it; returns whether its number of replicas changed.
    fn resize(&mut self, set: &Value, size: i64) -> Result<bool, ApiError> {
        let before = int(&set["spec"]["replicas"]);
        let notes = self.size_notes();
        let noted = notes.iter().all(|(key, value)| set["metadata"]["annotations"][key.as_str()] == *value);
        if before == size && (noted || size == 0) {
            return Ok(false);
        }
        let name = set["metadata"]["name"].as_str().unwrap_or("");
        let changed = self.edit_set(name, |set| {
            set["spec"]["replicas"] = size.into();
            annotate(set, &notes);
        })?;
        if before != size {
            let way = if size > before { "up" } else { "down" };
            let message = format!("Scaled {way} replica set {name} from {before} to {size}");
            record(self.cluster, &self.deployment, "deployment-controller", "Normal", "ScalingReplicaSet", &message);
        }
        for known in self.old.iter_mut().chain(&mut self.new) {
            if known["metadata"]["uid"] == changed["metadata"]["uid"] {
                *known = changed.clone();
            }
        }
        Ok(before != size)
    }

    fn edit_set(&self, name: &str, change: impl FnMut(&mut Value)) -> Result<Value, ApiError> {
        let sets = REPLICA_SETS.resource(self.cluster);
        let target = Target { resource: &sets, namespace: &self.key.namespace, name };
        self.cluster.edit(target, change).map(|written| written.entry.value())
    }

    fn size_notes(&self) -> Map<String, Value> {
        let mut notes = Map::new();
        notes.insert(DESIRED.into(), self.bounds.replicas.to_string().into());
        notes.insert(MAXIMUM.into(), self.bounds.maximum().to_string().into());
        notes
    }

    /// Returns the revision of the current template.
    fn revision(&self) -> u64 {
        let known = |set: &Value| set["metadata"]["annotations"][REVISION].as_str()?.parse::<u64>().ok();
        let next = self.old.iter().filter_map(known).max().unwrap_or(0).saturating_add(1);
        self.new.as_ref().and_then(known).map_or(next, |revision| revision.max(next))
    }

    /// Returns the annotations that the current set inherits.
    fn inherited(&self, revision: u64) -> Map<String, Value> {
        let all = self.deployment["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        let mut kept: Map<String, Value> =
            all.into_iter().filter(|(key, _)| !OWN_ANNOTATIONS.contains(&key.as_str())).collect();
        kept.insert(REVISION.into(), revision.to_string().into());
        kept
    }

    /// Brings revision, annotations and `minReadySeconds` of the current set up to date.
    fn keep_new(&mut self) -> Result<(), ApiError> {
        let Some(new) = self.new.clone() else { return Ok(()) };
        let revision = self.revision();
        let wanted = self.inherited(revision);
        let annotations = &new["metadata"]["annotations"];
        let settle = int(&self.deployment["spec"]["minReadySeconds"]);
        let current = wanted.iter().all(|(key, value)| annotations[key.as_str()] == *value);
        if !current || int(&new["spec"]["minReadySeconds"]) != settle {
            let before = annotations[REVISION].as_str().map(str::to_owned);
            let name = new["metadata"]["name"].as_str().unwrap_or("");
            let changed = self.edit_set(name, |set| {
                if let Some(before) = before.as_deref().filter(|before| *before != revision.to_string()) {
                    let history = set["metadata"]["annotations"][HISTORY].as_str().unwrap_or("");
                    let history = if history.is_empty() { before.to_owned() } else { format!("{history},{before}") };
                    set["metadata"]["annotations"][HISTORY] = history.into();
                }
                annotate(set, &wanted);
                set["spec"]["minReadySeconds"] = settle.into();
                if settle == 0 {
                    set["spec"].as_object_mut().map(|spec| spec.remove("minReadySeconds"));
                }
            })?;
            self.new = Some(changed);
        }
        self.note_revision(revision)
    }

    fn note_revision(&mut self, revision: u64) -> Result<(), ApiError> {
        let text = revision.to_string();
        if self.deployment["metadata"]["annotations"][REVISION] == text.as_str() {
            return Ok(());
        }
        let deployments = self.cluster.registry.builtin("apps", "deployments");
        let target = Target { resource: &deployments, namespace: &self.key.namespace, name: &self.key.name };
        let note = Map::from_iter([(REVISION.to_owned(), Value::from(text))]);
        let written = self.cluster.edit(target, |deployment| annotate(deployment, &note))?;
        self.deployment = written.entry.value();
        Ok(())
    }

    /// Creates the ReplicaSet of the current template.
    fn make_new(&mut self, size: i64) -> Result<(), ApiError> {
        let deployment = &self.deployment;
        let collisions = int(&deployment["status"]["collisionCount"]);
        let hash = template_hash(&deployment["spec"]["template"], collisions);
        let revision = self.revision();
        let name = format!("{}-{hash}", self.key.name);
        let mut template = deployment["spec"]["template"].clone();
        template["metadata"]["labels"][HASH] = hash.as_str().into();
        let mut selector = deployment["spec"]["selector"].clone();
        selector["matchLabels"][HASH] = hash.as_str().into();
        let mut annotations = self.inherited(revision);
        annotations.extend(self.size_notes());
        let mut set = json!({
            "metadata": {
                "name": name,
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": [owner_reference(deployment)],
            },
            "spec": {"replicas": size, "selector": selector, "template": template},
        });
        let settle = int(&deployment["spec"]["minReadySeconds"]);
        if settle > 0 {
            set["spec"]["minReadySeconds"] = settle.into();
        }
        let sets = REPLICA_SETS.resource(self.cluster);
        match self.cluster.create(&sets, &self.key.namespace, set, &WriteOptions::default()) {
            Ok(written) => self.new = Some(written.entry.value()),
            Err(error) if error.reason() == "AlreadyExists" => {
                // Another template has the same hash: the next attempt mixes the number of collisions in.
                let deployments = self.cluster.registry.builtin("apps", "deployments");
                let target = Target { resource: &deployments, namespace: &self.key.namespace, name: &self.key.name };
                self.cluster
                    .edit_status(target, |value| value["status"]["collisionCount"] = (collisions + 1).into())?;
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        self.created = true;
        if size > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {size}");
            record(self.cluster, &self.deployment, "deployment-controller", "Normal", "ScalingReplicaSet", &message);
        }
        self.note_revision(revision)
    }

    fn updated(&self) -> i64 {
        self.new.as_ref().map_or(0, |new| int(&new["status"]["replicas"]))
    }

    fn is_complete(&self) -> bool {
        let all = self.bounds.replicas;
        self.updated() == all && self.sum("replicas") == all && self.sum("availableReplicas") == all
    }

    /// Deletes the oldest ReplicaSets beyond the history that is kept.
    fn clean_up(&mut self) -> Result<(), ApiError> {
        let Some(limit) = self.deployment["spec"]["revisionHistoryLimit"].as_u64() else { return Ok(()) };
        let keep = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut old: Vec<Value> =
            self.old.iter().filter(|set| !set["metadata"]["deletionTimestamp"].is_string()).cloned().collect();
        let revision = |set: &Value| set["metadata"]["annotations"][REVISION].as_str()?.parse::<u64>().ok();
        old.sort_by_key(revision);
        let surplus = old.len().saturating_sub(keep);
        let sets = REPLICA_SETS.resource(self.cluster);
        for set in old.iter().take(surplus) {
            let observed = int(&set["status"]["observedGeneration"]) >= int(&set["metadata"]["generation"]);
            if int(&set["status"]["replicas"]) != 0 || int(&set["spec"]["replicas"]) != 0 || !observed {
                continue;
            }
            let name = set["metadata"]["name"].as_str().unwrap_or("");
            let target = Target { resource: &sets, namespace: &self.key.namespace, name };
            match self.cluster.delete(target, &DeleteOptions::default()) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the status; returns when the progress deadline ends.
    fn report(&self, resource: &Arc<crate::registry::Resource>) -> Option<Timestamp> {
        let before = &self.deployment["status"];
        let mut status = json!({"observedGeneration": self.deployment["metadata"]["generation"]});
        let available = self.sum("availableReplicas");
        let numbers = [
            ("replicas", self.sum("replicas")),
            ("updatedReplicas", self.updated()),
            ("readyReplicas", self.sum("readyReplicas")),
            ("availableReplicas", available),
            ("unavailableReplicas", (self.wanted() - available).max(0)),
            ("collisionCount", int(&before["collisionCount"])),
        ];
        for (name, number) in numbers {
            if number > 0 {
                status[name] = number.into();
            }
        }
        let now = self.cluster.clock.stamp();
        let mut conditions = before["conditions"].as_array().cloned().unwrap_or_default();
        if self.bounds.is_enough(available) {
            let message = "Deployment has minimum availability.";
            set_condition(&mut conditions, "Available", "True", "MinimumReplicasAvailable", message, &now, true);
        } else {
            let message = "Deployment does not have minimum availability.";
            set_condition(&mut conditions, "Available", "False", "MinimumReplicasUnavailable", message, &now, true);
        }
        let wake = self.report_progress(&mut conditions, &status, &now);
        let failure = self.new.iter().chain(&self.old).find_map(|set| {
            set["status"]["conditions"].as_array()?.iter().find(|one| one["type"] == "ReplicaFailure").cloned()
        });
        match failure {
            Some(failure) => {
                let text = |key: &str| failure[key].as_str().unwrap_or("").to_owned();
                let (value, reason, message) = (text("status"), text("reason"), text("message"));
                set_condition(&mut conditions, "ReplicaFailure", &value, &reason, &message, &now, true);
            }
            None => conditions.retain(|one| one["type"] != "ReplicaFailure"),
        }
        status["conditions"] = conditions.into();
        let target = Target { resource, namespace: &self.key.namespace, name: &self.key.name };
        write_status(self.cluster, target, &self.deployment, status);
        wake
    }

    fn report_progress(&self, conditions: &mut Vec<Value>, status: &Value, now: &str) -> Option<Timestamp> {
        let limit = self.deployment["spec"]["progressDeadlineSeconds"].as_i64().unwrap_or(600);
        if limit == i64::from(i32::MAX) {
            conditions.retain(|one| one["type"] != "Progressing");
            return None;
        }
        let known = conditions.iter().find(|one| one["type"] == "Progressing").cloned().unwrap_or_default();
        let name = self.new.as_ref().and_then(|new| new["metadata"]["name"].as_str());
        let what =
            name.map_or_else(|| format!("Deployment {:?}", self.key.name), |name| format!("ReplicaSet {name:?}"));
        let mut set = |value: &str, reason: &str, message: &str| {
            set_condition(conditions, "Progressing", value, reason, message, now, true);
        };
        if self.deployment["spec"]["paused"] == true {
            if known["reason"] != "ProgressDeadlineExceeded" {
                set("Unknown", "DeploymentPaused", "Deployment is paused");
            }
            return None;
        }
        if known["reason"] == "DeploymentPaused" {
            set("Unknown", "DeploymentResumed", "Deployment is resumed");
        }
        let settled = known["reason"] == "NewReplicaSetAvailable" && status["replicas"] == status["updatedReplicas"];
        if settled {
            return None;
        }
        if self.is_complete() {
            set("True", "NewReplicaSetAvailable", &format!("{what} has successfully progressed."));
            return None;
        }
        let before = &self.deployment["status"];
        let grew = |key: &str| int(&status[key]) > int(&before[key]);
        let outdated = |status: &Value| int(&status["replicas"]) - int(&status["updatedReplicas"]);
        let moved = grew("updatedReplicas")
            || grew("readyReplicas")
            || grew("availableReplicas")
            || outdated(status) < outdated(before);
        if self.created {
            set("True", "NewReplicaSetCreated", &format!("Created new replica set {:?}", name.unwrap_or("")));
        } else if moved || known.is_null() {
            let message = format!("{what} is progressing.");
            set("True", "ReplicaSetUpdated", &message);
            if known["reason"] == "ReplicaSetUpdated"
                && let Some(one) = conditions.iter_mut().find(|one| one["type"] == "Progressing")
            {
                one["lastUpdateTime"] = now.into();
            }
        }
        let known = conditions.iter_mut().find(|one| one["type"] == "Progressing")?;
        if known["reason"] == "ProgressDeadlineExceeded" {
            return None;
        }
        let since = known["lastUpdateTime"].as_str()?.parse::<Timestamp>().ok()?;
        let end = add_seconds(since, limit);
        if end > self.cluster.clock.now() {
            return Some(end);
        }
        let message = format!("{what} has timed out progressing.");
        set_condition(conditions, "Progressing", "False", "ProgressDeadlineExceeded", &message, now, true);
        None
    }
}

fn annotate(object: &mut Value, notes: &Map<String, Value>) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.extend(notes.clone());
    }
}

fn same_template(set: &Value, wanted: &Value) -> bool {
    let plain = |template: &Value| {
        let mut template = template.clone();
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            labels.remove(HASH);
        }
        template
    };
    plain(set) == plain(wanted)
}

fn template_hash(template: &Value, collisions: i64) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    if collisions > 0 {
        collisions.hash(&mut hasher);
    }
    crate::clock::safe_encode(hasher.finish(), 10)
}
