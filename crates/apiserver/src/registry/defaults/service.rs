//! Defaults of services, and of what leads to them.

use serde_json::{Value, json};

use super::{items, object, set};

pub(in crate::registry) fn service(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "type", "ClusterIP");
    set(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" {
        set(object(object(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10800);
    } else if spec["sessionAffinity"] == "None" {
        spec.as_object_mut().map(|spec| spec.remove("sessionAffinityConfig"));
    }
    for port in items(spec, "ports") {
        set(port, "protocol", "TCP");
        let number = port["port"].clone();
        if port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = number.clone();
        }
        set(port, "targetPort", number);
    }
    let kind = spec["type"].as_str().unwrap_or("").to_owned();
    if kind != "ExternalName" {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
    if kind != "ExternalName" {
        // Without a selector nobody knows which addresses will be put behind a headless service.
        let open = spec["clusterIP"] == "None" && spec["selector"].as_object().is_none_or(serde_json::Map::is_empty);
        if spec["ipFamilies"].is_null() {
            spec["ipFamilies"] = if open { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
        }
        set(spec, "ipFamilyPolicy", if open { "RequireDualStack" } else { "SingleStack" });
        if spec["clusterIP"] == "None" {
            set(spec, "clusterIPs", json!(["None"]));
        }
    }
    object(object(value, "status"), "loadBalancer");
}

pub(in crate::registry) fn endpoints(value: &mut Value) {
    for subset in items(value, "subsets") {
        for port in items(subset, "ports") {
            set(port, "protocol", "TCP");
        }
    }
}

pub(in crate::registry) fn endpoint_slice(value: &mut Value) {
    set(value, "endpoints", Value::Null);
    set(value, "ports", Value::Null);
    for endpoint in items(value, "endpoints") {
        object(endpoint, "conditions");
    }
    for port in items(value, "ports") {
        set(port, "name", "");
        set(port, "protocol", "TCP");
    }
}

pub(in crate::registry) fn ingress(value: &mut Value) {
    object(object(value, "status"), "loadBalancer");
}

pub(in crate::registry) fn network_policy(value: &mut Value) {
    let spec = object(value, "spec");
    object(spec, "podSelector");
    for list in ["ingress", "egress"] {
        for rule in items(spec, list) {
            for port in items(rule, "ports") {
                set(port, "protocol", "TCP");
            }
        }
    }
    if spec["policyTypes"].is_null() {
        let egress = spec["egress"].is_array();
        spec["policyTypes"] = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    }
}
