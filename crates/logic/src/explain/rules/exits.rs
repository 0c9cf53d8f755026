//! Containers that ended, and those that do not become ready.

use super::super::Cause;
use super::super::evidence::{ContainerStatus, Event, Evidence, Pod, Replaced, Terminated};
use super::super::text::{exception, shorten};
use super::patterns::{Pattern, find, sentence};
use super::{pod_object, pods, start};

/// How long a Pod may be up before a failing probe is the cause.
const INIT_PATIENCE_SECONDS: i64 = 60;

/// What Ray and the system print before they end.
const LOGS: &[Pattern] = &[
    Pattern {
        parts: &["version mismatch", "ray"],
        reason: "RayVersionMismatch",
        advice: "Use the same Ray and Python versions in all images of the cluster.",
    },
    Pattern {
        parts: &["no such option"],
        reason: "UnknownRayStartParam",
        advice: "Remove the option from rayStartParams; this version of Ray does not have it.",
    },
    Pattern {
        parts: &["wrongpass"],
        reason: "RedisPasswordWrong",
        advice: "Correct redisPassword in gcsFaultToleranceOptions.",
    },
    Pattern {
        parts: &["noauth"],
        reason: "RedisPasswordWrong",
        advice: "Set redisPassword in gcsFaultToleranceOptions: this Redis asks for one.",
    },
    Pattern {
        parts: &["redis", "refused"],
        reason: "RedisUnreachable",
        advice: "Check redisAddress in gcsFaultToleranceOptions, and that Redis runs and may be reached.",
    },
    Pattern {
        parts: &["redis", "could not"],
        reason: "RedisUnreachable",
        advice: "Check redisAddress in gcsFaultToleranceOptions, and that Redis runs and may be reached.",
    },
    Pattern {
        parts: &["address already in use"],
        reason: "PortInUse",
        advice: "Choose other ports in rayStartParams, or remove hostNetwork from the template.",
    },
    Pattern {
        parts: &["no space left on device"],
        reason: "DiskFull",
        advice: "Give the Pod a larger emptyDir or volume for /tmp/ray, or a larger ephemeral-storage limit.",
    },
    Pattern {
        parts: &["invalid command line parameter"],
        reason: "InvalidRayStartParam",
        advice: "Correct the value in rayStartParams.",
    },
    Pattern {
        parts: &["is not a valid"],
        reason: "InvalidRayStartParam",
        advice: "Correct the value in rayStartParams.",
    },
    Pattern {
        parts: &["connect to gcs"],
        reason: "HeadUnreachable",
        advice: "Check that the head runs and that network policies let workers reach its port 6379.",
    },
];

pub(super) fn init_container(evidence: &Evidence) -> Option<Cause> {
    pods(evidence).find_map(|pod| {
        pod.status.init_container_statuses.iter().find_map(|status| {
            let ended = failed_end(status)?;
            let what = format!("Init container {} of the {} failed {}", status.name, pod.words(), ended_how(ended));
            let log = last_line(evidence, pod, &status.name);
            let advice = "Its log says why; correct the init container in the template.";
            Some(Cause::new("InitContainerFailed", pod_object(pod), sentence(&what, &log), advice))
        })
    })
}

pub(super) fn container(evidence: &Evidence) -> Option<Cause> {
    pods(evidence).filter(|pod| !pod.is_ready()).find_map(|pod| {
        pod.status
            .container_statuses
            .iter()
            .find_map(|status| Some(end_cause(evidence, pod, status, failed_end(status)?)))
    })
}

/// Returns why a container ended.
pub(super) fn end_cause(evidence: &Evidence, pod: &Pod, status: &ContainerStatus, ended: &Terminated) -> Cause {
    let object = pod_object(pod);
    let who = format!("container {} of the {}", status.name, pod.words());
    let again = match status.restart_count {
        0 => String::new(),
        1 => ", for the second time".to_owned(),
        count => format!(", after {count} restarts"),
    };
    if ended.reason == "OOMKilled" {
        let what = format!(
            "The {who} was killed because it needed more memory than {}{again}.",
            memory_limit(pod, &status.name)
        );
        let advice = match pod.is_head() {
            true => {
                "Raise the memory limit of the head's template, and keep tasks off the head with num-cpus: \"0\" in its rayStartParams."
            }
            false => "Raise the memory limit in the worker group's template, or run fewer tasks per worker.",
        };
        return Cause::new("OutOfMemory", object, what, advice);
    }
    if ended.reason == "StartError" || ended.reason == "ContainerCannotRun" {
        return start::cannot_start(pod, &status.name, &ended.message);
    }
    let log = evidence.log_of(&pod.metadata.name, &status.name).map(|log| log.lines.join("\n")).unwrap_or_default();
    if let Some((pattern, line)) = log.lines().rev().find_map(|line| Some((find(LOGS, line)?, line))) {
        return pattern.cause(object, &format!("The {who} ended {}{again}", ended_how(ended)), line);
    }
    if let Some(killed) = killed_by_probe(evidence, pod, status) {
        let what = format!("The {who} was killed because its liveness probe failed{again}");
        let advice =
            "Look at the log for what blocks Ray; give the container more CPU, or the probe a higher failureThreshold.";
        return Cause::new("LivenessProbeFailed", object, sentence(&what, killed), advice);
    }
    let (reason, advice) = exit_meaning(ended, status);
    let what = format!("The {who} ended {}{again}", ended_how(ended));
    let log = match exception(&log) {
        Some(error) => shorten(error),
        None => last_line(evidence, pod, &status.name),
    };
    let message = if log.is_empty() { ended.message.clone() } else { log };
    Cause::new(reason, object, sentence(&what, &message), advice)
}

fn exit_meaning(ended: &Terminated, status: &ContainerStatus) -> (&'static str, &'static str) {
    if status.name == "autoscaler" {
        return ("AutoscalerCrashed", "Its log says why; check the image and resources under autoscalerOptions.");
    }
    match (ended.exit_code, ended.signal) {
        (127, _) => {
            ("CommandNotFound", "The image lacks a program that the command names; use an image with Ray installed.")
        }
        (126, _) => (
            "CommandNotExecutable",
            "The file that the command names may not be executed; correct its mode or the command.",
        ),
        (137, _) | (_, 9) => (
            "Killed",
            "Somebody sent SIGKILL: the node's kernel short of memory, a probe, or a user; set a memory request close to what it needs.",
        ),
        (139, _) | (_, 11) => {
            ("SegmentationFault", "A native library crashed; compare its version with the one that Ray was built for.")
        }
        (134, _) | (_, 6) => ("Aborted", "Ray aborted itself after a failed check; its log has the check."),
        (143, _) | (_, 15) => {
            ("Terminated", "The container was asked to stop: a deletion, a drain or a probe; the timeline shows which.")
        }
        (0, _) => (
            "ContainerExited",
            "The command ended although it should run for ever; ray start needs --block, which the operator adds unless the command is overwritten.",
        ),
        _ => ("ContainerCrashed", "The last lines of its log say why."),
    }
}

/// Returns how a container ended that should still run.
pub(super) fn failed_end(status: &ContainerStatus) -> Option<&Terminated> {
    let now = status.state.terminated.as_ref();
    let before = status.last_state.terminated.as_ref();
    match now {
        Some(ended) => Some(ended).filter(|ended| ended.exit_code != 0 || ended.signal != 0),
        None => before.filter(|_| !status.ready),
    }
}

fn ended_how(ended: &Terminated) -> String {
    match (ended.exit_code, ended.signal) {
        (_, signal) if signal != 0 => format!("by signal {signal}"),
        (code, _) => format!("with exit code {code}"),
    }
}

fn memory_limit(pod: &Pod, container: &str) -> String {
    let spec = pod.spec.containers.iter().find(|spec| spec.name == container);
    let limit = spec.and_then(|spec| spec.resources.limits.get("memory"));
    match limit.map(|limit| limit.as_str().map_or_else(|| limit.to_string(), str::to_owned)) {
        Some(limit) => format!("its limit of {limit}"),
        None => "its node has".to_owned(),
    }
}

fn last_line(evidence: &Evidence, pod: &Pod, container: &str) -> String {
    let log = evidence.log_of(&pod.metadata.name, container);
    let line = log.and_then(|log| log.lines.iter().rfind(|line| !line.trim().is_empty()));
    line.map(|line| shorten(line.trim())).unwrap_or_default()
}

fn killed_by_probe<'a>(evidence: &'a Evidence, pod: &Pod, status: &ContainerStatus) -> Option<&'a str> {
    let of_pod = |event: &&Event| event.is_about_pod(pod);
    let killed = evidence.events.iter().filter(of_pod).any(|event| {
        event.reason == "Killing"
            && event.message.contains(&status.name)
            && event.message.contains("failed liveness probe")
    });
    let probe = evidence.events.iter().filter(of_pod).rfind(|event| is_failed_probe(event, "Liveness"));
    killed.then_some(probe.map(|event| event.message.as_str()).unwrap_or_default())
}

fn is_failed_probe(event: &Event, probe: &str) -> bool {
    event.reason == "Unhealthy" && event.message.starts_with(probe)
}

/// A container that runs, but does not become ready, or an init container that waits for the head.
pub(super) fn failing_probe(evidence: &Evidence) -> Option<Cause> {
    pods(evidence).filter(|pod| !pod.is_ready()).find_map(|pod| {
        let runs_since = |status: &ContainerStatus| status.state.running.as_ref().and_then(|running| running.started_at);
        let waits = pod.status.init_container_statuses.iter().find(|status| {
            runs_since(status).is_some_and(|since| evidence.at.duration_since(since).as_secs() > INIT_PATIENCE_SECONDS)
        });
        if let Some(status) = waits {
            let what = match status.name.as_str() {
                "wait-gcs-ready" => format!("The {} waits for the head, whose GCS does not answer", pod.words()),
                name => format!("The {} waits for its init container {name}", pod.words()),
            };
            let log = last_line(evidence, pod, &status.name);
            let advice = "Look at the head first (its log, its Service, and network policies between them).";
            return Some(Cause::new("WaitsForHead", pod_object(pod), sentence(&what, &log), advice));
        }
        if pod.status.phase != "Running" {
            return None;
        }
        let event = evidence.events.iter().rfind(|event| event.is_about_pod(pod) && event.reason == "Unhealthy")?;
        let (reason, probe) = match event.message.split(' ').next() {
            Some("Liveness") => ("LivenessProbeFailed", "liveness"),
            Some("Startup") => ("StartupProbeFailed", "startup"),
            _ => ("ReadinessProbeFailed", "readiness"),
        };
        let what = format!("The {} runs, but its {probe} probe fails", pod.words());
        let advice = "Look at the log for what Ray waits for; an overloaded container needs more CPU or a longer timeoutSeconds.";
        let message = event.message.split_once(": ").map_or(event.message.as_str(), |(_, rest)| rest);
        Some(Cause::new(reason, pod_object(pod), sentence(&what, message), advice))
    })
}

/// A RayJob that failed because its head did, and the head has been replaced since.
pub(super) fn replaced_head(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.job_status()?;
    ["Failed", "Retrying"].contains(&status.job_deployment_status.as_deref().unwrap_or_default()).then_some(())?;
    Some(replaced_cause(evidence.replaced.iter().rfind(|replaced| replaced.is_head)?))
}

/// Returns why a Pod was replaced, and when.
pub(super) fn replaced_cause(replaced: &Replaced) -> Cause {
    let at = replaced.at.strftime("%Y-%m-%d %H:%M:%SZ");
    let cause = replaced.cause.clone();
    Cause { summary: format!("{} The Pod was replaced at {at}.", cause.summary), ..cause }
}
