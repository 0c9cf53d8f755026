//! Applies the operator's own rules to objects that the API server would accept.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use manta_api::{RayCluster, RayClusterSpec, RayCronJob, RayJob, RayService};
use manta_logic::config::Config;
use manta_logic::validate::{ValidCronJob, cluster_problems, cluster_spec_problems, validate_job, validate_service};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::kinds::Kind;
use super::yaml::Node;

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

/// Checks an object that matches its schema.
pub(crate) fn check(kind: &Kind, mut object: Value, root: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(problem) = fill_in_name(&mut object) {
        problems.push(problem);
    }
    match violations(kind, object) {
        Ok(messages) => problems.extend(messages.into_iter().map(|message| {
            let path = guess_field(&message, root);
            Problem { path, message }
        })),
        Err(message) => problems.push(Problem { path: "spec".to_owned(), message }),
    }
    problems
}

/// Returns the messages of the violated rules, or why the object cannot be read.
fn violations(kind: &Kind, object: Value) -> Result<Vec<String>, String> {
    let config = &*CONFIG;
    Ok(match kind.name {
        "RayCluster" => {
            let cluster: RayCluster = read(object)?;
            cluster_problems(&cluster, config).iter().map(ToString::to_string).collect()
        }
        "RayJob" => {
            let job: RayJob = read(object)?;
            let first = validate_job(&job, config).err().map(|invalid| invalid.to_string());
            with_cluster_problems(first, job.spec.ray_cluster_spec.as_ref(), job.metadata.annotations.as_ref())
        }
        "RayService" => {
            let service: RayService = read(object)?;
            let first = validate_service(&service, config).err().map(|invalid| invalid.to_string());
            with_cluster_problems(first, Some(&service.spec.ray_cluster_config), service.metadata.annotations.as_ref())
        }
        "RayCronJob" => {
            let cron: RayCronJob = read(object)?;
            let first = ValidCronJob::check(&cron, config).err().map(|invalid| invalid.to_string());
            with_cluster_problems(
                first,
                cron.spec.job_template.ray_cluster_spec.as_ref(),
                cron.metadata.annotations.as_ref(),
            )
        }
        _ => Vec::new(),
    })
}

/// Returns the first rule that the object violates, and those that its cluster spec violates besides.
fn with_cluster_problems(
    first: Option<String>,
    cluster: Option<&RayClusterSpec>,
    annotations: Option<&BTreeMap<String, String>>,
) -> Vec<String> {
    let Some(first) = first else { return Vec::new() };
    let nested = cluster.map_or_else(Vec::new, |spec| cluster_spec_problems(spec, annotations, &CONFIG));
    // The object's rules include those of its cluster, with a prefix.
    let nested: Vec<String> = nested.into_iter().filter(|problem| !first.ends_with(problem)).collect();
    std::iter::once(first).chain(nested).collect()
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|error| format!("cannot be read: {error}"))
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

/// The paths of the cluster spec in the four kinds.
const CLUSTER_SPECS: [&[&str]; 4] =
    [&["spec", "rayClusterSpec"], &["spec", "rayClusterConfig"], &["spec", "jobTemplate", "rayClusterSpec"], &["spec"]];

/// Guesses the field that a message is about: messages are sentences for people and carry no path.
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

/// Returns the longest field name of the spec that the message contains.
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
