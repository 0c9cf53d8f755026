//! The invariants, over every state that the API server shows. Written from the specification, apart from the operator.

mod coverage;
mod deletions;
mod jobs;
mod pods;
mod services;
mod settled;

pub use coverage::Transitions;
pub(crate) use services::Answer;

use crate::ray::Ray;
use crate::transcript::Transcript;
use futures::StreamExt;
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The kinds that are looked at, and where they are.
const KINDS: [(&str, &str, &str); 10] = [
    ("", "v1", "Pod"),
    ("", "v1", "Service"),
    ("", "v1", "Secret"),
    ("", "v1", "Event"),
    ("discovery.k8s.io", "v1", "EndpointSlice"),
    ("batch", "v1", "Job"),
    ("ray.io", "v1", "RayCluster"),
    ("ray.io", "v1", "RayJob"),
    ("ray.io", "v1", "RayService"),
    ("ray.io", "v1", "RayCronJob"),
];

/// Looks at every state.
#[derive(Clone)]
pub(crate) struct Checker(Arc<Mutex<Seen>>, Ray, Transcript);

/// What was seen.
#[derive(Default)]
struct Seen {
    /// All objects, by kind and name.
    objects: BTreeMap<(String, String), Value>,
    /// When each object was first seen, by UID.
    first_seen: BTreeMap<String, Instant>,
    /// The names of all objects that are gone.
    gone: BTreeSet<String>,
    /// The sizes that each group of a cluster was asked to have, by UID of the cluster and name of the group.
    sizes: BTreeMap<(String, String), Vec<(Instant, i64)>>,
    /// The Pods whose deletion an operator is asking for, by name. See `operator_asks_to_delete`.
    deleted_by_operator: BTreeSet<String>,
    /// The Pods that an autoscaler or a user asked to delete, by name.
    named_for_deletion: BTreeSet<String>,
    /// The clusters that were changed otherwise or suspended, by UID: any Pod of them may go.
    suspended: BTreeSet<String>,
    /// The clusters whose head has run, by UID.
    head_ran: BTreeSet<String>,
    /// How each RayJob ended, by UID, with the generation that ended.
    ended: BTreeMap<String, (i64, String)>,
    /// The UID of the RayJob of each run, by UID of the RayCronJob and time.
    runs: BTreeMap<(String, String), String>,
    /// The clusters that requests to each RayService are sent to, and since when.
    routes: BTreeMap<String, (Instant, Vec<String>)>,
    /// The tokens of all clusters.
    tokens: BTreeSet<String>,
    transitions: Transitions,
    violation: Option<String>,
}

impl Checker {
    pub(crate) fn new(ray: Ray, transcript: Transcript) -> Self {
        Self(Arc::default(), ray, transcript)
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
        self.lock().violation.clone().or_else(|| self.1.violation())
    }

    /// Returns the changes of phase that were seen.
    pub(crate) fn transitions(&self) -> Transitions {
        self.lock().transitions.clone()
    }

    /// Returns whether an object of this name has come and gone.
    pub(crate) fn is_gone(&self, name: &str) -> bool {
        self.lock().gone.contains(name)
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
        let alive = seen.of_kind("Pod").filter(|(_, pod)| is_alive(pod));
        alive.map(|(name, _)| name.to_owned()).collect()
    }

    /// Looks at an object that was created or changed.
    pub(crate) fn see(&self, kind: &str, object: &DynamicObject) {
        let value = serde_json::to_value(object).unwrap_or_default();
        let name = object.name_any();
        self.note(kind, &name, &value);
        let mut seen = self.lock();
        let violation = seen.leaked_token(kind, &value).or_else(|| seen.operator_deleted_pod(kind, &name, &value));
        let earlier = seen.objects.get(&(kind.to_owned(), name.clone())).cloned();
        seen.transitions.note(kind, earlier.as_ref(), &value);
        if kind == "Event" {
            // Only looked at for what it says.
            seen.report(violation);
            return;
        }
        seen.first_seen.entry(uid(&value)).or_insert_with(Instant::now);
        seen.objects.insert((kind.to_owned(), name), value.clone());
        let violation = violation.or_else(|| match kind {
            "RayCluster" => seen.see_cluster(&value),
            "RayJob" => seen.see_job(&value, &self.1),
            "Pod" => seen.see_pod(&value),
            "Service" => seen.see_service(&value),
            _ => None,
        });
        seen.report(violation);
    }

    /// Looks at what the loss of an object means.
    pub(crate) fn gone(&self, kind: &str, object: &DynamicObject) {
        if kind == "Event" {
            return;
        }
        self.2.line("server", format!("{kind} {} is gone", object.name_any()));
        let mut seen = self.lock();
        seen.objects.remove(&(kind.to_owned(), object.name_any()));
        seen.gone.insert(object.name_any());
        let violation = (kind == "RayCluster").then(|| seen.cluster_gone(&object.name_any())).flatten();
        seen.report(violation);
    }

    /// Notes what a status says.
    fn note(&self, kind: &str, name: &str, object: &Value) {
        let status = &object["status"];
        let said = match kind {
            "RayCluster" => format!("{}", status["state"]),
            "RayJob" => format!("{} {}", status["jobDeploymentStatus"], status["jobStatus"]),
            "RayService" => {
                let cluster = |slot: &str| text(&status[slot]["rayClusterName"]);
                format!("active {:?} pending {:?}", cluster("activeServiceStatus"), cluster("pendingServiceStatus"))
            }
            _ => return,
        };
        self.2.line("server", format!("{kind} {name} {said}"));
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn report(&mut self, violation: Option<String>) {
        if self.violation.is_none() {
            self.violation = violation;
        }
    }

    /// Returns the objects of a kind, by name.
    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let all = self.objects.range((kind.to_owned(), String::new())..);
        all.take_while(move |((of, _), _)| of == kind).map(|((_, name), object)| (name.as_str(), object))
    }

    fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind.to_owned(), name.to_owned()))
    }

    /// No token shows outside of its Secret.
    fn leaked_token(&mut self, kind: &str, object: &Value) -> Option<String> {
        if kind == "Secret" {
            self.tokens.extend(object["data"].as_object().into_iter().flatten().map(|(_, value)| text(value)));
            return None;
        }
        let text = object.to_string();
        let leaked = self.tokens.iter().any(|token| !token.is_empty() && text.contains(token.as_str()));
        leaked.then(|| format!("{kind} {} shows a token", object["metadata"]["name"]))
    }
}

/// Returns the UID of the object that controls this one.
fn owner(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true).map(|owner| text(&owner["uid"]))
}

fn is_alive(pod: &Value) -> bool {
    let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    !is_deleting(pod) && !over
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn uid(object: &Value) -> String {
    text(&object["metadata"]["uid"])
}

fn label(object: &Value, key: &str) -> String {
    text(&object["metadata"]["labels"][key])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
