//! How many Pods a spec asks for, and how much they take.

use crate::build::is_gpu;
use crate::cluster_spec::{hosts, is_suspended, worker_groups};
use k8s_openapi::api::core::v1::PodSpec;
use manta_api::{RayClusterSpec, WorkerGroupSpec};
use manta_quantity::Quantity;

/// Returns how many Pods a group should have: replicas within their bounds, times hosts; none while suspended.
pub fn desired_pods(group: &WorkerGroupSpec) -> i32 {
    if is_suspended(group) {
        return 0;
    }
    desired_replicas(group).saturating_mul(hosts(group)).max(0)
}

/// Returns how many replicas a group should have, whether suspended or not.
pub fn desired_replicas(group: &WorkerGroupSpec) -> i32 {
    let min = group.min_replicas.unwrap_or(0);
    let max = group.max_replicas.unwrap_or(i32::MAX);
    // Not `clamp`, which panics where min > max.
    group.replicas.unwrap_or(min).max(min).min(max)
}

/// The worker counts of a spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub desired: i32,
    pub min: i32,
    pub max: i32,
}

/// Returns the worker counts of all groups; suspended groups count as none.
pub fn worker_counts(spec: &RayClusterSpec) -> WorkerCounts {
    let sum = |count: &dyn Fn(&WorkerGroupSpec) -> i64| -> i32 {
        let total: i64 = worker_groups(spec).iter().filter(|group| !is_suspended(group)).map(count).sum();
        total.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    };
    WorkerCounts {
        desired: sum(&|group| i64::from(desired_pods(group))),
        min: sum(&|group| i64::from(group.min_replicas.unwrap_or(0)) * i64::from(hosts(group))),
        max: sum(&|group| i64::from(group.max_replicas.unwrap_or(i32::MAX)) * i64::from(hosts(group))),
    }
}

/// What all Pods of a spec ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredResources {
    pub cpu: Quantity,
    pub memory: Quantity,
    pub gpu: Quantity,
    pub tpu: Quantity,
}

/// Sums the head's and the workers' requests, or limits where there is no request.
///
/// Counts `replicas` as written, not within its bounds, like KubeRay. Unlike there, a negative number does not count: then
/// the Pods that are created do.
pub fn desired_resources(spec: &RayClusterSpec) -> DesiredResources {
    let mut sum = DesiredResources::NONE;
    sum.add(spec.head_group_spec.template.spec.as_ref(), 1);
    for group in worker_groups(spec) {
        if !is_suspended(group) {
            let replicas = group.replicas.unwrap_or(0);
            let replicas = if replicas < 0 { desired_replicas(group).max(0) } else { replicas };
            let pods = i64::from(hosts(group).max(0)) * i64::from(replicas);
            sum.add(group.template.spec.as_ref(), pods);
        }
    }
    sum
}

/// Sums what the Pods that a group should have ask for.
pub fn requests_of_group(group: &WorkerGroupSpec) -> DesiredResources {
    let mut sum = DesiredResources::NONE;
    sum.add(group.template.spec.as_ref(), i64::from(desired_pods(group)));
    sum
}

impl DesiredResources {
    const NONE: Self = Self { cpu: Quantity::ZERO, memory: Quantity::ZERO, gpu: Quantity::ZERO, tpu: Quantity::ZERO };

    fn add(&mut self, pod: Option<&PodSpec>, times: i64) {
        for (name, mut amount) in requests(pod) {
            let place = match name {
                "cpu" => &mut self.cpu,
                "memory" => &mut self.memory,
                "google.com/tpu" => &mut self.tpu,
                name if is_gpu(name) => &mut self.gpu,
                _ => continue,
            };
            amount *= times;
            *place += &amount;
        }
    }
}

/// Returns what each container of a Pod asks for: its request, or its limit where there is no request.
pub fn requests(pod: Option<&PodSpec>) -> impl Iterator<Item = (&str, Quantity)> {
    let containers = pod.map(|pod| pod.containers.as_slice()).unwrap_or_default();
    containers.iter().filter_map(|container| container.resources.as_ref()).flat_map(|resources| {
        let requested = |name: &String| resources.requests.as_ref().is_some_and(|requests| requests.contains_key(name));
        let limits = resources.limits.iter().flatten().filter(move |(name, _)| !requested(name));
        let amounts = resources.requests.iter().flatten().chain(limits);
        amounts.filter_map(|(name, amount)| Some((name.as_str(), Quantity::parse(&amount.0).ok()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn group(fields: serde_json::Value) -> WorkerGroupSpec {
        let mut value = json!({"groupName": "g", "template": {}});
        value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    fn spec(groups: Vec<WorkerGroupSpec>) -> RayClusterSpec {
        RayClusterSpec { worker_group_specs: Some(groups), ..RayClusterSpec::default() }
    }

    #[test]
    fn replicas_stay_within_bounds() {
        let check = |fields: serde_json::Value, expect: i32| {
            assert_eq!(desired_pods(&group(fields.clone())), expect, "{fields}");
        };
        check(json!({"minReplicas": 1}), 1);
        check(json!({"replicas": 0, "minReplicas": 1}), 1);
        check(json!({"replicas": 4, "maxReplicas": 3}), 3);
        check(json!({"replicas": 4, "maxReplicas": 3, "numOfHosts": 4}), 12);
        check(json!({"replicas": 4, "suspend": true}), 0);
        check(json!({"replicas": 4, "numOfHosts": 0}), 0);
        check(json!({"replicas": 4, "numOfHosts": -1}), 0);
        check(json!({"replicas": -1}), 0);
        check(json!({"replicas": 2, "minReplicas": 5, "maxReplicas": 3}), 3);
    }

    #[test]
    fn counts_are_summed_over_groups() {
        let check = |groups: Vec<serde_json::Value>, expect: (i32, i32, i32)| {
            let counts = worker_counts(&spec(groups.iter().cloned().map(group).collect()));
            assert_eq!((counts.desired, counts.min, counts.max), expect, "{groups:?}");
        };
        check(
            vec![json!({"minReplicas": 1, "maxReplicas": 9}), json!({"minReplicas": 2, "maxReplicas": 9})],
            (3, 3, 18),
        );
        check(
            vec![
                json!({"replicas": 0, "minReplicas": 2, "maxReplicas": 9}),
                json!({"replicas": 6, "minReplicas": 0, "maxReplicas": 5}),
            ],
            (7, 2, 14),
        );
        check(vec![json!({"replicas": 3, "minReplicas": 2, "maxReplicas": 3, "numOfHosts": 4})], (12, 8, 12));
        check(vec![json!({"replicas": 1, "minReplicas": 100, "maxReplicas": 100, "suspend": true})], (0, 0, 0));
    }

    #[test]
    fn the_maximum_saturates() {
        let open = || group(json!({"replicas": 1, "numOfHosts": 4, "maxReplicas": i32::MAX}));
        assert_eq!(worker_counts(&spec(vec![open()])).max, i32::MAX);
        assert_eq!(worker_counts(&spec(vec![open(), open(), group(json!({}))])).max, i32::MAX);
    }

    #[test]
    fn resources_are_requests_or_else_limits() {
        let template =
            |resources: serde_json::Value| json!({"spec": {"containers": [{"name": "ray", "resources": resources}]}});
        let mut with = spec(vec![group(json!({
            "replicas": 3,
            "template": template(json!({"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": "1"}})),
        }))]);
        with.head_group_spec = serde_json::from_value(json!({
            "template": template(json!({"limits": {"cpu": "1", "memory": "1Gi", "google.com/tpu": "8", "foo.bar/gpu": "2"}})),
        }))
        .unwrap();
        let sum = desired_resources(&with);
        assert_eq!(sum.cpu.to_string(), "4");
        assert_eq!(sum.memory.to_string(), "4Gi");
        assert_eq!(sum.gpu.to_string(), "8");
        assert_eq!(sum.tpu.to_string(), "8");
        with.worker_group_specs.as_mut().unwrap()[0].replicas = Some(i32::MAX);
        assert_eq!(desired_resources(&with).cpu.to_string(), "2147483648");
        with.worker_group_specs.as_mut().unwrap()[0].replicas = Some(-2);
        assert_eq!(desired_resources(&with).cpu.to_string(), "1", "the head's alone");
    }
}
