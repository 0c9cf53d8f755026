//! The invariants, over every state that the API server shows. Written from the specification, apart from the operator.

use crate::transcript::Transcript;
use futures::StreamExt;
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kinds that are looked at, and where they are.
const KINDS: [(&str, &str, &str); 6] = [
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("", "v1", "Secret"),
    ("batch", "v1", "Job"),
    ("ray.io", "v1", "RayCluster"),
    ("ray.io", "v1", "RayJob"),
];

/// Looks at every state.
#[derive(Clone)]
pub(crate) struct Checker(Arc<Mutex<Seen>>, Transcript);

#[derive(Default)]
struct Seen {
    /// All objects, by kind and name.
    objects: BTreeMap<(String, String), Value>,
    /// The most workers that each group of a cluster was ever asked for, by UID of the cluster and name of the group.
    asked_for: BTreeMap<(String, String), i64>,
    /// How each RayJob ended, by UID, with the generation that ended.
    ended: BTreeMap<String, (i64, String)>,
    violation: Option<String>,
}

impl Checker {
    pub(crate) fn new(transcript: Transcript) -> Self {
        Self(Arc::default(), transcript)
    }

    /// Looks at all kinds, until dropped.
    pub(crate) async fn run(self, client: Client) {
        let watch = |(group, version, kind): (&str, &str, &str)| {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let (checker, kind) = (self.clone(), kind.to_owned());
            async move {
                let mut events = watcher(api, watcher::Config::default()).boxed();
                while let Some(event) = events.next().await {
                    match event {
                        Ok(Event::Apply(object) | Event::InitApply(object)) => checker.see(&kind, &object),
                        Ok(Event::Delete(object)) => checker.gone(&kind, &object),
                        _ => {}
                    }
                }
            }
        };
        futures::future::join_all(KINDS.map(watch)).await;
    }

    /// Returns the first violation of an invariant.
    pub(crate) fn violation(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    /// Returns why the world is not as its specs ask, if it is not.
    pub(crate) fn unsettled(&self) -> Option<String> {
        let seen = self.lock();
        for ((kind, name), object) in &seen.objects {
            let wrong = match kind.as_str() {
                "RayCluster" => seen.cluster_unsettled(object),
                "RayJob" => job_unsettled(object),
                _ => None,
            };
            if let Some(wrong) = wrong {
                return Some(format!("{kind} {name}: {wrong}"));
            }
        }
        None
    }

    /// Returns what is left.
    pub(crate) fn left(&self) -> Vec<String> {
        self.lock()
            .objects
            .keys()
            .filter(|(_, name)| name != "kubernetes")
            .map(|(kind, name)| format!("{kind} {name}"))
            .collect()
    }

    /// Returns the names of all Pods that are alive, in order.
    pub(crate) fn pods(&self) -> Vec<String> {
        let seen = self.lock();
        let alive = seen.objects.iter().filter(|((kind, _), pod)| kind == "Pod" && is_alive(pod));
        alive.map(|((_, name), _)| name.clone()).collect()
    }

    fn see(&self, kind: &str, object: &DynamicObject) {
        let value = serde_json::to_value(object).unwrap_or_default();
        let name = object.name_any();
        self.note(kind, &name, &value);
        let mut seen = self.lock();
        seen.objects.insert((kind.to_owned(), name), value.clone());
        let violation = match kind {
            "RayCluster" => {
                seen.remember_sizes(&value);
                None
            }
            "RayJob" => seen.ends_once(&value),
            "Pod" => seen.too_many(&value),
            _ => None,
        };
        if seen.violation.is_none() {
            seen.violation = violation;
        }
    }

    fn gone(&self, kind: &str, object: &DynamicObject) {
        self.1.line("server", format!("{kind} {} is gone", object.name_any()));
        self.lock().objects.remove(&(kind.to_owned(), object.name_any()));
    }

    /// Notes what a status says.
    fn note(&self, kind: &str, name: &str, object: &Value) {
        let status = &object["status"];
        let said = match kind {
            "RayCluster" => format!("{}", status["state"]),
            "RayJob" => format!("{} {}", status["jobDeploymentStatus"], status["jobStatus"]),
            _ => return,
        };
        self.1.line("server", format!("{kind} {name} {said}"));
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn remember_sizes(&mut self, cluster: &Value) {
        let uid = text(&cluster["metadata"]["uid"]);
        for (group, replicas) in sizes(cluster) {
            let most = self.asked_for.entry((uid.clone(), group)).or_default();
            *most = replicas.max(*most);
        }
    }

    /// Never two heads, never more workers than were ever asked for.
    fn too_many(&self, pod: &Value) -> Option<String> {
        let (owner, group) = (owner(pod)?, text(&pod["metadata"]["labels"]["ray.io/group"]));
        let alike = self.objects.iter().filter(|((kind, _), other)| {
            kind == "Pod"
                && is_alive(other)
                && self::owner(other) == Some(owner.clone())
                && other["metadata"]["labels"]["ray.io/group"] == pod["metadata"]["labels"]["ray.io/group"]
        });
        let names: Vec<&str> = alike.map(|((_, name), _)| name.as_str()).collect();
        let allowed = match text(&pod["metadata"]["labels"]["ray.io/node-type"]).as_str() {
            "head" => 1,
            "worker" => *self.asked_for.get(&(owner, group.clone()))?,
            _ => return None,
        };
        (names.len() as i64 > allowed).then(|| format!("{allowed} Pods of {group} were asked for: {}", names.join(" ")))
    }

    /// A job that has ended does not begin again, unless somebody changed it.
    fn ends_once(&mut self, job: &Value) -> Option<String> {
        let uid = text(&job["metadata"]["uid"]);
        let generation = job["metadata"]["generation"].as_i64().unwrap_or_default();
        let phase = text(&job["status"]["jobDeploymentStatus"]);
        match self.ended.get(&uid) {
            Some((ended, how)) => (*ended == generation && *how != phase)
                .then(|| format!("RayJob {} went from {how} to {phase}", text(&job["metadata"]["name"]))),
            None => {
                if matches!(phase.as_str(), "Complete" | "Failed") {
                    self.ended.insert(uid, (generation, phase));
                }
                None
            }
        }
    }

    fn cluster_unsettled(&self, cluster: &Value) -> Option<String> {
        if !cluster["metadata"]["deletionTimestamp"].is_null() {
            return Some("is being deleted".to_owned());
        }
        let uid = text(&cluster["metadata"]["uid"]);
        let suspended = cluster["spec"]["suspend"] == true;
        let pods = |group: &str| {
            let of =
                |pod: &&Value| owner(pod).as_ref() == Some(&uid) && pod["metadata"]["labels"]["ray.io/group"] == group;
            let all = self.objects.iter().filter(|((kind, _), _)| kind == "Pod").map(|(_, pod)| pod);
            all.filter(of).collect::<Vec<_>>()
        };
        let mut groups = sizes(cluster);
        groups.push(("headgroup".to_owned(), 1));
        for (group, wanted) in groups {
            let wanted = if suspended { 0 } else { wanted };
            let present = pods(&group);
            let good = present.iter().filter(|pod| pod["status"]["phase"] == "Running" && is_alive(pod)).count() as i64;
            if good != wanted || present.len() as i64 != wanted {
                return Some(format!("{good} of {wanted} Pods of {group}, {} in all", present.len()));
            }
        }
        let name = text(&cluster["metadata"]["name"]);
        let secret = self.objects.get(&("Secret".to_owned(), name));
        if cluster["spec"]["authOptions"]["mode"] == "token" && secret.and_then(owner) != Some(uid) {
            return Some("it has no token".to_owned());
        }
        let (state, wanted) = (text(&cluster["status"]["state"]), if suspended { "suspended" } else { "ready" });
        (state != wanted).then(|| format!("its state is {state:?}"))
    }
}

fn job_unsettled(job: &Value) -> Option<String> {
    if !job["metadata"]["deletionTimestamp"].is_null() {
        return Some("is being deleted".to_owned());
    }
    let phase = text(&job["status"]["jobDeploymentStatus"]);
    let spec = &job["spec"];
    let settled = match (spec["suspend"] == true, spec["shutdownAfterJobFinishes"] == true) {
        (true, true) => matches!(phase.as_str(), "Suspended" | "Complete" | "Failed"),
        // Such a spec is invalid.
        (true, false) => phase == "ValidationFailed",
        (false, _) => matches!(phase.as_str(), "Complete" | "Failed"),
    };
    (!settled).then(|| format!("its phase is {phase:?}"))
}

/// Returns the groups of a cluster with their sizes.
fn sizes(cluster: &Value) -> Vec<(String, i64)> {
    let groups = cluster["spec"]["workerGroupSpecs"].as_array().cloned().unwrap_or_default();
    groups.iter().map(|group| (text(&group["groupName"]), group["replicas"].as_i64().unwrap_or_default())).collect()
}

/// Returns the UID of the object that controls this one.
fn owner(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true).map(|owner| text(&owner["uid"]))
}

fn is_alive(pod: &Value) -> bool {
    let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    pod["metadata"]["deletionTimestamp"].is_null() && !over
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
