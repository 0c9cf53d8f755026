//! The environment, command and arguments of a container.
//!
//! Starts from nothing of the agent's own environment, so that proxy settings and the like stay
//! outside. Later entries win; `$(NAME)` refers to entries before it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod, Service};

use crate::downward_api::{self, NodeValues};
use crate::images::Environment;

/// The ConfigMaps and Secrets of the pod's namespace.
pub trait Sources {
    fn config_map(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>>;
    fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>>;
    fn claim(&self, name: &str) -> Option<ClaimState>;
}

/// What is known of a PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimState {
    /// Bound to the volume that was provisioned for it.
    Bound {
        uid: String,
    },
    /// Bound to a volume that somebody else made.
    Foreign {
        volume: String,
    },
    Pending,
}

/// Why a container's configuration cannot be made, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{kind} \"{name}\" not found")]
    Missing { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey { key: String, kind: &'static str, namespace: String, name: String },
    #[error("unsupported field path \"{path}\" for environment variable {variable}")]
    Field { path: String, variable: String },
}

/// The environment of one container: `base` first, then `envFrom`, then `env`.
pub fn environment(
    pod: &Pod,
    container: &Container,
    base: &[(String, String)],
    sources: &dyn Sources,
    values: &NodeValues,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut env = Ordered::default();
    for (name, value) in base {
        env.set(name, value.clone());
    }
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let found = match (&from.config_map_ref, &from.secret_ref) {
            (Some(r), _) => lookup("configmap", &r.name, r.optional, sources.config_map(&r.name))?,
            (_, Some(r)) => lookup("secret", &r.name, r.optional, sources.secret(&r.name))?,
            _ => continue,
        };
        for (key, value) in found {
            env.set(&format!("{prefix}{key}"), String::from_utf8_lossy(&value).into_owned());
        }
    }
    for var in container.env.iter().flatten() {
        let value = match (&var.value, &var.value_from) {
            (Some(value), _) if !value.is_empty() => Some(expand(value, |name| env.get(name))),
            (_, Some(source)) => resolve(pod, container, &var.name, source, sources, values)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            env.set(&var.name, value);
        }
    }
    Ok(env.0)
}

/// The variables that announce the Services of a namespace to its pods, as Docker links did.
pub fn service_variables<'a>(
    services: impl IntoIterator<Item = &'a Service>,
    namespace: &str,
) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let mut mine: Vec<&Service> =
        services.into_iter().filter(|service| service.metadata.namespace.as_deref() == Some(namespace)).collect();
    mine.sort_by_key(|service| service.metadata.name.clone());
    for service in mine {
        let (Some(name), Some(spec)) = (&service.metadata.name, &service.spec) else { continue };
        let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else { continue };
        let ports = spec.ports.as_deref().unwrap_or_default();
        let Some(first) = ports.first() else { continue };
        let upper = |text: &str| text.to_uppercase().replace('-', "_");
        let prefix = upper(name);
        variables.push((format!("{prefix}_SERVICE_HOST"), ip.to_owned()));
        variables.push((format!("{prefix}_SERVICE_PORT"), first.port.to_string()));
        for port in ports {
            if let Some(port_name) = port.name.as_deref().filter(|text| !text.is_empty()) {
                variables.push((format!("{prefix}_SERVICE_PORT_{}", upper(port_name)), port.port.to_string()));
            }
        }
        for (index, port) in ports.iter().enumerate() {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let url = format!("{}://{ip}:{}", protocol.to_lowercase(), port.port);
            if index == 0 {
                variables.push((format!("{prefix}_PORT"), url.clone()));
            }
            let port_prefix = format!("{prefix}_PORT_{}_{protocol}", port.port);
            variables.push((port_prefix.clone(), url));
            variables.push((format!("{port_prefix}_PROTO"), protocol.to_lowercase()));
            variables.push((format!("{port_prefix}_PORT"), port.port.to_string()));
            variables.push((format!("{port_prefix}_ADDR"), ip.to_owned()));
        }
    }
    variables
}

/// The command line: the image's entry point and arguments where the container has none. An image without an entry point
/// runs the container's arguments.
pub fn command(container: &Container, image: &Environment, env: &[(String, String)]) -> Vec<String> {
    let own = container.command.as_deref().unwrap_or_default();
    let args = container.args.as_deref().unwrap_or_default();
    let (head, args) = match (own, args) {
        ([], []) => (image.entrypoint.as_slice(), image.cmd.as_slice()),
        ([], args) => (image.entrypoint.as_slice(), args),
        (own, args) => (own, args),
    };
    let lookup = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    head.iter().chain(args).map(|part| expand(part, lookup)).collect()
}

/// Replaces `$(NAME)` where the name is known; `$$` is one dollar sign.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

fn resolve(
    pod: &Pod,
    container: &Container,
    variable: &str,
    source: &EnvVarSource,
    sources: &dyn Sources,
    values: &NodeValues,
) -> Result<Option<String>, ConfigError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let bad = |path: &str| ConfigError::Field { path: path.to_owned(), variable: variable.to_owned() };
    if let Some(r) = &source.field_ref {
        return downward_api::field(pod, values, &r.field_path).map(Some).ok_or_else(|| bad(&r.field_path));
    }
    if let Some(r) = &source.resource_field_ref {
        let named = r.container_name.as_deref().and_then(|name| {
            pod.spec
                .iter()
                .flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers))
                .find(|c| c.name == name)
        });
        return downward_api::resource(named.unwrap_or(container), values, r).map(Some).ok_or_else(|| bad(&r.resource));
    }
    let (kind, title, name, key, optional, found) = if let Some(r) = &source.config_map_key_ref {
        ("configmap", "ConfigMap", &r.name, &r.key, r.optional, sources.config_map(&r.name))
    } else if let Some(r) = &source.secret_key_ref {
        ("secret", "Secret", &r.name, &r.key, r.optional, sources.secret(&r.name))
    } else {
        return Ok(Some(String::new()));
    };
    let found = lookup(kind, name, optional, found)?;
    match found.get(key) {
        Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
        None if optional == Some(true) => Ok(None),
        None => Err(ConfigError::MissingKey {
            key: key.clone(),
            kind: title,
            namespace: namespace.to_owned(),
            name: name.clone(),
        }),
    }
}

fn lookup(
    kind: &'static str,
    name: &str,
    optional: Option<bool>,
    found: Option<BTreeMap<String, Vec<u8>>>,
) -> Result<BTreeMap<String, Vec<u8>>, ConfigError> {
    match found {
        Some(found) => Ok(found),
        None if optional == Some(true) => Ok(BTreeMap::new()),
        None => Err(ConfigError::Missing { kind, name: name.to_owned() }),
    }
}

/// Variables in the order they were first set, the last value winning.
#[derive(Default)]
struct Ordered(Vec<(String, String)>);

impl Ordered {
    fn get(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
    }

    fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl Sources for Fixed {
        fn config_map(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
            (name == "cm").then(|| BTreeMap::from([("k".to_owned(), b"v".to_vec()), ("z".to_owned(), b"y".to_vec())]))
        }
        fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
            (name == "sec").then(|| BTreeMap::from([("pw".to_owned(), b"hunter".to_vec())]))
        }
        fn claim(&self, _: &str) -> Option<ClaimState> {
            None
        }
    }

    fn check(container: serde_json::Value, expect: Result<&[(&str, &str)], &str>) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"ray.io/cluster": "c"}},
            "spec": {"nodeName": "node", "containers": [{"name": "other", "resources": {"limits": {"cpu": "3"}}}]},
        }))
        .unwrap();
        let mut container = container;
        container["name"] = json!("c");
        let container: Container = serde_json::from_value(container).unwrap();
        let values = NodeValues {
            pod_ip: "10.244.0.9".into(),
            host_ip: "10.244.0.1".into(),
            allocatable: BTreeMap::from([("cpu".to_owned(), Quantity("4".into()))]),
        };
        let base = [("PATH".to_owned(), "/bin".to_owned())];
        let got = environment(&pod, &container, &base, &Fixed, &values).map_err(|e| e.to_string());
        let expect = expect
            .map(|pairs| {
                let all = std::iter::once(&("PATH", "/bin")).chain(pairs);
                all.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>()
            })
            .map_err(str::to_owned);
        assert_eq!(got, expect);
    }

    #[test]
    fn values_refer_to_earlier_ones() {
        let env = json!({"env": [
            {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(C)-$$(A)-$A"}, {"name": "C", "value": ""},
        ]});
        check(env, Ok(&[("A", "1"), ("B", "1-$(C)-$(A)-$A"), ("C", "")]));
    }

    #[test]
    fn sources_are_read() {
        let env = json!({
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "no", "optional": true}}],
            "env": [
                {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "pw"}}},
                {"name": "O", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "no", "optional": true}}},
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}}},
                {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
                {"name": "X", "valueFrom": {"resourceFieldRef": {"containerName": "other", "resource": "limits.cpu"}}},
            ],
            "resources": {"limits": {"memory": "2Gi"}, "requests": {"cpu": "1500m"}},
        });
        let expect: &[(&str, &str)] = &[
            ("P_k", "v"),
            ("P_z", "y"),
            ("K", "v"),
            ("S", "hunter"),
            ("IP", "10.244.0.9"),
            ("L", "c"),
            ("M", "2048"),
            ("CPU", "4"),
            ("R", "2"),
            ("X", "3"),
        ];
        check(env, Ok(expect));
    }

    #[test]
    fn missing_sources_are_named() {
        let key = |kind: &str, name: &str, key: &str| {
            let mut source = json!({});
            source[kind] = json!({"name": name, "key": key});
            json!({"env": [{"name": "E", "valueFrom": source}]})
        };
        check(key("configMapKeyRef", "nope", "k"), Err("configmap \"nope\" not found"));
        check(key("secretKeyRef", "nope", "k"), Err("secret \"nope\" not found"));
        check(key("secretKeyRef", "sec", "k"), Err("couldn't find key k in Secret n/sec"));
        let bad = json!({"env": [{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}]});
        check(bad, Err("unsupported field path \"spec.nope\" for environment variable E"));
    }

    #[test]
    fn commands_are_expanded_and_fall_back_to_the_entry_point() {
        let container = |v| serde_json::from_value::<Container>(v).unwrap();
        let env = [("A".to_owned(), "x".to_owned())];
        let image = |entrypoint: &[&str], cmd: &[&str]| Environment {
            entrypoint: entrypoint.iter().map(|s| (*s).to_owned()).collect(),
            cmd: cmd.iter().map(|s| (*s).to_owned()).collect(),
            ..Environment::default()
        };
        let redis = image(&["redis"], &["--save"]);
        let own = container(json!({"name": "c", "command": ["sh", "-c"], "args": ["echo $(A) $(B)"]}));
        assert_eq!(command(&own, &redis, &env), ["sh", "-c", "echo x $(B)"]);
        let args = container(json!({"name": "c", "args": ["--port"]}));
        assert_eq!(command(&args, &redis, &env), ["redis", "--port"]);
        let none = container(json!({"name": "c"}));
        assert_eq!(command(&none, &redis, &env), ["redis", "--save"]);
        // kubectl run t --image=busybox -- echo hi
        let busybox = image(&[], &["sh"]);
        assert_eq!(command(&container(json!({"name": "c", "args": ["echo", "hi"]})), &busybox, &env), ["echo", "hi"]);
        assert_eq!(command(&none, &busybox, &env), ["sh"]);
    }

    proptest::proptest! {
        #[test]
        fn text_without_dollars_stays(text in "[^$]{0,30}") {
            proptest::prop_assert_eq!(expand(&text, |_| None), text);
        }

        #[test]
        fn no_text_panics(text in "[$()a-z]{0,30}") {
            let _ = expand(&text, |name| Some(name.to_owned()));
        }
    }

    #[test]
    fn services_are_announced_by_variables() {
        let service = |namespace: &str, spec: serde_json::Value| -> Service {
            serde_json::from_value(json!({"metadata": {"name": "my-db", "namespace": namespace}, "spec": spec}))
                .unwrap()
        };
        let ports = json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]);
        let services = [
            service("n", json!({"clusterIP": "10.96.0.9", "ports": ports})),
            service("other", json!({"clusterIP": "10.96.0.8", "ports": ports})),
            service("n", json!({"clusterIP": "None", "ports": ports})),
        ];
        let text = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        let expect = text(&[
            ("MY_DB_SERVICE_HOST", "10.96.0.9"),
            ("MY_DB_SERVICE_PORT", "5432"),
            ("MY_DB_SERVICE_PORT_SQL", "5432"),
            ("MY_DB_PORT", "tcp://10.96.0.9:5432"),
            ("MY_DB_PORT_5432_TCP", "tcp://10.96.0.9:5432"),
            ("MY_DB_PORT_5432_TCP_PROTO", "tcp"),
            ("MY_DB_PORT_5432_TCP_PORT", "5432"),
            ("MY_DB_PORT_5432_TCP_ADDR", "10.96.0.9"),
        ]);
        assert_eq!(service_variables(&services, "n"), expect);
    }
}
