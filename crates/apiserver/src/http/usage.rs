//! The metrics API (`metrics.k8s.io/v1beta1`): what pods and the node use, for `kubectl top`.
//!
//! It is served only where a node backend measures. Nothing is stored, so there is no watch.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::path::{Query, RequestInfo};
use crate::clock;
use crate::error::ApiError;
use crate::node::{PodUsage, Usage};
use crate::ops::Cluster;
use crate::selector;
use crate::store::{Entry, ListRange, Uid};

pub(super) const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// The resources with their kinds and whether they are namespaced.
const RESOURCES: [(&str, &str, bool); 2] = [("nodes", "NodeMetrics", false), ("pods", "PodMetrics", true)];

/// Returns the objects of a request: one, or a list.
pub(super) async fn read(cluster: &Cluster, info: &RequestInfo, query: &Query) -> Result<Value, ApiError> {
    let usage = match cluster.node() {
        Some(node) if info.version == VERSION && info.subresource.is_none() => (node.usage)().await,
        _ => return Err(ApiError::no_such_path()),
    };
    let labels = selector::parse_labels(query.get("labelSelector").unwrap_or("")).map_err(ApiError::bad_request)?;
    let span = ListRange { namespace: info.namespace.as_deref(), after: None, limit: None, at: None };
    let wanted = |entry: &Entry| {
        info.name.as_deref().is_none_or(|name| *entry.key.name == *name) && selector::labels_match(&labels, entry)
    };
    let listed = cluster.store.list(&info.resource, &span, wanted);
    let entries = listed.map_err(|_| ApiError::internal("the list is gone"))?.entries;
    let now = clock::seconds(cluster.clock.now());
    let (kind, items): (&str, Vec<Value>) = match (info.resource.as_str(), &info.namespace) {
        ("pods", _) => {
            let by_uid: HashMap<Uid, &PodUsage> = usage.iter().map(|one| (Uid::parse(&one.uid), one)).collect();
            let item = |entry: &std::sync::Arc<Entry>| Some(pod_metrics(entry, by_uid.get(&entry.uid)?, &now));
            ("PodMetrics", entries.iter().filter_map(item).collect())
        }
        ("nodes", None) => ("NodeMetrics", entries.iter().map(|entry| node_metrics(entry, &usage, &now)).collect()),
        _ => return Err(ApiError::no_such_path()),
    };
    let version = format!("{GROUP}/{VERSION}");
    let mut items = items.into_iter();
    match &info.name {
        None => Ok(
            json!({"kind": format!("{kind}List"), "apiVersion": version, "metadata": {}, "items": items.collect::<Vec<_>>()}),
        ),
        Some(name) => {
            let named = crate::error::Named { group: GROUP, what: &info.resource, name };
            let mut object = items.next().ok_or_else(|| ApiError::not_found(named))?;
            object["kind"] = kind.into();
            object["apiVersion"] = version.into();
            Ok(object)
        }
    }
}

fn pod_metrics(entry: &Entry, usage: &PodUsage, now: &str) -> Value {
    let containers: Vec<Value> =
        usage.containers.iter().map(|(name, used)| json!({"name": name, "usage": amounts(*used)})).collect();
    let labels: serde_json::Map<String, Value> =
        entry.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect();
    json!({
        "metadata": {"name": &*entry.key.name, "namespace": &*entry.key.namespace, "labels": labels, "creationTimestamp": now},
        "timestamp": now, "window": format!("{}s", usage.window_seconds), "containers": containers,
    })
}

fn node_metrics(entry: &Entry, pods: &[PodUsage], now: &str) -> Value {
    let mut sum = Usage::default();
    for (_, used) in pods.iter().flat_map(|pod| &pod.containers) {
        sum.cpu_nanos += used.cpu_nanos;
        sum.memory_bytes += used.memory_bytes;
    }
    let window = pods.iter().map(|pod| pod.window_seconds).max().unwrap_or(1);
    json!({"metadata": {"name": &*entry.key.name, "creationTimestamp": now},
        "timestamp": now, "window": format!("{window}s"), "usage": amounts(sum)})
}

fn amounts(used: Usage) -> Value {
    json!({"cpu": format!("{}n", used.cpu_nanos), "memory": format!("{}Ki", used.memory_bytes / 1024)})
}

/// Returns the group as `/apis` lists it.
pub(super) fn group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({"name": GROUP, "versions": [version], "preferredVersion": version})
}

/// Returns the group as aggregated discovery lists it.
pub(super) fn aggregated() -> Value {
    let resource = |(plural, kind, namespaced): &(&str, &str, bool)| {
        json!({"resource": plural, "singularResource": "", "verbs": ["get", "list"],
            "responseKind": {"group": GROUP, "version": VERSION, "kind": kind},
            "scope": if *namespaced { "Namespaced" } else { "Cluster" }})
    };
    let resources: Vec<Value> = RESOURCES.iter().map(resource).collect();
    json!({"metadata": {"name": GROUP},
        "versions": [{"version": VERSION, "freshness": "Current", "resources": resources}]})
}

/// Returns the resources as `/apis/metrics.k8s.io/v1beta1` lists them.
pub(super) fn resources() -> Value {
    let resource = |(plural, kind, namespaced): &(&str, &str, bool)| json!({"name": plural, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    let resources: Vec<Value> = RESOURCES.iter().map(resource).collect();
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"), "resources": resources})
}
