//! What keeps a pod off the node besides its requests: taints, node affinity, host ports.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration};

use super::NodeInfo;

/// A port of the node that a pod takes: protocol, address and number.
pub(super) type HostPort = (String, String, i32);

/// Returns why a pod may not be bound to the node, in the scheduler's words.
pub(super) fn reasons(pod: &Pod, node: &NodeInfo, taken: &[HostPort]) -> Vec<String> {
    let spec = pod.spec.as_ref();
    let tolerations = spec.and_then(|s| s.tolerations.as_deref()).unwrap_or_default();
    let mut reasons = Vec::new();
    let cordon = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if node.unschedulable && !tolerations.iter().any(|one| tolerates(one, &cordon)) {
        reasons.push("node(s) were unschedulable".to_owned());
    }
    let untolerated = node
        .taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .find(|taint| !tolerations.iter().any(|one| tolerates(one, taint)));
    if let Some(taint) = untolerated {
        let value = taint.value.as_deref().unwrap_or_default();
        reasons.push(format!("node(s) had untolerated taint {{{}: {value}}}", taint.key));
    }
    if !matches_node(pod, node) {
        reasons.push("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    if host_ports(pod).iter().any(|port| taken.iter().any(|other| clashes(port, other))) {
        reasons.push("node(s) didn't have free ports for the requested pod ports".to_owned());
    }
    reasons
}

/// Whether a toleration covers a taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (key, effect) = (text(&toleration.key), text(&toleration.effect));
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            _ => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        }
}

fn matches_node(pod: &Pod, node: &NodeInfo) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| node.labels.get(key) == Some(value));
    let required = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = required.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| matches_term(term, node)))
}

/// A term without requirements matches nothing.
fn matches_term(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let names = BTreeMap::from([("metadata.name".to_owned(), node.name.clone())]);
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|one| holds(one, &node.labels))
        && fields.iter().all(|one| holds(one, &names))
}

fn holds(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let found = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(found?)?, number(values.first()?)?));
    match requirement.operator.as_str() {
        "In" => found.is_some_and(|value| values.contains(value)),
        "NotIn" => found.is_none_or(|value| !values.contains(value)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(|(found, value)| found > value),
        "Lt" => compared().is_some_and(|(found, value)| found < value),
        _ => false,
    }
}

/// Returns the ports of the node that a pod takes.
pub(super) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((protocol, port.host_ip.clone().unwrap_or_default(), number))
        })
        .collect()
}

/// Whether two ports are the same; an empty address stands for all.
fn clashes(a: &HostPort, b: &HostPort) -> bool {
    let is_any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.0 == b.0 && a.2 == b.2 && (a.1 == b.1 || is_any(&a.1) || is_any(&b.1))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expect: &[&str]) {
        let node = NodeInfo {
            name: "local".into(),
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("cores".to_owned(), "8".to_owned())]),
            taints: serde_json::from_value(json!([{"key": "k", "value": "v", "effect": "NoSchedule"}])).unwrap(),
            ..NodeInfo::default()
        };
        let mut whole = json!({"containers": [], "tolerations": [{"operator": "Exists"}]});
        for (name, value) in spec.as_object().unwrap() {
            whole[name] = value.clone();
        }
        let pod: Pod = serde_json::from_value(json!({"spec": whole})).unwrap();
        let taken = [("TCP".to_owned(), "127.0.0.1".to_owned(), 80)];
        assert_eq!(reasons(&pod, &node, &taken), expect, "{spec}");
    }

    #[test]
    fn taints_need_a_toleration() {
        let tainted: &[&str] = &["node(s) had untolerated taint {k: v}"];
        check(json!({}), &[]);
        check(json!({"tolerations": []}), tainted);
        check(json!({"tolerations": [{"key": "k", "value": "v"}]}), &[]);
        check(json!({"tolerations": [{"key": "k", "value": "other"}]}), tainted);
        check(json!({"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}]}), tainted);
    }

    #[test]
    fn node_affinity_must_match() {
        let wants = |expressions: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": expressions}]}}}})
        };
        let off: &[&str] = &["node(s) didn't match Pod's node affinity/selector"];
        check(wants(json!([{"key": "zone", "operator": "In", "values": ["a", "b"]}])), &[]);
        check(wants(json!([{"key": "zone", "operator": "NotIn", "values": ["a"]}])), off);
        check(wants(json!([{"key": "cores", "operator": "Gt", "values": ["4"]}])), &[]);
        check(wants(json!([{"key": "gpu", "operator": "Exists"}])), off);
        check(wants(json!([])), off);
    }

    #[test]
    fn host_ports_are_taken_once() {
        let port = |ip: &str, protocol: &str| {
            json!({"containers": [{"name": "c", "ports": [
                {"containerPort": 1, "hostPort": 80, "hostIP": ip, "protocol": protocol}]}]})
        };
        let busy: &[&str] = &["node(s) didn't have free ports for the requested pod ports"];
        check(port("127.0.0.1", "TCP"), busy);
        check(port("", "TCP"), busy);
        check(port("10.244.0.1", "TCP"), &[]);
        check(port("127.0.0.1", "UDP"), &[]);
    }
}
