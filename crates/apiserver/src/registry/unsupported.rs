//! Fields that mean something which this server and its node do not do.
//!
//! One table says which. A field without which the object would mean something else is refused when it is first set; one
//! whose loss leaves a usable object on a single node gets a warning, so that manifests written for clusters apply.

use serde_json::Value;

use crate::schema::FieldError;

/// Where a field is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In objects of this table.
    Object(&'static str),
    /// In Services that have an address or select pods: others hold what users write, of any family.
    Routed,
    /// In the spec of pods and of pod templates.
    Pod,
    /// In every container of them.
    Container,
}

/// The values of a field that are not supported.
#[derive(Clone, Copy)]
enum Given {
    /// All of them; empty lists and maps mean nothing.
    Any,
    /// This text.
    Text(&'static str),
    /// `true`.
    True,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The object is refused, as field that may not be set.
    Forbid,
    /// The object is refused, as one with an invalid value, as the real server does.
    Invalid,
    /// The client gets a warning.
    Warn,
}

/// A field that is not supported: where it is, which values, and what is said.
struct Field {
    place: Place,
    /// Keys separated by dots; `*` stands for every item of a list.
    path: &'static str,
    given: Given,
    effect: Effect,
    why: &'static str,
}

const fn field(place: Place, path: &'static str, given: Given, effect: Effect, why: &'static str) -> Field {
    Field { place, path, given, effect, why }
}

const CLAIMS: Place = Place::Object("persistentvolumeclaims");
const SERVICES: Place = Place::Object("services");
const DIRECTORIES: &str = "volumes of this server are empty directories; leave it out";
const ONE_NODE: &str = "this server has one node and ignores it";

const FIELDS: &[Field] = &[
    field(
        Place::Pod,
        "resourceClaims",
        Given::Any,
        Effect::Forbid,
        "this server has no dynamic resource allocation; leave it out",
    ),
    field(
        Place::Pod,
        "shareProcessNamespace",
        Given::True,
        Effect::Forbid,
        "the containers of a pod have process namespaces of their own here; leave it out",
    ),
    field(
        Place::Container,
        "volumeDevices",
        Given::Any,
        Effect::Forbid,
        "this server has no block devices; leave it out",
    ),
    field(
        Place::Container,
        "restartPolicyRules",
        Given::Any,
        Effect::Forbid,
        "this server restarts containers by the pod's restartPolicy only; leave it out",
    ),
    field(
        Place::Pod,
        "securityContext.appArmorProfile.type",
        Given::Text("Localhost"),
        Effect::Forbid,
        "this server's node has no profiles of its own; use RuntimeDefault",
    ),
    field(
        Place::Container,
        "securityContext.appArmorProfile.type",
        Given::Text("Localhost"),
        Effect::Forbid,
        "this server's node has no profiles of its own; use RuntimeDefault",
    ),
    field(
        Place::Pod,
        "securityContext.seLinuxOptions",
        Given::Any,
        Effect::Warn,
        "this server's node sets no SELinux labels",
    ),
    field(
        Place::Container,
        "securityContext.seLinuxOptions",
        Given::Any,
        Effect::Warn,
        "this server's node sets no SELinux labels",
    ),
    field(Place::Pod, "securityContext.windowsOptions", Given::Any, Effect::Warn, "this server's node runs Linux"),
    field(
        Place::Container,
        "securityContext.windowsOptions",
        Given::Any,
        Effect::Warn,
        "this server's node runs Linux",
    ),
    field(
        Place::Pod,
        "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        Given::Any,
        Effect::Warn,
        ONE_NODE,
    ),
    field(
        Place::Pod,
        "affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        Given::Any,
        Effect::Warn,
        ONE_NODE,
    ),
    field(
        Place::Pod,
        "topologySpreadConstraints.*.whenUnsatisfiable",
        Given::Text("DoNotSchedule"),
        Effect::Warn,
        ONE_NODE,
    ),
    field(Place::Routed, "spec.ipFamilies.*", Given::Text("IPv6"), Effect::Invalid, "not configured on this cluster"),
    field(
        Place::Routed,
        "spec.ipFamilyPolicy",
        Given::Text("RequireDualStack"),
        Effect::Invalid,
        "this cluster is not configured for dual-stack services",
    ),
    field(
        SERVICES,
        "spec.externalIPs",
        Given::Any,
        Effect::Forbid,
        "this server's node takes no traffic for other addresses; use a node port",
    ),
    field(
        SERVICES,
        "spec.ports.*.protocol",
        Given::Text("SCTP"),
        Effect::Forbid,
        "this server's node forwards TCP and UDP only",
    ),
    field(
        CLAIMS,
        "spec.volumeMode",
        Given::Text("Block"),
        Effect::Forbid,
        "this server has no block devices; use Filesystem",
    ),
    field(CLAIMS, "spec.dataSource", Given::Any, Effect::Forbid, DIRECTORIES),
    field(CLAIMS, "spec.dataSourceRef", Given::Any, Effect::Forbid, DIRECTORIES),
    field(CLAIMS, "spec.selector", Given::Any, Effect::Forbid, DIRECTORIES),
];

/// Returns the fields for which an object is refused, without those that `old` has already.
pub(crate) fn refusals(table: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let found = |object: &Value| {
        let mut errors = Vec::new();
        each(table, object, &mut |one, path, value| match one.effect {
            Effect::Forbid => errors.push(FieldError::forbidden(path, one.why)),
            Effect::Invalid => errors.push(FieldError::invalid(path, value, one.why)),
            Effect::Warn => {}
        });
        errors
    };
    let errors = found(new);
    match old {
        Some(old) if !errors.is_empty() => {
            // What was stored before must still be possible to write, above all without its finalizers.
            let known: Vec<String> = found(old).iter().map(ToString::to_string).collect();
            errors.into_iter().filter(|error| !known.contains(&error.to_string())).collect()
        }
        _ => errors,
    }
}

/// Returns the warnings about fields of an object that have no effect.
pub(crate) fn warnings(table: &str, object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    each(table, object, &mut |one, path, _| {
        if one.effect == Effect::Warn {
            warnings.push(format!("{path}: {}", one.why));
        }
    });
    warnings
}

/// Calls a function with every unsupported field of an object: its row, its path and its value.
fn each(table: &str, object: &Value, found: &mut impl FnMut(&Field, String, &Value)) {
    let (path, spec) = pod_spec(table, object);
    for one in FIELDS {
        match one.place {
            Place::Object(wanted) if wanted == table => walk(one, object, one.path, String::new(), found),
            Place::Routed if table == "services" && is_routed(object) => {
                walk(one, object, one.path, String::new(), found);
            }
            Place::Object(_) | Place::Routed => {}
            Place::Pod => walk(one, spec, one.path, path.to_owned(), found),
            Place::Container => {
                for list in ["initContainers", "containers", "ephemeralContainers"] {
                    for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
                        walk(one, container, one.path, format!("{path}.{list}[{index}]"), found);
                    }
                }
            }
        }
    }
}

/// Returns whether a Service has an address or selects pods.
fn is_routed(service: &Value) -> bool {
    let selects = service["spec"]["selector"].as_object().is_some_and(|labels| !labels.is_empty());
    service["spec"]["clusterIP"] != "None" || selects
}

/// Returns the pod spec in objects of a table, and its path; null where there is none.
fn pod_spec<'a>(table: &str, object: &'a Value) -> (&'static str, &'a Value) {
    match table {
        "pods" => ("spec", &object["spec"]),
        "replicationcontrollers"
        | "deployments.apps"
        | "replicasets.apps"
        | "statefulsets.apps"
        | "daemonsets.apps"
        | "jobs.batch" => ("spec.template.spec", &object["spec"]["template"]["spec"]),
        "cronjobs.batch" => {
            ("spec.jobTemplate.spec.template.spec", &object["spec"]["jobTemplate"]["spec"]["template"]["spec"])
        }
        "podtemplates" => ("template.spec", &object["template"]["spec"]),
        _ => ("", &Value::Null),
    }
}

fn walk(one: &Field, value: &Value, rest: &str, path: String, found: &mut impl FnMut(&Field, String, &Value)) {
    if rest.is_empty() {
        let counts = match one.given {
            Given::Any => match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            },
            Given::Text(text) => *value == text,
            Given::True => *value == true,
        };
        if counts {
            found(one, path, value);
        }
        return;
    }
    let (key, rest) = rest.split_once('.').unwrap_or((rest, ""));
    match key {
        "*" => {
            for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                walk(one, item, rest, format!("{path}[{index}]"), found);
            }
        }
        key => {
            let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            walk(one, &value[key], rest, path, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns an object that has a field of the table, and the path that must be named.
    fn example(one: &Field, table: &str) -> (Value, String) {
        let value = match one.given {
            Given::Any => json!([{"x": "y"}]),
            Given::Text(text) => json!(text),
            Given::True => json!(true),
        };
        let (mut object, mut path) = (value, String::new());
        for key in one.path.rsplit('.') {
            (object, path) = match key {
                "*" => (json!([{}, object]), format!("[1]{path}")),
                key => (json!({key: object}), format!(".{key}{path}")),
            };
        }
        if one.place == Place::Container {
            (object, path) = (json!({"initContainers": [object]}), format!(".initContainers[0]{path}"));
        }
        if matches!(one.place, Place::Pod | Place::Container) {
            let (start, _) = pod_spec(table, &Value::Null);
            for key in start.rsplit('.') {
                (object, path) = (json!({key: object}), format!(".{key}{path}"));
            }
        }
        (object, path.trim_start_matches('.').to_owned())
    }

    #[test]
    fn every_field_of_the_table_is_named() {
        let with_pods = ["pods", "deployments.apps", "jobs.batch", "cronjobs.batch", "podtemplates"];
        for one in FIELDS {
            let tables: &[&str] = match &one.place {
                Place::Object(table) => &[*table],
                Place::Routed => &["services"],
                Place::Pod | Place::Container => &with_pods,
            };
            for table in tables {
                let (object, path) = example(one, table);
                let errors: Vec<String> = refusals(table, &object, None).iter().map(ToString::to_string).collect();
                let said = if one.effect == Effect::Warn { warnings(table, &object) } else { errors.clone() };
                assert_eq!(said.len(), 1, "{table} {path}: {said:?}");
                assert!(said[0].starts_with(&format!("{path}: ")) && said[0].ends_with(one.why), "{said:?}");
                assert_eq!(errors.is_empty(), one.effect == Effect::Warn);
                assert!(refusals(table, &object, Some(&object)).is_empty(), "{table} {path}: what is stored stays");
                assert!(refusals("configmaps", &object, None).is_empty());
            }
        }
    }

    #[test]
    fn what_ray_clusters_use_is_accepted() {
        let spec = json!({"hostUsers": true, "shareProcessNamespace": false, "resourceClaims": [], "securityContext": {},
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}},
            "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
            "containers": [{"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}]});
        let pod = json!({"spec": spec});
        assert!(refusals("pods", &pod, None).is_empty() && warnings("pods", &pod).is_empty());
        let service = json!({"spec": {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack", "externalIPs": [],
            "ports": [{"protocol": "UDP"}]}});
        assert!(refusals("services", &service, None).is_empty());
        // What Kubernetes gives a headless service without a selector by default.
        let free = json!({"spec": {"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}});
        assert!(refusals("services", &free, None).is_empty());
        let claim = json!({"spec": {"volumeMode": "Filesystem"}});
        assert!(refusals("persistentvolumeclaims", &claim, None).is_empty());
    }
}
