//! Decides which pending pods fit on this node, by their requests and by what the node allows.
//!
//! There is one node: a pod is bound when it fits, and gets a PodScheduled condition with the reason when not.

mod filters;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use manta_quantity::Quantity;

use crate::pod::is_sidecar;

/// Quantities by resource name.
pub type Resources = BTreeMap<String, Quantity>;

/// The decision for one pending pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Bind,
    /// The scheduler's message for the `PodScheduled` condition.
    Wait(String),
}

/// The node as the scheduler sees it.
#[derive(Debug, Clone, Default)]
pub struct NodeInfo {
    pub name: String,
    pub allocatable: Resources,
    pub labels: BTreeMap<String, String>,
    pub max_pods: usize,
    pub taints: Vec<Taint>,
    /// Cordoned by its user.
    pub unschedulable: bool,
}

/// Decides for every pod without a node, oldest first; `pods` is every pod of the cluster.
pub fn schedule<'a>(node: &NodeInfo, pods: impl IntoIterator<Item = &'a Pod>) -> Vec<(&'a Pod, Verdict)> {
    let (mut waiting, mut free, mut count) = (Vec::new(), node.allocatable.clone(), 0);
    let mut ports = Vec::new();
    for pod in pods {
        let spec = pod.spec.as_ref();
        let over =
            pod.status.as_ref().and_then(|s| s.phase.as_deref()).is_some_and(|p| p == "Succeeded" || p == "Failed");
        match spec.and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty()) {
            _ if over => {}
            Some(bound) if bound == node.name => {
                take(&mut free, &requests(pod));
                ports.extend(filters::host_ports(pod));
                count += 1;
            }
            Some(_) => {}
            None if pod.metadata.deletion_timestamp.is_none() && wants_us(pod) => waiting.push(pod),
            None => {}
        }
    }
    waiting.sort_by_key(|p| (p.metadata.creation_timestamp.as_ref().map(|t| t.0), p.metadata.name.clone()));
    let mut verdicts = Vec::new();
    for pod in waiting {
        let wanted = requests(pod);
        let mut reasons = Vec::new();
        if count >= node.max_pods {
            reasons.push("Too many pods".to_owned());
        }
        reasons.extend(
            wanted
                .iter()
                .filter(|(name, want)| want.is_positive() && *want > free.get(*name).unwrap_or(&Quantity::ZERO))
                .map(|(name, _)| format!("Insufficient {name}")),
        );
        reasons.extend(filters::reasons(pod, node, &ports));
        if reasons.is_empty() {
            take(&mut free, &wanted);
            ports.extend(filters::host_ports(pod));
            count += 1;
            verdicts.push((pod, Verdict::Bind));
        } else {
            let reasons = reasons.into_iter().map(|r| format!("1 {r}")).collect::<Vec<_>>().join(", ");
            verdicts.push((pod, Verdict::Wait(format!("0/1 nodes are available: {reasons}."))));
        }
    }
    verdicts
}

/// What a pod needs at once: its main containers and sidecars, or its largest init container.
pub fn requests(pod: &Pod) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::new() };
    let mut sum = Resources::new();
    for container in &spec.containers {
        add(&mut sum, &requests_of(container));
    }
    let (mut sidecars, mut peak) = (Resources::new(), Resources::new());
    for container in spec.init_containers.iter().flatten() {
        let own = requests_of(container);
        let mut at_once = sidecars.clone();
        add(&mut at_once, &own);
        if is_sidecar(container) {
            sidecars = at_once.clone();
        }
        raise(&mut peak, &at_once);
    }
    add(&mut sum, &sidecars);
    raise(&mut sum, &peak);
    add(&mut sum, &amounts(spec.overhead.as_ref()));
    sum
}

fn requests_of(container: &Container) -> Resources {
    let Some(r) = &container.resources else { return Resources::new() };
    // A limit without a request is a request, as the API server would have defaulted it.
    let mut wanted = amounts(r.limits.as_ref());
    wanted.extend(amounts(r.requests.as_ref()));
    wanted
}

/// Parses a resource list.
pub fn amounts(map: Option<&BTreeMap<String, QuantityText>>) -> Resources {
    map.into_iter().flatten().map(|(name, q)| (name.clone(), Quantity::parse_or_zero(&q.0))).collect()
}

fn add(sum: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

fn raise(sum: &mut Resources, other: &Resources) {
    for (name, amount) in other {
        let entry = sum.entry(name.clone()).or_default();
        *entry = entry.clone().max(amount.clone());
    }
}

fn take(free: &mut Resources, used: &Resources) {
    for (name, amount) in used {
        *free.entry(name.clone()).or_default() -= amount;
    }
}

fn wants_us(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let gated = spec.and_then(|s| s.scheduling_gates.as_ref()).is_some_and(|g| !g.is_empty());
    !gated && spec.and_then(|s| s.scheduler_name.as_deref()).is_none_or(|s| s.is_empty() || s == "default-scheduler")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, age: i64, spec: Value) -> Pod {
        let created = jiff::Timestamp::from_second(1_700_000_000 - age).unwrap().to_string();
        serde_json::from_value(json!({"metadata": {"name": name, "creationTimestamp": created}, "spec": spec})).unwrap()
    }

    fn asks(cpu: &str) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
    }

    fn check(pods: &[Pod], expect: &[(&str, &str)]) {
        let node = NodeInfo {
            name: "local".into(),
            allocatable: BTreeMap::from([("cpu".to_owned(), Quantity::from(4))]),
            labels: BTreeMap::from([("kubernetes.io/hostname".to_owned(), "local".to_owned())]),
            max_pods: 3,
            ..NodeInfo::default()
        };
        let got: Vec<(String, String)> = schedule(&node, pods)
            .into_iter()
            .map(|(pod, verdict)| {
                let verdict = match verdict {
                    Verdict::Bind => "bind".to_owned(),
                    Verdict::Wait(why) => why,
                };
                (pod.metadata.name.clone().unwrap(), verdict)
            })
            .collect();
        let expect: Vec<_> = expect.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn the_oldest_pods_come_first_and_requests_add_up() {
        check(
            &[pod("young", 1, asks("2")), pod("old", 9, asks("3"))],
            &[("old", "bind"), ("young", "0/1 nodes are available: 1 Insufficient cpu.")],
        );
        let mut bound = asks("3500m");
        bound["nodeName"] = json!("local");
        check(&[pod("a", 1, bound), pod("b", 1, asks("500m"))], &[("b", "bind")]);
    }

    #[test]
    fn missing_resources_are_named() {
        let gpu = json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
        check(&[pod("g", 1, gpu)], &[("g", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")]);
        let picky = json!({"nodeSelector": {"zone": "a"}, "containers": []});
        check(
            &[pod("s", 1, picky)],
            &[("s", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")],
        );
        let empty = || json!({"containers": []});
        let many: Vec<Pod> = ["a", "b", "c", "d"].into_iter().map(|n| pod(n, 1, empty())).collect();
        let full = "0/1 nodes are available: 1 Too many pods.";
        check(&many, &[("a", "bind"), ("b", "bind"), ("c", "bind"), ("d", full)]);
    }

    #[test]
    fn pods_of_other_schedulers_and_gated_pods_are_left_alone() {
        check(&[pod("v", 1, json!({"schedulerName": "volcano", "containers": []}))], &[]);
        check(&[pod("g", 1, json!({"schedulingGates": [{"name": "x"}], "containers": []}))], &[]);
    }

    #[test]
    fn init_containers_count_by_their_peak() {
        let c = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = c("s", "1");
        sidecar["restartPolicy"] = json!("Always");
        let spec = json!({"initContainers": [sidecar, c("i", "5")], "containers": [c("a", "2")]});
        assert_eq!(requests(&pod("p", 1, spec))["cpu"], Quantity::from(6));
    }
}
