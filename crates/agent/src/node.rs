//! The Node object and its lease, and the requests of the scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use crate::agent::Config;
use crate::network::GATEWAY;

pub(crate) const MAX_PODS: usize = 250;
const MANAGER: &str = "kubelet";
const LEASE_SECONDS: i32 = 40;
/// The taint of a node that has not reported yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Returns the capacity of the node.
pub(crate) fn capacity(config: &Config) -> BTreeMap<String, Quantity> {
    let gpus = config.gpus.capacity().map(|(name, count)| (name.to_owned(), Quantity(count.to_string())));
    let fixed = [
        ("cpu".to_owned(), Quantity(format!("{}m", config.cpu_milli))),
        ("memory".to_owned(), Quantity(config.memory_bytes.to_string())),
        ("pods".to_owned(), Quantity(MAX_PODS.to_string())),
        // Disk space is not limited; pods that request some must still be scheduled.
        ("ephemeral-storage".to_owned(), Quantity("1Ti".to_owned())),
    ];
    fixed.into_iter().chain(gpus).collect()
}

pub(crate) fn labels(config: &Config) -> BTreeMap<String, String> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), config.node_name.clone()),
        ("kubernetes.io/os".to_owned(), "linux".to_owned()),
        ("kubernetes.io/arch".to_owned(), arch.to_owned()),
    ])
}

/// Creates the Node, or takes it over from an earlier run.
pub(crate) async fn register(client: &Client, config: &Config) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut node: Node = Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels(config)),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            node.metadata.resource_version = None;
            let patch = json!({"metadata": {"labels": labels(config)}, "spec": {"unschedulable": null}});
            nodes.patch(&config.node_name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Err(error) => return Err(error),
    }
    report(client, config).await?;
    remove_initial_taint(&nodes, &config.node_name).await
}

/// Removes the taint that kube-apiserver gives to new nodes. The controller that does so once a node is ready may not run
/// beside this agent.
async fn remove_initial_taint(nodes: &Api<Node>, name: &str) -> Result<(), kube::Error> {
    let taints = nodes.get(name).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let (initial, others): (Vec<Taint>, Vec<Taint>) = taints.into_iter().partition(|taint| taint.key == NOT_READY);
    if initial.is_empty() {
        return Ok(());
    }
    let patch = json!({"spec": {"taints": others}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn report(client: &Client, config: &Config) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let now = Timestamp::now();
    let condition = |kind: &str, ok: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": ok, "reason": reason, "message": message,
               "lastHeartbeatTime": Time(now), "lastTransitionTime": Time(now)})
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let status = json!({"status": {
        "capacity": capacity(config),
        "allocatable": capacity(config),
        "addresses": [
            {"type": "InternalIP", "address": GATEWAY.to_string()},
            {"type": "Hostname", "address": config.node_name},
        ],
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "nodeInfo": {
            "architecture": labels(config)["kubernetes.io/arch"], "operatingSystem": "linux",
            "kernelVersion": release.trim(), "osImage": "this machine", "containerRuntimeVersion": "manta://processes",
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-manta"),
            "kubeProxyVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
        },
    }});
    nodes.patch_status(&config.node_name, &PatchParams::default(), &Patch::Merge(status)).await.map(drop)
}

/// Renews the node's lease, without which a control plane declares it lost.
pub(crate) async fn keep_alive(client: Client, config: Config) {
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let mut tick = tokio::time::interval(Duration::from_secs(10));
    loop {
        tick.tick().await;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": config.node_name},
            "spec": {"holderIdentity": config.node_name, "leaseDurationSeconds": LEASE_SECONDS,
                     "renewTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(Timestamp::now())},
        });
        let apply = PatchParams::apply(MANAGER).force();
        if let Err(error) = leases.patch(&config.node_name, &apply, &Patch::Apply(lease)).await {
            // An API server without leases has no controller that needs them.
            tracing::debug!(%error, "cannot renew the node lease");
        }
    }
}

/// Binds a pod to the node.
pub(crate) async fn bind(client: &Client, pod: &Pod, node: &str) -> Result<(), kube::Error> {
    let (name, namespace) = key(pod);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let binding = Binding {
        metadata: ObjectMeta { name: Some(name.clone()), uid: pod.metadata.uid.clone(), ..ObjectMeta::default() },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        },
    };
    pods.create_subresource::<Binding, serde_json::Value>("binding", &name, &PostParams::default(), &binding)
        .await
        .map(drop)
}

/// Sets the PodScheduled condition of an unschedulable pod, once per reason.
pub(crate) async fn set_unschedulable(
    client: &Client,
    pod: &Pod,
    why: &str,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let old = pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == "PodScheduled");
    if old.is_some_and(|c| c.status == "False" && c.message.as_deref() == Some(why)) {
        return Ok(());
    }
    let since = old.filter(|c| c.status == "False").and_then(|c| c.last_transition_time.clone()).unwrap_or(Time(now));
    let (name, namespace) = key(pod);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let patch = json!({"status": {"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why, "lastTransitionTime": since},
    ]}});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

fn key(pod: &Pod) -> (String, String) {
    (pod.metadata.name.clone().unwrap_or_default(), pod.metadata.namespace.clone().unwrap_or_default())
}
