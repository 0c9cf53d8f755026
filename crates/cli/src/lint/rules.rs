//! The operator's own rules, on objects that the API server would take.

use std::sync::LazyLock;

use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::config::Config;
use manta_logic::validate::{ValidCluster, ValidCronJob, ValidJob, ValidService};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::kinds::Kind;

/// What the rules find, and about which field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) path: String,
    pub(crate) message: String,
}

/// The operator as installed, with everything there that a spec may ask for: whether cert-manager is installed is not
/// the manifest's fault.
static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let mut config = Config::default();
    config.platform.cert_manager = true;
    config.platform.gateway_api = true;
    config
});

/// Checks an object that its schema accepts.
pub(crate) fn check(kind: &Kind, mut object: Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(problem) = settle_name(&mut object) {
        problems.push(problem);
    }
    let shape = object.clone();
    let message = match kind.name {
        "RayCluster" => read::<RayCluster>(object)
            .and_then(|cluster| ValidCluster::check(&cluster, &CONFIG).map(drop).map_err(|e| e.to_string())),
        "RayJob" => {
            read::<RayJob>(object).and_then(|job| ValidJob::check(&job, &CONFIG).map(drop).map_err(|e| e.to_string()))
        }
        "RayService" => read::<RayService>(object)
            .and_then(|service| ValidService::check(&service, &CONFIG).map(drop).map_err(|e| e.to_string())),
        "RayCronJob" => read::<RayCronJob>(object)
            .and_then(|cron| ValidCronJob::check(&cron, &CONFIG).map(drop).map_err(|e| e.to_string())),
        _ => Ok(()),
    };
    if let Err(message) = message {
        problems.push(Problem { path: place_of(&message, &shape), message });
    }
    problems
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| format!("cannot be read: {error}"))
}

/// A name that the server will generate is stood in for; no name at all is a problem.
fn settle_name(object: &mut Value) -> Option<Problem> {
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

/// Which field a message is about, as far as it can be told: the rules speak in sentences.
fn place_of(message: &str, object: &Value) -> String {
    let cluster = ["/spec/rayClusterSpec", "/spec/rayClusterConfig", "/spec/jobTemplate/rayClusterSpec", "/spec"]
        .into_iter()
        .find(|path| object.pointer(path).is_some_and(|spec| spec.get("headGroupSpec").is_some()));
    let cluster_path = cluster.map(|pointer| pointer.trim_start_matches('/').replace('/', ".")).unwrap_or_default();
    if message.contains(" name should be ") {
        return "metadata.name".to_owned();
    }
    if message.contains("annotation") && object.pointer("/metadata/annotations").is_some() {
        return "metadata.annotations".to_owned();
    }
    let groups = cluster.and_then(|pointer| object.pointer(pointer)?.get("workerGroupSpecs")?.as_array());
    let words: Vec<&str> = message.split(|c: char| !(c.is_alphanumeric() || "-_.".contains(c))).collect();
    for (i, group) in groups.into_iter().flatten().enumerate() {
        let name = group["groupName"].as_str().unwrap_or_default();
        if message.to_lowercase().contains("group") && !name.is_empty() && words.contains(&name) {
            return format!("{cluster_path}.workerGroupSpecs[{i}]");
        }
    }
    let lower = message.to_lowercase();
    if lower.contains("workergroupspec") {
        return format!("{cluster_path}.workerGroupSpecs");
    }
    if lower.contains("head group") || lower.contains("headgroupspec") || lower.contains("head pod") {
        return format!("{cluster_path}.headGroupSpec");
    }
    field_named_in(&words, object, cluster, &cluster_path).unwrap_or_else(|| "spec".to_owned())
}

/// A field of the spec that the message names, the longest one first.
fn field_named_in(words: &[&str], object: &Value, cluster: Option<&str>, cluster_path: &str) -> Option<String> {
    let fields_of = |value: Option<&Value>, path: &str| -> Vec<(String, String)> {
        let map = value.and_then(Value::as_object);
        map.into_iter().flat_map(|map| map.keys()).map(|key| (key.clone(), format!("{path}.{key}"))).collect()
    };
    let mut fields = fields_of(object.get("spec"), "spec");
    fields.extend(fields_of(object.pointer("/spec/jobTemplate"), "spec.jobTemplate"));
    fields.extend(fields_of(cluster.and_then(|pointer| object.pointer(pointer)), cluster_path));
    fields.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    let is_named =
        |name: &str| words.iter().flat_map(|word| word.split('.')).any(|word| word.eq_ignore_ascii_case(name));
    fields.into_iter().find(|(name, _)| is_named(name)).map(|(_, path)| path)
}
