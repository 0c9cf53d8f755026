//! Validation of containers: ports, environment, probes, hooks, resources, security.

use manta_quantity::Quantity;
use serde_json::{Value, json};

use super::fields::{
    indexed, label_name, non_negative, one_of, port, port_name_faults, port_number, quantity, required,
    required_one_of, text,
};
use super::volume;
use crate::names;
use crate::schema::FieldError;

/// What of a pod matters to its containers.
pub(super) struct Surroundings<'a> {
    pub(super) volumes: &'a [&'a str],
    pub(super) grace_seconds: Option<i64>,
}

/// The list that a container is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Regular,
    Init,
    Ephemeral,
}

/// Validates one container.
pub(super) fn container(
    container: &Value,
    path: &str,
    role: Role,
    pod: &Surroundings<'_>,
    errors: &mut Vec<FieldError>,
) {
    let name = text(&container["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else if let Some(why) = names::label(name) {
        errors.push(FieldError::invalid(format!("{path}.name"), &container["name"], &why));
    }
    required(&container["image"], format!("{path}.image"), errors);
    let policies = ["File", "FallbackToLogsOnError"];
    one_of(&container["terminationMessagePolicy"], format!("{path}.terminationMessagePolicy"), &policies, errors);
    ports(&container["ports"], &format!("{path}.ports"), errors);
    for (index, variable) in indexed(&container["env"]) {
        environment(variable, &format!("{path}.env[{index}]"), errors);
    }
    environment_from(&container["envFrom"], &format!("{path}.envFrom"), errors);
    volume::mounts(container, path, pod.volumes, errors);
    devices(container, path, pod.volumes, errors);
    let policies = ["Always", "IfNotPresent", "Never"];
    required_one_of(&container["imagePullPolicy"], format!("{path}.imagePullPolicy"), &policies, errors);
    resources(&container["resources"], &format!("{path}.resources"), errors);
    for (_, policy) in indexed(&container["resizePolicy"]) {
        let field = format!("{path}.resizePolicy");
        required_one_of(&policy["resourceName"], field.as_str(), &["cpu", "memory"], errors);
        required_one_of(&policy["restartPolicy"], field, &["NotRequired", "RestartContainer"], errors);
    }
    security(&container["securityContext"], &format!("{path}.securityContext"), errors);
    let sidecar = role == Role::Init && container["restartPolicy"] == "Always";
    if !container["restartPolicy"].is_null() && !sidecar {
        let field = format!("{path}.restartPolicy");
        match role {
            Role::Init => errors.push(FieldError::not_supported(field, &container["restartPolicy"], &["Always"])),
            _ => errors.push(FieldError::forbidden(field, "may not be set for non-init containers")),
        }
    }
    let hooks = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
    match role {
        Role::Init if !sidecar => {
            for key in hooks.iter().filter(|key| !container[**key].is_null()) {
                let why = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(format!("{path}.{key}"), why));
            }
        }
        Role::Ephemeral => {
            for key in hooks.iter().chain(&["ports", "resources"]) {
                if container[*key].as_object().is_some_and(|map| !map.is_empty()) || container[*key].is_array() {
                    let why = "cannot be set for an Ephemeral Container";
                    errors.push(FieldError::forbidden(format!("{path}.{key}"), why));
                }
            }
        }
        _ => {
            for hook in ["postStart", "preStop"] {
                if let Some(found) = container["lifecycle"].get(hook) {
                    handler(found, &format!("{path}.lifecycle.{hook}"), pod.grace_seconds, errors);
                }
            }
            for key in &hooks[1..] {
                if let Some(found) = container.get(*key) {
                    probe(found, &format!("{path}.{key}"), *key == "readinessProbe", errors);
                }
            }
        }
    }
}

fn ports(list: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in indexed(list) {
        let field = format!("{path}[{index}]");
        let name = text(&port["name"]);
        if !name.is_empty() {
            let faults = port_name_faults(name);
            errors.extend(faults.iter().map(|why| FieldError::invalid(format!("{field}.name"), &port["name"], why)));
            if faults.is_empty() && seen.contains(&name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), &port["name"]));
            }
            seen.push(name);
        }
        if port["containerPort"].as_i64().unwrap_or(0) == 0 {
            errors.push(FieldError::required(format!("{field}.containerPort"), ""));
        } else {
            port_number(&port["containerPort"], format!("{field}.containerPort"), errors);
        }
        if port["hostPort"].as_i64().unwrap_or(0) != 0 {
            port_number(&port["hostPort"], format!("{field}.hostPort"), errors);
        }
        one_of(&port["protocol"], format!("{field}.protocol"), &["SCTP", "TCP", "UDP"], errors);
    }
}

/// Validates that no two containers want the same port of the node.
pub(super) fn host_ports(containers: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<(String, i64, String)> = Vec::new();
    for (number, container) in indexed(containers) {
        for (index, port) in indexed(&container["ports"]) {
            let Some(wanted) = port["hostPort"].as_i64().filter(|port| *port != 0) else { continue };
            let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
            let key = (protocol, wanted, text(&port["hostIP"]).to_owned());
            if seen.contains(&key) {
                let shown = json!(format!("{}/{}/{wanted}", key.0, key.2));
                errors.push(FieldError::duplicate(format!("{path}[{number}].ports[{index}].hostPort"), &shown));
            }
            seen.push(key);
        }
    }
}

/// The fields of a pod that a variable may refer to.
const VARIABLE_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Those that exist, but that variables may not refer to.
const OTHER_FIELDS: &[&str] = &["metadata.annotations", "metadata.labels"];
const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

fn environment(variable: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let name = text(&variable["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        variable_name(&variable["name"], &format!("{path}.name"), errors);
    }
    let Some(from) = variable.get("valueFrom") else { return };
    let field = format!("{path}.valueFrom");
    let kinds = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"];
    let given = kinds.iter().filter(|kind| !from[**kind].is_null()).count();
    if from["fieldRef"].is_object() {
        field_reference(&from["fieldRef"], &format!("{field}.fieldRef"), VARIABLE_FIELDS, errors);
    }
    if from["resourceFieldRef"].is_object() {
        resource_reference(&from["resourceFieldRef"], &format!("{field}.resourceFieldRef"), false, errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if from[kind].is_object() {
            required(&from[kind]["name"], format!("{field}.{kind}.name"), errors);
            let key = format!("{field}.{kind}.key");
            match text(&from[kind]["key"]) {
                "" => errors.push(FieldError::required(key, "")),
                given => errors.extend(
                    super::data_key_faults(given)
                        .iter()
                        .map(|why| FieldError::invalid(key.as_str(), &json!(given), why)),
                ),
            }
        }
    }
    let why = match given {
        0 => "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        _ if !text(&variable["value"]).is_empty() => "may not be specified when `value` is not empty",
        1 => return,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(FieldError::invalid(field, &json!(""), why));
}

fn variable_name(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let fine = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    if !text(value).bytes().all(fine) {
        let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid(field, value, why));
    }
}

/// Validates a reference to a field of the pod.
pub(super) fn field_reference(reference: &Value, path: &str, supported: &[&str], errors: &mut Vec<FieldError>) {
    let (field, wanted) = (format!("{path}.fieldPath"), text(&reference["fieldPath"]));
    if wanted.is_empty() {
        return errors.push(FieldError::required(field, ""));
    }
    if let Some((map, key)) = wanted.strip_suffix("']").and_then(|wanted| wanted.split_once("['")) {
        match map {
            "metadata.annotations" => return label_name(&json!(key.to_lowercase()), path, errors),
            "metadata.labels" => return label_name(&json!(key), path, errors),
            _ => {}
        }
    }
    let known = VARIABLE_FIELDS.contains(&wanted) || OTHER_FIELDS.contains(&wanted);
    if !known {
        let why = format!("error converting fieldPath: field label not supported: {wanted}");
        errors.push(FieldError::invalid(field, &reference["fieldPath"], &why));
    } else if !supported.contains(&wanted) {
        errors.push(FieldError::not_supported(field, &reference["fieldPath"], supported));
    }
}

/// Validates a reference to a resource of a container.
pub(super) fn resource_reference(reference: &Value, path: &str, in_volume: bool, errors: &mut Vec<FieldError>) {
    let resource = text(&reference["resource"]);
    if in_volume && text(&reference["containerName"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.containerName"), ""));
    } else if resource.is_empty() {
        errors.push(FieldError::required(format!("{path}.resource"), ""));
    } else if !RESOURCE_FIELDS.contains(&resource)
        && !["limits.hugepages-", "requests.hugepages-"].iter().any(|prefix| resource.starts_with(prefix))
    {
        errors.push(FieldError::not_supported(format!("{path}.resource"), &reference["resource"], RESOURCE_FIELDS));
    }
}

fn environment_from(list: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, source) in indexed(list) {
        let field = format!("{path}[{index}]");
        if !text(&source["prefix"]).is_empty() {
            variable_name(&source["prefix"], &format!("{field}.prefix"), errors);
        }
        let kinds = ["configMapRef", "secretRef"];
        let given: Vec<&&str> = kinds.iter().filter(|kind| source[**kind].is_object()).collect();
        for kind in &given {
            required(&source[**kind]["name"], format!("{field}.{kind}.name"), errors);
        }
        let why = match given.len() {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(path, &json!(""), why));
    }
}

fn devices(container: &Value, path: &str, volumes: &[&str], errors: &mut Vec<FieldError>) {
    for (index, device) in indexed(&container["volumeDevices"]) {
        let field = format!("{path}.volumeDevices[{index}]");
        required(&device["name"], format!("{field}.name"), errors);
        if !volumes.contains(&text(&device["name"])) {
            errors.push(FieldError::not_found(format!("{field}.name"), &device["name"]));
        }
        required(&device["devicePath"], format!("{field}.devicePath"), errors);
    }
}

/// Validates the handler of a probe or a hook; there must be exactly one.
fn handler(handler: &Value, path: &str, grace_seconds: Option<i64>, errors: &mut Vec<FieldError>) {
    let kinds = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
    let mut given = kinds.into_iter().filter(|kind| !handler[*kind].is_null());
    let Some(first) = given.next() else {
        return errors.push(FieldError::required(path, "must specify a handler type"));
    };
    let (action, field) = (&handler[first], format!("{path}.{first}"));
    match first {
        "exec" if action["command"].as_array().is_none_or(Vec::is_empty) => {
            errors.push(FieldError::required(format!("{field}.command"), ""));
        }
        "httpGet" => {
            port(&action["port"], &format!("{field}.port"), errors);
            one_of(&action["scheme"], format!("{field}.scheme"), &["HTTP", "HTTPS"], errors);
            for (_, header) in indexed(&action["httpHeaders"]) {
                let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                if text(&header["name"]).is_empty() || !text(&header["name"]).bytes().all(fine) {
                    let why = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                               regex used for validation is '[-A-Za-z0-9]+')";
                    errors.push(FieldError::invalid(format!("{field}.httpHeaders"), &header["name"], why));
                }
            }
        }
        "tcpSocket" => port(&action["port"], &format!("{field}.port"), errors),
        "grpc" => port_number(&action["port"], format!("{field}.port"), errors),
        "sleep" => {
            let seconds = action["seconds"].as_i64().unwrap_or(0);
            if let Some(grace) = grace_seconds.filter(|grace| seconds < 0 || seconds > *grace) {
                let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                errors.push(FieldError::invalid(field, &json!(seconds), &why));
            }
        }
        _ => {}
    }
    for kind in given {
        errors.push(FieldError::forbidden(format!("{path}.{kind}"), "may not specify more than 1 handler type"));
    }
}

fn probe(probe: &Value, path: &str, is_readiness: bool, errors: &mut Vec<FieldError>) {
    handler(probe, path, None, errors);
    let numbers = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    non_negative(probe, &numbers, path, errors);
    let grace = &probe["terminationGracePeriodSeconds"];
    let field = format!("{path}.terminationGracePeriodSeconds");
    if grace.as_i64().is_some_and(|grace| grace <= 0) {
        errors.push(FieldError::invalid(field.as_str(), grace, "must be greater than 0"));
    }
    if is_readiness && !grace.is_null() {
        errors.push(FieldError::invalid(field, grace, "must not be set for readinessProbes"));
    }
    let threshold = &probe["successThreshold"];
    if !is_readiness && threshold.as_i64().is_some_and(|threshold| threshold != 1) {
        errors.push(FieldError::invalid(format!("{path}.successThreshold"), threshold, "must be 1"));
    }
}

/// Returns whether requests and limits of a resource may differ.
fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.split('/').next().is_some_and(|prefix| prefix.ends_with("kubernetes.io"))
}

fn resources(resources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut huge_pages = false;
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            let field = format!("{path}.{list}[{name}]");
            let standard =
                matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
            huge_pages |= name.starts_with("hugepages-");
            if !name.contains('/') && !standard {
                let why = "must be a standard resource for containers";
                errors.push(FieldError::invalid(field.as_str(), &json!(name), why));
            } else if name.contains('/') && names::label_key(name).is_some() {
                let why = "doesn't follow extended resource name standard";
                errors.push(FieldError::invalid(field.as_str(), &json!(name), why));
            }
            let Some(amount) = quantity(value) else { continue };
            if amount.is_negative() {
                let why = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(field.as_str(), value, why));
            }
            if !is_native(name) && amount.milli_value() % 1000 != 0 {
                errors.push(FieldError::invalid(field, value, "must be an integer"));
            }
        }
    }
    let specified = |name: &str| !resources["limits"][name].is_null() || !resources["requests"][name].is_null();
    if huge_pages && !specified("cpu") && !specified("memory") {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = quantity(&resources["limits"][name.as_str()]);
        match (quantity(request), limit) {
            (Some(asked), Some(most)) => compare(name, request, &asked, &most, path, errors),
            (Some(_), None) if !may_overcommit(name) => {
                let why = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(format!("{path}.limits"), why));
            }
            _ => {}
        }
    }
}

fn compare(name: &str, request: &Value, asked: &Quantity, most: &Quantity, path: &str, errors: &mut Vec<FieldError>) {
    let why = if !may_overcommit(name) && asked != most {
        format!("must be equal to {name} limit of {most}")
    } else if asked > most {
        format!("must be less than or equal to {name} limit of {most}")
    } else {
        return;
    };
    errors.push(FieldError::invalid(format!("{path}.requests"), request, &why));
}

/// Validates the ids of a security context.
pub(super) fn ids(context: &Value, keys: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    for key in keys {
        if context[*key].as_i64().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
            let why = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(format!("{path}.{key}"), &context[*key], why));
        }
    }
}

/// Validates a seccomp profile.
pub(super) fn seccomp(profile: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if profile.is_null() {
        return;
    }
    required_one_of(&profile["type"], format!("{path}.type"), &["Localhost", "RuntimeDefault", "Unconfined"], errors);
    let local = &profile["localhostProfile"];
    if profile["type"] == "Localhost" {
        if local.is_null() {
            let why = "must be set when seccomp type is Localhost";
            errors.push(FieldError::required(format!("{path}.localhostProfile"), why));
        }
    } else if !local.is_null() {
        let why = "can only be set when seccomp type is Localhost";
        errors.push(FieldError::invalid(format!("{path}.localhostProfile"), profile, why));
    }
}

/// Validates an AppArmor profile.
pub(super) fn app_armor(profile: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if profile.is_null() {
        return;
    }
    let (kind, field) = (&profile["type"], format!("{path}.type"));
    match text(kind) {
        "" => errors.push(FieldError::required(field, "type is required when appArmorProfile is set")),
        _ => one_of(kind, field, &["Localhost", "RuntimeDefault", "Unconfined"], errors),
    }
    let (local, field) = (&profile["localhostProfile"], format!("{path}.localhostProfile"));
    if kind == "Localhost" {
        required(local, field, errors);
    } else if !local.is_null() {
        errors.push(FieldError::invalid(field, local, "can only be set when AppArmor type is Localhost"));
    }
}

fn security(context: &Value, path: &str, errors: &mut Vec<FieldError>) {
    ids(context, &["runAsUser", "runAsGroup"], path, errors);
    one_of(&context["procMount"], format!("{path}.procMount"), &["Default", "Unmasked"], errors);
    seccomp(&context["seccompProfile"], &format!("{path}.seccompProfile"), errors);
    app_armor(&context["appArmorProfile"], &format!("{path}.appArmorProfile"), errors);
    if context["allowPrivilegeEscalation"] != false {
        return;
    }
    if context["privileged"] == true {
        let why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(FieldError::invalid(path, context, why));
    }
    for (_, capability) in indexed(&context["capabilities"]["add"]) {
        if capability == "CAP_SYS_ADMIN" {
            let why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.push(FieldError::invalid(path, context, why));
        }
    }
}
