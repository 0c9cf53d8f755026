//! The custom kinds of a world.

use crate::script::{BatchScheduler, Script};
use anyhow::{Result, anyhow};
use manta_api::crd::{self, Versions};
use manta_apiserver::ops::{Cluster, WriteOptions};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Installs the kinds that a script needs, and serves them at once.
pub(crate) fn install(cluster: &Cluster, script: &Script) -> Result<()> {
    let resource = cluster.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let mut served = Vec::new();
    for definition in ray_kinds().iter().cloned().chain(kinds_of_others(script)) {
        let made = cluster.create(&resource, "", definition, &WriteOptions::default());
        served.push(made.map_err(|error| anyhow!("cannot create a CRD: {error}"))?.entry.value());
    }
    cluster.registry.define(&served);
    Ok(())
}

/// Returns Ray's CRDs with schemas that accept everything: the real ones take longer to compile than a world lasts, and
/// what they refuse is tested elsewhere.
fn ray_kinds() -> &'static [Value] {
    static CRDS: LazyLock<Vec<Value>> = LazyLock::new(|| {
        let mut crds: Vec<Value> = crd::all(Versions::V1).iter().map(|crd| json!(crd)).collect();
        for version in crds.iter_mut().filter_map(|crd| crd["spec"]["versions"].as_array_mut()).flatten() {
            version["schema"] = anything();
        }
        crds
    });
    &CRDS
}

fn kinds_of_others(script: &Script) -> Vec<Value> {
    let mut kinds = match script.scheduler {
        Some(BatchScheduler::Volcano) => vec![kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")],
        Some(BatchScheduler::SchedulerPlugins) => {
            vec![kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")]
        }
        Some(BatchScheduler::KubernetesWorkloads) => vec![
            kind("scheduling.k8s.io", "v1alpha2", "Workload", "workloads"),
            kind("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups"),
        ],
        Some(BatchScheduler::Kai | BatchScheduler::Yunikorn) | None => Vec::new(),
    };
    if script.has_gateways() {
        kinds.push(kind("gateway.networking.k8s.io", "v1", "Gateway", "gateways"));
        kinds.push(kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"));
    }
    if script.has_certificates() {
        kinds.push(kind("cert-manager.io", "v1", "Issuer", "issuers"));
        kinds.push(kind("cert-manager.io", "v1", "Certificate", "certificates"));
    }
    kinds
}

fn kind(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    let version = json!({
        "name": version, "served": true, "storage": true, "subresources": {"status": {}}, "schema": anything(),
    });
    json!({
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group, "scope": "Namespaced", "versions": [version],
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
        },
    })
}

/// Returns a schema that accepts everything.
fn anything() -> Value {
    json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})
}
