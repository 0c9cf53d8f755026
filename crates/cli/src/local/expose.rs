//! Forwards loopback ports of this machine to dashboards and Serve endpoints.

use super::Local;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use manta_agent::network::proxy;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

const DASHBOARD: u16 = 8265;
const SERVE: u16 = 8000;

/// The address that a port of this machine is currently forwarded to.
type Target = Arc<Mutex<Option<SocketAddr>>>;

/// Opens a port for every cluster's dashboard and every RayService, and prints it; never returns.
pub(crate) async fn expose_dashboards(local: &Local, print: &(dyn Fn(String) + Sync)) {
    if !local.has_pod_networks {
        // Ray listens on these ports of the machine itself.
        print(format!("dashboard: http://127.0.0.1:{DASHBOARD}, Serve: http://127.0.0.1:{SERVE}"));
        return std::future::pending().await;
    }
    let clusters: Api<DynamicObject> = Api::all_with(local.client.clone(), &super::ray_resource("RayCluster"));
    let services: Api<Service> = Api::all(local.client.clone());
    let mut clusters = watcher(clusters, watcher::Config::default()).boxed();
    let mut services = watcher(services, watcher::Config::default()).boxed();
    let mut forwards = Forwards { targets: HashMap::new(), tasks: JoinSet::new() };
    loop {
        tokio::select! {
            Some(event) = clusters.next() => match event {
                Ok(watcher::Event::Apply(cluster) | watcher::Event::InitApply(cluster)) => {
                    let ip = cluster.data.pointer("/status/head/podIP").and_then(|v| v.as_str()).and_then(|ip| ip.parse().ok());
                    let key = format!("dashboard of {}", key(&cluster));
                    forwards.forward(local, print, &key, DASHBOARD, ip.map(|ip: Ipv4Addr| (ip, DASHBOARD).into())).await;
                }
                Ok(watcher::Event::Delete(cluster)) => forwards.close(&format!("dashboard of {}", key(&cluster))),
                _ => {}
            },
            Some(event) = services.next() => match event {
                Ok(watcher::Event::Apply(service) | watcher::Event::InitApply(service)) => {
                    if let Some(address) = serve_address(&service) {
                        let key = format!("Serve at {}", key(&service));
                        forwards.forward(local, print, &key, SERVE, Some(address)).await;
                    }
                }
                Ok(watcher::Event::Delete(service)) => forwards.close(&format!("Serve at {}", key(&service))),
                _ => {}
            },
            else => return,
        }
    }
}

struct Forwards {
    targets: HashMap<String, (Target, tokio::task::AbortHandle)>,
    tasks: JoinSet<()>,
}

impl Forwards {
    /// Forwards a port to the backend, and opens the port the first time.
    async fn forward(
        &mut self,
        local: &Local,
        print: &(dyn Fn(String) + Sync),
        key: &str,
        preferred_port: u16,
        backend: Option<SocketAddr>,
    ) {
        if let Some((target, _)) = self.targets.get(key) {
            *target.lock().unwrap_or_else(PoisonError::into_inner) = backend;
            return;
        }
        if backend.is_none() {
            return;
        }
        // A port close to the usual one is easier to remember than a random one.
        for port in (preferred_port..preferred_port + 20).chain([0]) {
            let Ok(listener) = local.machine.listen((Ipv4Addr::LOCALHOST, port).into()).await else { continue };
            let Ok(address) = listener.local_addr() else { continue };
            let target: Target = Arc::new(Mutex::new(backend));
            let shared = Arc::clone(&target);
            let task = self.tasks.spawn(async move {
                let current = move || *shared.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = proxy::expose(listener, current).await {
                    tracing::warn!(%address, %error, "stopped forwarding a local port");
                }
            });
            print(format!("{key}: http://{address}"));
            self.targets.insert(key.to_owned(), (target, task));
            return;
        }
    }

    fn close(&mut self, key: &str) {
        if let Some((_, task)) = self.targets.remove(key) {
            task.abort();
        }
    }
}

/// Returns the address of a RayService's own Serve Service, not of the one per cluster.
fn serve_address(service: &Service) -> Option<SocketAddr> {
    let owner = service.metadata.owner_references.iter().flatten().any(|o| o.kind == "RayService");
    let spec = service.spec.as_ref()?;
    let port =
        spec.ports.iter().flatten().find(|p| p.name.as_deref() == Some("serve") || p.port == i32::from(SERVE))?;
    let is_serve = service.name_any().ends_with("-serve-svc");
    let ip: Ipv4Addr = spec.cluster_ip.as_deref()?.parse().ok()?;
    (owner && is_serve).then(|| (ip, u16::try_from(port.port).unwrap_or(SERVE)).into())
}

fn key<K: ResourceExt>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
