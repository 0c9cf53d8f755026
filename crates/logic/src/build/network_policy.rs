//! NetworkPolicies: the Pods of a cluster can reach each other, and other peers only by the user's rules.
//!
//! There is one policy for the head and one for each worker group. Invalid clusters get them too, because isolation must
//! not depend on an unrelated mistake.

use super::owner;
use crate::cluster_spec;
use crate::labels;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manta_api::{NetworkPolicyConfig, NetworkPolicyMode, NetworkPolicyRules, RayCluster, RayJob};
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the policies of a cluster, the head's first; none if the cluster does not configure isolation.
pub fn network_policies(cluster: &RayCluster) -> Vec<NetworkPolicy> {
    let Some(config) = &cluster.spec.network_policy else { return Vec::new() };
    let groups = cluster_spec::worker_groups(&cluster.spec)
        .iter()
        .map(|group| worker_policy(cluster, config, &group.group_name));
    std::iter::once(head_policy(cluster, config)).chain(groups).collect()
}

/// Returns the object to write if a live policy differs from the wanted one in spec or labels.
pub fn network_policy_update(wanted: &NetworkPolicy, live: &NetworkPolicy) -> Option<NetworkPolicy> {
    let mut updated = live.clone();
    updated.metadata.labels = wanted.metadata.labels.clone();
    updated.spec = wanted.spec.clone();
    set_default_protocols(updated.spec.get_or_insert_default());
    let same = updated.metadata.labels == live.metadata.labels && comparable(&updated) == comparable(live);
    (!same).then_some(updated)
}

fn head_policy(cluster: &RayCluster, config: &NetworkPolicyConfig) -> NetworkPolicy {
    let name = cluster_spec::name(cluster);
    let selector = [(labels::CLUSTER, name), (labels::NODE_TYPE, labels::HEAD)];
    let mut ingress = vec![from_cluster(name)];
    ingress.extend(from_submitter(cluster));
    policy(cluster, config, format!("{name}-head"), labels::HEAD_GROUP, &selector, ingress, config.head.as_ref())
}

fn worker_policy(cluster: &RayCluster, config: &NetworkPolicyConfig, group: &str) -> NetworkPolicy {
    let name = cluster_spec::name(cluster);
    let selector = [(labels::CLUSTER, name), (labels::NODE_TYPE, labels::WORKER), (labels::GROUP, group)];
    let own = config.worker_groups.iter().flatten().find(|entry| entry.group_name == group);
    let rules = own.map(|entry| &entry.rules).or(config.worker.as_ref());
    policy(cluster, config, format!("{name}-workers-{group}"), group, &selector, vec![from_cluster(name)], rules)
}

fn policy(
    cluster: &RayCluster,
    config: &NetworkPolicyConfig,
    name: String,
    group: &str,
    selector: &[(&str, &str)],
    mut ingress: Vec<NetworkPolicyIngressRule>,
    rules: Option<&NetworkPolicyRules>,
) -> NetworkPolicy {
    let cluster_name = cluster_spec::name(cluster);
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(map(&[
            (labels::CLUSTER, cluster_name),
            (labels::GROUP, group),
            (labels::APP_NAME, labels::KUBERAY),
            (labels::CREATED_BY, labels::KUBERAY_OPERATOR),
        ])),
        owner_references: Some(vec![owner::cluster_reference(cluster)]),
        ..ObjectMeta::default()
    };
    let mut spec = NetworkPolicySpec { pod_selector: Some(matching(selector)), ..NetworkPolicySpec::default() };
    let mut types = Vec::new();
    if config.mode != Some(NetworkPolicyMode::DenyAllEgress) {
        types.push("Ingress".to_owned());
        ingress.extend(rules.into_iter().flat_map(|rules| rules.ingress_rules.iter().flatten().cloned()));
        spec.ingress = Some(ingress);
    }
    if config.mode != Some(NetworkPolicyMode::DenyAllIngress) {
        types.push("Egress".to_owned());
        let mut egress = vec![to_cluster(cluster_name)];
        egress.extend(rules.into_iter().flat_map(|rules| rules.egress_rules.iter().flatten().cloned()));
        spec.egress = Some(egress);
    }
    spec.policy_types = Some(types);
    NetworkPolicy { metadata, spec: Some(spec) }
}

fn from_cluster(name: &str) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule { from: Some(vec![pods(&[(labels::CLUSTER, name)])]), ports: None }
}

fn to_cluster(name: &str) -> NetworkPolicyEgressRule {
    NetworkPolicyEgressRule { to: Some(vec![pods(&[(labels::CLUSTER, name)])]), ports: None }
}

/// Returns the rule by which the submitter Pod of a RayJob can reach the dashboard.
fn from_submitter(cluster: &RayCluster) -> Option<NetworkPolicyIngressRule> {
    if cluster_spec::label(cluster, labels::JOB_SUBMISSION_MODE) != Some("K8sJobMode") {
        return None;
    }
    let job = cluster.metadata.owner_references.iter().flatten().find(|owner| {
        owner.kind == RayJob::KIND && owner.controller == Some(true) && owner.api_version.starts_with("ray.io/")
    })?;
    let submitter = [(labels::ORIGINATED_FROM_CR_NAME, job.name.as_str()), (labels::ORIGINATED_FROM_CRD, RayJob::KIND)];
    let dashboard = cluster_spec::head_param(&cluster.spec, "dashboard-port").and_then(|port| port.parse().ok());
    let port = NetworkPolicyPort {
        protocol: Some("TCP".to_owned()),
        port: Some(IntOrString::Int(dashboard.unwrap_or(cluster_spec::DEFAULT_DASHBOARD_PORT))),
        end_port: None,
    };
    Some(NetworkPolicyIngressRule { from: Some(vec![pods(&submitter)]), ports: Some(vec![port]) })
}

fn pods(labels: &[(&str, &str)]) -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(matching(labels)), ..NetworkPolicyPeer::default() }
}

fn matching(labels: &[(&str, &str)]) -> LabelSelector {
    LabelSelector { match_labels: Some(map(labels)), match_expressions: None }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Sets the protocol that the API server defaults, so that it is no difference.
fn set_default_protocols(spec: &mut NetworkPolicySpec) {
    let ingress = spec.ingress.iter_mut().flatten().flat_map(|rule| rule.ports.iter_mut().flatten());
    let egress = spec.egress.iter_mut().flatten().flat_map(|rule| rule.ports.iter_mut().flatten());
    for port in ingress.chain(egress) {
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
}

/// Returns the spec without empty lists, which mean the same as missing ones.
///
/// Empty selectors are kept because they select everything.
fn comparable(policy: &NetworkPolicy) -> Value {
    fn prune(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|key, field| match field {
                    Value::Array(list) => !list.is_empty(),
                    Value::Object(map) => key != "matchLabels" || !map.is_empty(),
                    _ => true,
                });
                fields.values_mut().for_each(prune);
            }
            Value::Array(list) => list.iter_mut().for_each(prune),
            _ => {}
        }
    }
    let mut spec = serde_json::to_value(&policy.spec).unwrap_or_default();
    prune(&mut spec);
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::cluster;
    use serde_json::json;

    /// Returns the policies of the head and of the group `small`.
    fn made(policy: Value, more: Value) -> [NetworkPolicy; 2] {
        let mut given = more;
        given["spec"] = json!({"networkPolicy": policy});
        network_policies(&cluster(given)).try_into().unwrap()
    }

    fn rules(policy: &NetworkPolicy) -> (Option<usize>, Option<usize>) {
        let spec = policy.spec.as_ref().unwrap();
        (spec.ingress.as_ref().map(Vec::len), spec.egress.as_ref().map(Vec::len))
    }

    #[test]
    fn a_cluster_without_the_field_has_no_policies() {
        assert_eq!(network_policies(&cluster(json!({}))), []);
    }

    #[test]
    fn pods_of_a_cluster_reach_each_other() {
        let [head, worker] = made(json!({}), json!({}));
        let peer = json!([{"podSelector": {"matchLabels": {"ray.io/cluster": "test-cluster"}}}]);
        for (policy, name, group, selector) in [
            (head, "test-cluster-head", "headgroup", json!({"ray.io/node-type": "head"})),
            (
                worker,
                "test-cluster-workers-small",
                "small",
                json!({"ray.io/node-type": "worker", "ray.io/group": "small"}),
            ),
        ] {
            let mut selector = selector;
            selector["ray.io/cluster"] = json!("test-cluster");
            assert_eq!(policy.metadata.name.as_deref(), Some(name));
            let labels = json!({
                "ray.io/cluster": "test-cluster",
                "ray.io/group": group,
                "app.kubernetes.io/name": "kuberay",
                "app.kubernetes.io/created-by": "kuberay-operator",
            });
            assert_eq!(json!(policy.metadata.labels), labels);
            let spec = json!({
                "podSelector": {"matchLabels": selector},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": peer}],
                "egress": [{"to": peer}],
            });
            assert_eq!(json!(policy.spec), spec);
        }
    }

    #[test]
    fn the_mode_selects_the_directions() {
        for (mode, types, expect) in [
            ("DenyAll", json!(["Ingress", "Egress"]), (Some(1), Some(1))),
            ("DenyAllIngress", json!(["Ingress"]), (Some(1), None)),
            ("DenyAllEgress", json!(["Egress"]), (None, Some(1))),
        ] {
            for policy in made(json!({"mode": mode}), json!({})) {
                assert_eq!(rules(&policy), expect, "{mode}");
                assert_eq!(json!(policy.spec.unwrap().policy_types), types);
            }
        }
    }

    #[test]
    fn user_rules_come_last_and_group_rules_replace_worker_rules() {
        let (ingress, egress) = (json!([{"ports": [{"port": 1}]}]), json!([{"ports": [{"port": 2}]}]));
        let check = |policy: Value, of_head: (usize, usize), of_worker: (usize, usize)| {
            let [head, worker] = made(policy, json!({}));
            assert_eq!(rules(&head), (Some(of_head.0), Some(of_head.1)));
            assert_eq!(rules(&worker), (Some(of_worker.0), Some(of_worker.1)));
        };
        check(json!({"worker": {"ingressRules": ingress}}), (1, 1), (2, 1));
        let group = json!({"groupName": "small", "ingressRules": ingress});
        check(json!({"worker": {"egressRules": egress}, "workerGroups": [group]}), (1, 1), (2, 1));
        let other = json!({"groupName": "other", "ingressRules": ingress});
        check(json!({"worker": {"egressRules": egress}, "workerGroups": [other]}), (1, 1), (1, 2));
        check(json!({"head": {"ingressRules": ingress}}), (2, 1), (1, 1));
        check(json!({"head": {"egressRules": egress}}), (1, 2), (1, 1));
        let [head, _] = made(json!({"head": {"ingressRules": ingress}}), json!({}));
        assert_eq!(json!(head.spec.unwrap().ingress.unwrap()[1]), ingress[0]);
    }

    #[test]
    fn a_jobs_submitter_reaches_the_dashboard() {
        let owner = |kind: &str, api: &str| json!({"apiVersion": api, "kind": kind, "name": "train", "uid": "u", "controller": true});
        let check = |mode: &str, owner: Value, params: Value, port: Option<i32>| {
            let metadata = json!({"labels": {labels::JOB_SUBMISSION_MODE: mode}, "ownerReferences": [owner]});
            let [head, worker] = made(json!({}), json!({"metadata": metadata, "head": {"rayStartParams": params}}));
            let rules = head.spec.unwrap().ingress.unwrap();
            let made = rules.get(1).map(|rule| json!(rule));
            let expect = port.map(|port| {
                let labels = json!({"ray.io/originated-from-cr-name": "train", "ray.io/originated-from-crd": "RayJob"});
                json!({"from": [{"podSelector": {"matchLabels": labels}}], "ports": [{"protocol": "TCP", "port": port}]})
            });
            assert_eq!(made, expect);
            assert_eq!(worker.spec.unwrap().ingress.unwrap().len(), 1);
        };
        check("K8sJobMode", owner("RayJob", "ray.io/v1"), json!({}), Some(8265));
        check("K8sJobMode", owner("RayJob", "ray.io/v1"), json!({"dashboard-port": "9265"}), Some(9265));
        check("K8sJobMode", owner("RayJob", "ray.io/v1"), json!({"dashboard-port": "?"}), Some(8265));
        check("SidecarMode", owner("RayJob", "ray.io/v1"), json!({}), None);
        check("K8sJobMode", owner("RayService", "ray.io/v1"), json!({}), None);
        check("K8sJobMode", owner("RayJob", "other.io/v1"), json!({}), None);
    }

    #[test]
    fn names_are_not_truncated() {
        let name = "c".repeat(53);
        let given = json!({"metadata": {"name": name}, "spec": {"networkPolicy": {}}});
        let names: Vec<_> = network_policies(&cluster(given)).into_iter().filter_map(|it| it.metadata.name).collect();
        assert_eq!(names, [format!("{name}-head"), format!("{name}-workers-small")]);
    }

    #[test]
    fn only_real_differences_are_written() {
        let rules = json!({"ingressRules": [{"ports": [{"port": 1}], "from": []}]});
        let [wanted, _] = made(json!({"head": rules}), json!({}));
        let mut live = wanted.clone();
        live.metadata.annotations = Some(map(&[("foreign", "x")]));
        let ingress = live.spec.as_mut().unwrap().ingress.as_mut().unwrap();
        ingress[1].from = None;
        ingress[1].ports.as_mut().unwrap()[0].protocol = Some("TCP".to_owned());
        assert_eq!(network_policy_update(&wanted, &live), None);

        let mut drifted = live.clone();
        drifted.spec.as_mut().unwrap().ingress.as_mut().unwrap().pop();
        let updated = network_policy_update(&wanted, &drifted).unwrap();
        assert_eq!(updated.metadata, live.metadata);
        assert_eq!(network_policy_update(&wanted, &updated), None);

        let mut relabelled = live.clone();
        relabelled.metadata.labels = None;
        assert!(network_policy_update(&wanted, &relabelled).is_some());

        // An empty selector selects everything, a missing one nothing.
        let mut opened = live;
        opened.spec.as_mut().unwrap().ingress.as_mut().unwrap()[0].from.as_mut().unwrap()[0].pod_selector =
            Some(LabelSelector::default());
        assert!(network_policy_update(&wanted, &opened).is_some());
    }
}
