//! Parameters of `ray start` that the operator adds to those of the user.

use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use super::resources;
use std::collections::BTreeMap;

/// Sets the `labels` parameter to the group's labels.
pub(super) fn apply_labels(params: &mut BTreeMap<String, String>, labels: Option<&BTreeMap<String, String>>) {
    let pairs: Vec<String> = labels.into_iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
    if !pairs.is_empty() {
        params.insert("labels".to_owned(), pairs.join(","));
    }
}

/// Sets the parameters that the user left out.
pub(super) fn fill_defaults(context: &PodContext<'_>, builder: &mut PodBuilder) {
    let params = &mut builder.params;
    match context.node_type {
        NodeType::Head => set_default(params, "dashboard-host", || "0.0.0.0".to_owned()),
        NodeType::Worker => set_default(params, "address", || format!("{}:{}", context.fqdn, context.head_port)),
    }
    set_default(params, "metrics-export-port", || "8080".to_owned());
    set_default(params, "dashboard-agent-listen-port", || "52365".to_owned());
    // Without it the container would exit as soon as Ray has started.
    params.insert("block".to_owned(), "true".to_owned());
    resources::apply_container(params, builder.ray.resources.as_ref());
}

fn set_default(params: &mut BTreeMap<String, String>, key: &str, value: impl FnOnce() -> String) {
    if !params.contains_key(key) {
        params.insert(key.to_owned(), value());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{arg, cluster, head, ray, worker};
    use crate::config::Config;
    use serde_json::{Value, json};

    const ADDRESS: &str = "test-cluster-head-svc.test-ns.svc.cluster.local:6379";

    /// Checks one flag of a head and a worker with the same parameters.
    fn check(params: Value, key: &str, on_head: Option<&str>, on_worker: Option<&str>) {
        let group = json!({"rayStartParams": params});
        let cluster = cluster(json!({"head": group, "worker": group}));
        for (pod, expect) in
            [(head(&cluster, &Config::default()), on_head), (worker(&cluster, &Config::default()), on_worker)]
        {
            assert_eq!(flag(arg(ray(&pod)), key), expect, "{key} of {params}");
        }
    }

    fn flag<'a>(line: &'a str, key: &str) -> Option<&'a str> {
        let value = |word: &'a str| {
            let rest = word.strip_prefix("--")?.strip_prefix(key)?;
            if rest.is_empty() { Some("") } else { rest.strip_prefix('=') }
        };
        line.split_whitespace().find_map(value)
    }

    #[test]
    fn missing_parameters_get_defaults() {
        check(json!({}), "address", None, Some(ADDRESS));
        check(json!({"address": "other:1"}), "address", Some("other:1"), Some("other:1"));
        check(json!({}), "metrics-export-port", Some("8080"), Some("8080"));
        check(json!({"metrics-export-port": "8090"}), "metrics-export-port", Some("8090"), Some("8090"));
        check(json!({}), "block", Some(""), Some(""));
        check(json!({"block": "false"}), "block", Some(""), Some(""));
        check(json!({}), "dashboard-host", Some("0.0.0.0"), None);
        check(json!({"dashboard-host": "localhost"}), "dashboard-host", Some("localhost"), Some("localhost"));
        check(json!({}), "dashboard-agent-listen-port", Some("52365"), Some("52365"));
        check(json!({}), "port", None, None);
    }

    #[test]
    fn all_flags_of_a_worker() {
        let limits = json!({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "3"});
        let cluster = cluster(json!({
            "workerRay": {"resources": {"limits": limits}},
            "worker": {"rayStartParams": {"port": "6379"}},
        }));
        let pod = worker(&cluster, &Config::default());
        let flags: Vec<_> = arg(ray(&pod)).split_whitespace().filter(|word| word.starts_with("--")).collect();
        let address = format!("--address={ADDRESS}");
        assert_eq!(
            flags,
            [
                address.as_str(),
                "--block",
                "--dashboard-agent-listen-port=52365",
                "--memory=1073741824",
                "--metrics-export-port=8080",
                "--num-cpus=1",
                "--num-gpus=3",
                "--port=6379",
            ]
        );
    }

    #[test]
    fn labels_become_a_parameter() {
        let check = |params: Value, labels: Value, expect: Value| {
            let mut made: BTreeMap<String, String> = serde_json::from_value(params).unwrap();
            let labels: Option<BTreeMap<String, String>> = serde_json::from_value(labels).unwrap();
            apply_labels(&mut made, labels.as_ref());
            assert_eq!(json!(made), expect);
        };
        let labels = json!({
            "topology.kubernetes.io/zone": "us-central2",
            "ray.io/node-group": "worker-group-1",
            "cloud.google.com/gke-spot": "true",
        });
        let text =
            "cloud.google.com/gke-spot=true,ray.io/node-group=worker-group-1,topology.kubernetes.io/zone=us-central2";
        check(json!({}), labels.clone(), json!({"labels": text}));
        check(json!({"labels": "old=1", "a": "b"}), labels, json!({"labels": text, "a": "b"}));
        check(json!({"labels": "old=1"}), json!({}), json!({"labels": "old=1"}));
        check(json!({"labels": "old=1"}), json!(null), json!({"labels": "old=1"}));
    }
}
