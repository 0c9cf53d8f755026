//! Defaults of pods and of the pod templates inside other kinds.

use serde_json::{Value, json};

use super::{field, items, object, set};

/// Sets the defaults of a pod.
pub(in crate::registry) fn pod(pod: &mut Value) {
    let spec = object(pod, "spec");
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            requests_from_limits(container);
        }
    }
    set(spec, "enableServiceLinks", true);
    pod_spec(spec);
    let status = object(pod, "status");
    if status["podIPs"].is_null() && status["podIP"].as_str().is_some_and(|address| !address.is_empty()) {
        status["podIPs"] = json!([{"ip": status["podIP"]}]);
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for one in items(status, list) {
            object(one, "state");
            object(one, "lastState");
        }
    }
}

/// Sets the defaults of a pod template; requests and service links are left to its pods.
pub(in crate::registry) fn template(template: &mut Value) {
    object(template, "metadata");
    pod_spec(object(template, "spec"));
}

fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned() else { return };
    let requests = object(object(container, "resources"), "requests");
    for (name, limit) in limits {
        set(requests, &name, limit);
    }
}

fn pod_spec(spec: &mut Value) {
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    set(spec, "terminationGracePeriodSeconds", 30);
    // Once a negative number meant "at once"; now it stands for the shortest grace period.
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = 1.into();
    }
    set(spec, "schedulerName", "default-scheduler");
    object(spec, "securityContext");
    mirror_service_account(spec);
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in items(spec, list) {
            self::container(container, host_network);
        }
    }
    for volume in items(spec, "volumes") {
        self::volume(volume);
    }
    for constraint in items(spec, "topologySpreadConstraints") {
        set(constraint, "whenUnsatisfiable", "DoNotSchedule");
    }
}

/// Keeps the deprecated `serviceAccount` equal to `serviceAccountName`.
fn mirror_service_account(spec: &mut Value) {
    let name = spec["serviceAccountName"].as_str().or(spec["serviceAccount"].as_str()).map(str::to_owned);
    if let Some(name) = name {
        spec["serviceAccountName"] = name.as_str().into();
        spec["serviceAccount"] = name.into();
    }
}

fn container(container: &mut Value, host_network: bool) {
    object(container, "resources");
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    let policy = pull_policy(container["image"].as_str().unwrap_or(""));
    set(container, "imagePullPolicy", policy);
    for port in items(container, "ports") {
        set(port, "protocol", "TCP");
        if host_network && port["containerPort"].is_number() {
            let number = port["containerPort"].clone();
            set(port, "hostPort", number);
        }
    }
    for variable in items(container, "env") {
        if let Some(reference) = field(variable, "valueFrom").and_then(|from| field(from, "fieldRef")) {
            set(reference, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = field(container, name) {
            self::probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = field(container, "lifecycle").and_then(|lifecycle| field(lifecycle, hook)) {
            http_get(hook);
        }
    }
}

/// `Always` for images that may change under their name.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let last = image.rsplit('/').next().unwrap_or("");
    match last.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn probe(probe: &mut Value) {
    set(probe, "timeoutSeconds", 1);
    set(probe, "periodSeconds", 10);
    set(probe, "successThreshold", 1);
    set(probe, "failureThreshold", 3);
    http_get(probe);
    if let Some(grpc) = field(probe, "grpc") {
        set(grpc, "service", "");
    }
}

fn http_get(holder: &mut Value) {
    if let Some(get) = field(holder, "httpGet") {
        set(get, "path", "/");
        set(get, "scheme", "HTTP");
    }
}

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|volume| volume.len() <= 1) {
        volume["emptyDir"] = json!({});
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = field(volume, source) {
            set(source, "defaultMode", 420);
        }
    }
    if let Some(downward) = field(volume, "downwardAPI") {
        downward_items(downward);
    }
    if let Some(projected) = field(volume, "projected") {
        for source in items(projected, "sources") {
            if let Some(token) = field(source, "serviceAccountToken") {
                set(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = field(source, "downwardAPI") {
                downward_items(downward);
            }
        }
    }
    if let Some(path) = field(volume, "hostPath") {
        set(path, "type", "");
    }
    if let Some(template) = field(volume, "ephemeral").and_then(|ephemeral| field(ephemeral, "volumeClaimTemplate")) {
        set(object(template, "spec"), "volumeMode", "Filesystem");
    }
}

fn downward_items(downward: &mut Value) {
    for item in items(downward, "items") {
        if let Some(reference) = field(item, "fieldRef") {
            set(reference, "apiVersion", "v1");
        }
    }
}

/// Adds the default tolerations and the priority to a new pod.
pub(crate) fn admit(pod: &mut Value, priority: Option<(i64, String)>) {
    let spec = object(pod, "spec");
    let (value, policy) = priority.unwrap_or((0, "PreemptLowerPriority".into()));
    set(spec, "priority", value);
    set(spec, "preemptionPolicy", policy);
    add_default_tolerations(pod);
}

/// Adds the tolerations for a node that is briefly not ready or unreachable.
pub(crate) fn add_default_tolerations(pod: &mut Value) {
    let spec = object(pod, "spec");
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = spec["tolerations"].as_array().into_iter().flatten().any(|toleration| {
            let covers = |field: &str, value: &str| toleration[field].is_null() || toleration[field] == value;
            covers("key", key) && covers("effect", "NoExecute")
        });
        if !tolerated {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            if spec["tolerations"].is_null() {
                spec["tolerations"] = json!([]);
            }
            if let Some(tolerations) = spec["tolerations"].as_array_mut() {
                tolerations.push(toleration);
            }
        }
    }
}

/// Initializes the status of a new pod.
pub(in crate::registry) fn new_status(pod: &mut Value) {
    let class = qos_class(&pod["spec"]);
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
}

/// Returns the QoS class of a pod spec.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let mut guaranteed = true;
    let mut any = false;
    for container in
        ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten())
    {
        let (limits, requests) = (&container["resources"]["limits"], &container["resources"]["requests"]);
        for name in ["cpu", "memory"] {
            let set = |value: &Value| value[name].as_str().is_some_and(|text| text != "0");
            any |= set(limits) || set(requests);
            guaranteed &= set(limits) && (!set(requests) || limits[name] == requests[name]);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_decide_the_pull_policy() {
        let check = |image: &str, expect: &str| assert_eq!(pull_policy(image), expect, "{image}");
        check("ray", "Always");
        check("host:5000/ray", "Always");
        check("rayproject/ray:latest", "Always");
        check("rayproject/ray:2.9", "IfNotPresent");
        check("ray@sha256:abc", "IfNotPresent");
    }

    #[test]
    fn resources_decide_the_quality_of_service() {
        let check = |resources: Value, expect: &str| {
            assert_eq!(qos_class(&json!({"containers": [{"resources": resources}]})), expect);
        };
        check(json!({}), "BestEffort");
        check(json!({"requests": {"cpu": "1"}}), "Burstable");
        check(json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed");
        check(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}), "Burstable");
    }

    #[test]
    fn defaults_leave_a_complete_pod_alone() {
        let mut once = json!({"spec": {"containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 1}],
            "livenessProbe": {"httpGet": {"port": 1}}, "resources": {"limits": {"cpu": "1"}}}],
            "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}]}});
        pod(&mut once);
        let mut twice = once.clone();
        pod(&mut twice);
        assert_eq!(once, twice);
        assert_eq!(once["spec"]["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(once["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    }
}
