//! One object and everything that belongs to it, live: its clusters, jobs, Pods and events.

use super::live::{Name, Outlet, WINDOW};
use super::row::row;
use super::watched::{Watched, watched};
use crate::event;
use crate::resource::Kind;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Event, Pod};
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use manta_logic::labels;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// How many changes wait to be sent before the watches wait.
const MAX_QUEUED: usize = 256;
/// How many events are sent.
const MAX_EVENTS: usize = 300;

/// What a watched object is to the one that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    /// It is the object itself.
    Object,
    Cluster,
    Job,
    Pod,
    Event,
}

enum Change {
    Put(Role, String, Value),
    Gone(Role, String),
    /// Everything that existed at the start has been reported.
    Ready(Role),
    Failed(Role, String),
    Recovered(Role),
}

/// What is sent at once.
#[derive(Default, Serialize)]
struct Batch {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    put: Vec<(Role, String, Value)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<(Role, String)>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ready: Vec<Role>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    failed: BTreeMap<Role, String>,
    /// What works again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recovered: Vec<Role>,
    /// What the overview shows of the object itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<Value>,
}

/// Sends an object and what belongs to it whenever any of it changes; never returns while the browser listens.
pub(super) async fn follow(client: &Client, name: &Name, outlet: &Outlet) {
    let (queue, mut changes) = mpsc::channel(MAX_QUEUED);
    let mut watches = Watches::start(client, name, queue);
    loop {
        let Some(first) = changes.recv().await else { return };
        let mut batch = Batch::default();
        watches.take(first, &mut batch);
        let window = tokio::time::sleep(WINDOW);
        tokio::pin!(window);
        loop {
            tokio::select! {
                () = &mut window => break,
                Some(change) = changes.recv() => watches.take(change, &mut batch),
            }
        }
        if !outlet.send(&batch).await {
            return;
        }
    }
}

/// The watches for one object.
struct Watches {
    client: Client,
    kind: Kind,
    namespace: String,
    queue: mpsc::Sender<Change>,
    tasks: JoinSet<()>,
    /// The watch for the Pods of each cluster.
    pods_of: HashMap<String, AbortHandle>,
    /// The names whose events matter.
    names: HashSet<String>,
    /// Events about other names, which may turn out to matter.
    other_events: Vec<(String, String, Value)>,
}

impl Watches {
    fn start(client: &Client, name: &Name, queue: mpsc::Sender<Change>) -> Self {
        let mut watches = Self {
            client: client.clone(),
            kind: name.kind,
            namespace: name.namespace.clone(),
            queue,
            tasks: JoinSet::new(),
            pods_of: HashMap::new(),
            names: HashSet::from([name.name.clone()]),
            other_events: Vec::new(),
        };
        let itself = watcher::Config::default().fields(&format!("metadata.name={}", name.name));
        watches.follow_ray(name.kind, itself, Role::Object);
        let from = |kind: &str| {
            let selector =
                format!("{}={},{}={kind}", labels::ORIGINATED_FROM_CR_NAME, name.name, labels::ORIGINATED_FROM_CRD);
            watcher::Config::default().labels(&selector)
        };
        match name.kind {
            Kind::Cluster => watches.follow_pods(&name.name),
            Kind::Job => {
                watches.follow_ray(Kind::Cluster, from("RayJob"), Role::Cluster);
                // The Pods of the submitter.
                let pods = Api::namespaced(client.clone(), &name.namespace);
                watches.spawn(pods, from("RayJob"), Role::Pod, project_pod);
            }
            Kind::Service => watches.follow_ray(Kind::Cluster, from("RayService"), Role::Cluster),
            Kind::CronJob => {
                let jobs = watcher::Config::default().labels(&format!("{}={}", labels::CRONJOB_NAME, name.name));
                watches.follow_ray(Kind::Job, jobs, Role::Job);
            }
        }
        let events: Api<Event> = Api::namespaced(client.clone(), &name.namespace);
        watches.spawn(events, watcher::Config::default(), Role::Event, project_event);
        watches
    }

    fn follow_ray(&mut self, kind: Kind, config: watcher::Config, role: Role) {
        let api = Api::namespaced_with(self.client.clone(), &self.namespace, &kind.api_resource());
        self.spawn(api, config, role, project_ray);
    }

    fn follow_pods(&mut self, cluster: &str) {
        if self.pods_of.contains_key(cluster) {
            return;
        }
        let config = watcher::Config::default().labels(&format!("{}={cluster}", labels::CLUSTER));
        let pods = Api::namespaced(self.client.clone(), &self.namespace);
        let watch = self.spawn(pods, config, Role::Pod, project_pod);
        self.pods_of.insert(cluster.to_owned(), watch);
    }

    fn spawn<K>(&mut self, api: Api<K>, config: watcher::Config, role: Role, project: fn(K) -> Value) -> AbortHandle
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        self.tasks.spawn(watch(api, config.page_size(100), role, project, self.queue.clone()))
    }

    /// Adds a change to a batch, and starts the watches that it asks for.
    fn take(&mut self, change: Change, batch: &mut Batch) {
        match change {
            Change::Put(Role::Event, key, value) => {
                let about = value["about"].as_str().unwrap_or_default().to_owned();
                if self.names.contains(&about) {
                    batch.put.push((Role::Event, key, value));
                } else {
                    self.other_events.push((about, key, value));
                    let excess = self.other_events.len().saturating_sub(MAX_EVENTS);
                    self.other_events.drain(..excess);
                }
            }
            Change::Put(role, key, value) => {
                if role == Role::Cluster {
                    self.follow_pods(&key);
                }
                if self.names.insert(key.clone()) {
                    let (mine, others) =
                        std::mem::take(&mut self.other_events).into_iter().partition(|(about, ..)| *about == key);
                    self.other_events = others;
                    let mine: Vec<(String, String, Value)> = mine;
                    batch.put.extend(mine.into_iter().map(|(_, key, value)| (Role::Event, key, value)));
                }
                if role == Role::Object {
                    batch.row = row_of(self.kind, &value);
                }
                batch.put.push((role, key, value));
            }
            Change::Gone(role, key) => {
                if role == Role::Cluster
                    && let Some(watch) = self.pods_of.remove(&key)
                {
                    watch.abort();
                }
                batch.gone.push((role, key));
            }
            Change::Ready(role) => batch.ready.push(role),
            Change::Failed(role, why) => {
                batch.recovered.retain(|recovered| *recovered != role);
                batch.failed.insert(role, why);
            }
            Change::Recovered(role) => {
                batch.failed.remove(&role);
                batch.recovered.push(role);
            }
        }
    }
}

/// Reports the objects of one watch until nobody listens.
async fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    role: Role,
    project: fn(K) -> Value,
    queue: mpsc::Sender<Change>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    let mut events = watched(api, config);
    let mut known: HashSet<String> = HashSet::new();
    let mut listed: HashSet<String> = HashSet::new();
    while let Some(event) = events.next().await {
        let changes = match event {
            Watched::Event(watcher::Event::Init) => {
                listed.clear();
                vec![]
            }
            Watched::Event(watcher::Event::InitApply(object)) => {
                listed.insert(name(&object));
                vec![Change::Put(role, name(&object), project(object))]
            }
            Watched::Event(watcher::Event::Apply(object)) => {
                known.insert(name(&object));
                vec![Change::Put(role, name(&object), project(object))]
            }
            Watched::Event(watcher::Event::Delete(object)) => {
                known.remove(&name(&object));
                vec![Change::Gone(role, name(&object))]
            }
            Watched::Event(watcher::Event::InitDone) => {
                let gone = known.difference(&listed).map(|name| Change::Gone(role, name.clone()));
                let changes = gone.chain([Change::Ready(role)]).collect();
                known = std::mem::take(&mut listed);
                changes
            }
            Watched::Failed(why) => vec![Change::Failed(role, why)],
            Watched::Recovered => vec![Change::Recovered(role)],
        };
        for change in changes {
            if queue.send(change).await.is_err() {
                return;
            }
        }
    }
}

/// Returns a Ray object without what only machines read.
fn project_ray(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    object.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
    serde_json::to_value(object).unwrap_or_default()
}

/// Returns what the overview shows of an object, so that its own view needs no right to list others.
fn row_of(kind: Kind, object: &Value) -> Option<Value> {
    let object: DynamicObject = serde_json::from_value(object.clone()).ok()?;
    serde_json::to_value(row(kind, &object)).ok()
}

/// Returns what is drawn of a Pod.
fn project_pod(pod: Pod) -> Value {
    let label = |name: &str| pod.labels().get(name);
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let containers = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    let init = status.and_then(|status| status.init_container_statuses.as_ref()).into_iter().flatten();
    let unscheduled = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let is_ready = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let requests = spec
        .and_then(|spec| spec.containers.first())
        .and_then(|container| container.resources.as_ref())
        .and_then(|resources| resources.requests.as_ref());
    json!({
        "name": pod.name_any(),
        "cluster": label(labels::CLUSTER),
        "type": label(labels::NODE_TYPE),
        "group": label(labels::GROUP),
        "replica": label(labels::REPLICA_NAME),
        "host": label(labels::HOST_INDEX),
        "phase": status.and_then(|status| status.phase.as_deref()),
        "reason": status.and_then(|status| status.reason.as_deref()),
        "message": status.and_then(|status| status.message.as_deref()).or(unscheduled.and_then(|c| c.message.as_deref())),
        "ready": is_ready,
        "node": spec.and_then(|spec| spec.node_name.as_deref()),
        "ip": status.and_then(|status| status.pod_ip.as_deref()),
        "created": pod.creation_timestamp().map(|time| time.0.to_string()),
        "deleting": pod.metadata.deletion_timestamp.is_some(),
        "requests": requests,
        "containers": containers.map(project_container).collect::<Vec<_>>(),
        "init": init.map(project_container).collect::<Vec<_>>(),
    })
}

fn project_container(container: &ContainerStatus) -> Value {
    json!({
        "name": container.name,
        "ready": container.ready,
        "restarts": container.restart_count,
        "state": container.state.as_ref().map(project_state),
        "last": container.last_state.as_ref().map(project_state),
    })
}

fn project_state(state: &ContainerState) -> Value {
    if let Some(ended) = &state.terminated {
        return json!({"is": "terminated", "reason": ended.reason, "message": ended.message, "exit": ended.exit_code});
    }
    if let Some(waiting) = &state.waiting {
        return json!({"is": "waiting", "reason": waiting.reason, "message": waiting.message});
    }
    match &state.running {
        Some(running) => json!({"is": "running", "since": running.started_at.as_ref().map(|time| time.0.to_string())}),
        None => Value::Null,
    }
}

fn project_event(event: Event) -> Value {
    let time = event::time(&event).map(|time| time.to_string());
    let count = event.series.as_ref().and_then(|series| series.count).or(event.count);
    json!({
        "about": event.involved_object.name,
        "kind": event.involved_object.kind,
        "type": event.type_,
        "reason": event.reason,
        "message": event.message,
        "count": count.unwrap_or(1),
        "time": time,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_object_comes_with_its_state() {
        let config = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let client = Client::try_from(config).unwrap();
        let name = Name { kind: Kind::Cluster, namespace: "default".to_owned(), name: "c".to_owned() };
        let mut watches = Watches::start(&client, &name, mpsc::channel(1).0);
        let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster",
            "metadata": {"name": "c", "namespace": "default"}, "status": {"state": "ready"}});
        let mut batch = Batch::default();
        watches.take(Change::Put(Role::Object, "c".to_owned(), cluster), &mut batch);
        let row = batch.row.unwrap();
        assert_eq!((&row["state"], &row["health"]), (&json!("ready"), &json!("good")));
    }

    #[test]
    fn pods_are_reduced_to_what_is_drawn() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"ray.io/cluster": "c", "ray.io/group": "g", "ray.io/node-type": "worker"}},
            "spec": {"containers": [{"name": "ray-worker", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Pending", "containerStatuses": [{
                "name": "ray-worker", "image": "", "imageID": "", "ready": false, "restartCount": 2,
                "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
            }]},
        }))
        .unwrap();
        let got = project_pod(pod);
        assert_eq!(got["group"], "g");
        assert_eq!(got["requests"]["cpu"], "1");
        assert_eq!(got["containers"][0]["state"]["reason"], "ErrImagePull");
        assert_eq!(got["containers"][0]["restarts"], 2);
    }
}
