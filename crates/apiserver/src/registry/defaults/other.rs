//! Defaults of the smaller kinds.

use base64::Engine;
use serde_json::{Value, json};

use super::{items, object, set};

pub(in crate::registry) fn secret(value: &mut Value) {
    set(value, "type", "Opaque");
    let Some(plain) = value.as_object_mut().and_then(|value| value.remove("stringData")) else { return };
    let data = object(value, "data");
    for (key, text) in plain.as_object().into_iter().flatten() {
        let text = text.as_str().unwrap_or("");
        data[key.as_str()] = base64::engine::general_purpose::STANDARD.encode(text).into();
    }
}

pub(in crate::registry) fn namespace(value: &mut Value) {
    let name = value["metadata"]["name"].as_str().unwrap_or("").to_owned();
    if !name.is_empty() {
        object(object(value, "metadata"), "labels")["kubernetes.io/metadata.name"] = name.into();
    }
    object(value, "spec");
    set(object(value, "status"), "phase", "Active");
}

pub(in crate::registry) fn new_namespace(value: &mut Value) {
    let mut finalizers = value["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
        finalizers.push("kubernetes".into());
    }
    value["spec"]["finalizers"] = finalizers.into();
    value["status"] = json!({"phase": "Active"});
}

pub(in crate::registry) fn node(value: &mut Value) {
    object(value, "spec");
    let status = object(value, "status");
    if status["allocatable"].is_null() && status["capacity"].is_object() {
        status["allocatable"] = status["capacity"].clone();
    }
    object(object(status, "daemonEndpoints"), "kubeletEndpoint");
    let info = object(status, "nodeInfo");
    for key in [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ] {
        set(info, key, "");
    }
    if let Some(endpoint) = status.pointer_mut("/daemonEndpoints/kubeletEndpoint") {
        set(endpoint, "Port", 0);
    }
}

pub(in crate::registry) fn claim(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "volumeMode", "Filesystem");
    object(spec, "resources");
    set(object(value, "status"), "phase", "Pending");
}

/// Initializes a new claim: pending and protected from deletion while in use.
pub(in crate::registry) fn new_claim(value: &mut Value) {
    value["status"] = json!({"phase": "Pending"});
    let metadata = object(value, "metadata");
    if metadata["finalizers"].is_null() {
        metadata["finalizers"] = json!([]);
    }
    if let Some(finalizers) = metadata["finalizers"].as_array_mut()
        && !finalizers.iter().any(|finalizer| finalizer == "kubernetes.io/pvc-protection")
    {
        finalizers.push("kubernetes.io/pvc-protection".into());
    }
}

pub(in crate::registry) fn volume(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "persistentVolumeReclaimPolicy", "Retain");
    set(spec, "volumeMode", "Filesystem");
    if let Some(path) = super::field(spec, "hostPath") {
        set(path, "type", "");
    }
    set(object(value, "status"), "phase", "Pending");
}

pub(in crate::registry) fn storage_class(value: &mut Value) {
    set(value, "reclaimPolicy", "Delete");
    set(value, "volumeBindingMode", "Immediate");
}

pub(in crate::registry) fn disruption_budget(value: &mut Value) {
    let status = object(value, "status");
    for key in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
        set(status, key, 0);
    }
}

pub(in crate::registry) fn priority_class(value: &mut Value) {
    set(value, "value", 0);
    set(value, "preemptionPolicy", "PreemptLowerPriority");
}

pub(in crate::registry) fn binding(value: &mut Value) {
    if value["roleRef"].is_object() {
        set(&mut value["roleRef"], "apiGroup", "rbac.authorization.k8s.io");
        if value["roleRef"]["apiGroup"] == "" {
            value["roleRef"]["apiGroup"] = "rbac.authorization.k8s.io".into();
        }
    }
    for subject in items(value, "subjects") {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            set(subject, "apiGroup", "rbac.authorization.k8s.io");
        }
    }
}

pub(in crate::registry) fn lease(value: &mut Value) {
    object(value, "spec");
}

pub(in crate::registry) fn role(value: &mut Value) {
    set(value, "rules", Value::Null);
}

pub(in crate::registry) fn event(value: &mut Value) {
    object(value, "involvedObject");
    object(value, "source");
    set(value, "reportingComponent", "");
    set(value, "reportingInstance", "");
    set(value, "firstTimestamp", Value::Null);
    set(value, "lastTimestamp", Value::Null);
    set(value, "eventTime", Value::Null);
}

pub(in crate::registry) fn webhooks(value: &mut Value) {
    let mutating = value["kind"] == "MutatingWebhookConfiguration";
    for hook in items(value, "webhooks") {
        set(hook, "failurePolicy", "Fail");
        set(hook, "matchPolicy", "Equivalent");
        set(hook, "namespaceSelector", json!({}));
        set(hook, "objectSelector", json!({}));
        set(hook, "timeoutSeconds", 10);
        if mutating {
            set(hook, "reinvocationPolicy", "Never");
        }
        if let Some(service) = super::field(hook, "clientConfig").and_then(|client| super::field(client, "service")) {
            set(service, "port", 443);
        }
        for rule in items(hook, "rules") {
            set(rule, "scope", "*");
        }
    }
}

pub(in crate::registry) fn signing_request(value: &mut Value) {
    object(value, "spec");
    object(value, "status");
}

/// Sets the defaults of what a policy or a binding matches.
fn match_resources(matches: &mut Value) {
    set(matches, "matchPolicy", "Equivalent");
    set(matches, "namespaceSelector", json!({}));
    set(matches, "objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in items(matches, list) {
            set(rule, "scope", "*");
        }
    }
}

pub(in crate::registry) fn admission_policy(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "failurePolicy", "Fail");
    if let Some(matches) = super::field(spec, "matchConstraints") {
        match_resources(matches);
    }
    object(value, "status");
}

/// Initializes the status of a new policy: its expressions were checked when it was validated.
pub(in crate::registry) fn new_admission_policy(value: &mut Value) {
    value["status"] = json!({"observedGeneration": 1, "typeChecking": {}});
}

pub(in crate::registry) fn admission_binding(value: &mut Value) {
    let spec = object(value, "spec");
    if let Some(matches) = super::field(spec, "matchResources") {
        match_resources(matches);
    }
}

pub(in crate::registry) fn flow_schema(value: &mut Value) {
    set(object(value, "spec"), "matchingPrecedence", 1000);
    object(value, "status");
}

pub(in crate::registry) fn priority_level(value: &mut Value) {
    let spec = object(value, "spec");
    if let Some(limited) = super::field(spec, "limited") {
        set(limited, "nominalConcurrencyShares", 30);
        set(limited, "lendablePercent", 0);
        if limited["limitResponse"]["type"] == "Queue" {
            let queuing = object(object(limited, "limitResponse"), "queuing");
            set(queuing, "queues", 64);
            set(queuing, "handSize", 8);
            set(queuing, "queueLengthLimit", 50);
        }
    }
    object(value, "status");
}

/// Sets the defaults of a CRD's names and conversion.
pub(in crate::registry) fn definition(value: &mut Value) {
    let spec = object(value, "spec");
    let names = object(spec, "names");
    let kind = names["kind"].as_str().unwrap_or("").to_owned();
    if !kind.is_empty() {
        set(names, "singular", kind.to_lowercase());
        set(names, "listKind", format!("{kind}List"));
    }
    set(object(spec, "conversion"), "strategy", "None");
}

/// Initializes the status of a new CRD.
pub(in crate::registry) fn new_definition(value: &mut Value) {
    let stored: Vec<Value> = value["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    value["status"] =
        json!({"conditions": null, "acceptedNames": {"kind": "", "plural": ""}, "storedVersions": stored});
}

pub(in crate::registry) fn autoscaler(value: &mut Value) {
    let spec = object(value, "spec");
    set(spec, "minReplicas", 1);
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        spec["metrics"] = json!([{"type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    }
    set(object(value, "status"), "desiredReplicas", 0);
}

pub(in crate::registry) fn api_service(value: &mut Value) {
    if value["spec"]["service"].is_object() {
        set(&mut value["spec"]["service"], "port", 443);
    }
    object(value, "status");
}
