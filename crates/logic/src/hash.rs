//! The hash of a cluster spec, which detects upgrades.
//!
//! It ignores changes that need no upgrade: the upgrade strategy, the sizes of worker groups, tolerations and scheduling
//! gates. The hashed bytes are those of KubeRay v1.7.0, so either operator can take over the clusters of the other
//! without restarting them.

use crate::go::{Root, to_go_json};
use manta_api::RayClusterSpec;
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

/// Returns the hash that is stored in a head Pod, in which missing and empty start parameters are the same.
pub fn cluster_hash(spec: &RayClusterSpec) -> String {
    let mut spec = without_ignored_fields(spec);
    for group in groups(&mut spec) {
        if group.get("rayStartParams").is_none_or(Value::is_null) {
            group.insert("rayStartParams".to_owned(), json!({}));
        }
    }
    digest(&spec)
}

/// Returns the hash that is stored in the cluster of a RayService, in which suspension is not an upgrade.
pub fn service_hash(spec: &RayClusterSpec) -> String {
    digest(&service_input(spec))
}

/// Returns the hash of a RayService's cluster with only its first `count` worker groups, if it has that many.
///
/// It distinguishes an upgrade from groups that were added at the end.
pub fn service_hash_of_groups(spec: &RayClusterSpec, count: usize) -> Option<String> {
    let mut input = service_input(spec);
    match input.get_mut("workerGroupSpecs") {
        Some(Value::Array(groups)) if groups.len() >= count => groups.truncate(count),
        None if count == 0 => {}
        _ => return None,
    }
    Some(digest(&input))
}

fn service_input(spec: &RayClusterSpec) -> Value {
    let mut input = without_ignored_fields(spec);
    remove(&mut input, "suspend");
    input
}

fn without_ignored_fields(spec: &RayClusterSpec) -> Value {
    // A spec has only string keys, so it can always be converted to JSON.
    let mut spec = serde_json::to_value(spec).unwrap_or_default();
    remove(&mut spec, "upgradeStrategy");
    for group in groups(&mut spec) {
        for size in ["replicas", "minReplicas", "maxReplicas"] {
            group.remove(size);
        }
        if let Some(strategy) = group.get_mut("scaleStrategy") {
            remove(strategy, "workersToDelete");
        }
        let pod = group.get_mut("template").and_then(|template| template.get_mut("spec"));
        if let Some(pod) = pod {
            remove(pod, "tolerations");
            remove(pod, "schedulingGates");
        }
    }
    spec
}

/// Returns the head group and the worker groups.
fn groups(spec: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let fields = spec.as_object_mut().into_iter().flatten();
    fields.flat_map(|(name, value)| match (name.as_str(), value) {
        ("headGroupSpec", Value::Object(head)) => vec![head],
        ("workerGroupSpecs", Value::Array(workers)) => workers.iter_mut().filter_map(Value::as_object_mut).collect(),
        _ => Vec::new(),
    })
}

fn remove(value: &mut Value, field: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
}

/// Returns 32 characters of base32 with the extended hex alphabet.
fn digest(spec: &Value) -> String {
    base32_hex(&Sha1::digest(to_go_json(spec, Root::RayClusterSpec)))
}

fn base32_hex(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";
    // Five bytes make eight characters, so twenty bytes need no padding.
    let letters = |chunk: &[u8]| {
        let bits = chunk.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        (0..8).rev().map(move |place| ALPHABET[(bits >> (5 * place) & 31) as usize] as char).collect::<String>()
    };
    bytes.chunks(5).map(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_base32() {
        assert_eq!(base32_hex(b"foobafooba"), "CPNMUOJ1CPNMUOJ1");
        assert_eq!(base32_hex(&[0; 20]), "0".repeat(32));
    }

    fn sample() -> RayClusterSpec {
        let container = |name: &str, limits: Value, requests: Value| {
            json!({"spec": {"containers": [{
                "name": name, "image": "rayproject/ray:2.52.0",
                "resources": {"limits": limits, "requests": requests},
            }]}})
        };
        let spec = json!({
            "rayVersion": "2.52.0",
            "headGroupSpec": {
                "rayStartParams": {},
                "template": container("ray-head", json!({"cpu": 2, "memory": "5Gi"}), json!({"cpu": "2", "memory": "2Gi"})),
            },
            "workerGroupSpecs": [{
                "groupName": "small-group", "replicas": 1, "minReplicas": 1, "maxReplicas": 5, "numOfHosts": 1,
                "priority": 0, "rayStartParams": {},
                "template": container("ray-worker", json!({"cpu": "1", "memory": "2Gi"}), json!({"cpu": "0.5", "memory": "2048Mi"})),
            }],
        });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_sample_has_the_hash_of_kuberay() {
        assert_eq!(service_hash(&sample()), "Q1055GBNIO0AH4T77DF02RUTJ6K23ASF");
    }

    #[test]
    fn sizes_and_scheduling_are_ignored() {
        let (hash, spec) = (service_hash(&sample()), sample());
        let check = |change: fn(&mut RayClusterSpec), same: bool| {
            let mut changed = spec.clone();
            change(&mut changed);
            assert_eq!(service_hash(&changed) == hash, same);
        };
        check(|spec| spec.suspend = Some(true), true);
        check(|spec| spec.upgrade_strategy = Some(Default::default()), true);
        check(|spec| spec.worker_group_specs.as_mut().unwrap()[0].replicas = Some(3), true);
        check(|spec| spec.worker_group_specs.as_mut().unwrap()[0].max_replicas = Some(9), true);
        check(
            |spec| {
                let names = Some(vec!["a".to_owned()]);
                let strategy = manta_api::ScaleStrategy { workers_to_delete: names };
                spec.worker_group_specs.as_mut().unwrap()[0].scale_strategy = Some(strategy);
            },
            true,
        );
        check(
            |spec| spec.head_group_spec.template.spec.as_mut().unwrap().tolerations = Some(vec![Default::default()]),
            true,
        );
        check(|spec| spec.worker_group_specs.as_mut().unwrap()[0].num_of_hosts = Some(2), false);
        check(|spec| spec.head_group_spec.ray_start_params = None, false);
        check(|spec| spec.ray_version = None, false);
    }

    #[test]
    fn the_cluster_hash_includes_suspension_but_not_missing_parameters() {
        let mut spec = sample();
        let hash = cluster_hash(&spec);
        spec.head_group_spec.ray_start_params = None;
        spec.worker_group_specs.as_mut().unwrap()[0].ray_start_params = None;
        assert_eq!(cluster_hash(&spec), hash);
        spec.suspend = Some(false);
        assert_ne!(cluster_hash(&spec), hash);
    }

    #[test]
    fn added_groups_do_not_change_the_hash_of_the_first_ones() {
        let before = sample();
        let mut after = sample();
        let groups = after.worker_group_specs.as_mut().unwrap();
        groups.push(groups[0].clone());
        assert_eq!(service_hash_of_groups(&after, 1), Some(service_hash(&before)));
        assert_ne!(service_hash_of_groups(&after, 2), Some(service_hash(&before)));
        assert_eq!(service_hash_of_groups(&after, 3), None);
    }
}
