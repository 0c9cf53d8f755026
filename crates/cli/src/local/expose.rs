//! Forwards loopback ports of this machine to dashboards, Ray clients' servers and Serve endpoints.

use super::Local;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use manta_agent::network::loopback;
use manta_logic::labels;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

/// The file in the state directory that lists the forwarded ports, for `manta status`.
const ADDRESSES: &str = "addresses.json";

/// What a port leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Endpoint {
    Dashboard,
    /// The server for `ray.init("ray://…")`.
    Client,
    Serve,
}

impl Endpoint {
    fn port(self) -> u16 {
        match self {
            Self::Dashboard => 8265,
            Self::Client => 10001,
            Self::Serve => 8000,
        }
    }

    /// Returns the parameter of `ray start` that changes the port.
    fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Dashboard => Some("dashboard-port"),
            Self::Client => Some("ray-client-server-port"),
            Self::Serve => None,
        }
    }

    fn protocol(self) -> loopback::Protocol {
        match self {
            Self::Dashboard | Self::Serve => loopback::Protocol::Http,
            Self::Client => loopback::Protocol::Tcp,
        }
    }

    fn url(self, address: SocketAddr) -> String {
        let scheme = if self == Self::Client { "ray" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// Returns its name for users.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dashboard => "dashboard",
            Self::Client => "client",
            Self::Serve => "Serve",
        }
    }
}

/// A port of this machine that leads to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Address {
    /// As in `RayCluster default/demo`; empty if the port is the same for every object.
    pub(crate) object: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) url: String,
}

/// Returns the forwarded ports of the local mode in a state directory.
pub(crate) fn addresses(state: &Path) -> Vec<Address> {
    let text = std::fs::read_to_string(state.join(ADDRESSES)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The address that a port of this machine is currently forwarded to.
type Target = Arc<Mutex<Option<SocketAddr>>>;

/// Opens ports for every cluster's dashboard and client server and for every RayService, and prints them; never returns.
pub(crate) async fn expose_dashboards(local: &Local, print: &(dyn Fn(String) + Sync)) {
    let file = local.state.join(ADDRESSES);
    let mut forwards = Forwards { file, open: HashMap::new(), tasks: JoinSet::new() };
    if !local.has_pod_networks {
        // Ray listens on these ports of the machine itself.
        let fixed = [Endpoint::Dashboard, Endpoint::Client, Endpoint::Serve].map(|endpoint| {
            let url = endpoint.url((Ipv4Addr::LOCALHOST, endpoint.port()).into());
            Address { object: String::new(), endpoint, url }
        });
        let shown = fixed.iter().map(|address| format!("{}: {}", address.endpoint.name(), address.url));
        print(shown.collect::<Vec<_>>().join(", "));
        forwards.publish(&fixed);
        return std::future::pending().await;
    }
    forwards.publish(&[]);
    let clusters: Api<DynamicObject> = Api::all_with(local.client.clone(), &super::ray_resource("RayCluster"));
    let services: Api<Service> = Api::all(local.client.clone());
    let mut clusters = watcher(clusters, watcher::Config::default()).boxed();
    let mut services = watcher(services, watcher::Config::default()).boxed();
    loop {
        tokio::select! {
            Some(event) = clusters.next() => match event {
                Ok(watcher::Event::Apply(cluster) | watcher::Event::InitApply(cluster)) => {
                    for endpoint in [Endpoint::Dashboard, Endpoint::Client] {
                        let key = (format!("RayCluster {}", key(&cluster)), endpoint);
                        forwards.forward(local, print, key, head_address(&cluster.data, endpoint)).await;
                    }
                }
                Ok(watcher::Event::Delete(cluster)) => forwards.close(&format!("RayCluster {}", key(&cluster))),
                _ => {}
            },
            Some(event) = services.next() => match event {
                Ok(watcher::Event::Apply(service) | watcher::Event::InitApply(service)) => {
                    if let Some((owner, address)) = serve_address(&service) {
                        forwards.forward(local, print, (owner, Endpoint::Serve), Some(address)).await;
                    }
                }
                Ok(watcher::Event::Delete(service)) => {
                    if let Some((owner, _)) = serve_address(&service) {
                        forwards.close(&owner);
                    }
                }
                _ => {}
            },
            else => return,
        }
    }
}

/// An object as in `RayCluster default/demo`, and one of its endpoints.
type Key = (String, Endpoint);

/// A port that is forwarded.
struct Forward {
    target: Target,
    url: String,
    task: tokio::task::AbortHandle,
}

struct Forwards {
    /// Where the open ports are published.
    file: PathBuf,
    open: HashMap<Key, Forward>,
    tasks: JoinSet<()>,
}

impl Forwards {
    /// Forwards a port to the backend, and opens the port the first time.
    async fn forward(&mut self, local: &Local, print: &(dyn Fn(String) + Sync), key: Key, backend: Option<SocketAddr>) {
        if let Some(forward) = self.open.get(&key) {
            *forward.target.lock().unwrap_or_else(PoisonError::into_inner) = backend;
            return;
        }
        if backend.is_none() {
            return;
        }
        let (object, endpoint) = &key;
        // A port close to the usual one is easier to remember than a random one.
        for port in (endpoint.port()..endpoint.port() + 20).chain([0]) {
            let Ok(listener) = local.machine.listen((Ipv4Addr::LOCALHOST, port).into()).await else { continue };
            let Ok(address) = listener.local_addr() else { continue };
            let target: Target = Arc::new(Mutex::new(backend));
            let (shared, access) = (Arc::clone(&target), Arc::clone(&local.access));
            let protocol = endpoint.protocol();
            let task = self.tasks.spawn(async move {
                let current = move || *shared.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = loopback::serve(listener, protocol, access, current).await {
                    tracing::warn!(%address, %error, "stopped forwarding a local port");
                }
            });
            let url = endpoint.url(address);
            print(format!("{} of {object}: {url}", endpoint.name()));
            self.open.insert(key, Forward { target, url, task });
            self.publish(&self.addresses());
            return;
        }
    }

    /// Closes the ports of an object.
    fn close(&mut self, object: &str) {
        self.open.retain(|(of, _), forward| {
            let stays = of != object;
            if !stays {
                forward.task.abort();
            }
            stays
        });
        self.publish(&self.addresses());
    }

    fn addresses(&self) -> Vec<Address> {
        let address = |((object, endpoint), forward): (&Key, &Forward)| Address {
            object: object.clone(),
            endpoint: *endpoint,
            url: forward.url.clone(),
        };
        self.open.iter().map(address).collect()
    }

    fn publish(&self, addresses: &[Address]) {
        let text = serde_json::to_string(addresses).unwrap_or_default();
        let new = self.file.with_extension("new");
        // Renamed, so that nobody reads half of it.
        if let Err(error) = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.file)) {
            tracing::warn!(file = %self.file.display(), %error, "cannot publish the forwarded ports");
        }
    }
}

/// Returns where the head of a RayCluster listens, once it has an address.
fn head_address(cluster: &Value, endpoint: Endpoint) -> Option<SocketAddr> {
    let ip: Ipv4Addr = cluster.pointer("/status/head/podIP")?.as_str()?.parse().ok()?;
    let parameters = &cluster["spec"]["headGroupSpec"]["rayStartParams"];
    let given = endpoint.parameter().and_then(|name| parameters[name].as_str()?.parse().ok());
    Some((ip, given.unwrap_or(endpoint.port())).into())
}

/// Returns a RayService and the address of its own Serve Service, not of the one per cluster.
fn serve_address(service: &Service) -> Option<(String, SocketAddr)> {
    let owner = service.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "RayService")?;
    // Its name may be the user's.
    service.labels().get(labels::SERVE)?;
    let spec = service.spec.as_ref()?;
    let is_serve = |name: Option<&str>, port: i32| name == Some("serve") || port == i32::from(Endpoint::Serve.port());
    let port = spec.ports.iter().flatten().find(|port| is_serve(port.name.as_deref(), port.port))?;
    let ip: Ipv4Addr = spec.cluster_ip.as_deref()?.parse().ok()?;
    let owner = format!("RayService {}/{}", service.namespace().unwrap_or_default(), owner.name);
    let address = (ip, u16::try_from(port.port).ok()?).into();
    Some((owner, address))
}

fn key<K: ResourceExt>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use manta_logic::build::service_serve_service;
    use serde_json::json;

    #[test]
    fn the_head_listens_where_its_parameters_say() {
        let check = |parameters: Value, dashboard: u16, client: u16| {
            let cluster = json!({
                "spec": {"headGroupSpec": {"rayStartParams": parameters}}, "status": {"head": {"podIP": "10.244.0.7"}},
            });
            let got = [Endpoint::Dashboard, Endpoint::Client].map(|endpoint| head_address(&cluster, endpoint));
            assert_eq!(got, [dashboard, client].map(|port| Some((Ipv4Addr::new(10, 244, 0, 7), port).into())));
        };
        check(Value::Null, 8265, 10001);
        check(json!({"dashboard-port": "9265", "ray-client-server-port": "20001"}), 9265, 20001);
        check(json!({"dashboard-port": "nonsense"}), 8265, 10001);
        assert_eq!(head_address(&json!({"status": {"head": {"podIP": ""}}}), Endpoint::Dashboard), None);
    }

    #[test]
    fn a_serve_service_is_found_under_any_name() {
        let address = |serve_service: Value| {
            let service = json!({
                "metadata": {"name": "greeter", "namespace": "d", "uid": "u"},
                "spec": {"serveService": serve_service, "rayClusterConfig": {"headGroupSpec": {"template": {}}}},
            });
            let cluster = json!({"metadata": {"name": "greeter-1", "namespace": "d"}, "spec": {"headGroupSpec": {
                "template": {"spec": {"containers": [{"name": "ray-head"}]}}}}});
            let service = serde_json::from_value(service).unwrap();
            let mut built = service_serve_service(&service, &serde_json::from_value(cluster).unwrap()).unwrap();
            built.spec.get_or_insert_default().cluster_ip = Some("10.96.0.9".to_owned());
            (built.name_any(), serve_address(&built))
        };
        let expect = Some(("RayService d/greeter".to_owned(), "10.96.0.9:8000".parse().unwrap()));
        assert_eq!(address(Value::Null), ("greeter-serve-svc".to_owned(), expect.clone()));
        assert_eq!(address(json!({"metadata": {"name": "mine"}})), ("mine".to_owned(), expect));
        let head = json!({"metadata": {"name": "greeter-head-svc", "ownerReferences": [
            {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "greeter", "uid": "u"}]}, "spec": {
            "clusterIP": "10.96.0.8", "ports": [{"name": "serve", "port": 8000}]}});
        assert_eq!(serve_address(&serde_json::from_value(head).unwrap()), None);
    }
}
