//! What the overview shows of an object: a few hundred bytes instead of a whole spec.

use crate::local::applications;
use crate::resource::Kind;
use kube::ResourceExt;
use kube::api::DynamicObject;
use manta_logic::explain::one_line;
use manta_quantity::Quantity;
use serde::Serialize;
use serde_json::Value;

/// One line of the overview.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Row<'a> {
    key: String,
    kind: &'static str,
    namespace: String,
    name: String,
    /// In the words of the object's own status.
    state: String,
    health: Health,
    /// The reason, while the object is not well.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(flatten)]
    resources: Resources,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    suspended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<&'a str>,
}

/// How an object is, for colours and filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Health {
    /// It does what it should.
    Good,
    /// It is on its way.
    Working,
    /// It needs somebody's attention.
    Bad,
    /// It was told to do nothing.
    Idle,
    /// It has done its work.
    Done,
}

/// What an object asks the nodes for.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Resources {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<f64>,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<f64>,
    /// Workers that are ready, and those that should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<[i64; 2]>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Returns the name of an object among all kinds.
pub(super) fn key(kind: Kind, object: &DynamicObject) -> String {
    format!("{}/{}/{}", kind.name(), object.namespace().unwrap_or_default(), object.name_any())
}

/// Returns the row of an object.
pub(super) fn row(kind: Kind, object: &DynamicObject) -> Row<'_> {
    let (spec, status) = (&object.data["spec"], &object.data["status"]);
    let (state, health, why) = match kind {
        Kind::Cluster => cluster(spec, status),
        Kind::Job => job(spec, status),
        Kind::Service => service(spec, status, &object.data),
        Kind::CronJob => cron_job(spec),
    };
    let (state, health) = match object.metadata.deletion_timestamp {
        Some(_) => ("Deleting".to_owned(), Health::Working),
        None => (state, health),
    };
    let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    Row {
        key: key(kind, object),
        kind: kind.name(),
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        state,
        health,
        why: if health == Health::Bad || health == Health::Working { why } else { String::new() },
        created: object.creation_timestamp().map(|time| time.0.to_string()),
        resources: resources(kind, status),
        owner: owner.map(|owner| format!("{}/{}", owner.kind, owner.name)),
        suspended: spec["suspend"] == true,
        schedule: spec["schedule"].as_str(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn condition<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    let mut conditions = status["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == name && condition["status"] == "True")
}

/// Returns the message of the first of these conditions that holds.
fn first_message(status: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| condition(status, name)).map(|condition| one_line(text(&condition["message"])))
}

fn cluster(spec: &Value, status: &Value) -> (String, Health, String) {
    let problem = first_message(status, &["RayClusterPodsBlocked", "ReplicaFailure"]);
    let reason = one_line(text(&status["reason"]));
    match text(&status["state"]) {
        "suspended" => ("suspended".to_owned(), Health::Idle, String::new()),
        "failed" => ("failed".to_owned(), Health::Bad, reason),
        state if problem.is_some() => {
            let state = if state.is_empty() { "blocked" } else { state };
            (state.to_owned(), Health::Bad, problem.unwrap_or_default())
        }
        "ready" if spec["suspend"] == true => ("suspending".to_owned(), Health::Working, reason),
        "ready" => ("ready".to_owned(), Health::Good, reason),
        "" => ("starting".to_owned(), Health::Working, reason),
        other => (other.to_owned(), Health::Working, reason),
    }
}

fn job(spec: &Value, status: &Value) -> (String, Health, String) {
    let message = one_line(text(&status["message"]));
    let why = if message.is_empty() { one_line(text(&status["reason"])) } else { message };
    let deployment = text(&status["jobDeploymentStatus"]);
    let health = match deployment {
        "Running" => Health::Good,
        // A job that was stopped by hand is complete, too.
        "Complete" if text(&status["jobStatus"]) == "FAILED" => Health::Bad,
        "Complete" => Health::Done,
        "Failed" | "ValidationFailed" => Health::Bad,
        "Suspended" => Health::Idle,
        _ if spec["suspend"] == true => Health::Idle,
        _ => Health::Working,
    };
    let state = if deployment.is_empty() { "New" } else { deployment };
    (state.to_owned(), health, why)
}

fn service(spec: &Value, status: &Value, data: &Value) -> (String, Health, String) {
    let failing = applications(data)
        .into_iter()
        .find(|application| matches!(application.status.as_str(), "DEPLOY_FAILED" | "UNHEALTHY"));
    let stalled = first_message(status, &["ApplicationsFailed", "UpgradeStalled"]);
    let problem = stalled.or_else(|| failing.map(|application| application.to_string()));
    let is_ready = condition(status, "Ready").is_some();
    let (state, health) = if condition(status, "Suspended").is_some() || spec["suspend"] == true {
        ("Suspended", Health::Idle)
    } else if condition(status, "RollbackInProgress").is_some() {
        ("Rolling back", Health::Working)
    } else if condition(status, "UpgradeInProgress").is_some() {
        ("Upgrading", Health::Working)
    } else if is_ready {
        ("Running", Health::Good)
    } else {
        ("Starting", Health::Working)
    };
    match problem {
        Some(problem) if health != Health::Idle => (state.to_owned(), Health::Bad, problem),
        _ => (state.to_owned(), health, String::new()),
    }
}

fn cron_job(spec: &Value) -> (String, Health, String) {
    match spec["suspend"] == true {
        true => ("Suspended".to_owned(), Health::Idle, String::new()),
        false => ("Scheduled".to_owned(), Health::Good, String::new()),
    }
}

fn resources(kind: Kind, status: &Value) -> Resources {
    let status = match kind {
        Kind::Cluster => status,
        Kind::Job => &status["rayClusterStatus"],
        Kind::Service => &status["activeServiceStatus"]["rayClusterStatus"],
        Kind::CronJob => return Resources::default(),
    };
    let quantity = |key: &str| {
        let parsed = match &status[key] {
            Value::String(text) => Quantity::parse(text).ok()?.as_f64(),
            number => number.as_f64()?,
        };
        Some(parsed).filter(|number| *number != 0.0)
    };
    let number = |key: &str| status[key].as_i64();
    Resources {
        cpu: quantity("desiredCPU"),
        memory: quantity("desiredMemory"),
        gpu: quantity("desiredGPU"),
        workers: number("desiredWorkerReplicas")
            .map(|desired| [number("readyWorkerReplicas").unwrap_or_default(), desired]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(kind: Kind, spec: &Value, status: &Value, expect: (&str, Health, &str)) {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "ray.io/v1", "kind": kind.name(), "metadata": {"name": "x", "namespace": "default"},
            "spec": spec, "status": status,
        }))
        .unwrap();
        let row = row(kind, &object);
        assert_eq!((row.state.as_str(), row.health, row.why.as_str()), expect, "{kind:?} {spec} {status}");
    }

    #[test]
    fn clusters_are_as_their_status_says() {
        let check = |spec: Value, status: Value, expect| check(Kind::Cluster, &spec, &status, expect);
        check(json!({}), json!({}), ("starting", Health::Working, ""));
        check(json!({}), json!({"state": "ready"}), ("ready", Health::Good, ""));
        check(json!({"suspend": true}), json!({"state": "ready"}), ("suspending", Health::Working, ""));
        check(json!({"suspend": true}), json!({"state": "suspended"}), ("suspended", Health::Idle, ""));
        check(json!({}), json!({"state": "failed", "reason": "quota"}), ("failed", Health::Bad, "quota"));
        let blocked =
            json!({"conditions": [{"type": "RayClusterPodsBlocked", "status": "True", "message": "no image"}]});
        check(json!({}), blocked, ("blocked", Health::Bad, "no image"));
    }

    #[test]
    fn jobs_and_services_are_as_their_status_says() {
        let running = json!({"jobDeploymentStatus": "Running"});
        check(Kind::Job, &json!({}), &running, ("Running", Health::Good, ""));
        check(Kind::Job, &json!({}), &json!({}), ("New", Health::Working, ""));
        let failed = json!({"jobDeploymentStatus": "Failed", "message": "exit code 1"});
        check(Kind::Job, &json!({}), &failed, ("Failed", Health::Bad, "exit code 1"));
        let done = json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "fine"});
        check(Kind::Job, &json!({}), &done, ("Complete", Health::Done, ""));
        let ready = json!([{"type": "Ready", "status": "True"}]);
        check(Kind::Service, &json!({}), &json!({"conditions": ready}), ("Running", Health::Good, ""));
        let upgrading = json!([{"type": "Ready", "status": "True"}, {"type": "UpgradeInProgress", "status": "True"}]);
        check(Kind::Service, &json!({}), &json!({"conditions": upgrading}), ("Upgrading", Health::Working, ""));
        check(Kind::CronJob, &json!({"suspend": true}), &json!({}), ("Suspended", Health::Idle, ""));
    }

    #[test]
    fn resources_are_numbers() {
        let status = json!({"desiredCPU": "1500m", "desiredMemory": "2Gi", "desiredGPU": "0",
            "readyWorkerReplicas": 1, "desiredWorkerReplicas": 2});
        let expect = Resources {
            cpu: Some(1.5),
            memory: Some(2.0 * 1024.0 * 1024.0 * 1024.0),
            gpu: None,
            workers: Some([1, 2]),
        };
        assert_eq!(resources(Kind::Cluster, &status), expect);
        assert_eq!(resources(Kind::Job, &json!({"rayClusterStatus": status})), expect);
        assert_eq!(resources(Kind::Cluster, &json!({})), Resources::default());
    }
}
