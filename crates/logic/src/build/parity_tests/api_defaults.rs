//! Defaults that the API server sets, and its canonical form of quantities.

use manta_quantity::Quantity;
use serde_json::{Value, json};

/// Sets the defaults of an object of this kind.
pub(super) fn fill(kind: &str, object: &mut Value) {
    match kind {
        "Pod" => {
            let spec = &mut object["spec"];
            fill_pod_spec(spec);
            fill_admitted_pod(spec);
        }
        "Service" => fill_service(&mut object["spec"]),
        "Job" => fill_job(object),
        "Secret" => {
            let data = object.as_object_mut().unwrap();
            data.remove("stringData");
            data.insert("type".to_owned(), json!("Opaque"));
            data.insert("data".to_owned(), json!({"auth_token": "<data>"}));
        }
        "PersistentVolumeClaim" => {
            defaults(&mut object["metadata"], json!({"finalizers": ["kubernetes.io/pvc-protection"]}));
            defaults(&mut object["spec"], json!({"volumeMode": "Filesystem"}));
            canonical_quantities(&mut object["spec"]["resources"]);
        }
        "NetworkPolicy" => {
            let spec = &mut object["spec"];
            for side in ["/ingress", "/egress"] {
                each(spec, side, |rule| each(rule, "/ports", |port| defaults(port, json!({"protocol": "TCP"}))));
            }
        }
        "Gateway" => each(object, "/spec/listeners", |listener| {
            defaults(listener, json!({"allowedRoutes": {"namespaces": {"from": "Same"}}}));
        }),
        "HTTPRoute" => {
            each(object, "/spec/parentRefs", |parent| {
                defaults(parent, json!({"group": "gateway.networking.k8s.io", "kind": "Gateway"}));
            });
            each(object, "/spec/rules", |rule| {
                each(rule, "/backendRefs", |backend| defaults(backend, json!({"group": "", "kind": "Service"})));
            });
        }
        _ => {}
    }
}

fn fill_pod_spec(spec: &mut Value) {
    defaults(
        spec,
        json!({
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        }),
    );
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        defaults(spec, json!({"serviceAccount": account}));
    }
    for containers in ["/containers", "/initContainers"] {
        each(spec, containers, fill_container);
    }
    each(spec, "/volumes", fill_volume);
}

/// Sets the defaults of Pods that templates do not get.
fn fill_admitted_pod(spec: &mut Value) {
    defaults(spec, json!({"enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0}));
    for containers in ["/containers", "/initContainers"] {
        each(spec, containers, |container| {
            if let Some(limits) = container.pointer("/resources/limits").cloned() {
                defaults(&mut container["resources"], json!({"requests": {}}));
                defaults(&mut container["resources"]["requests"], limits);
            }
        });
    }
    remove_empty(spec, "priorityClassName");
    defaults(spec, json!({"tolerations": []}));
    let tolerations = spec["tolerations"].as_array_mut().unwrap();
    if tolerations.contains(&json!({"operator": "Exists"})) {
        return;
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
    }
}

fn fill_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':'));
    let policy = if tag.is_none_or(|(_, tag)| tag == "latest") { "Always" } else { "IfNotPresent" };
    defaults(
        container,
        json!({
            "imagePullPolicy": policy,
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }),
    );
    canonical_quantities(&mut container["resources"]);
    each(container, "/ports", |port| defaults(port, json!({"protocol": "TCP"})));
    each(container, "/env", |entry| {
        if let Some(field) = entry.pointer_mut("/valueFrom/fieldRef") {
            defaults(field, json!({"apiVersion": "v1"}));
        }
        remove_empty(entry, "value");
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            let numbers =
                json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
            defaults(probe, numbers);
            if let Some(get) = probe.get_mut("httpGet") {
                defaults(get, json!({"path": "/", "scheme": "HTTP"}));
            }
        }
    }
    for list in ["env", "envFrom", "volumeMounts", "ports", "command", "args"] {
        remove_empty(container, list);
    }
}

fn fill_volume(volume: &mut Value) {
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source) {
            defaults(source, json!({"defaultMode": 420}));
            each(source, "/sources", |source| {
                if let Some(token) = source.get_mut("serviceAccountToken") {
                    defaults(token, json!({"expirationSeconds": 3600}));
                }
            });
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        defaults(path, json!({"type": ""}));
    }
    if let Some(limit) = volume.pointer_mut("/emptyDir/sizeLimit") {
        canonical(limit);
    }
}

fn fill_service(spec: &mut Value) {
    defaults(
        spec,
        json!({
            "type": "ClusterIP",
            "clusterIP": "<ip>",
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
        }),
    );
    if spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" {
        defaults(spec, json!({"externalTrafficPolicy": "Cluster"}));
    }
    if spec["type"] == "LoadBalancer" {
        defaults(spec, json!({"allocateLoadBalancerNodePorts": true}));
    }
    each(spec, "/ports", |port| {
        let target = port["port"].clone();
        defaults(port, json!({"protocol": "TCP", "targetPort": target}));
    });
}

fn fill_job(job: &mut Value) {
    let name = job["metadata"]["name"].clone();
    let spec = &mut job["spec"];
    defaults(
        spec,
        json!({
            "completionMode": "NonIndexed",
            "completions": 1,
            "manualSelector": false,
            "parallelism": 1,
            "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "<id>"}},
            "suspend": false,
        }),
    );
    let template = &mut spec["template"];
    let labels = json!({
        "batch.kubernetes.io/controller-uid": "<id>",
        "controller-uid": "<id>",
        "batch.kubernetes.io/job-name": name,
        "job-name": name,
    });
    defaults(&mut template["metadata"]["labels"], labels);
    fill_pod_spec(&mut template["spec"]);
}

/// Adds missing fields.
fn defaults(object: &mut Value, fields: Value) {
    let object = object.as_object_mut().unwrap();
    for (key, value) in fields.as_object().unwrap() {
        object.entry(key).or_insert_with(|| value.clone());
    }
}

fn each(object: &mut Value, list: &str, change: impl FnMut(&mut Value)) {
    object.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
}

fn remove_empty(object: &mut Value, key: &str) {
    let empty = |value: &Value| value == &json!([]) || value == &json!("");
    if object.get(key).is_some_and(empty) {
        object.as_object_mut().unwrap().remove(key);
    }
}

fn canonical_quantities(resources: &mut Value) {
    for list in ["limits", "requests"] {
        let list = resources.get_mut(list).and_then(Value::as_object_mut);
        list.into_iter().flat_map(|list| list.values_mut()).for_each(canonical);
    }
}

fn canonical(quantity: &mut Value) {
    *quantity = json!(Quantity::parse(quantity.as_str().unwrap()).unwrap().to_string());
}
