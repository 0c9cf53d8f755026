//! Validation of pods and pod templates.

use serde_json::Value;

use super::container::{Role, Surroundings, app_armor, container, host_ports, ids, seccomp};
use super::fields::{indexed, named, one_of, required_one_of, text};
use super::{pod_update, scheduling, volume};
use crate::names;
use crate::schema::FieldError;

/// Validates a pod.
pub(in crate::registry) fn pod(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    // A pod that was stored under fewer rules must still get rid of its finalizers.
    if old.is_none_or(|old| old["spec"] != new["spec"]) {
        spec(&new["spec"], "spec", errors);
    }
    match old {
        Some(old) => pod_update::changes(new, old, errors),
        None => only_for_pods(&new["spec"], errors),
    }
}

/// Validates what holds for pods but not for templates.
fn only_for_pods(spec: &Value, errors: &mut Vec<FieldError>) {
    if spec["ephemeralContainers"].as_array().is_some_and(|list| !list.is_empty()) {
        let why = "cannot be set on create";
        errors.push(FieldError::forbidden("spec.ephemeralContainers", why));
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in indexed(&spec[list]) {
            let image = text(&container["image"]);
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(format!("spec.{list}[{index}].image"), &container["image"], why));
            }
        }
    }
    if spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) && !text(&spec["nodeName"]).is_empty()
    {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden("spec.nodeName", why));
    }
}

/// Validates the containers that were added to a running pod.
pub(in crate::registry) fn ephemeral_containers(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    spec(&new["spec"], "spec", errors);
    let known = old["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    let given = new["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    for container in known {
        let name = &container["name"];
        match given.iter().find(|other| other["name"] == *name) {
            None => {
                let why = format!("existing ephemeral containers {name} may not be removed\n");
                errors.push(FieldError::forbidden("spec.ephemeralContainers", &why));
            }
            Some(other) if *other != container => {
                let why = format!("existing ephemeral containers {name} may not be changed\n");
                errors.push(FieldError::forbidden("spec.ephemeralContainers", &why));
            }
            Some(_) => {}
        }
    }
}

/// Validates the spec of a pod or of a pod template.
pub(in crate::registry) fn spec(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let volumes = volume::pod_volumes(spec, path, errors);
    let grace_seconds = Some(spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(30));
    let surroundings = Surroundings { volumes: &volumes, grace_seconds };
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    // Init containers come second: a name that both have is wrong there.
    let mut seen: Vec<&str> = Vec::new();
    for (list, role) in
        [("containers", Role::Regular), ("initContainers", Role::Init), ("ephemeralContainers", Role::Ephemeral)]
    {
        for (index, one) in indexed(&spec[list]) {
            let field = format!("{path}.{list}[{index}]");
            container(one, &field, role, &surroundings, errors);
            let name = text(&one["name"]);
            if seen.contains(&name) && !name.is_empty() {
                errors.push(FieldError::duplicate(format!("{field}.name"), &one["name"]));
            }
            seen.push(name);
        }
    }
    host_ports(&spec["containers"], &format!("{path}.containers"), errors);
    host_namespaces(spec, path, errors);
    let supported = ["Always", "OnFailure", "Never"];
    required_one_of(&spec["restartPolicy"], format!("{path}.restartPolicy"), &supported, errors);
    let supported = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    required_one_of(&spec["dnsPolicy"], format!("{path}.dnsPolicy"), &supported, errors);
    if let Some(labels) = spec["nodeSelector"].as_object() {
        names::check_labels(labels, &format!("{path}.nodeSelector"), errors);
    }
    security(&spec["securityContext"], &format!("{path}.securityContext"), errors);
    scheduling::placement(spec, path, errors);
    scheduling::name_resolution(spec, path, errors);
    named(&spec["serviceAccountName"], format!("{path}.serviceAccountName"), names::subdomain, errors);
    named(&spec["nodeName"], format!("{path}.nodeName"), names::subdomain, errors);
    named(&spec["hostname"], format!("{path}.hostname"), names::label, errors);
    named(&spec["subdomain"], format!("{path}.subdomain"), names::label, errors);
    named(&spec["priorityClassName"], format!("{path}.priorityClassName"), names::subdomain, errors);
    named(&spec["runtimeClassName"], format!("{path}.runtimeClassName"), names::subdomain, errors);
    one_of(&spec["preemptionPolicy"], format!("{path}.preemptionPolicy"), &["Never", "PreemptLowerPriority"], errors);
    if !spec["os"].is_null() {
        required_one_of(&spec["os"]["name"], format!("{path}.os"), &["linux", "windows"], errors);
    }
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let field = format!("{path}.terminationGracePeriodSeconds");
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(field, &spec["terminationGracePeriodSeconds"], why));
    }
    let deadline = &spec["activeDeadlineSeconds"];
    if deadline.as_i64().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(format!("{path}.activeDeadlineSeconds"), deadline, why));
    }
    for (index, claim) in indexed(&spec["resourceClaims"]) {
        let field = format!("{path}.resourceClaims[{index}]");
        if claim["resourceClaimName"].is_null() && claim["resourceClaimTemplateName"].is_null() {
            let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
            errors.push(FieldError::invalid(field, claim, why));
        }
    }
}

/// Validates what the pod has of the host's namespaces.
fn host_namespaces(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if spec["hostNetwork"] == true {
        for (number, container) in indexed(&spec["containers"]) {
            for (index, port) in indexed(&container["ports"]) {
                if port["hostPort"] != port["containerPort"] {
                    let field = format!("{path}.containers[{number}].ports[{index}].containerPort");
                    let why = "must match `hostPort` when `hostNetwork` is true";
                    errors.push(FieldError::invalid(field, &port["containerPort"], why));
                }
            }
        }
    }
    if spec["hostUsers"] == false {
        for key in ["hostNetwork", "hostPID", "hostIPC"].iter().filter(|key| spec[**key] == true) {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), "when `hostUsers` is false"));
        }
    }
}

fn security(context: &Value, path: &str, errors: &mut Vec<FieldError>) {
    ids(context, &["runAsUser", "runAsGroup", "fsGroup"], path, errors);
    for (index, group) in indexed(&context["supplementalGroups"]) {
        if group.as_i64().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
            let why = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(format!("{path}.supplementalGroups[{index}]"), group, why));
        }
    }
    let field = format!("{path}.fsGroupChangePolicy");
    one_of(&context["fsGroupChangePolicy"], field, &["Always", "OnRootMismatch"], errors);
    for (key, supported) in
        [("supplementalGroupsPolicy", ["Merge", "Strict"]), ("seLinuxChangePolicy", ["MountOption", "Recursive"])]
    {
        one_of(&context[key], format!("{path}.{key}"), &supported, errors);
    }
    seccomp(&context["seccompProfile"], &format!("{path}.seccompProfile"), errors);
    app_armor(&context["appArmorProfile"], &format!("{path}.appArmorProfile"), errors);
    sysctls(&context["sysctls"], &format!("{path}.sysctls"), errors);
}

/// Validates the names of kernel parameters: words, separated by dots or slashes.
fn sysctls(sysctls: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const PATTERN: &str = "([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let is_word = |word: &str| {
        let is_end = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = word.as_bytes();
        is_end(bytes.first())
            && is_end(bytes.last())
            && bytes.iter().all(|b| is_end(Some(b)) || matches!(b, b'-' | b'_'))
    };
    let mut seen: Vec<&str> = Vec::new();
    for (index, sysctl) in sysctls.as_array().into_iter().flatten().enumerate() {
        let (name, field) = (sysctl["name"].as_str().unwrap_or(""), format!("{path}[{index}].name"));
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if name.len() > 253 || !name.split(['.', '/']).all(is_word) {
            let why = format!("must have at most 253 characters and match regex ^{PATTERN}$");
            errors.push(FieldError::invalid(field, &sysctl["name"], &why));
        } else if seen.contains(&name) {
            errors.push(FieldError::duplicate(field, &sysctl["name"]));
        }
        seen.push(name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kernel_parameters_have_names() {
        let names = ["foo-", "kernel.shmmax", "safe-and-unsafe", "bar..", "net/ipv4/x_y", "kernel.shmmax"];
        let given: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
        let mut errors = Vec::new();
        super::sysctls(&json!(given), "s", &mut errors);
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 3, "{shown:?}");
        assert!(shown[0].starts_with(r#"s[0].name: Invalid value: "foo-": must have at most 253"#), "{shown:?}");
        assert!(shown[1].starts_with(r#"s[3].name: Invalid value: "bar..""#), "{shown:?}");
        assert_eq!(shown[2], r#"s[5].name: Duplicate value: "kernel.shmmax""#);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let check = |pod: Value, container: Value, expect: &str| {
            let mut spec = json!({"restartPolicy": "Always", "dnsPolicy": "Default", "volumes": [{"name": "v"}],
                "containers": [{"name": "a", "image": "b", "imagePullPolicy": "Always"}]});
            for (key, value) in pod.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            for (key, value) in container.as_object().into_iter().flatten() {
                spec["containers"][0][key] = value.clone();
            }
            let mut errors = Vec::new();
            super::pod(&json!({"spec": spec}), None, &mut errors);
            let got: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(got.join(" "), expect, "{spec}: {errors:?}");
            let stored = json!({"spec": spec});
            errors.clear();
            super::pod(&stored, Some(&stored), &mut errors);
            assert!(errors.is_empty(), "what is stored can be written: {errors:?}");
        };
        let ports = |host: i64| json!({"ports": [{"containerPort": 80, "hostPort": host, "protocol": "TCP"}]});
        check(json!({"hostNetwork": true}), ports(80), "");
        check(json!({"hostNetwork": true}), ports(81), "spec.containers[0].ports[0].containerPort");
        check(json!({"hostNetwork": false}), ports(81), "");
        check(json!({"hostUsers": false, "hostNetwork": true}), Value::Null, "spec.hostNetwork");
        check(json!({"hostUsers": false, "hostPID": true, "hostIPC": true}), Value::Null, "spec.hostPID spec.hostIPC");
        check(json!({"hostUsers": false}), Value::Null, "");
        let security = |key: &str, value: Value| json!({"securityContext": {key: value}});
        check(security("supplementalGroupsPolicy", json!("Strict")), Value::Null, "");
        let field = "spec.securityContext.supplementalGroupsPolicy";
        check(security("supplementalGroupsPolicy", json!("Odd")), Value::Null, field);
        let field = "spec.securityContext.seLinuxChangePolicy";
        check(security("seLinuxChangePolicy", json!("Odd")), Value::Null, field);
        let profile = |kind: &str| security("appArmorProfile", json!({"type": kind}));
        check(profile("Unconfined"), profile("RuntimeDefault"), "");
        check(profile("Odd"), Value::Null, "spec.securityContext.appArmorProfile.type");
        check(Value::Null, profile(""), "spec.containers[0].securityContext.appArmorProfile.type");
        let mount = |key: &str, value: &str, read_only: bool, privileged: bool| {
            json!({"securityContext": {"privileged": privileged},
                "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": read_only, key: value}]})
        };
        let field = "spec.containers[0].volumeMounts.mountPropagation";
        check(Value::Null, mount("mountPropagation", "Bidirectional", false, false), field);
        check(Value::Null, mount("mountPropagation", "Bidirectional", false, true), "");
        let field = "spec.containers[0].volumeMounts.recursiveReadOnly";
        check(Value::Null, mount("recursiveReadOnly", "Enabled", false, false), field);
        check(Value::Null, mount("recursiveReadOnly", "Odd", true, false), field);
        check(Value::Null, mount("recursiveReadOnly", "IfPossible", true, false), "");
        check(Value::Null, mount("recursiveReadOnly", "Disabled", false, false), "");
    }

    #[test]
    fn broken_pods_are_refused() {
        let check = |container: Value, expect: &str| {
            let pod = json!({"spec": {"containers": [container], "restartPolicy": "Always", "dnsPolicy": "Default"}});
            let mut errors = Vec::new();
            super::pod(&pod, None, &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), expect);
        };
        let good = json!({"name": "a", "image": "b", "imagePullPolicy": "Always"});
        let with = |key: &str, value: Value| {
            let mut container = good.clone();
            container[key] = value;
            container
        };
        check(good.clone(), "");
        check(with("image", json!("")), "spec.containers[0].image: Required value");
        check(
            with("volumeMounts", json!([{"name": "v", "mountPath": "/v"}])),
            r#"spec.containers[0].volumeMounts[0].name: Not found: "v""#,
        );
        check(
            with("env", json!([{"name": "A", "valueFrom": {}}])),
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, \
             `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        );
        check(
            with("livenessProbe", json!({"successThreshold": 2})),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type; \
             spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        );
        check(
            with("resources", json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})),
            r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
        );
    }
}
