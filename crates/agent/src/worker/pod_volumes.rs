//! Sets up the volumes of a pod, and updates the files in them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;

use crate::agent::Shared;
use crate::downward_api::NodeValues;
use crate::network::GATEWAY;
use crate::node;
use crate::tokens::Tokens;
use crate::volumes::{self, Credentials, Volume, disk};

/// The volumes of a pod on disk.
pub(super) struct PodVolumes {
    pub(super) plan: BTreeMap<String, Volume>,
    pub(super) dirs: BTreeMap<String, PathBuf>,
}

/// Sets up all volumes of a pod.
pub(super) async fn set_up(shared: &Shared, pod: &Pod, ip: &str, tokens: &Tokens) -> Result<PodVolumes, String> {
    let plan = plan(shared, pod, ip, tokens).await?;
    let folders = dirs(shared, pod);
    let mut dirs = BTreeMap::new();
    for (name, volume) in &plan {
        let path = disk::set_up(&folders, name, &without_mounts(shared, volume))
            .map_err(|e| format!("MountVolume.SetUp failed for volume \"{name}\" : {e}"))?;
        dirs.insert(name.clone(), path);
    }
    Ok(PodVolumes { plan, dirs })
}

/// Rewrites mounted files whose sources have changed.
pub(super) async fn refresh(shared: &Shared, pod: &Pod, ip: &str, tokens: &Tokens) -> Result<(), String> {
    let (plan, dirs) = (plan(shared, pod, ip, tokens).await?, dirs(shared, pod));
    for (name, volume) in plan.iter().filter(|(_, v)| matches!(v, Volume::Files(_))) {
        // Only volumes that are mounted already; the others are set up when a container starts.
        if dirs.pod.join("volumes").join(name).exists() {
            disk::set_up(&dirs, name, volume).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Without a mount namespace a memory volume is a folder: a mount would be visible to the whole host.
fn without_mounts(shared: &Shared, volume: &Volume) -> Volume {
    match volume {
        Volume::Memory { .. } if shared.config.shared_host.is_some() => Volume::Empty,
        other => other.clone(),
    }
}

async fn plan(shared: &Shared, pod: &Pod, ip: &str, tokens: &Tokens) -> Result<BTreeMap<String, Volume>, String> {
    let sources = shared.stores.sources(pod.metadata.namespace.as_deref().unwrap_or_default());
    let tokens = tokens.get(&shared.client, pod, &volumes::token_kinds(pod)).await?;
    let credentials = Credentials { ca: shared.config.cluster_ca.clone(), tokens };
    volumes::plan(pod, &sources, &values(shared, ip), &credentials, shared.config.host_paths).map_err(|e| e.to_string())
}

/// Returns the directories of a pod's volumes and their owner.
pub(super) fn dirs(shared: &Shared, pod: &Pod) -> disk::VolumeDirs {
    let group = pod.spec.as_ref().and_then(|s| s.security_context.as_ref()).and_then(|c| c.fs_group);
    disk::VolumeDirs {
        pod: shared.pod_folder(pod.metadata.uid.as_deref().unwrap_or_default()),
        claims: shared.config.state.join("claims"),
        owner: shared.ids.owner(0, group.and_then(|gid| u32::try_from(gid).ok()).unwrap_or(0)),
        has_group: group.is_some(),
    }
}

/// Returns the values of the downward API that are not in the pod object.
pub(super) fn values(shared: &Shared, ip: &str) -> NodeValues {
    NodeValues { pod_ip: ip.to_owned(), host_ip: GATEWAY.to_string(), allocatable: node::capacity(&shared.config) }
}
