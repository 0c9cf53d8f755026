//! A pod's row: what people look at most.

use jiff::Timestamp;
use serde_json::Value;

/// Ready, Status, Restarts, Age, IP, Node, Nominated Node, Readiness Gates.
pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let containers = list(&spec["containers"]);
    let statuses = list(&status["containerStatuses"]);
    let initial = list(&status["initContainerStatuses"]);
    let sidecar = |name: &Value| {
        list(&spec["initContainers"]).iter().any(|one| one["name"] == *name && one["restartPolicy"] == "Always")
    };
    let mut total = containers.len();
    let mut ready = 0;
    let mut restarts = 0;
    let mut last_restart = String::new();
    let mut reason = status["reason"].as_str().or(status["phase"].as_str()).unwrap_or("").to_owned();
    if list(&status["conditions"]).iter().any(|one| one["type"] == "PodScheduled" && one["reason"] == "SchedulingGated")
    {
        reason = "SchedulingGated".into();
    }
    let mut initializing = false;
    for (index, one) in initial.iter().enumerate() {
        let side = sidecar(&one["name"]);
        if side {
            total += 1;
            ready += usize::from(one["ready"] == true);
        }
        restarts = one["restartCount"].as_i64().unwrap_or(0).saturating_add(restarts);
        let state = &one["state"];
        if state["terminated"]["exitCode"] == 0 || (side && one["started"] == true) {
            continue;
        }
        let waiting = state["waiting"]["reason"].as_str().filter(|reason| *reason != "PodInitializing");
        reason = if state["terminated"].is_object() {
            format!("Init:{}", terminated(&state["terminated"]))
        } else if let Some(waiting) = waiting {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", list(&spec["initContainers"]).len())
        };
        initializing = true;
        break;
    }
    if !initializing {
        restarts = initial
            .iter()
            .filter(|one| sidecar(&one["name"]))
            .map(|one| one["restartCount"].as_i64().unwrap_or(0))
            .fold(0, i64::saturating_add);
        let mut running = false;
        for one in statuses.iter().rev() {
            restarts = one["restartCount"].as_i64().unwrap_or(0).saturating_add(restarts);
            if let Some(finished) = one["lastState"]["terminated"]["finishedAt"].as_str() {
                last_restart = last_restart.max(finished.to_owned());
            }
            let state = &one["state"];
            if let Some(waiting) = state["waiting"]["reason"].as_str().filter(|reason| !reason.is_empty()) {
                reason = waiting.into();
            } else if state["terminated"].is_object() {
                reason = terminated(&state["terminated"]);
            } else if one["ready"] == true && state["running"].is_object() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" && running {
            let is_ready =
                list(&status["conditions"]).iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            reason = if is_ready { "Running" } else { "NotReady" }.into();
        }
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        reason = if status["reason"] == "NodeLost" { "Unknown" } else { "Terminating" }.into();
    }
    let restarts = match (restarts, last_restart.as_str()) {
        (0, _) | (_, "") => restarts.to_string(),
        (restarts, last) => format!("{restarts} ({} ago)", super::age(&Value::from(last), now)),
    };
    let or_none = |value: &Value| match value.as_str() {
        None | Some("") => Value::from("<none>"),
        Some(text) => text.into(),
    };
    vec![
        format!("{ready}/{total}").into(),
        reason.into(),
        restarts.into(),
        super::age(&pod["metadata"]["creationTimestamp"], now).into(),
        or_none(&status["podIP"]),
        or_none(&spec["nodeName"]),
        or_none(&status["nominatedNodeName"]),
        "<none>".into(),
    ]
}

fn terminated(state: &Value) -> String {
    if let Some(reason) = state["reason"].as_str().filter(|reason| !reason.is_empty()) {
        return reason.into();
    }
    match state["signal"].as_i64() {
        Some(signal) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", state["exitCode"].as_i64().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_column_shows_the_most_specific_reason() {
        let check = |status: Value, expect: [&str; 2]| {
            let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]},
                "status": status});
            let cells = cells(&pod, Timestamp::UNIX_EPOCH);
            assert_eq!([cells[0].as_str(), cells[1].as_str()], [Some(expect[0]), Some(expect[1])]);
        };
        check(json!({"phase": "Pending"}), ["0/1", "Pending"]);
        let running = json!([{"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}}]);
        check(json!({"phase": "Running", "containerStatuses": running}), ["1/1", "Running"]);
        let init = json!([{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}]);
        check(json!({"phase": "Pending", "initContainerStatuses": init}), ["0/1", "Init:0/1"]);
        let crashed = json!([{"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        check(json!({"phase": "Running", "containerStatuses": crashed}), ["0/1", "CrashLoopBackOff"]);
    }
}
