//! Validation of pods and pod templates.

use manta_quantity::Quantity;
use serde_json::Value;

use super::volume;
use crate::names;
use crate::schema::FieldError;

/// Validates a pod.
pub(in crate::registry) fn pod(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    spec(&new["spec"], "spec", errors);
    if let Some(old) = old {
        unchanged(new, old, errors);
    }
}

/// Validates the spec of a pod or of a pod template.
pub(in crate::registry) fn spec(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let volumes = volume::pod_volumes(spec, path, errors);
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut seen: Vec<String> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            self::container(container, &format!("{path}.{list}[{index}]"), &volumes, &mut seen, errors);
        }
    }
    let supported = ["Always", "OnFailure", "Never"];
    if !supported.contains(&spec["restartPolicy"].as_str().unwrap_or("")) {
        errors.push(FieldError::not_supported(format!("{path}.restartPolicy"), &spec["restartPolicy"], &supported));
    }
    let supported = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    if !supported.contains(&spec["dnsPolicy"].as_str().unwrap_or("")) {
        errors.push(FieldError::not_supported(format!("{path}.dnsPolicy"), &spec["dnsPolicy"], &supported));
    }
    if let Some(labels) = spec["nodeSelector"].as_object() {
        names::check_labels(labels, &format!("{path}.nodeSelector"), errors);
    }
    type Rule = fn(&str) -> Option<String>;
    let named: [(&str, Rule); 4] = [
        ("serviceAccountName", names::subdomain),
        ("nodeName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
    ];
    for (key, rule) in named {
        let name = spec[key].as_str().unwrap_or("");
        if let Some(why) = rule(name).filter(|_| !name.is_empty()) {
            errors.push(FieldError::invalid(format!("{path}.{key}"), &spec[key], &why));
        }
    }
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let field = format!("{path}.terminationGracePeriodSeconds");
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(field, &spec["terminationGracePeriodSeconds"], why));
    }
}

fn container(container: &Value, path: &str, volumes: &[&str], seen: &mut Vec<String>, errors: &mut Vec<FieldError>) {
    let name = container["name"].as_str().unwrap_or("");
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if let Some(why) = names::label(name) {
        errors.push(FieldError::invalid(format!("{path}.name"), &container["name"], &why));
    } else if seen.iter().any(|other| other == name) {
        errors.push(FieldError::duplicate(format!("{path}.name"), &container["name"]));
    }
    seen.push(name.to_owned());
    let image = container["image"].as_str().unwrap_or("");
    if image.is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(format!("{path}.image"), &container["image"], why));
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    if !policies.contains(&container["imagePullPolicy"].as_str().unwrap_or("")) {
        let field = format!("{path}.imagePullPolicy");
        errors.push(FieldError::not_supported(field, &container["imagePullPolicy"], &policies));
    }
    for (index, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
        let number = port["containerPort"].as_i64().unwrap_or(0);
        let field = format!("{path}.ports[{index}].containerPort");
        if number == 0 {
            errors.push(FieldError::required(field, ""));
        } else if !(1..=65535).contains(&number) {
            errors.push(FieldError::invalid(field, &number.into(), "must be between 1 and 65535, inclusive"));
        }
    }
    for (index, variable) in container["env"].as_array().into_iter().flatten().enumerate() {
        if variable["name"].as_str().unwrap_or("").is_empty() {
            errors.push(FieldError::required(format!("{path}.env[{index}].name"), ""));
        }
    }
    volume::mounts(container, path, volumes, errors);
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get(key) {
            self::probe(probe, &format!("{path}.{key}"), key != "readinessProbe", errors);
        }
    }
    resources(&container["resources"], &format!("{path}.resources"), errors);
}

fn probe(probe: &Value, path: &str, succeeds_once: bool, errors: &mut Vec<FieldError>) {
    let handlers = ["exec", "grpc", "httpGet", "tcpSocket"];
    let given: Vec<&str> = handlers.into_iter().filter(|handler| !probe[*handler].is_null()).collect();
    if given.is_empty() {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
    for handler in given.iter().skip(1) {
        errors.push(FieldError::forbidden(format!("{path}.{handler}"), "may not specify more than 1 handler type"));
    }
    for key in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        if probe[key].as_i64().is_some_and(|number| number < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{path}.{key}"), &probe[key], why));
        }
    }
    let threshold = &probe["successThreshold"];
    if succeeds_once && threshold.as_i64().is_some_and(|threshold| threshold > 1) {
        errors.push(FieldError::invalid(format!("{path}.successThreshold"), threshold, "must be 1"));
    }
}

fn resources(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let parse = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            if parse(value).is_some_and(|quantity| quantity.is_negative()) {
                let why = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(format!("{path}.{list}[{name}]"), value, why));
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][name.as_str()];
        if let (Some(asked), Some(most)) = (parse(request), parse(limit))
            && asked > most
        {
            let why = format!("must be less than or equal to {name} limit of {most}");
            errors.push(FieldError::invalid(format!("{path}.requests"), request, &why));
        }
    }
}

/// Validates that only the mutable fields of a pod's spec change.
fn unchanged(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let frozen = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container.as_object_mut().map(|container| container.remove("image"));
            }
        }
        for key in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"] {
            spec.as_object_mut().map(|spec| spec.remove(key));
        }
        if pod["spec"]["schedulingGates"].is_array() {
            for key in ["nodeSelector", "affinity"] {
                spec.as_object_mut().map(|spec| spec.remove(key));
            }
        }
        spec
    };
    if frozen(new) != frozen(old) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                   existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
