//! The operator's own rules, on objects that the API server would take.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use manta_api::{RayCluster, RayClusterSpec, RayCronJob, RayJob, RayService};
use manta_logic::config::Config;
use manta_logic::validate::{ValidCronJob, ValidJob, ValidService, cluster_problems, cluster_spec_problems};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::yaml::Node;

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
pub(crate) fn check(kind: &Kind, mut object: Value, root: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(problem) = fill_in_name(&mut object) {
        problems.push(problem);
    }
    match broken_rules(kind, object) {
        Ok(messages) => problems.extend(messages.into_iter().map(|message| {
            let path = guess_field(&message, root);
            Problem { path, message }
        })),
        Err(message) => problems.push(Problem { path: "spec".to_owned(), message }),
    }
    problems
}

/// The rules that the object breaks, or why it cannot be read.
fn broken_rules(kind: &Kind, object: Value) -> Result<Vec<String>, String> {
    let config = &*CONFIG;
    Ok(match kind.name {
        "RayCluster" => {
            let cluster: RayCluster = read(object)?;
            cluster_problems(&cluster, config).iter().map(ToString::to_string).collect()
        }
        "RayJob" => {
            let job: RayJob = read(object)?;
            let first = ValidJob::check(&job, config).err().map(|invalid| invalid.to_string());
            with_cluster_problems(first, job.spec.ray_cluster_spec.as_ref(), job.metadata.annotations.as_ref())
        }
        "RayService" => {
            let service: RayService = read(object)?;
            let first = ValidService::check(&service, config).err().map(|invalid| invalid.to_string());
            with_cluster_problems(first, Some(&service.spec.ray_cluster_config), service.metadata.annotations.as_ref())
        }
        "RayCronJob" => {
            let cron: RayCronJob = read(object)?;
            let first = ValidCronJob::check(&cron, config).err().map(|invalid| invalid.to_string());
            with_cluster_problems(first, cron.spec.job_template.ray_cluster_spec.as_ref(), cron.metadata.annotations.as_ref())
        }
        _ => Vec::new(),
    })
}

/// The rule that the object breaks first, and those that the cluster in it breaks besides.
fn with_cluster_problems(
    first: Option<String>,
    cluster: Option<&RayClusterSpec>,
    annotations: Option<&BTreeMap<String, String>>,
) -> Vec<String> {
    let Some(first) = first else { return Vec::new() };
    let nested = cluster.map_or_else(Vec::new, |spec| cluster_spec_problems(spec, annotations, &CONFIG));
    // The rules of the object include those of its cluster, in words of their own around them.
    let nested: Vec<String> = nested.into_iter().filter(|problem| !first.ends_with(problem)).collect();
    std::iter::once(first).chain(nested).collect()
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| format!("cannot be read: {error}"))
}

/// A name that the server will generate is stood in for; no name at all is a problem.
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

/// Where the spec of a cluster stands in the four kinds.
const CLUSTER_SPECS: [&[&str]; 4] =
    [&["spec", "rayClusterSpec"], &["spec", "rayClusterConfig"], &["spec", "jobTemplate", "rayClusterSpec"], &["spec"]];

/// Which field a message is about, as far as it can be told: the rules speak in sentences.
fn guess_field(message: &str, root: &Node) -> String {
    if message.contains(" name should be ") {
        return "metadata.name".to_owned();
    }
    if message.contains("annotation") && root.at(&["metadata", "annotations"]).is_some() {
        return "metadata.annotations".to_owned();
    }
    let cluster_path = CLUSTER_SPECS
        .into_iter()
        .find(|path| root.at(path).is_some_and(|spec| spec.get("headGroupSpec").is_some()))
        .unwrap_or(&["spec"]);
    let (cluster, shown) = (root.at(cluster_path), cluster_path.join("."));
    let lower = message.to_lowercase();
    let words: Vec<&str> = message.split(|c: char| !(c.is_alphanumeric() || "-_.".contains(c))).collect();
    let groups = cluster.and_then(|spec| spec.get("workerGroupSpecs"));
    if lower.contains("group") {
        let named =
            |group: &Node| group.get("groupName").and_then(Node::as_str).is_some_and(|name| words.contains(&name));
        if let Some(at) = groups.and_then(|groups| groups.items().position(named)) {
            return format!("{shown}.workerGroupSpecs[{at}]");
        }
    }
    if lower.contains("workergroupspec") {
        return format!("{shown}.workerGroupSpecs");
    }
    if lower.contains("head group") || lower.contains("headgroupspec") || lower.contains("head pod") {
        return format!("{shown}.headGroupSpec");
    }
    field_named_in(&words, root, cluster_path).unwrap_or_else(|| "spec".to_owned())
}

/// A field of the spec that the message names, the longest one first.
fn field_named_in(words: &[&str], root: &Node, cluster_path: &[&str]) -> Option<String> {
    let is_named =
        |name: &str| words.iter().flat_map(|word| word.split('.')).any(|word| word.eq_ignore_ascii_case(name));
    [&["spec"][..], &["spec", "jobTemplate"], cluster_path]
        .into_iter()
        .filter_map(|path| Some((path, root.at(path)?)))
        .flat_map(|(path, node)| node.entries().map(move |entry| (path, entry.key.as_str())))
        .filter(|(_, name)| is_named(name))
        .max_by_key(|(_, name)| name.len())
        .map(|(path, name)| format!("{}.{name}", path.join(".")))
}
