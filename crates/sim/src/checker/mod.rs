//! The invariants, over every state that the API server shows. Written from the specification, apart from the operator.

mod certificates;
mod coverage;
mod deletions;
mod features;
mod foreign;
mod gangs;
mod history;
mod jobs;
mod pods;
mod queues;
mod routes;
mod schedules;
mod secrets;
mod services;
mod settled;
#[cfg(test)]
mod tests;

pub use coverage::Transitions;
pub(crate) use services::Answer;

use crate::api::Api;
use crate::cert_manager::CertManager;
use crate::gateway::Gateways;
use crate::object::{is_alive, name, text, uid};
use crate::ray::Ray;
use crate::scheduler::BatchScheduler;
use crate::transcript::Transcript;
use manta_apiserver::store::Change;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The kinds that are looked at, as far as a world serves them.
const KINDS: [&str; 22] = [
    "Pod",
    "Service",
    "Secret",
    "ConfigMap",
    "Event",
    "EndpointSlice",
    "Job",
    "RayCluster",
    "RayJob",
    "RayService",
    "RayCronJob",
    "PodGroup",
    "Gateway",
    "HTTPRoute",
    "Certificate",
    "Workload",
    "Ingress",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "ServiceAccount",
    "Role",
    "RoleBinding",
];

/// Looks at every state.
#[derive(Clone)]
pub(crate) struct Checker {
    seen: Arc<Mutex<Seen>>,
    ray: Ray,
    transcript: Transcript,
    others: Option<Others>,
}

/// Those who share the cluster, and know what really happened.
#[derive(Clone)]
pub(crate) struct Others {
    pub(crate) api: Api,
    pub(crate) gateways: Gateways,
    pub(crate) cert_manager: CertManager,
    /// The scheduler that operators were told to use.
    pub(crate) scheduler: Option<BatchScheduler>,
    /// Nothing but the operator can interrupt what is served.
    pub(crate) undisturbed: bool,
    /// The operators' webhook reviews what users write.
    pub(crate) webhook: bool,
}

/// What was seen.
#[derive(Default)]
struct Seen {
    /// All objects, by kind and name.
    objects: BTreeMap<&'static str, BTreeMap<String, Arc<Value>>>,
    /// When each object was first seen, by UID.
    first_seen: BTreeMap<String, Instant>,
    /// The kinds and names of all objects that are gone.
    gone: BTreeSet<(&'static str, String)>,
    /// The sizes that each group of a cluster was asked to have, by UID of the cluster and name of the group.
    sizes: BTreeMap<(String, String), Vec<(Instant, i64)>>,
    /// The Pods whose deletion an operator is asking for, by name. See `operator_asks_to_delete`.
    deleted_by_operator: BTreeSet<String>,
    /// The Pods that an autoscaler or a user asked to delete, by name.
    named_for_deletion: BTreeSet<String>,
    /// When deletions arrived whose sender had died, by UID of the cluster and name of the group.
    lost_to_the_dead: BTreeMap<(String, String), Vec<Instant>>,
    /// When each Pod ended by itself, by UID, with its cluster and group.
    ended_pods: BTreeMap<String, (String, String, Instant)>,
    /// The Pods whose label somebody changed, and the objects whose owner somebody removed, by name.
    relabelled: BTreeSet<String>,
    without_owner: BTreeSet<String>,
    /// The kinds and names of what is somebody else's, by UID.
    foreign: BTreeMap<String, (&'static str, String)>,
    /// The clusters whose head has run, by UID.
    head_ran: BTreeSet<String>,
    /// How each RayJob ended, by UID, with the generation that ended.
    ended: BTreeMap<String, (i64, String)>,
    /// The UID of the RayJob of each run, by UID of the RayCronJob and time.
    runs: BTreeMap<(String, String), String>,
    /// The UID of the Job that submits the job with each submission ID.
    submitters: BTreeMap<String, String>,
    /// The RayServices that have been ready, by UID.
    served: BTreeSet<String>,
    /// The RayServices whose requests a route or a Service has led on, by UID.
    routed: BTreeSet<String>,
    /// Why the last request failed that did.
    refusal: String,
    /// The clusters behind each Service that requests are sent to, and since when.
    endpoints: BTreeMap<String, (Instant, Vec<String>)>,
    /// What Kueue last decided about each object, by UID: whether it is suspended.
    queue: BTreeMap<String, bool>,
    /// The objects that Kueue has admitted, by UID.
    admitted: BTreeSet<String>,
    /// What is in all Secrets, in each form in which it could show.
    secrets: BTreeSet<String>,
    transitions: Transitions,
    violation: Option<String>,
}

impl Checker {
    pub(crate) fn new(ray: Ray, transcript: Transcript) -> Self {
        Self { seen: Arc::default(), ray, transcript, others: None }
    }

    /// Returns the checker of a world with these others.
    pub(crate) fn with_others(self, others: Others) -> Self {
        Self { others: Some(others), ..self }
    }

    /// Looks at all kinds, until dropped.
    pub(crate) async fn run(self, api: Api) {
        let follow = |kind: &'static str| {
            let (checker, changes) = (self.clone(), api.changes(kind));
            async move {
                let Some(mut changes) = changes else { return };
                loop {
                    for event in changes.next().await {
                        match event.change {
                            Change::Deleted => checker.gone(kind, &event.entry.key.name),
                            _ => checker.see(kind, event.entry.shared_value(), &event.entry.json),
                        }
                    }
                }
            }
        };
        futures::future::join_all(KINDS.map(follow)).await;
    }

    /// Returns the first violation of an invariant.
    pub(crate) fn violation(&self) -> Option<String> {
        self.lock().violation.clone().or_else(|| self.ray.violation())
    }

    /// Returns the changes of phase that were seen.
    pub(crate) fn transitions(&self) -> Transitions {
        self.lock().transitions.clone()
    }

    /// Returns whether an object of this name has come and gone.
    pub(crate) fn is_gone(&self, kind: &'static str, name: &str) -> bool {
        self.lock().gone.contains(&(kind, name.to_owned()))
    }

    /// Returns what is left.
    pub(crate) fn left(&self) -> Vec<String> {
        let seen = self.lock();
        let all = seen.objects.iter().flat_map(|(kind, objects)| objects.values().map(move |object| (kind, object)));
        all.filter(|(kind, object)| !certificates::stays(object) && !features::stays(kind, object))
            .map(|(kind, object)| format!("{kind} {}", name(object)))
            .collect()
    }

    /// Returns the simulated Ray.
    pub(crate) fn ray(&self) -> &Ray {
        &self.ray
    }

    /// Returns the names of all Pods that are alive, in order.
    pub(crate) fn pods(&self) -> Vec<String> {
        let seen = self.lock();
        let alive = seen.of_kind("Pod").filter(|(_, pod)| is_alive(pod));
        alive.map(|(name, _)| name.to_owned()).collect()
    }

    /// Looks at an object that was created or changed, and at its JSON.
    pub(crate) fn see(&self, kind: &'static str, value: Arc<Value>, json: &[u8]) {
        let mut seen = self.lock();
        let leaked = seen.leaked_secret(kind, &value, json);
        seen.report(leaked);
        let deleted = seen.operator_deleted_pod(kind, &name(&value), &value);
        seen.report(deleted);
        if matches!(kind, "Event" | "ConfigMap") {
            // Only looked at for what it says.
            return;
        }
        let name = name(&value);
        let invalid =
            self.others.as_ref().filter(|others| others.webhook).and_then(|_| features::admitted(kind, &value));
        seen.report(invalid);
        let backwards = seen.get(kind, &name).and_then(|earlier| history::went_back(kind, earlier, &value));
        seen.report(backwards);
        let earlier = seen.objects.entry(kind).or_default().insert(name.clone(), Arc::clone(&value));
        let earlier = earlier.as_deref();
        let violation = seen.transitions.note(kind, &name, earlier, &value);
        seen.report(violation);
        let violation = match kind {
            "RayCluster" => seen.see_cluster(&value).or_else(|| features::touched(&value)),
            "RayJob" => seen.see_job(&value, &self.ray),
            "Pod" => seen.see_pod(&value).or_else(|| seen.created_too_early(&value, self.others.as_ref()?)),
            "Service" => seen.see_service(&value),
            "Job" => seen.submitted_once(&value),
            "HTTPRoute" => self.see_route(earlier, &value),
            _ => None,
        };
        seen.report(violation);
        seen.first_seen.entry(uid(&value)).or_insert_with(Instant::now);
        drop(seen);
        self.note(kind, &name, earlier, &value);
    }

    /// Looks at what the loss of an object means.
    pub(crate) fn gone(&self, kind: &'static str, name: &str) {
        if matches!(kind, "Event" | "ConfigMap") {
            return;
        }
        self.transcript.line("server", format_args!("{kind} {name} is gone"));
        let mut seen = self.lock();
        seen.objects.entry(kind).or_default().remove(name);
        seen.gone.insert((kind, name.to_owned()));
        if kind == "Pod" {
            seen.pod_gone(name);
        }
        let violation = (kind == "RayCluster").then(|| seen.cluster_gone(name)).flatten();
        seen.report(violation);
    }

    /// Notes what a status says, if it says something new.
    fn note(&self, kind: &str, name: &str, earlier: Option<&Value>, object: &Value) {
        let said = |object: &Value| {
            let status = &object["status"];
            let slot = |slot: &str| text(&status[slot]["rayClusterName"]);
            Some(match kind {
                "RayCluster" => text(&status["state"]),
                "RayJob" => format!("{} {}", text(&status["jobDeploymentStatus"]), text(&status["jobStatus"])),
                "RayService" => {
                    format!("active {:?} pending {:?}", slot("activeServiceStatus"), slot("pendingServiceStatus"))
                }
                _ => return None,
            })
        };
        let (before, now) = (earlier.and_then(said), said(object));
        if let Some(now) = now.filter(|now| before.as_ref() != Some(now)) {
            self.transcript.line("server", format_args!("{kind} {name} {now}"));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn report(&mut self, violation: Option<String>) {
        if self.violation.is_none() {
            self.violation = violation;
        }
    }

    /// Returns the objects of a kind, by name.
    fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&str, &Value)> {
        let objects = self.objects.get(kind).into_iter().flatten();
        objects.map(|(name, object)| (name.as_str(), &**object))
    }

    fn get(&self, kind: &str, name: &str) -> Option<&Value> {
        self.objects.get(kind)?.get(name).map(|object| &**object)
    }
}
