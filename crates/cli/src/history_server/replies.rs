//! Replies of Ray's dashboard about a session that is over.

use super::events::{Replay, Task};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How many entries a list has, unless the request says so.
const LIMIT: usize = 100;
const MAX_LIMIT: usize = 10_000;

/// The parameters of a request.
#[derive(Debug, Default)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads the part of an address after the question mark.
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        };
        Self(pairs.map(pair).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn all<'p>(&'p self, name: &'p str) -> impl Iterator<Item = &'p str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn limit(&self) -> usize {
        self.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(LIMIT).min(MAX_LIMIT)
    }

    /// Returns whether an entry passes the filters of the state API.
    fn selects(&self, entry: &Map<String, Value>) -> bool {
        let filters = self.all("filter_keys").zip(self.all("filter_predicates")).zip(self.all("filter_values"));
        filters.into_iter().all(|((key, predicate), wanted)| {
            let value = entry.get(key).map(plain_text).unwrap_or_default();
            let is_equal = value.eq_ignore_ascii_case(wanted);
            if predicate == "!=" { !is_equal } else { is_equal }
        })
    }
}

/// Decodes what an address escapes.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = after.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        rest = match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                &after[2..]
            }
            (b'+', _) => {
                bytes.push(b' ');
                after
            }
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Wraps data as the dashboard does.
pub(super) fn reply(message: &str, data: Value) -> Value {
    json!({"result": true, "msg": message, "data": data})
}

fn page(total: usize, selected: usize, result: Value) -> Value {
    let result = json!({
        "total": total, "num_after_truncation": total, "num_filtered": selected, "result": result,
        "partial_failure_warning": "", "warnings": null,
    });
    reply("", json!({ "result": result }))
}

/// `/api/v0/tasks`.
pub(super) fn tasks(replay: &Replay, parameters: &Parameters) -> Value {
    let selected: Vec<&Task> = replay.tasks.values().filter(|task| parameters.selects(&task.fields)).collect();
    let shown: Vec<&Map<String, Value>> = selected.iter().take(parameters.limit()).map(|task| &task.fields).collect();
    page(replay.tasks.len(), selected.len(), json!(shown))
}

/// `/api/v0/tasks/summarize`: tasks by function, with the number in each state.
pub(super) fn task_summary(replay: &Replay, parameters: &Parameters) -> Value {
    let mut by_name: BTreeMap<String, (Value, BTreeMap<String, usize>)> = BTreeMap::new();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let selected: Vec<&Task> = replay.tasks.values().filter(|task| parameters.selects(&task.fields)).collect();
    for task in &selected {
        let text = |name: &str| task.fields.get(name).map(plain_text).unwrap_or_default();
        let entry = by_name.entry(text("func_or_class_name")).or_insert_with(|| (text("type").into(), BTreeMap::new()));
        *entry.1.entry(text("state")).or_default() += 1;
        *kinds.entry(text("type")).or_default() += 1;
    }
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
    let summary: Map<String, Value> = by_name
        .into_iter()
        .map(|(name, (kind, states))| {
            let entry = json!({"func_or_class_name": name, "type": kind, "state_counts": states});
            (name, entry)
        })
        .collect();
    let cluster = json!({
        "summary": summary, "total_tasks": count("NORMAL_TASK"), "total_actor_tasks": count("ACTOR_TASK"),
        "total_actor_scheduled": count("ACTOR_CREATION_TASK"), "summary_by": "func_name",
    });
    page(replay.tasks.len(), selected.len(), json!({"node_id_to_summary": {"cluster": cluster}}))
}

/// `/api/v0/tasks/timeline`: the events of profiles, for Chrome's trace viewer.
pub(super) fn timeline(replay: &Replay, parameters: &Parameters) -> Value {
    let job = parameters.get("job_id").unwrap_or_default();
    let of_job = |task: &&Task| job.is_empty() || task.fields.get("job_id").is_some_and(|id| id == job);
    let events = replay.tasks.values().filter(of_job).flat_map(|task| {
        task.profile.iter().map(|event| {
            let (start, end) = (event["start_time"].as_f64().unwrap_or(0.0), event["end_time"].as_f64().unwrap_or(0.0));
            json!({
                "cat": event["event_name"], "name": event["event_name"], "ph": "X",
                "pid": event["node_ip_address"],
                "tid": format!("{}:{}", plain_text(&event["component_type"]), plain_text(&event["component_id"])),
                // In microseconds.
                "ts": start / 1e3, "dur": (end - start).max(0.0) / 1e3,
                "args": {"task_id": task.fields.get("task_id"), "extra_data": event["extra_data"]},
            })
        })
    });
    events.collect()
}

/// `/api/jobs/`, the newest first.
pub(super) fn jobs(replay: &Replay, stored: &Value) -> Value {
    let mut jobs: Vec<Value> = replay.jobs.values().map(|job| with_result(job, stored)).collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job["start_time"].as_i64()));
    json!(jobs)
}

/// Returns a job with its result, of the last reply of the dashboard that was stored: events tell that it ended, and not how.
fn with_result(job: &Value, stored: &Value) -> Value {
    let is_it = |known: &&Value| {
        ["job_id", "submission_id"].iter().any(|field| known[field].is_string() && known[field] == job[field])
    };
    let known = stored.as_array().into_iter().flatten().find(is_it);
    let is_over = |known: &&Value| ["SUCCEEDED", "FAILED", "STOPPED"].iter().any(|status| known["status"] == *status);
    let mut job = job.clone();
    if let Some(known) = known.filter(is_over) {
        for field in ["status", "message", "error_type", "driver_exit_code", "end_time"] {
            if !known[field].is_null() {
                job[field] = known[field].clone();
            }
        }
    }
    job
}

/// `/api/jobs/ID`, by the id of the job or of its submission.
pub(super) fn job(replay: &Replay, stored: &Value, id: &str) -> Option<Value> {
    let found = replay.jobs.values().find(|job| job["job_id"] == id || job["submission_id"] == id);
    found.map(|job| with_result(job, stored))
}

/// `/logical/actors`.
pub(super) fn actors(replay: &Replay) -> Value {
    reply("All actors fetched.", json!({"actors": replay.actors}))
}

/// `/logical/actors/ID`.
pub(super) fn actor(replay: &Replay, id: &str) -> Option<Value> {
    let actor = replay.actors.get(id)?;
    Some(reply("Actor details fetched.", json!({"detail": actor})))
}

/// `/nodes`, in the form that `view` asks for.
pub(super) fn nodes(replay: &Replay, view: Option<&str>) -> Value {
    if view == Some("hostNameList") {
        let names: Vec<&Value> = replay.nodes.values().map(|node| &node["hostname"]).collect();
        return reply("Node hostname list fetched.", json!({"hostNameList": names}));
    }
    let summary: Vec<Value> = replay.nodes.values().map(node_detail).collect();
    let resources: Map<String, Value> = replay.nodes.keys().map(|id| (id.clone(), "".into())).collect();
    reply("Node summary fetched.", json!({"summary": summary, "nodeLogicalResources": resources}))
}

/// `/nodes/ID`.
pub(super) fn node(replay: &Replay, id: &str) -> Option<Value> {
    let node = replay.nodes.get(id)?;
    Some(reply("Node details fetched.", json!({"detail": node_detail(node)})))
}

/// Returns a node with the measurements that nobody has any more.
fn node_detail(node: &Value) -> Value {
    let mut raylet = node.clone();
    raylet["isHeadNode"] = json!(node["resourcesTotal"].get("node:__internal_head__").is_some());
    json!({
        "now": 0, "hostname": node["hostname"], "ip": node["nodeManagerAddress"], "cpu": 0, "cpus": [0, 0],
        "mem": [0, 0, 0, 0], "disk": {}, "gpus": [], "tpus": [], "network": [0, 0], "networkSpeed": [0, 0],
        "loadAvg": [[0, 0, 0], [0, 0, 0]], "bootTime": 0, "workers": [], "actors": {}, "logUrl": "", "raylet": raylet,
    })
}

/// `/api/cluster_status`.
pub(super) fn cluster_status(replay: &Replay, is_formatted: bool) -> Value {
    if !is_formatted {
        let data = json!({"autoscalingStatus": null, "autoscalingError": null, "clusterStatus": null});
        return reply("Got cluster status.", data);
    }
    let dead = replay.nodes.values().filter(|node| node["state"] == "DEAD").count();
    let text =
        format!("This cluster is gone. It had {} nodes, {dead} of which were reported dead.", replay.nodes.len());
    reply("Got formatted cluster status.", json!({"clusterStatus": text}))
}

/// `/events`: the lines of Ray's event logs, by the job that they are about.
pub(super) fn events(lines: &[String], job: Option<&str>) -> Value {
    let mut by_job: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for line in lines {
        let Ok(mut event) = serde_json::from_str::<Value>(line) else { continue };
        let Some(id) = event["event_id"].as_str().map(str::to_owned) else { continue };
        if let Some(message) = event["message"].as_str() {
            event["message"] = message.replace("\\n", "\n").replace("\\r", "\n").into();
        }
        let about = event["custom_fields"]["job_id"].as_str().filter(|job| !job.is_empty()).unwrap_or("global");
        by_job.entry(about.to_owned()).or_default().insert(id, event);
    }
    let list = |events: &BTreeMap<String, Value>| {
        let mut events: Vec<Value> = events.values().cloned().collect();
        events.sort_by_key(|event| event["timestamp"].to_string());
        Value::Array(events)
    };
    match job {
        Some(job) => {
            let events = by_job.get(job).map_or_else(|| json!([]), list);
            reply("Job events fetched.", json!({"jobId": job, "events": events}))
        }
        None => {
            let all: Map<String, Value> = by_job.iter().map(|(job, events)| (job.clone(), list(events))).collect();
            reply("All events fetched.", json!({"events": all}))
        }
    }
}

/// `/api/v0/logs`: the files of a node, by what wrote them.
pub(super) fn logs(files: &[String], glob: Option<&str>) -> Value {
    let wanted = glob.unwrap_or("*");
    let mut by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| matches_glob(file, wanted)) {
        by_kind.entry(category(file)).or_default().push(file);
    }
    reply("", json!({ "result": by_kind }))
}

/// Returns the group that the dashboard shows a file in.
fn category(file: &str) -> &'static str {
    let name = file.rsplit('/').next().unwrap_or(file);
    let kinds = [
        ("worker-", ".out", "worker_out"),
        ("worker-", ".err", "worker_err"),
        ("python-core-worker", "", "core_worker"),
        ("python-core-driver", "", "driver"),
        ("job-driver", "", "driver"),
        ("raylet", "", "raylet"),
        ("gcs_server", "", "gcs_server"),
        ("dashboard_agent", "", "agent"),
        ("runtime_env", "", "agent"),
        ("dashboard", "", "dashboard"),
        ("monitor", "", "autoscaler"),
    ];
    let found = kinds.iter().find(|(start, end, _)| name.starts_with(start) && name.ends_with(end));
    found.map_or("internal", |(_, _, kind)| kind)
}

/// Returns whether a name matches a pattern of letters and stars.
fn matches_glob(name: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        last = Some(part);
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    last.map_or(rest.is_empty(), |last| name.ends_with(last))
}

/// Returns the last lines of a text; all for a negative number.
pub(super) fn last_lines(text: &[u8], count: i64) -> &[u8] {
    let Ok(count) = usize::try_from(count) else { return text };
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let breaks: Vec<usize> = (0..body.len()).filter(|&at| body[at] == b'\n').collect();
    match breaks.len().checked_sub(count) {
        _ if count == 0 => &[],
        None => text,
        Some(at) => &text[breaks[at] + 1..],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_the_result_that_the_dashboard_reported() {
        let mut replay = Replay::default();
        let ended = json!({"job_id": "04", "submission_id": "raysubmit_1", "status": "SUCCEEDED", "end_time": 5});
        replay.jobs.insert("04".to_owned(), ended);
        let check = |stored: Value, status: &str, message: Value| {
            let jobs = jobs(&replay, &stored);
            assert_eq!((&jobs[0]["status"], &jobs[0]["message"]), (&json!(status), &message), "{stored}");
            assert_eq!(job(&replay, &stored, "raysubmit_1").unwrap(), jobs[0]);
        };
        check(Value::Null, "SUCCEEDED", Value::Null);
        let failed =
            json!({"submission_id": "raysubmit_1", "job_id": "04", "status": "FAILED", "message": "exit code 1"});
        check(json!([failed]), "FAILED", json!("exit code 1"));
        check(json!([{"job_id": "05", "status": "FAILED"}]), "SUCCEEDED", Value::Null);
        check(json!([{"job_id": "04", "status": "RUNNING"}]), "SUCCEEDED", Value::Null);
    }

    #[test]
    fn events_are_told_by_job() {
        let line = |id: &str, job: &str, message: &str, at: u32| {
            json!({"event_id": id, "custom_fields": {"job_id": job}, "message": message, "timestamp": at}).to_string()
        };
        let lines =
            [line("b", "04", "two\\nlines", 2), line("a", "04", "one", 1), line("c", "", "all", 3), "{cut".to_owned()];
        let all = events(&lines, None)["data"]["events"].clone();
        assert_eq!(
            (all["04"][0]["event_id"].clone(), all["04"][1]["message"].clone()),
            (json!("a"), json!("two\nlines"))
        );
        assert_eq!(all["global"][0]["event_id"], "c");
        assert_eq!(events(&lines, Some("04"))["data"]["events"].as_array().map(Vec::len), Some(2));
        assert_eq!(events(&lines, Some("05"))["data"]["events"], json!([]));
    }

    #[test]
    fn parameters_are_decoded_and_filter() {
        let parameters =
            Parameters::parse("limit=2&filter_keys=job_id&filter_predicates=%3D&filter_values=0%31&x=a+b%zz");
        assert_eq!((parameters.limit(), parameters.get("x")), (2, Some("a b%zz")));
        let entry = |job: &str| json!({"job_id": job}).as_object().unwrap().clone();
        assert!(parameters.selects(&entry("01")) && !parameters.selects(&entry("02")));
        assert_eq!(Parameters::parse("").limit(), LIMIT);
    }

    #[test]
    fn tasks_are_limited_and_summed_up() {
        let mut replay = Replay::default();
        for number in 0..5 {
            let fields =
                json!({"func_or_class_name": "work", "type": "NORMAL_TASK", "state": "FINISHED", "job_id": "01"});
            let task = Task { fields: fields.as_object().unwrap().clone(), ..Task::default() };
            replay.tasks.insert((number.to_string(), 0), task);
        }
        let reply = tasks(&replay, &Parameters::parse("limit=3"));
        let result = &reply["data"]["result"];
        assert_eq!((&result["total"], result["result"].as_array().map(Vec::len)), (&json!(5), Some(3)));
        let reply = task_summary(&replay, &Parameters::default());
        let cluster = &reply["data"]["result"]["result"]["node_id_to_summary"]["cluster"];
        assert_eq!(
            (&cluster["total_tasks"], &cluster["summary"]["work"]["state_counts"]["FINISHED"]),
            (&json!(5), &json!(5))
        );
    }

    #[test]
    fn log_files_are_grouped_and_matched() {
        let files = ["raylet.out", "worker-1.err", "old/gcs_server.out", "strange"].map(str::to_owned);
        let reply = logs(&files, Some("*"));
        assert_eq!(reply["data"]["result"]["gcs_server"], json!(["old/gcs_server.out"]));
        assert_eq!(reply["data"]["result"]["internal"], json!(["strange"]));
        for (name, pattern, expect) in [
            ("raylet.out", "raylet*", true),
            ("raylet.out", "*.err", false),
            ("a", "a", true),
            ("ab", "a", false),
            ("abc", "a*c", true),
        ] {
            assert_eq!(matches_glob(name, pattern), expect, "{name} {pattern}");
        }
    }

    #[test]
    fn the_last_lines_are_cut_at_line_breaks() {
        let check =
            |count: i64, expect: &str| assert_eq!(last_lines(b"a\nb\nc\n", count), expect.as_bytes(), "{count}");
        check(-1, "a\nb\nc\n");
        check(0, "");
        check(1, "c\n");
        check(2, "b\nc\n");
        check(9, "a\nb\nc\n");
    }
}
