//! What happened to an object, in the order of time, and its state in a few words.

use super::evidence::{ContainerStatus, Evidence, Meta, Pod};
use super::text::one_line;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::{Deserialize, Serialize};

/// The most entries; the first and the last ones say most.
const MAX_ENTRIES: usize = 200;
/// How many of the first ones are kept beside the last ones.
const FIRST_ENTRIES: usize = 20;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub at: Timestamp,
    /// The object that it happened to, as `Kind name`.
    pub object: String,
    pub text: String,
    pub is_warning: bool,
}

/// Returns everything that has a time, the oldest first.
pub(super) fn of(evidence: &Evidence) -> Vec<Entry> {
    let mut list = Timeline::default();
    for cluster in &evidence.clusters {
        let object = format!("RayCluster {}", cluster.metadata.name);
        list.object(&object, &cluster.metadata);
        let conditions = cluster.status.as_ref().and_then(|status| status.conditions.as_ref());
        list.conditions(&object, conditions);
    }
    if let Some(job) = &evidence.job {
        let object = format!("RayJob {}", job.metadata.name);
        list.object(&object, &job.metadata);
        let status = job.status.as_ref();
        let info = status.and_then(|status| status.ray_job_info.as_ref());
        list.time(status.and_then(|status| status.start_time.as_ref()), &object, "attempt started");
        list.time(info.and_then(|info| info.start_time.as_ref()), &object, "Ray started the driver");
        list.time(info.and_then(|info| info.end_time.as_ref()), &object, "Ray's job ended");
        let end = status.and_then(|status| status.end_time.as_ref());
        list.time(end, &object, &format!("ended: {}", job_state(evidence)));
    }
    if let Some(service) = &evidence.service {
        let object = format!("RayService {}", service.metadata.name);
        list.object(&object, &service.metadata);
        list.conditions(&object, service.status.as_ref().and_then(|status| status.conditions.as_ref()));
    }
    if let Some(cron_job) = &evidence.cron_job {
        let object = format!("RayCronJob {}", cron_job.metadata.name);
        list.object(&object, &cron_job.metadata);
        let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
        list.time(last, &object, "last run was due");
    }
    for pod in &evidence.pods {
        list.pod(pod);
    }
    for replaced in &evidence.replaced {
        list.add(Some(replaced.at), &replaced.cause.object, &format!("was replaced: {}", replaced.cause.summary), true);
    }
    for workload in &evidence.workloads {
        let object = format!("Workload {}", workload.metadata.name);
        for condition in &workload.status.conditions {
            let text = format!("{}={} {}: {}", condition.type_, condition.status, condition.reason, condition.message);
            list.add(condition.last_transition_time, &object, &text, false);
        }
    }
    for event in &evidence.events {
        let count = if event.count > 1 { format!(" (x{})", event.count) } else { String::new() };
        let text = format!("{}: {}{count}", event.reason, one_line(&event.message));
        list.add(event.last, &format!("{} {}", event.kind, event.name), &text, event.is_warning);
    }
    list.finish()
}

#[derive(Default)]
struct Timeline(Vec<Entry>);

impl Timeline {
    fn add(&mut self, at: Option<Timestamp>, object: &str, text: &str, is_warning: bool) {
        let Some(at) = at else { return };
        self.0.push(Entry {
            at,
            object: object.to_owned(),
            text: text.trim().trim_end_matches(':').to_owned(),
            is_warning,
        });
    }

    fn time(&mut self, at: Option<&Time>, object: &str, text: &str) {
        self.add(at.map(|at| at.0), object, text, false);
    }

    /// Creation, changes of the spec by their writers, deletion.
    fn object(&mut self, object: &str, meta: &Meta) {
        self.add(meta.creation_timestamp, object, "created", false);
        for writer in meta.managed_fields.iter().filter(|writer| writer.subresource.is_empty()) {
            if writer.time > meta.creation_timestamp {
                self.add(writer.time, object, &format!("spec or metadata changed by {}", writer.manager), false);
            }
        }
        self.add(meta.deletion_timestamp, object, "deletion requested", false);
    }

    fn conditions(&mut self, object: &str, conditions: Option<&Vec<Condition>>) {
        for condition in conditions.into_iter().flatten() {
            let message = one_line(&condition.message);
            let text = format!("{}={} {}: {message}", condition.type_, condition.status, condition.reason);
            let is_warning = condition.status == "True" && is_bad(&condition.type_);
            self.add(Some(condition.last_transition_time.0), object, &text, is_warning);
        }
    }

    fn pod(&mut self, pod: &Pod) {
        let object = format!("Pod {}", pod.metadata.name);
        self.add(pod.metadata.creation_timestamp, &object, "created", false);
        for condition in &pod.status.conditions {
            let text = match (condition.type_.as_str(), condition.status.as_str()) {
                ("PodScheduled", "True") => format!("scheduled to node {}", pod.spec.node_name),
                ("Ready", "True") => "ready".to_owned(),
                ("DisruptionTarget", "True") => format!("{}: {}", condition.reason, condition.message),
                _ => continue,
            };
            self.add(condition.last_transition_time, &object, &text, condition.type_ == "DisruptionTarget");
        }
        for (status, _) in pod.all_containers() {
            self.container(&object, status);
        }
        self.add(pod.metadata.deletion_timestamp, &object, "deletion requested", false);
    }

    fn container(&mut self, object: &str, status: &ContainerStatus) {
        for ended in [&status.last_state.terminated, &status.state.terminated].into_iter().flatten() {
            let reason = if ended.reason.is_empty() { "ended" } else { &ended.reason };
            let text = format!(
                "container {}: {reason}, exit code {} {}",
                status.name,
                ended.exit_code,
                one_line(&ended.message)
            );
            self.add(ended.finished_at, object, &text, ended.exit_code != 0);
        }
        let started = status.state.running.as_ref().and_then(|running| running.started_at);
        self.add(started, object, &format!("container {} started", status.name), false);
    }

    fn finish(mut self) -> Vec<Entry> {
        self.0.sort_by_key(|entry| entry.at);
        self.0.dedup();
        let surplus = self.0.len().saturating_sub(MAX_ENTRIES);
        self.0.drain(FIRST_ENTRIES.min(self.0.len())..(FIRST_ENTRIES + surplus).min(self.0.len()));
        self.0
    }
}

fn is_bad(condition: &str) -> bool {
    condition.ends_with("Failure")
        || condition.ends_with("Blocked")
        || condition.ends_with("Failed")
        || condition.ends_with("Stalled")
}

/// Returns the state of the subject in a few words.
pub(super) fn state(evidence: &Evidence) -> String {
    match evidence.subject.kind.as_str() {
        "RayCluster" => {
            let Some(status) = evidence.clusters.first().and_then(|cluster| cluster.status.as_ref()) else {
                return String::new();
            };
            let state = status.state.as_deref().filter(|state| !state.is_empty()).unwrap_or("not ready");
            let (ready, desired) =
                (status.ready_worker_replicas.unwrap_or(0), status.desired_worker_replicas.unwrap_or(0));
            format!("{state}, {ready}/{desired} workers ready")
        }
        "RayService" => {
            let status = evidence.service_status();
            let ready = super::evidence::condition(status.and_then(|status| status.conditions.as_ref()), "Ready");
            ready.map(|ready| format!("Ready={} ({})", ready.status, ready.reason)).unwrap_or_default()
        }
        _ => job_state(evidence),
    }
}

fn job_state(evidence: &Evidence) -> String {
    let Some(status) = evidence.job_status() else { return String::new() };
    let parts = [&status.job_deployment_status, &status.job_status, &status.reason];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", ")
}
