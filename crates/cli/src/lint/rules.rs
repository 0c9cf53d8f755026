//! Applies the rules of webhook and operator to objects that match their schema, and collects what is probably
//! unintended.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use manta_api::RayClusterSpec;
use manta_logic::action;
use manta_logic::admission::refuse::{AdmissionRequest, refuse};
use manta_logic::config::Config;
use manta_logic::validate::{Warning, cluster_spec_problems, cluster_warnings};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::yaml::Node;
use super::{fields, pods};

/// A violated rule, and the field that it is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) message: String,
}

/// The default configuration of the operator, on a cluster with every optional API: a missing cert-manager is not the
/// manifest's fault.
static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let mut config = Config::default();
    config.platform.cert_manager = true;
    config.platform.gateway_api = true;
    config
});

/// Returns the rules that an object violates, given that it matches its schema: those of webhook and operator.
pub(crate) fn check(kind: &Kind, object: &Value, root: &Node) -> Vec<Problem> {
    let mut object = object.clone();
    let mut problems: Vec<Problem> = fill_in_name(&mut object).into_iter().collect();
    let refusals = refuse(&AdmissionRequest { kind: kind.action, object: &object, old: None }, &CONFIG);
    problems.extend(refusals.iter().map(|refusal| {
        let path = match refusal.field.as_str() {
            "spec" | "metadata.name" => {
                fields::of_value(&refusal.message, root).unwrap_or_else(|| fields::of_message(&refusal.message, root))
            }
            exact => exact.to_owned(),
        };
        Problem { path, message: refusal.message.clone() }
    }));
    if !refusals.is_empty() && kind.action != action::Kind::RayCluster {
        // The rules of a job or service stop at the first violation, and include those of its cluster with a prefix.
        let known = |message: &String| refusals.iter().any(|refusal| refusal.message.ends_with(message.as_str()));
        let more = cluster_spec(&object, root)
            .map(|spec| cluster_spec_problems(&spec, annotations(&object).as_ref(), &CONFIG))
            .unwrap_or_default();
        problems.extend(
            more.into_iter()
                .filter(|message| !known(message))
                .map(|message| Problem { path: fields::of_message(&message, root), message }),
        );
    }
    problems
}

/// Returns what an object may contain but is probably unintended: in its cluster, and in Pods that would be refused.
pub(crate) fn warnings(object: &Value, root: &Node) -> Vec<Problem> {
    let path = fields::cluster_spec(root).join(".");
    let spec = cluster_spec(object, root);
    let in_cluster = spec.map(|spec| cluster_warnings(&spec)).unwrap_or_default();
    let in_cluster = in_cluster
        .into_iter()
        .map(|Warning { path: field, message }| Problem { path: format!("{path}.{field}"), message });
    in_cluster.chain(pods::warnings(object, &path)).collect()
}

fn cluster_spec(object: &Value, root: &Node) -> Option<RayClusterSpec> {
    let spec = fields::cluster_spec(root).iter().fold(object, |value, key| &value[*key]);
    RayClusterSpec::deserialize(spec).ok()
}

fn annotations(object: &Value) -> Option<BTreeMap<String, String>> {
    BTreeMap::deserialize(&object["metadata"]["annotations"]).ok()
}

/// Fills in a name that the server would generate; returns a problem if there is no name at all.
fn fill_in_name(object: &mut Value) -> Option<Problem> {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    let (name, prefix) = (text("name"), text("generateName"));
    if !name.is_empty() {
        return None;
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let generated = if prefix.is_empty() { "unnamed".to_owned() } else { format!("{prefix}xxxxx") };
    object["metadata"]["name"] = json!(generated);
    prefix.is_empty().then(|| Problem {
        path: "metadata.name".to_owned(),
        message: "Required value: name or generateName is required".to_owned(),
    })
}
