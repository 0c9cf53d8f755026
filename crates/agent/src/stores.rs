//! Caches of the objects that the agent reads, updated by watches.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::env::{ClaimState, Sources};

#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) pods: Store<Pod>,
    pub(crate) services: Store<Service>,
    pub(crate) slices: Store<EndpointSlice>,
    pub(crate) nodes: Store<Node>,
    config_maps: Store<ConfigMap>,
    secrets: Store<Secret>,
    claims: Store<PersistentVolumeClaim>,
    /// Counts changes of pods, services, EndpointSlices and nodes.
    pub(crate) changed: watch::Receiver<u64>,
    /// Counts changes of ConfigMaps, Secrets and claims.
    pub(crate) sources_changed: watch::Receiver<u64>,
}

impl Stores {
    /// Starts the watches in `tasks` and waits for their initial lists.
    pub(crate) async fn start(client: &Client, tasks: &mut JoinSet<()>) -> Self {
        let (sender, changed) = watch::channel(0);
        let (sources_sender, sources_changed) = watch::channel(0);
        let stores = Self {
            pods: follow(Api::all(client.clone()), sender.clone(), tasks),
            services: follow(Api::all(client.clone()), sender.clone(), tasks),
            slices: follow(Api::all(client.clone()), sender.clone(), tasks),
            nodes: follow(Api::all(client.clone()), sender, tasks),
            config_maps: follow(Api::all(client.clone()), sources_sender.clone(), tasks),
            secrets: follow(Api::all(client.clone()), sources_sender.clone(), tasks),
            claims: follow(Api::all(client.clone()), sources_sender, tasks),
            changed,
            sources_changed,
        };
        // A watch that never becomes ready is retried until the agent is stopped.
        let _ = stores.pods.wait_until_ready().await;
        let _ = stores.services.wait_until_ready().await;
        let _ = stores.slices.wait_until_ready().await;
        let _ = stores.nodes.wait_until_ready().await;
        let _ = stores.config_maps.wait_until_ready().await;
        let _ = stores.secrets.wait_until_ready().await;
        let _ = stores.claims.wait_until_ready().await;
        stores
    }

    /// Returns the ConfigMaps, Secrets and claims of one namespace.
    pub(crate) fn sources(&self, namespace: &str) -> NamespaceSources {
        NamespaceSources { stores: self.clone(), namespace: namespace.to_owned() }
    }
}

fn follow<K>(api: Api<K>, changed: watch::Sender<u64>, tasks: &mut JoinSet<()>) -> Store<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    let (reader, writer) = store();
    let stream = watcher(api, watcher::Config::default()).default_backoff().modify(|object| {
        object.meta_mut().managed_fields = None;
    });
    let stream = stream.reflect(writer);
    tasks.spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            match event {
                // During a list the store still holds the old state.
                Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                Ok(_) => changed.send_modify(|n| *n += 1),
                Err(error) => {
                    tracing::debug!(kind = std::any::type_name::<K>(), %error, "watch failed; retrying");
                }
            }
        }
    });
    reader
}

pub(crate) struct NamespaceSources {
    stores: Stores,
    namespace: String,
}

impl Sources for NamespaceSources {
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let found: Arc<ConfigMap> = self.stores.config_maps.get(&ObjectRef::new(name).within(&self.namespace))?;
        let text = found.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
        let binary = found.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()));
        Some(text.chain(binary).collect())
    }

    fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let found: Arc<Secret> = self.stores.secrets.get(&ObjectRef::new(name).within(&self.namespace))?;
        Some(found.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect())
    }

    fn claim(&self, name: &str) -> Option<ClaimState> {
        let found = self.stores.claims.get(&ObjectRef::new(name).within(&self.namespace))?;
        let uid = found.metadata.uid.clone().unwrap_or_default();
        let is_bound = found.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        let volume = found.spec.as_ref().and_then(|s| s.volume_name.clone()).unwrap_or_default();
        Some(match (is_bound, volume) {
            (true, volume) if volume == format!("pvc-{uid}") => ClaimState::Bound { uid },
            (_, volume) if volume.is_empty() => ClaimState::Pending,
            (true, volume) => ClaimState::Foreign { volume },
            (false, _) => ClaimState::Pending,
        })
    }
}
