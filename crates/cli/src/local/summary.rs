//! What `manta up` and `manta status` say about an object, on one line.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use manta_logic::explain::one_line;
use serde::Serialize;
use serde_json::Value;

/// Summarises the status of a Ray resource; empty while it has none.
pub(crate) fn summarise(kind: &str, data: &Value) -> String {
    let status = &data["status"];
    if status.is_null() {
        return String::new();
    }
    let text = |key: &str| one_line(status[key].as_str().unwrap_or_default());
    let parts = match kind {
        "RayCluster" => {
            let number = |key: &str| status[key].as_i64().unwrap_or_default();
            let workers =
                format!("{}/{} workers ready", number("readyWorkerReplicas"), number("desiredWorkerReplicas"));
            vec![text("state"), text("reason"), workers, blocked(status).unwrap_or_default()]
        }
        "RayJob" => vec![text("jobDeploymentStatus"), text("jobStatus"), text("message")],
        "RayService" => {
            let ready = condition(status, "Ready").map(|c| format!("Ready={}", c["status"].as_str().unwrap_or("")));
            let mut parts = vec![text("serviceStatus"), ready.unwrap_or_default()];
            let failing = applications(data).into_iter().filter(|application| application.status != "RUNNING");
            parts.extend(failing.map(|application| application.to_string()));
            parts.extend(refused_config(status));
            parts
        }
        _ => vec![text("lastScheduleTime")],
    };
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

fn condition<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)
}

/// Returns why Pods of a cluster do not start, or cannot be created.
fn blocked(status: &Value) -> Option<String> {
    let of = |name: &str| condition(status, name).filter(|condition| condition["status"] == "True");
    let found = of("RayClusterPodsBlocked").or_else(|| of("ReplicaFailure"))?;
    Some(one_line(found["message"].as_str().unwrap_or_default()))
}

/// Returns why Ray does not take the configuration of a service, which may serve an older one.
fn refused_config(status: &Value) -> Option<String> {
    let found = condition(status, "ApplicationsFailed").filter(|condition| condition["reason"] == "ConfigRefused")?;
    Some(one_line(found["message"].as_str().unwrap_or_default()))
}

/// The state of a Serve application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Application {
    pub(crate) name: String,
    pub(crate) status: String,
    /// What Ray says about it, on one line.
    pub(crate) message: String,
}

impl std::fmt::Display for Application {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.status)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// Returns the applications of a RayService, on its pending cluster where there is one.
pub(crate) fn applications(data: &Value) -> Vec<Application> {
    let of = |key: &str| data["status"][key]["applicationStatuses"].as_object().filter(|all| !all.is_empty());
    let found = of("pendingServiceStatus").or_else(|| of("activeServiceStatus")).into_iter().flatten();
    let application = |(name, value): (&String, &Value)| Application {
        name: name.clone(),
        status: value["status"].as_str().unwrap_or_default().to_owned(),
        message: one_line(value["message"].as_str().unwrap_or_default()),
    };
    found.map(application).collect()
}

/// Summarises the status of a pod.
pub(crate) fn summarise_pod(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return String::new() };
    let all: Vec<_> = status.container_statuses.iter().flatten().collect();
    let ready = all.iter().filter(|container| container.ready).count();
    let restarts: i32 = all.iter().map(|container| container.restart_count).sum();
    let init = status.init_container_statuses.iter().flatten();
    let from_container = init.chain(all.iter().copied()).find_map(reason);
    let unscheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    let why = from_container.or_else(|| unscheduled.and_then(|c| c.message.as_deref().map(advise)));
    let phase =
        if pod.metadata.deletion_timestamp.is_some() { "Terminating" } else { status.phase.as_deref().unwrap_or("") };
    let mut text = format!("{phase} {ready}/{}", all.len().max(1));
    if restarts > 0 {
        text.push_str(&format!(", {restarts} restart{}", if restarts == 1 { "" } else { "s" }));
    }
    if let Some(why) = why {
        text.push_str(&format!(", {why}"));
    }
    text
}

/// Returns why a container does not run, or why it had to start again.
fn reason(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref();
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        let reason = waiting.reason.as_deref().filter(|r| *r != "PodInitializing" && *r != "ContainerCreating");
        let waiting = reason.map(|reason| with_message(reason, waiting.message.as_deref()));
        // Between two starts, the end of the last one says more than the back-off or the next start.
        let is_between_starts = reason.is_none_or(|reason| reason == "CrashLoopBackOff");
        return if is_between_starts { last_end(container).or(waiting) } else { waiting };
    }
    match state.and_then(|state| state.terminated.as_ref()) {
        Some(ended) if ended.exit_code != 0 => {
            let reason = ended.reason.as_deref().unwrap_or("Error");
            let text = with_message(reason, ended.message.as_deref());
            Some(format!("{}: {text} (exit code {})", container.name, ended.exit_code))
        }
        Some(_) => None,
        // After `manta down` and `manta up`, every container has ended together with the agent.
        None if container.ready && ended_with_agent(container) => None,
        None => last_end(container),
    }
}

/// Returns whether nobody saw the last run of a container end.
fn ended_with_agent(container: &ContainerStatus) -> bool {
    let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| ended.reason.as_deref() == Some("ContainerStatusUnknown"))
}

/// Returns how the last run of a container ended.
fn last_end(container: &ContainerStatus) -> Option<String> {
    let ended = container.last_state.as_ref()?.terminated.as_ref()?;
    let text = with_message(ended.reason.as_deref().unwrap_or("Error"), ended.message.as_deref());
    Some(format!("{}: last exit: {text} (exit code {})", container.name, ended.exit_code))
}

fn with_message(reason: &str, message: Option<&str>) -> String {
    match message.map(one_line).filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

/// Returns the scheduler's message, with the flag to use when the node is too small.
fn advise(message: &str) -> String {
    if message.contains(".com/gpu") {
        return format!("{message} (not enough free GPUs; see --gpus)");
    }
    let flags = [("Insufficient cpu", "--cpus"), ("Insufficient memory", "--memory")];
    let short: Vec<&str> = flags.iter().filter(|(text, _)| message.contains(text)).map(|(_, flag)| *flag).collect();
    match short.as_slice() {
        [] => message.to_owned(),
        flags => format!("{message} (declare more with {}, or request less)", flags.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn summaries_fit_on_one_line() {
        let check = |kind: &str, status: Value, expect: &str| {
            assert_eq!(summarise(kind, &json!({"status": status})), expect, "{status}");
        };
        check(
            "RayCluster",
            json!({"state": "ready", "readyWorkerReplicas": 2, "desiredWorkerReplicas": 2}),
            "ready, 2/2 workers ready",
        );
        assert_eq!(summarise("RayCluster", &json!({})), "");
        check(
            "RayCluster",
            json!({"desiredWorkerReplicas": 1, "conditions": [
                {"type": "RayClusterPodsBlocked", "status": "True", "message": "w-1: ErrImagePull\nmore"}]}),
            "0/1 workers ready, w-1: ErrImagePull",
        );
        check(
            "RayJob",
            json!({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "why"}),
            "Failed, FAILED, why",
        );
        let ready = json!([{"type": "Ready", "status": "True"}]);
        check("RayService", json!({"serviceStatus": "Running", "conditions": ready}), "Running, Ready=True");
        let failed = json!({"applicationStatuses": {
            "good": {"status": "RUNNING"},
            "app": {"status": "DEPLOY_FAILED", "message": "Deploying failed:\nTraceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'nope'\n"},
        }});
        check(
            "RayService",
            json!({"serviceStatus": "Running", "conditions": ready, "activeServiceStatus": failed}),
            "Running, Ready=True, app DEPLOY_FAILED: Deploying failed: ModuleNotFoundError: No module named 'nope'",
        );
        let refused = json!([{"type": "Ready", "status": "True"}, {"type": "ApplicationsFailed", "status": "True",
            "reason": "ConfigRefused", "message": "Ray refuses serveConfigV2: no such field"}]);
        check(
            "RayService",
            json!({"serviceStatus": "Running", "conditions": refused}),
            "Running, Ready=True, Ray refuses serveConfigV2: no such field",
        );
    }

    #[test]
    fn pod_summaries_include_the_reason() {
        let check = |container: Value, expect: &str| {
            let mut full = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0});
            full.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
            let pod = json!({"status": {"phase": "Pending", "containerStatuses": [full]}});
            assert_eq!(summarise_pod(&serde_json::from_value(pod).unwrap()), expect);
        };
        check(
            json!({"restartCount": 2, "state": {"waiting": {"reason": "ErrImagePull", "message": "no\nmore"}}}),
            "Pending 0/1, 2 restarts, ErrImagePull: no",
        );
        let killed = json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}});
        check(json!({"state": killed}), "Pending 0/1, c: OOMKilled (exit code 137)");
        check(
            json!({"restartCount": 1, "state": {"running": {}}, "lastState": killed}),
            "Pending 0/1, 1 restart, c: last exit: OOMKilled (exit code 137)",
        );
        check(
            json!({"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": killed}),
            "Pending 0/1, 1 restart, c: last exit: OOMKilled (exit code 137)",
        );
        check(
            json!({"restartCount": 1, "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": killed}),
            "Pending 0/1, 1 restart, c: last exit: OOMKilled (exit code 137)",
        );
        check(json!({"state": {"waiting": {"reason": "ContainerCreating"}}}), "Pending 0/1");
        let lost = json!({"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137}});
        check(
            json!({"restartCount": 1, "state": {"running": {}}, "lastState": lost}),
            "Pending 0/1, 1 restart, c: last exit: ContainerStatusUnknown (exit code 137)",
        );
        check(
            json!({"restartCount": 1, "ready": true, "state": {"running": {}}, "lastState": lost}),
            "Pending 1/1, 1 restart",
        );
        check(
            json!({"state": {"terminated": {"reason": "StartError", "message": "no such file", "exitCode": 128}}}),
            "Pending 0/1, c: StartError: no such file (exit code 128)",
        );
    }

    #[test]
    fn a_machine_too_small_can_be_declared_bigger() {
        let check = |message: &str, expect: &str| assert_eq!(advise(message), format!("{message}{expect}"));
        check("0/1: 1 Insufficient memory.", " (declare more with --memory, or request less)");
        check(
            "0/1: 1 Insufficient cpu, 1 Insufficient memory.",
            " (declare more with --cpus and --memory, or request less)",
        );
        check("0/1: 1 Too many pods.", "");
        check("0/1: 1 Insufficient nvidia.com/gpu.", " (not enough free GPUs; see --gpus)");
    }
}
