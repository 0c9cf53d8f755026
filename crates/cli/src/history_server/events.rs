//! Ray's events, replayed into the tasks, actors, jobs and nodes of a session.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What is known of a session from its events.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// By id and attempt.
    pub(super) tasks: BTreeMap<(String, i64), Task>,
    pub(super) actors: BTreeMap<String, Value>,
    pub(super) jobs: BTreeMap<String, Value>,
    pub(super) nodes: BTreeMap<String, Value>,
}

/// One attempt of a task, in the fields of Ray's state API.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) fields: Map<String, Value>,
    /// States with their times in milliseconds.
    pub(super) transitions: Vec<(String, i64)>,
    /// The events of its profile: name, start and end in nanoseconds.
    pub(super) profile: Vec<Value>,
}

/// Takes the body of one sort of event.
type Taker = fn(&mut Replay, &Value);

impl Replay {
    /// Replays events, one JSON object per line; lines that are cut off are left out.
    pub(super) fn of(lines: &[String]) -> Self {
        let mut replay = Self::default();
        for line in lines {
            if let Ok(event) = serde_json::from_str::<Value>(line) {
                replay.take(&event);
            }
        }
        for task in replay.tasks.values_mut() {
            task.settle();
        }
        replay
    }

    fn take(&mut self, event: &Value) {
        let takers: [(&str, Taker); 10] = [
            ("taskDefinitionEvent", Self::task_defined),
            ("actorTaskDefinitionEvent", Self::task_defined),
            ("taskLifecycleEvent", Self::task_changed),
            ("taskProfileEvents", Self::task_profiled),
            ("actorDefinitionEvent", Self::actor_defined),
            ("actorLifecycleEvent", Self::actor_changed),
            ("driverJobDefinitionEvent", Self::job_defined),
            ("driverJobLifecycleEvent", Self::job_changed),
            ("nodeDefinitionEvent", Self::node_defined),
            ("nodeLifecycleEvent", Self::node_changed),
        ];
        for (name, take) in takers {
            let body = field(event, name);
            if body.is_object() {
                take(self, body);
            }
        }
    }

    fn task(&mut self, body: &Value) -> &mut Task {
        let id = id(body, "taskId");
        let attempt = number(field(body, "taskAttempt")).or_else(|| number(field(body, "attemptNumber"))).unwrap_or(0);
        let task = self.tasks.entry((id.clone(), attempt)).or_default();
        task.set("task_id", id.into());
        task.set("attempt_number", attempt.into());
        task
    }

    fn task_defined(&mut self, body: &Value) {
        let actor = id(body, "actorId");
        let function = if actor.is_empty() { field(body, "taskFunc") } else { field(body, "actorFunc") };
        let name = [field(body, "taskName"), field(body, "actorTaskName")].into_iter().find_map(Value::as_str);
        let kind = if actor.is_empty() { text(body, "taskType", "NORMAL_TASK") } else { "ACTOR_TASK".to_owned() };
        let fields = [
            ("name", name.unwrap_or_default().into()),
            ("func_or_class_name", function_name(function).into()),
            ("type", kind.into()),
            ("language", text(body, "language", "PYTHON").into()),
            ("job_id", id(body, "jobId").into()),
            ("parent_task_id", id(body, "parentTaskId").into()),
            ("placement_group_id", optional(id(body, "placementGroupId"))),
            ("actor_id", optional(actor)),
            ("required_resources", field(body, "requiredResources").clone()),
            ("runtime_env_info", json!({"serialized_runtime_env": field(body, "serializedRuntimeEnv")})),
            ("call_site", field(body, "callSite").clone()),
        ];
        let task = self.task(body);
        fields.into_iter().for_each(|(name, value)| task.set(name, value));
    }

    fn task_changed(&mut self, body: &Value) {
        let error = field(body, "rayErrorInfo");
        let fields = [
            ("node_id", optional(id(body, "nodeId"))),
            ("worker_id", optional(id(body, "workerId"))),
            ("worker_pid", number(field(body, "workerPid")).filter(|pid| *pid != 0).into()),
            ("job_id", optional(id(body, "jobId"))),
            ("error_type", field(error, "errorType").clone()),
            ("error_message", field(error, "errorMessage").clone()),
            ("task_log_info", snake_case(field(body, "taskLogInfo"))),
        ];
        let transitions: Vec<(String, i64)> = transitions(body).collect();
        let task = self.task(body);
        fields.into_iter().for_each(|(name, value)| task.set(name, value));
        task.transitions.extend(transitions);
    }

    fn task_profiled(&mut self, body: &Value) {
        let profile = field(body, "profileEvents");
        let component = json!({
            "component_type": field(profile, "componentType"), "component_id": id(profile, "componentId"),
            "node_ip_address": field(profile, "nodeIpAddress"),
        });
        let events = field(profile, "events").as_array().cloned().unwrap_or_default();
        let task = self.task(body);
        for event in events {
            let mut entry = component.clone();
            entry["event_name"] = field(&event, "eventName").clone();
            entry["start_time"] = number(field(&event, "startTime")).into();
            entry["end_time"] = number(field(&event, "endTime")).into();
            let extra = field(&event, "extraData").as_str().and_then(|text| serde_json::from_str(text).ok());
            entry["extra_data"] = extra.unwrap_or_else(|| json!({}));
            task.profile.push(entry);
        }
    }

    fn actor_defined(&mut self, body: &Value) {
        let actor = id(body, "actorId");
        let entry = self.actors.entry(actor.clone()).or_insert_with(|| json!({"state": "DEPENDENCIES_UNREADY"}));
        let fields = json!({
            "actorId": actor, "jobId": id(body, "jobId"), "isDetached": field(body, "isDetached"),
            "name": text(body, "name", ""), "rayNamespace": text(body, "rayNamespace", ""),
            "actorClass": text(body, "className", ""), "className": text(body, "className", ""),
            "requiredResources": field(body, "requiredResources"),
            "placementGroupId": optional(id(body, "placementGroupId")),
        });
        extend(entry, fields);
    }

    fn actor_changed(&mut self, body: &Value) {
        let actor = id(body, "actorId");
        let entry = self.actors.entry(actor.clone()).or_insert_with(|| json!({"actorId": actor, "numRestarts": 0}));
        for change in field(body, "stateTransitions").as_array().into_iter().flatten() {
            let (state, at) = (text(change, "state", "DEPENDENCIES_UNREADY"), millis(field(change, "timestamp")));
            match state.as_str() {
                "ALIVE" => {
                    let address = json!({"rayletId": id(change, "nodeId"), "workerId": id(change, "workerId"),
                        "port": field(change, "port")});
                    let first = entry["startTime"].as_i64().unwrap_or(at);
                    let name = text(change, "reprName", "");
                    let fields =
                        json!({"startTime": first, "pid": field(change, "pid"), "address": address, "reprName": name});
                    extend(entry, fields);
                }
                "RESTARTING" => entry["numRestarts"] = json!(entry["numRestarts"].as_i64().unwrap_or(0) + 1),
                "DEAD" => {
                    let cause = field(change, "deathCause");
                    extend(entry, json!({"endTime": at, "deathCause": cause, "exitDetail": death_message(cause)}));
                }
                _ => {}
            }
            entry["state"] = state.into();
        }
    }

    fn job_defined(&mut self, body: &Value) {
        let job = id(body, "jobId");
        let config = field(body, "config");
        let metadata = field(config, "metadata").clone();
        let submission = metadata["job_submission_id"].clone();
        let entry = self.jobs.entry(job.clone()).or_insert_with(|| json!({"status": "RUNNING"}));
        let env = field(config, "serializedRuntimeEnv").as_str();
        let fields = json!({
            "type": if submission.is_null() { "DRIVER" } else { "SUBMISSION" },
            "job_id": job, "submission_id": submission, "entrypoint": text(body, "entrypoint", ""),
            "metadata": metadata, "driver_node_id": optional(id(body, "driverNodeId")),
            "runtime_env": env.and_then(|env| serde_json::from_str::<Value>(env).ok()).unwrap_or_else(|| json!({})),
            "driver_info": {"id": job, "node_ip_address": "", "pid": field(body, "driverPid").to_string()},
        });
        extend(entry, fields);
    }

    fn job_changed(&mut self, body: &Value) {
        let job = id(body, "jobId");
        let entry = self.jobs.entry(job.clone()).or_insert_with(|| json!({"job_id": job, "type": "DRIVER"}));
        for (state, at) in transitions(body) {
            match state.as_str() {
                "CREATED" => extend(entry, json!({"start_time": at, "status": "RUNNING"})),
                "FINISHED" => extend(entry, json!({"end_time": at, "status": "SUCCEEDED"})),
                _ => {}
            }
        }
    }

    fn node_defined(&mut self, body: &Value) {
        let node = id(body, "nodeId");
        let entry = self.nodes.entry(node.clone()).or_insert_with(|| json!({"state": "ALIVE"}));
        let fields = json!({
            "nodeId": node, "nodeManagerAddress": text(body, "nodeIpAddress", ""),
            "hostname": text(body, "hostname", ""), "nodeName": text(body, "nodeName", ""),
            "labels": field(body, "labels"), "startTime": millis(field(body, "startTimestamp")),
        });
        extend(entry, fields);
    }

    fn node_changed(&mut self, body: &Value) {
        let node = id(body, "nodeId");
        let entry = self.nodes.entry(node.clone()).or_insert_with(|| json!({"nodeId": node}));
        for change in field(body, "stateTransitions").as_array().into_iter().flatten() {
            let state = text(change, "state", "ALIVE");
            if state == "DEAD" {
                let message = text(field(change, "deathInfo"), "reasonMessage", "");
                extend(entry, json!({"endTime": millis(field(change, "timestamp")), "stateMessage": message}));
            }
            let resources = field(change, "resources");
            if resources.as_object().is_some_and(|resources| !resources.is_empty()) {
                entry["resourcesTotal"] = resources.clone();
            }
            entry["state"] = state.into();
        }
    }
}

impl Task {
    /// Sets a field, unless the value says nothing.
    fn set(&mut self, name: &str, value: Value) {
        if !value.is_null() {
            self.fields.insert(name.to_owned(), value);
        }
    }

    /// Works out the state and the times from the transitions.
    fn settle(&mut self) {
        self.transitions.sort_by_key(|(_, at)| *at);
        let time = |wanted: &[&str]| {
            let found = self.transitions.iter().find(|(state, _)| wanted.contains(&state.as_str()));
            found.map_or(Value::Null, |(_, at)| (*at).into())
        };
        let (created, started, ended) =
            (time(&["PENDING_ARGS_AVAIL"]), time(&["RUNNING"]), time(&["FINISHED", "FAILED"]));
        // A task that has ended stays so, whatever was reported late.
        let last = self.transitions.iter().rev().find(|(state, _)| state == "FINISHED" || state == "FAILED");
        let state = last.or(self.transitions.last()).map_or("NIL", |(state, _)| state).to_owned();
        let events: Vec<Value> =
            self.transitions.iter().map(|(state, at)| json!({"state": state, "created_ms": at})).collect();
        for (name, value) in [
            ("creation_time_ms", created),
            ("start_time_ms", started),
            ("end_time_ms", ended),
            ("state", state.into()),
            ("events", events.into()),
        ] {
            self.fields.insert(name.to_owned(), value);
        }
        for name in ["error_type", "error_message", "actor_id", "node_id", "worker_id", "worker_pid"] {
            self.fields.entry(name).or_insert(Value::Null);
        }
    }
}

fn extend(entry: &mut Value, fields: Value) {
    if let (Some(entry), Value::Object(fields)) = (entry.as_object_mut(), fields) {
        entry.extend(fields);
    }
}

/// Returns a field by its name in JSON, or by that of the protobuf definition.
fn field<'v>(object: &'v Value, name: &str) -> &'v Value {
    match object.get(name) {
        Some(value) => value,
        None => object.get(snake(name)).unwrap_or(&Value::Null),
    }
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Returns an object with the names of its fields as in Python.
fn snake_case(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (snake(name), value.clone())).collect(),
        _ => Value::Null,
    }
}

fn text(object: &Value, name: &str, default: &str) -> String {
    field(object, name).as_str().unwrap_or(default).to_owned()
}

/// Returns an integer; protobuf writes those of 64 bits as texts.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

/// Returns an id in hexadecimal digits; protobuf writes bytes in base64.
fn id(object: &Value, name: &str) -> String {
    let text = field(object, name).as_str().unwrap_or_default();
    match STANDARD.decode(text) {
        Ok(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(_) => text.to_owned(),
    }
}

fn optional(text: String) -> Value {
    // Ray fills the bytes of an id that is not set with ones.
    if text.is_empty() || text.bytes().all(|digit| digit == b'f') { Value::Null } else { text.into() }
}

fn transitions(body: &Value) -> impl Iterator<Item = (String, i64)> {
    let changes = field(body, "stateTransitions").as_array().into_iter().flatten();
    changes.map(|change| (text(change, "state", "NIL"), millis(field(change, "timestamp"))))
}

/// Returns a time in milliseconds.
fn millis(time: &Value) -> i64 {
    let parsed = time.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    parsed.map_or(0, |time| time.as_millisecond())
}

fn function_name(function: &Value) -> String {
    let kinds = ["pythonFunctionDescriptor", "javaFunctionDescriptor", "cppFunctionDescriptor"];
    let Some(function) = kinds.into_iter().map(|kind| field(function, kind)).find(|function| function.is_object())
    else {
        return String::new();
    };
    match (text(function, "className", ""), text(function, "functionName", "")) {
        (class, name) if class.is_empty() => name,
        (class, name) => format!("{class}.{name}"),
    }
}

fn death_message(cause: &Value) -> String {
    let kinds = ["actorDiedErrorContext", "oomContext", "actorUnschedulableContext", "runtimeEnvFailedContext"];
    let message = kinds.into_iter().find_map(|kind| field(field(cause, kind), "errorMessage").as_str());
    let exception = field(field(cause, "creationTaskFailureContext"), "formattedExceptionString").as_str();
    message.or(exception).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as protobuf writes them: `AQID` is 010203.
    const ID: &str = "AQID";

    #[test]
    fn tasks_actors_jobs_and_nodes_come_from_their_events() {
        let at = |second: u32| format!("2026-03-01T08:00:{second:02}Z");
        let lines = [
            json!({"eventType": "TASK_DEFINITION_EVENT", "taskDefinitionEvent": {"taskId": ID, "taskAttempt": 1,
                "taskName": "work", "jobId": "BA==", "taskType": "NORMAL_TASK", "placementGroupId": "////",
                "taskFunc": {"pythonFunctionDescriptor": {"functionName": "work", "className": ""}}}}),
            // Reported in any order.
            json!({"taskLifecycleEvent": {"taskId": ID, "taskAttempt": 1, "nodeId": "BQ==", "workerPid": 7,
                "rayErrorInfo": {"errorType": "WORKER_DIED", "errorMessage": "gone"},
                "stateTransitions": [{"state": "FAILED", "timestamp": at(3)}]}}),
            json!({"task_lifecycle_event": {"task_id": ID, "task_attempt": 1, "state_transitions": [
                {"state": "PENDING_ARGS_AVAIL", "timestamp": at(1)}, {"state": "RUNNING", "timestamp": at(2)}]}}),
            json!({"taskProfileEvents": {"taskId": ID, "attemptNumber": 1, "profileEvents": {"componentType": "worker",
                "componentId": "Bg==", "nodeIpAddress": "10.0.0.1",
                "events": [{"eventName": "task::work", "startTime": "5", "endTime": "9", "extraData": "{\"a\": 1}"}]}}}),
            json!({"actorDefinitionEvent": {"actorId": ID, "className": "Counter", "jobId": "BA=="}}),
            json!({"actorLifecycleEvent": {"actorId": ID, "stateTransitions": [
                {"state": "ALIVE", "timestamp": at(2), "nodeId": "BQ==", "pid": 8}, {"state": "RESTARTING", "timestamp": at(3)},
                {"state": "DEAD", "timestamp": at(4), "deathCause": {"oomContext": {"errorMessage": "too much"}}}]}}),
            json!({"driverJobDefinitionEvent": {"jobId": "BA==", "entrypoint": "python x.py",
                "config": {"metadata": {"job_submission_id": "raysubmit_1"}}}}),
            json!({"driverJobLifecycleEvent": {"jobId": "BA==", "stateTransitions": [
                {"state": "CREATED", "timestamp": at(1)}, {"state": "FINISHED", "timestamp": at(5)}]}}),
            json!({"nodeDefinitionEvent": {"nodeId": "BQ==", "nodeIpAddress": "10.0.0.1", "hostname": "h"}}),
            json!({"nodeLifecycleEvent": {"nodeId": "BQ==", "stateTransitions": [
                {"state": "ALIVE", "resources": {"CPU": 2.0}}, {"state": "DEAD", "timestamp": at(6)}]}}),
        ];
        let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        lines.push("{\"cut off".to_owned());
        let replay = Replay::of(&lines);
        let task = &replay.tasks[&("010203".to_owned(), 1)];
        let get = |name: &str| task.fields[name].clone();
        assert_eq!((get("state"), get("name"), get("job_id")), (json!("FAILED"), json!("work"), json!("04")));
        assert_eq!(
            (get("error_type"), get("node_id"), get("worker_pid")),
            (json!("WORKER_DIED"), json!("05"), json!(7))
        );
        let times = [get("creation_time_ms"), get("start_time_ms"), get("end_time_ms")];
        assert!(times.windows(2).all(|pair| pair[0].as_i64() < pair[1].as_i64()), "{times:?}");
        assert!(task.fields.get("placement_group_id").is_none());
        assert_eq!((&task.profile[0]["end_time"], &task.profile[0]["extra_data"]["a"]), (&json!(9), &json!(1)));
        let actor = &replay.actors["010203"];
        assert_eq!(
            (&actor["state"], &actor["numRestarts"], &actor["exitDetail"]),
            (&json!("DEAD"), &json!(1), &json!("too much"))
        );
        let job = &replay.jobs["04"];
        assert_eq!(
            (&job["status"], &job["submission_id"], &job["type"]),
            (&json!("SUCCEEDED"), &json!("raysubmit_1"), &json!("SUBMISSION"))
        );
        let node = &replay.nodes["05"];
        assert_eq!(
            (&node["state"], &node["resourcesTotal"]["CPU"], &node["hostname"]),
            (&json!("DEAD"), &json!(2.0), &json!("h"))
        );
    }

    #[test]
    fn nonsense_is_left_out() {
        for line in [
            "",
            "[]",
            "null",
            "{}",
            "{\"taskDefinitionEvent\": 3}",
            "{\"nodeLifecycleEvent\": {\"stateTransitions\": 3}}",
        ] {
            let replay = Replay::of(&[line.to_owned()]);
            assert!(replay.tasks.is_empty() && replay.jobs.is_empty(), "{line}");
        }
    }
}
