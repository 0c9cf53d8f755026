//! Prints what happens to pods and Ray resources, one line per change.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use std::collections::HashMap;

/// The kinds whose status is printed.
pub(crate) const KINDS: [&str; 4] = ["RayCluster", "RayJob", "RayService", "RayCronJob"];

/// Returns the API resource of a kind in ray.io/v1.
pub(crate) fn ray_resource(kind: &str) -> ApiResource {
    ApiResource {
        group: "ray.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "ray.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

/// Prints one line whenever an object's summary changes; never returns.
pub(crate) async fn print_changes(client: &Client, print: &(dyn Fn(String) + Sync)) {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .filter_map(|event| async { Some(("Pod", change(event.ok()?, summarise_pod)?)) })
        .boxed();
    let mut all = vec![pods];
    for kind in KINDS {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ray_resource(kind));
        let stream = watcher(api, watcher::Config::default())
            .filter_map(move |event| async move {
                Some((kind, change(event.ok()?, |object: &DynamicObject| summarise(kind, &object.data))?))
            })
            .boxed();
        all.push(stream);
    }
    let mut all = futures::stream::select_all(all);
    let mut printed: HashMap<(&str, String), String> = HashMap::new();
    while let Some((kind, (name, summary))) = all.next().await {
        let key = (kind, name);
        match summary {
            Some(summary) if printed.get(&key) != Some(&summary) => {
                if !summary.is_empty() {
                    print(format!("{:<11} {:<44} {summary}", kind, key.1));
                }
                printed.insert(key, summary);
            }
            Some(_) => {}
            None => {
                print(format!("{:<11} {:<44} deleted", kind, key.1));
                printed.remove(&key);
            }
        }
    }
}

type Change = (String, Option<String>);

fn change<K: ResourceExt>(event: watcher::Event<K>, summarise: impl Fn(&K) -> String) -> Option<Change> {
    let name = |object: &K| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
            Some((name(&object), Some(summarise(&object))))
        }
        watcher::Event::Delete(object) => Some((name(&object), None)),
        watcher::Event::Init | watcher::Event::InitDone => None,
    }
}

/// Summarises the status of a Ray resource; empty while it has none.
pub(crate) fn summarise(kind: &str, data: &Value) -> String {
    let text = |path: &str| data.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let number = |path: &str| data.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let joined = |parts: Vec<String>| parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", ");
    match kind {
        "RayCluster" => {
            let workers = format!(
                "{}/{} workers ready",
                number("/status/readyWorkerReplicas"),
                number("/status/desiredWorkerReplicas")
            );
            let state = text("/status/state");
            if data.get("status").is_none() {
                String::new()
            } else {
                joined(vec![state, text("/status/reason"), workers])
            }
        }
        "RayJob" => {
            joined(vec![text("/status/jobDeploymentStatus"), text("/status/jobStatus"), text("/status/message")])
        }
        "RayService" => {
            let ready = data.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
            let ready = ready
                .into_iter()
                .find(|c| c["type"] == "Ready")
                .map(|c| format!("Ready={}", c["status"].as_str().unwrap_or("")));
            joined(vec![text("/status/serviceStatus"), ready.unwrap_or_default()])
        }
        _ => joined(vec![text("/status/lastScheduleTime")]),
    }
}

/// Summarises the status of a pod.
pub(crate) fn summarise_pod(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return String::new() };
    let all: Vec<_> = status.container_statuses.iter().flatten().collect();
    let init = status.init_container_statuses.iter().flatten();
    let ready = all.iter().filter(|c| c.ready).count();
    let restarts: i32 = all.iter().map(|c| c.restart_count).sum();
    let waiting = init.chain(all.iter().copied()).find_map(|c| {
        let waiting = c.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.clone().filter(|r| r != "PodInitializing" && r != "ContainerCreating");
        Some(match (reason?, &waiting.message) {
            (reason, Some(message)) => format!("{reason}: {}", message.lines().next().unwrap_or_default()),
            (reason, None) => reason,
        })
    });
    let unscheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    let why = waiting.or_else(|| unscheduled.and_then(|c| c.message.as_deref().map(advise)));
    let phase =
        if pod.metadata.deletion_timestamp.is_some() { "Terminating" } else { status.phase.as_deref().unwrap_or("") };
    let mut text = format!("{phase} {ready}/{}", all.len().max(1));
    if restarts > 0 {
        text.push_str(&format!(", {restarts} restarts"));
    }
    if let Some(why) = why {
        text.push_str(&format!(", {why}"));
    }
    text
}

/// Returns the scheduler's message, with the flag to use when the node is too small.
fn advise(message: &str) -> String {
    if message.contains(".com/gpu") {
        return format!("{message} (the GPUs of this machine that --gpus offers are in use, or there are too few)");
    }
    let flags = [("Insufficient cpu", "--cpus"), ("Insufficient memory", "--memory")];
    let short: Vec<&str> = flags.iter().filter(|(text, _)| message.contains(text)).map(|(_, flag)| *flag).collect();
    match short.as_slice() {
        [] => message.to_owned(),
        flags => format!("{message} (declare more with {}, or ask for less)", flags.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn summaries_fit_on_one_line() {
        let cluster = json!({"status": {"state": "ready", "readyWorkerReplicas": 2, "desiredWorkerReplicas": 2}});
        assert_eq!(summarise("RayCluster", &cluster), "ready, 2/2 workers ready");
        assert_eq!(summarise("RayCluster", &json!({})), "");
        let job = json!({"status": {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "why"}});
        assert_eq!(summarise("RayJob", &job), "Failed, FAILED, why");
        let service =
            json!({"status": {"serviceStatus": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(summarise("RayService", &service), "Running, Ready=True");
    }

    #[test]
    fn pod_summaries_include_the_waiting_reason() {
        let pod: Pod = serde_json::from_value(json!({"status": {"phase": "Pending", "containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 2,
             "state": {"waiting": {"reason": "ErrImagePull", "message": "no\nmore"}}},
        ]}}))
        .unwrap();
        assert_eq!(summarise_pod(&pod), "Pending 0/1, 2 restarts, ErrImagePull: no");
    }

    #[test]
    fn a_machine_too_small_can_be_declared_bigger() {
        let check = |message: &str, expect: &str| assert_eq!(advise(message), format!("{message}{expect}"));
        check("0/1: 1 Insufficient memory.", " (declare more with --memory, or ask for less)");
        check(
            "0/1: 1 Insufficient cpu, 1 Insufficient memory.",
            " (declare more with --cpus and --memory, or ask for less)",
        );
        check("0/1: 1 Too many pods.", "");
        check(
            "0/1: 1 Insufficient nvidia.com/gpu.",
            " (the GPUs of this machine that --gpus offers are in use, or there are too few)",
        );
    }
}
