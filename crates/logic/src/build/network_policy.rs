//! NetworkPolicies: Pods of a cluster talk to each other, and to others only by the user's rules.
//!
//! One policy for the head, one for each worker group. They are made for clusters that do not pass
//! validation, too: isolation must not depend on an unrelated mistake.

use super::cluster_facts as facts;
use super::owner;
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

/// The policies of a cluster: the head's first, then one for each group. None where it asks for none.
pub fn network_policies(cluster: &RayCluster) -> Vec<NetworkPolicy> {
    let Some(config) = &cluster.spec.network_policy else { return Vec::new() };
    let groups =
        facts::worker_groups(&cluster.spec).iter().map(|group| worker_policy(cluster, config, &group.group_name));
    std::iter::once(head_policy(cluster, config)).chain(groups).collect()
}

/// What must be written to make a live policy the wanted one: the whole object, or nothing.
///
/// Spec and labels count; annotations belong to others.
pub fn network_policy_update(wanted: &NetworkPolicy, live: &NetworkPolicy) -> Option<NetworkPolicy> {
    let mut updated = live.clone();
    updated.metadata.labels = wanted.metadata.labels.clone();
    updated.spec = wanted.spec.clone();
    set_default_protocols(updated.spec.get_or_insert_default());
    let same = updated.metadata.labels == live.metadata.labels && comparable(&updated) == comparable(live);
    (!same).then_some(updated)
}

fn head_policy(cluster: &RayCluster, config: &NetworkPolicyConfig) -> NetworkPolicy {
    let name = facts::name(cluster);
    let selector = [(labels::CLUSTER, name), (labels::NODE_TYPE, labels::HEAD)];
    let mut ingress = vec![from_cluster(name)];
    ingress.extend(from_submitter(cluster));
    policy(cluster, config, format!("{name}-head"), labels::HEAD_GROUP, &selector, ingress, config.head.as_ref())
}

fn worker_policy(cluster: &RayCluster, config: &NetworkPolicyConfig, group: &str) -> NetworkPolicy {
    let name = facts::name(cluster);
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
    let cluster_name = facts::name(cluster);
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

/// Lets the Pod that submits a RayJob reach the dashboard.
fn from_submitter(cluster: &RayCluster) -> Option<NetworkPolicyIngressRule> {
    if facts::label(cluster, labels::JOB_SUBMISSION_MODE) != Some("K8sJobMode") {
        return None;
    }
    let job = cluster.metadata.owner_references.iter().flatten().find(|owner| {
        owner.kind == RayJob::KIND && owner.controller == Some(true) && owner.api_version.starts_with("ray.io/")
    })?;
    let submitter = [(labels::ORIGINATED_FROM_CR_NAME, job.name.as_str()), (labels::ORIGINATED_FROM_CRD, RayJob::KIND)];
    let dashboard = facts::head_param(&cluster.spec, "dashboard-port").and_then(|port| port.parse().ok());
    let port = NetworkPolicyPort {
        protocol: Some("TCP".to_owned()),
        port: Some(IntOrString::Int(dashboard.unwrap_or(facts::DEFAULT_DASHBOARD_PORT))),
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

/// Writes out what the API server fills in, so that it does not count as a difference.
fn set_default_protocols(spec: &mut NetworkPolicySpec) {
    let ingress = spec.ingress.iter_mut().flatten().flat_map(|rule| rule.ports.iter_mut().flatten());
    let egress = spec.egress.iter_mut().flatten().flat_map(|rule| rule.ports.iter_mut().flatten());
    for port in ingress.chain(egress) {
        port.protocol.get_or_insert_with(|| "TCP".to_owned());
    }
}

/// The spec without the difference between an empty list and none. Empty selectors stay: they
/// select everything.
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
