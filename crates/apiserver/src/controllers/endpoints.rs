//! Maintains Endpoints and EndpointSlices from services and pods, and mirrors Endpoints that users write.
//!
//! `Endpoints` lists every pod with an address; slices, like the real controller's, only pods on a node. What somebody
//! deletes is written again.

mod mirror;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Informer, Worker, has_condition, owner_reference};
use crate::ops::{Cluster, DeleteOptions, Target, WriteOptions};
use crate::selector::{LabelRule, labels_match};
use crate::store::{Change, Entry, ListRange, ObjectKey};

/// The service of the API server itself.
const API_SERVER: (&str, &str) = ("default", "kubernetes");
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const MAX_PER_SLICE: usize = 100;

/// The selectors of all services, by namespace and name.
type Selectors = HashMap<Box<str>, HashMap<Box<str>, Vec<LabelRule>>>;

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut services = Informer::new(&cluster, "services");
    let mut pods = Informer::new(&cluster, "pods");
    let mut endpoints = Informer::new(&cluster, &cluster.registry.builtin("", "endpoints").table);
    let mut slices = Informer::new(&cluster, &cluster.registry.builtin("discovery.k8s.io", "endpointslices").table);
    let mut selectors: Selectors = HashMap::new();
    loop {
        let mut due: BTreeSet<(Box<str>, Box<str>)> = BTreeSet::new();
        tokio::select! {
            biased;
            events = services.next() => {
                for event in events {
                    let key = &event.entry.key;
                    let here = selectors.entry(key.namespace.clone()).or_default();
                    if event.change == Change::Deleted {
                        here.remove(&key.name);
                    } else {
                        here.insert(key.name.clone(), LabelRule::from_map(&event.entry.shared_value()["spec"]["selector"]));
                    }
                    due.insert((key.namespace.clone(), key.name.clone()));
                }
            }
            events = pods.next() => {
                for event in events {
                    let Some(here) = selectors.get(&event.entry.key.namespace) else { continue };
                    let affected = here.iter().filter(|(_, rules)| {
                        let touches = |pod: &Entry| !rules.is_empty() && labels_match(rules, pod);
                        touches(&event.entry) || event.before.as_deref().is_some_and(touches)
                    });
                    due.extend(affected.map(|(name, _)| (event.entry.key.namespace.clone(), name.clone())));
                }
            }
            events = endpoints.next() => {
                // Our own are only looked at when somebody deletes them.
                let events = events.iter().filter(|event| {
                    event.change == Change::Deleted || event.entry.label(ENDPOINTS_MANAGED_BY).is_none()
                });
                let named = events.map(|event| (event.entry.key.namespace.clone(), event.entry.key.name.clone()));
                due.extend(named.filter(|key| is_service(&cluster, key)));
            }
            events = slices.next() => {
                let deleted = events.iter().filter(|event| event.change == Change::Deleted);
                let named = deleted.filter_map(|event| {
                    Some((event.entry.key.namespace.clone(), event.entry.label(SERVICE_NAME)?.into()))
                });
                due.extend(named.filter(|key| is_service(&cluster, key)));
            }
        }
        for (namespace, name) in due {
            let key = ObjectKey { namespace, name };
            worker.handle("services", &key, || sync(&cluster, &key.namespace, &key.name));
        }
    }
}

/// Whether there is a service of this name: endpoints that belong to none are left alone.
fn is_service(cluster: &Cluster, (namespace, name): &(Box<str>, Box<str>)) -> bool {
    cluster.store.get("services", &ObjectKey::new(namespace, name)).is_some()
}

fn sync(cluster: &Cluster, namespace: &str, name: &str) {
    let services = cluster.registry.builtin("", "services");
    let Ok(entry) = cluster.get(Target { resource: &services, namespace, name }) else {
        return remove(cluster, namespace, name);
    };
    let service = entry.shared_value();
    if (namespace, name) == API_SERVER {
        return announce_api_server(cluster, &service);
    }
    if service["spec"]["type"] == "ExternalName" {
        return;
    }
    let rules = LabelRule::from_map(&service["spec"]["selector"]);
    if rules.is_empty() {
        return mirror::sync(cluster, &service);
    }
    let span = ListRange { namespace: Some(namespace), ..ListRange::default() };
    let found = cluster.store.list("pods", &span, |pod| labels_match(&rules, pod));
    let found = found.map(|page| page.entries).unwrap_or_default();
    let pods: Vec<Arc<Value>> = found.iter().map(|entry| entry.shared_value()).filter(|pod| has_address(pod)).collect();
    let pods: Vec<&Value> = pods.iter().map(|pod| &**pod).collect();
    write_endpoints(cluster, &service, &pods);
    write_slices(cluster, &service, &pods);
}

/// Writes the endpoints of the API server: pods reach it at the address of its service.
fn announce_api_server(cluster: &Cluster, service: &Value) {
    let (namespace, name) = API_SERVER;
    let (ip, port) = (&service["spec"]["clusterIP"], &service["spec"]["ports"][0]);
    let ports = json!([{"name": port["name"], "port": port["port"], "protocol": port["protocol"]}]);
    let endpoints = json!({
        "metadata": {"name": name, "labels": {SKIP_MIRROR: "true"}},
        "subsets": [{"addresses": [{"ip": ip}], "ports": ports}],
    });
    put(cluster, "", "endpoints", namespace, &endpoints, &["subsets"]);
    let slice = json!({
        "metadata": {"name": name, "labels": {SERVICE_NAME: name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        "ports": ports,
    });
    put(cluster, "discovery.k8s.io", "endpointslices", namespace, &slice, &["ports", "endpoints"]);
}

fn has_address(pod: &Value) -> bool {
    pod["status"]["podIP"].as_str().is_some_and(|address| !address.is_empty())
        && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_ready(service: &Value, pod: &Value) -> bool {
    let terminating = pod["metadata"]["deletionTimestamp"].is_string();
    service["spec"]["publishNotReadyAddresses"] == true || (has_condition(pod, "Ready") && !terminating)
}

/// Returns the number of a service's port on a pod.
fn port_on(pod: &Value, port: &Value) -> Option<i64> {
    match &port["targetPort"] {
        Value::Number(number) => number.as_i64(),
        Value::String(name) => {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            let mut ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
            ports.find(|known| known["name"] == name.as_str())?["containerPort"].as_i64()
        }
        _ => port["port"].as_i64(),
    }
}

/// Returns the ports of a service as one pod offers them.
fn ports_of(service: &Value, pod: &Value) -> Vec<Value> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports
        .filter_map(|port| {
            let mut shown = json!({"port": port_on(pod, port)?, "protocol": port["protocol"]});
            for key in ["name", "appProtocol"] {
                if !port[key].is_null() {
                    shown[key] = port[key].clone();
                }
            }
            Some(shown)
        })
        .collect()
}

/// Groups pods by the ports that they offer.
fn by_ports<'a>(service: &Value, pods: &[&'a Value]) -> Vec<(Vec<Value>, Vec<&'a Value>)> {
    let mut groups: Vec<(Vec<Value>, Vec<&Value>)> = Vec::new();
    for pod in pods {
        let ports = ports_of(service, pod);
        match groups.iter_mut().find(|(known, _)| *known == ports) {
            Some((_, members)) => members.push(pod),
            None => groups.push((ports, vec![pod])),
        }
    }
    groups
}

fn reference(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    json!({"kind": "Pod", "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]})
}

fn write_endpoints(cluster: &Cluster, service: &Value, pods: &[&Value]) {
    let staying: Vec<&Value> =
        pods.iter().copied().filter(|pod| !pod["metadata"]["deletionTimestamp"].is_string()).collect();
    let mut subsets = Vec::new();
    for (ports, members) in by_ports(service, &staying) {
        let mut subset = json!({});
        if !ports.is_empty() {
            subset["ports"] = ports.into();
        }
        for pod in members {
            let list = if is_ready(service, pod) { "addresses" } else { "notReadyAddresses" };
            let mut address = json!({"ip": pod["status"]["podIP"], "targetRef": reference(pod)});
            if !pod["spec"]["nodeName"].is_null() {
                address["nodeName"] = pod["spec"]["nodeName"].clone();
            }
            if subset[list].is_null() {
                subset[list] = json!([]);
            }
            if let Some(addresses) = subset[list].as_array_mut() {
                addresses.push(address);
            }
        }
        subsets.push(subset);
    }
    let metadata = &service["metadata"];
    let mut labels = metadata["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    labels[ENDPOINTS_MANAGED_BY] = "endpoint-controller".into();
    if service["spec"]["clusterIP"] == "None" {
        labels["service.kubernetes.io/headless"] = "".into();
    }
    let wanted = json!({"metadata": {"name": metadata["name"], "labels": labels}, "subsets": subsets});
    put(cluster, "", "endpoints", metadata["namespace"].as_str().unwrap_or(""), &wanted, &["subsets"]);
}

fn write_slices(cluster: &Cluster, service: &Value, pods: &[&Value]) {
    let metadata = &service["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str().unwrap_or(""), metadata["name"].as_str().unwrap_or(""));
    let placed: Vec<&Value> = pods.iter().copied().filter(|pod| pod["spec"]["nodeName"].is_string()).collect();
    let mut wanted = Vec::new();
    for (ports, members) in by_ports(service, &placed) {
        for chunk in members.chunks(MAX_PER_SLICE) {
            let endpoints: Vec<Value> = chunk.iter().map(|pod| endpoint(service, pod)).collect();
            wanted.push((ports.clone(), endpoints));
        }
    }
    if wanted.is_empty() {
        wanted.push((Vec::new(), Vec::new()));
    }
    let mut labels = metadata["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    labels[SERVICE_NAME] = name.into();
    labels[MANAGED_BY] = MANAGER.into();
    if service["spec"]["clusterIP"] == "None" {
        labels["service.kubernetes.io/headless"] = "".into();
    }
    put_slices(cluster, namespace, service, &labels, &wanted);
}

/// Makes the slices with these labels those that are wanted, each with its ports and endpoints.
fn put_slices(cluster: &Cluster, namespace: &str, owner: &Value, labels: &Value, wanted: &[(Vec<Value>, Vec<Value>)]) {
    let slices = cluster.registry.builtin("discovery.k8s.io", "endpointslices");
    let span = ListRange { namespace: Some(namespace), ..ListRange::default() };
    let ours =
        |slice: &Entry| [SERVICE_NAME, MANAGED_BY].iter().all(|label| slice.label(label) == labels[*label].as_str());
    let found = cluster.store.list(&slices.table, &span, ours).map(|page| page.entries).unwrap_or_default();
    for (index, (ports, endpoints)) in wanted.iter().enumerate() {
        let mut slice = json!({
            "metadata": {"labels": labels, "ownerReferences": [owner_reference(owner)]},
            "addressType": "IPv4",
            "ports": some(ports),
            "endpoints": some(endpoints),
        });
        match found.get(index) {
            Some(known) => slice["metadata"]["name"] = (*known.key.name).into(),
            None => {
                let name = labels[SERVICE_NAME].as_str().unwrap_or("");
                slice["metadata"]["generateName"] = format!("{name}-").into();
            }
        }
        put(cluster, "discovery.k8s.io", "endpointslices", namespace, &slice, &["ports", "endpoints"]);
    }
    for surplus in found.iter().skip(wanted.len()) {
        let target = Target { resource: &slices, namespace, name: &surplus.key.name };
        if let Err(error) = cluster.delete(target, &DeleteOptions::default()) {
            tracing::debug!(%error, "cannot delete a surplus slice");
        }
    }
}

/// Returns the list, or `null` if it is empty: Go marshals a nil slice as `null`.
fn some(list: &[Value]) -> Value {
    if list.is_empty() { Value::Null } else { list.into() }
}

fn endpoint(service: &Value, pod: &Value) -> Value {
    let terminating = pod["metadata"]["deletionTimestamp"].is_string();
    let serving = has_condition(pod, "Ready");
    let mut endpoint = json!({
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": is_ready(service, pod), "serving": serving, "terminating": terminating},
        "nodeName": pod["spec"]["nodeName"],
        "targetRef": reference(pod),
    });
    if let Some(host) =
        pod["spec"]["hostname"].as_str().filter(|_| pod["spec"]["subdomain"] == service["metadata"]["name"])
    {
        endpoint["hostname"] = host.into();
    }
    endpoint
}

/// Creates an object, or updates its labels and the given fields.
fn put(cluster: &Cluster, group: &str, plural: &str, namespace: &str, wanted: &Value, fields: &[&str]) {
    let resource = cluster.registry.builtin(group, plural);
    let name = wanted["metadata"]["name"].as_str().unwrap_or("");
    let known = cluster.store.get(&resource.table, &ObjectKey::new(namespace, name)).filter(|_| !name.is_empty());
    let result = if let Some(known) = known {
        let known = known.shared_value();
        let same_labels = known["metadata"]["labels"] == wanted["metadata"]["labels"];
        if same_labels && fields.iter().all(|field| known[*field] == wanted[*field]) {
            return;
        }
        let target = Target { resource: &resource, namespace, name };
        cluster.edit(target, |value| {
            value["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
            for field in fields {
                value[*field] = wanted[*field].clone();
            }
        })
    } else {
        cluster.create(&resource, namespace, wanted.clone(), &WriteOptions::default())
    };
    if let Err(error) = result {
        tracing::debug!(%error, namespace, plural, "cannot write endpoints");
    }
}

/// Deletes the Endpoints of a deleted service; its EndpointSlices are garbage collected.
fn remove(cluster: &Cluster, namespace: &str, name: &str) {
    let endpoints = cluster.registry.builtin("", "endpoints");
    let target = Target { resource: &endpoints, namespace, name };
    if let Err(error) = cluster.delete(target, &DeleteOptions::default())
        && !error.is_not_found()
    {
        tracing::debug!(%error, namespace, name, "cannot delete endpoints");
    }
}
