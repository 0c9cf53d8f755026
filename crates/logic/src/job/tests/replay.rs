//! Recorded runs of RayJobs under KubeRay, replayed without a cluster.
//!
//! The steps that concern the RayJob run in the world of plain values; the RayJob's status and the
//! requests to Ray must equal those of each `record` step.

use super::fixture::{World, info};
use jiff::SignedDuration;
use manta_api::RayJob;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Fields that KubeRay and this world cannot be compared in: names and clocks are checked for presence.
const CLOCKS: [&str; 6] =
    ["startTime", "endTime", "jobStatusCheckFailureStartTime", "jobId", "rayClusterName", "dashboardURL"];

#[test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
fn recorded_runs_replay_identically() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity/life");
    let entries = std::fs::read_dir(&folder).unwrap();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    let mut played = 0;
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("life-job-") && !name.contains("selector") {
            let case: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            replay(&name, &case);
            played += 1;
        }
    }
    assert!(played > 30, "only {played} recordings were found");
}

fn replay(name: &str, case: &Value) {
    let docs = case["docs"].as_array().unwrap();
    let mut job: RayJob = docs
        .iter()
        .find(|doc| doc["kind"] == "RayJob")
        .map(|doc| serde_json::from_value(doc.clone()).unwrap())
        .unwrap();
    let fresh = super::fixture::job("train");
    job.metadata = fresh.metadata;
    job.spec.backoff_limit.get_or_insert(0);
    let mut world = World::of(job);
    world.config.rayjob_status_check_timeout = std::time::Duration::from_secs(90);
    let mut ray = Ray::default();
    for step in case["steps"].as_array().unwrap() {
        play(name, case, &mut world, &mut ray, step);
    }
}

/// What the fake Ray of the recordings knows.
#[derive(Default)]
struct Ray {
    /// By submission id.
    jobs: BTreeMap<String, Value>,
    down: bool,
}

impl Ray {
    fn answer(&mut self, world: &mut World) {
        let before = world.submissions.len();
        if self.down {
            world.fail_poll();
        } else {
            let id = world.status().job_id.unwrap_or_default();
            let known = self.jobs.get(&id).map(|job| {
                let mut known = info(job["status"].as_str().unwrap_or("PENDING"), world.now);
                known.message = job["message"].as_str().unwrap_or_default().to_owned();
                known
            });
            world.poll(Ok(known));
        }
        for submission in &world.submissions[before..] {
            let id = submission["submission_id"].as_str().unwrap().to_owned();
            self.jobs.insert(id, serde_json::json!({"status": "PENDING"}));
        }
    }
}

fn play(name: &str, case: &Value, world: &mut World, ray: &mut Ray, step: &Value) {
    if world.job_deleted {
        return;
    }
    match step["do"].as_str().unwrap() {
        "dashboard" => {
            if step["forget"] == true {
                ray.jobs.clear();
            }
            if let Some(mode) = step["mode"].as_str() {
                ray.down = mode != "up";
            }
            if let Some(job) = step["job"].as_object() {
                let id = world.status().job_id.unwrap_or_default();
                let known = ray.jobs.entry(id).or_insert_with(|| serde_json::json!({}));
                known.as_object_mut().unwrap().extend(job.clone());
            }
        }
        "pods" => pods(world, step),
        "delete-all" => world.seen.cluster = None,
        "delete-pods" => world.seen.head_pods.clear(),
        "patch" => {
            if let Some(suspend) = step["patch"]["spec"]["suspend"].as_bool() {
                world.seen.job.spec.suspend = Some(suspend);
            }
            if let Some(id) = step["patch"]["spec"]["jobId"].as_str() {
                world.seen.job.spec.job_id = Some(id.to_owned());
            }
        }
        "delete" => {
            world.seen.job.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
        }
        "until" | "settle" => {
            // Time passes until what the recording waited for has come, in steps of KubeRay's own.
            for _ in 0..80 {
                advance(world, ray);
                if step["do"] == "settle" || has_come(world, step) || world.job_deleted {
                    break;
                }
            }
            assert!(step["do"] == "settle" || has_come(world, step), "{name}: {step} never came: {}", world.summary());
            return;
        }
        "record" => {
            compare(name, case, world, step["as"].as_str().unwrap());
            return;
        }
        "apply" => {}
        other => panic!("{name}: {other} is not known here"),
    }
    advance(world, ray);
}

fn advance(world: &mut World, ray: &mut Ray) {
    world.seen.seed += 1;
    world.now += SignedDuration::from_secs(3);
    world.settle();
    ray.answer(world);
    if world.seen.job.metadata.deletion_timestamp.is_some() {
        world.settle();
    }
}

fn pods(world: &mut World, step: &Value) {
    let select = step["select"].as_str().unwrap_or_default();
    if select.starts_with("job-name") {
        match step["phase"].as_str() {
            Some("Succeeded") => world.submitter_is("Complete"),
            Some("Failed") => world.submitter_is("Failed"),
            _ => {}
        }
    } else if let Some(exit_code) = step["terminated"].as_i64() {
        world.sidecar_exits(i32::try_from(exit_code).unwrap());
    } else if world.seen.cluster.is_some() {
        world.make_ready();
    }
}

fn has_come(world: &World, step: &Value) -> bool {
    match step["kind"].as_str().unwrap() {
        "RayJob" if step["path"].is_null() => world.job_deleted,
        "RayJob" => {
            let status = serde_json::to_value(world.status()).unwrap();
            let field = step["path"].as_str().unwrap().trim_start_matches("status.").to_owned();
            let value = &status[field.as_str()];
            if step.get("is").is_some() { *value == step["is"] } else { !value.is_null() }
        }
        "RayCluster" => world.seen.cluster.is_none() || step["count"] != 0,
        _ => true,
    }
}

fn compare(name: &str, case: &Value, world: &World, stage: &str) {
    let expect = &case["expect"][stage];
    let recorded = expect["objects"].as_array().unwrap().iter().find(|object| object["kind"] == "RayJob");
    let Some(recorded) = recorded else {
        assert!(world.job_deleted, "{name}/{stage}: the RayJob is still there");
        return;
    };
    assert!(!world.job_deleted, "{name}/{stage}: the RayJob is gone");
    let ignored: Vec<_> = case["ignore"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let clean = |status: &Value| {
        let mut status = status.clone();
        let fields = status.as_object_mut().unwrap();
        fields.remove("rayClusterStatus");
        fields.retain(|key, _| !ignored.contains(&format!("-{key}").as_str()));
        for clock in CLOCKS {
            if let Some(value) = fields.get_mut(clock) {
                *value = Value::Bool(true);
            }
        }
        for clock in ["startTime", "endTime"] {
            if let Some(value) = fields.get_mut("rayJobInfo").and_then(|info| info.get_mut(clock)) {
                *value = Value::Bool(true);
            }
        }
        if let Some(message) = fields.get_mut("message").and_then(|message| Some(message.as_str()?.to_owned())) {
            let times = regex::Regex::new(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( \+0000 UTC)?").unwrap();
            fields.insert("message".into(), Value::String(times.replace_all(&message, "<time>").into_owned()));
        }
        status
    };
    let ours = serde_json::to_value(world.status()).unwrap();
    assert_eq!(clean(&ours), clean(&recorded["status"]), "{name}/{stage}");
    let posts =
        expect["requests"].as_array().into_iter().flatten().filter(|request| request[3] == "/api/jobs/").count();
    assert_eq!(world.submissions.is_empty(), posts == 0, "{name}/{stage}: {:?}", world.submissions);
    let events: Vec<_> = expect["events"].as_array().unwrap().iter().filter(|event| event[0] == "RayJob").collect();
    for event in events {
        let reason = event[2].as_str().unwrap();
        assert!(world.events.iter().any(|ours| ours.contains(&format!(" {reason}:"))), "{name}/{stage}: no {reason}");
    }
}
