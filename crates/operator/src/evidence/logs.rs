//! The last lines of the containers that matter.

use super::reader::Reader;
use manta_logic::explain::evidence::{ContainerStatus, Evidence, Log, LogSource, Pod};

/// How much of a log is read.
pub(super) const LINES: usize = 60;
pub(super) const BYTES: usize = 32 << 10;
/// Pods whose logs are read beside the head and the submitter.
const MAX_WORKERS: usize = 4;

/// One log to read.
struct Wanted {
    source: LogSource,
    pod: String,
    container: String,
    is_previous: bool,
}

/// Reads the logs of the head, of the submitter and of some workers.
pub(super) async fn read(reader: &mut Reader, evidence: &mut Evidence) {
    let wanted: Vec<Wanted> = chosen(&evidence.pods).into_iter().flat_map(wanted_of).collect();
    let texts = {
        let reader = &*reader;
        super::all(wanted.iter().map(|it| reader.log(&it.pod, &it.container, it.is_previous))).await
    };
    for (wanted, text) in wanted.into_iter().zip(texts) {
        match text {
            Ok(text) => evidence.logs.push(Log {
                source: wanted.source,
                pod: wanted.pod,
                name: wanted.container,
                is_previous: wanted.is_previous,
                lines: last_lines(&text),
            }),
            // A container that has not started has no log.
            Err(kube::Error::Api(status)) if status.code == 400 => {}
            Err(error) => {
                let _: Option<()> = reader.note("get", "pods/log", &error);
            }
        }
    }
}

/// Returns the last lines of a text.
pub(super) fn last_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].iter().map(|line| line.chars().take(2000).collect()).collect()
}

/// Returns the Pods whose logs are read: workers that are not well come first.
fn chosen(pods: &[Pod]) -> Vec<&Pod> {
    let is_worker = |pod: &&Pod| source_of(pod) == LogSource::Worker;
    let mut workers: Vec<&Pod> = pods.iter().filter(is_worker).collect();
    workers.sort_by_key(|pod| (is_well(pod), pod.metadata.name.clone()));
    workers.truncate(MAX_WORKERS);
    pods.iter().filter(|pod| !is_worker(pod)).chain(workers).collect()
}

fn is_well(pod: &Pod) -> bool {
    pod.status.container_statuses.iter().all(|status| status.ready && status.restart_count == 0)
}

fn source_of(pod: &Pod) -> LogSource {
    match pod.metadata.labels.get("ray.io/node-type").map(String::as_str) {
        Some("head") => LogSource::Head,
        Some("worker") => LogSource::Worker,
        _ => LogSource::Submitter,
    }
}

/// Returns the first container, which is Ray's, and those that ended badly.
fn wanted_of(pod: &Pod) -> Vec<Wanted> {
    let first = pod.status.container_statuses.first().into_iter();
    let others = pod.status.container_statuses.iter().skip(1).chain(&pod.status.init_container_statuses);
    let failed = |status: &&ContainerStatus| {
        let ends = [&status.state.terminated, &status.last_state.terminated];
        ends.into_iter().flatten().any(|ended| ended.exit_code != 0) || is_submitter(&status.name)
    };
    let has_started = |status: &&ContainerStatus| status.state.waiting.is_none() || status.restart_count > 0;
    let mut wanted = Vec::new();
    for status in first.chain(others.filter(failed)).filter(has_started) {
        let source = if is_submitter(&status.name) { LogSource::Submitter } else { source_of(pod) };
        let log = |is_previous: bool| Wanted {
            source,
            pod: pod.metadata.name.clone(),
            container: status.name.clone(),
            is_previous,
        };
        if status.restart_count > 0 {
            wanted.push(log(true));
        }
        if status.state.waiting.is_none() {
            wanted.push(log(false));
        }
    }
    wanted
}

fn is_submitter(container: &str) -> bool {
    container == "ray-job-submitter"
}
