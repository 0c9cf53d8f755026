//! RayJobs: the user's program, its environment, submission and deadlines.

use super::super::Cause;
use super::super::evidence::Evidence;
use super::super::text::{exception, one_line, shorten};
use super::job_words;
use super::patterns::sentence;

/// Returns the status of a RayJob that has ended, or whose attempt has.
fn failed(evidence: &Evidence) -> Option<&manta_api::RayJobStatus> {
    let status = evidence.job_status()?;
    let is_failed = ["Failed", "Retrying"].contains(&status.job_deployment_status.as_deref().unwrap_or_default());
    (is_failed || status.job_status.as_deref() == Some("FAILED")).then_some(status)
}

fn reason(evidence: &Evidence) -> &str {
    evidence.job_status().and_then(|status| status.reason.as_deref()).unwrap_or_default()
}

/// Returns what Ray says about the job: in the status, or from its own API.
fn message(evidence: &Evidence) -> String {
    let of_status = evidence.job_status().and_then(|status| status.message.clone()).unwrap_or_default();
    let of_ray = evidence.ray.job.as_ref().map(|job| job.message.clone()).unwrap_or_default();
    if of_status.len() >= of_ray.len() { of_status } else { of_ray }
}

fn job(evidence: &Evidence) -> String {
    job_words(evidence)
}

/// Returns the end of what the driver printed: in Ray's message, and in its log.
fn output(evidence: &Evidence) -> String {
    let log = evidence.driver_log().map(|log| log.lines.join("\n")).unwrap_or_default();
    format!("{}\n{log}", message(evidence))
}

pub(super) fn stopped(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.job_status()?;
    if status.job_status.as_deref() != Some("STOPPED") {
        return None;
    }
    let who = job(evidence);
    let advice = "Submit it again if that was not meant; ray job stop, manta job stop and the dashboard stop jobs.";
    Some(Cause::new("JobStopped", who.clone(), format!("{who} was stopped by a request to Ray."), advice))
}

pub(super) fn runtime_env_failed(evidence: &Evidence) -> Option<Cause> {
    failed(evidence)?;
    let text = message(evidence);
    let lower = text.to_lowercase();
    let is_about = ["runtime environment", "runtime_env", "runtimeenv"].iter().any(|part| lower.contains(part));
    let is_failure = [
        "failed to set up",
        "failed to setup",
        "runtime_env setup failed",
        "runtimeenvsetuperror",
        "failed to create runtime",
    ];
    if !is_about || !is_failure.iter().any(|part| lower.contains(part)) {
        return None;
    }
    let who = job(evidence);
    let what = format!("The runtime environment of {who} could not be set up");
    let package = text.lines().rfind(|line| line.contains("ERROR: ") && !line.contains("pip version"));
    let (reason, advice) = match () {
        () if [
            "newconnectionerror",
            "temporary failure in name resolution",
            "network is unreachable",
            "max retries exceeded",
        ]
        .iter()
        .any(|part| lower.contains(part)) =>
        {
            (
                "PipUnreachable",
                "The nodes cannot reach the package index: install the packages in the image, or set an index or proxy for pip.",
            )
        }
        () if lower.contains("could not find a version") || lower.contains("no matching distribution") => (
            "PipPackageMissing",
            "Correct the package and its version under pip in runtimeEnvYAML, or install it in the image.",
        ),
        () if lower.contains("pip") && package.is_some() => {
            ("PipFailed", "Correct the packages under pip in runtimeEnvYAML, or install them in the image.")
        }
        () if lower.contains("working_dir") || lower.contains("download") => (
            "WorkingDirFailed",
            "Check that working_dir can be downloaded from the nodes, with credentials where it needs them.",
        ),
        () => ("RuntimeEnvFailed", "Correct runtimeEnvYAML; the message below is Ray's."),
    };
    let line = package.map_or_else(|| one_line(&text), |line| shorten(line.trim()));
    Some(Cause::new(reason, who, sentence(&what, &line), advice).with_details(&text))
}

pub(super) fn out_of_memory(evidence: &Evidence) -> Option<Cause> {
    failed(evidence)?;
    let text = output(evidence);
    let who = job(evidence);
    if text.contains("CUDA out of memory") || text.contains("torch.OutOfMemoryError") {
        let what = format!("{who} failed because its GPU ran out of memory");
        let line = text
            .lines()
            .rfind(|line| line.contains("out of memory") || line.contains("OutOfMemoryError"))
            .unwrap_or_default();
        let advice = "Use a smaller batch or model, or GPUs with more memory.";
        return Some(Cause::new("GpuOutOfMemory", who, sentence(&what, line), advice).with_details(&message(evidence)));
    }
    let is_ray = text.contains("ray.exceptions.OutOfMemoryError") || text.contains("killed due to memory pressure");
    if !is_ray {
        return None;
    }
    let what = format!("{who} failed because Ray killed tasks on a node that ran out of memory");
    let advice = "Raise the memory of the worker group, give tasks a memory= request, or run fewer of them per node.";
    Some(Cause::new("RayOutOfMemory", who, format!("{what}."), advice).with_details(&message(evidence)))
}

/// The entrypoint ended with an error, most often a Python exception.
pub(super) fn program_failed(evidence: &Evidence) -> Option<Cause> {
    let status = failed(evidence)?;
    let text = message(evidence);
    let exit_code = text
        .split_once("failed with exit code ")
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    let is_app = reason(evidence) == "AppFailed" || status.job_status.as_deref() == Some("FAILED");
    if exit_code.is_none() && !(is_app && exception(&text).is_some() && text.contains("Traceback")) {
        return None;
    }
    let who = job(evidence);
    let output = output(evidence);
    let error = exception(&output);
    let code = exit_code.unwrap_or_default();
    let (reason, what, advice) = match (error, code.as_str()) {
        (Some(error), _) if error.contains("ModuleNotFoundError") => (
            "ModuleMissing",
            format!("{who} failed because its program imports a module that is not installed: {error}"),
            "Install it in the image, list it under pip in runtimeEnvYAML, or put the file into working_dir.",
        ),
        (Some(error), _) => (
            "ProgramRaised",
            format!("{who} failed because its program raised {error}"),
            "The traceback below names the line.",
        ),
        (None, "127") => (
            "EntrypointNotFound",
            format!("{who} failed because its entrypoint names a command that does not exist: {}", last_line(&output)),
            "Correct entrypoint, or use an image that has the command.",
        ),
        (None, "2") if output.contains("can't open file") => (
            "ScriptNotFound",
            format!("{who} failed because its entrypoint names a file that does not exist: {}", last_line(&output)),
            "Correct the path in entrypoint, mount the file, or upload it with working_dir in runtimeEnvYAML.",
        ),
        (None, code) => (
            "EntrypointFailed",
            format!("{who} failed because its entrypoint ended with exit code {code}: {}", last_line(&output)),
            "The last lines of its output are below.",
        ),
    };
    Some(
        Cause::new(reason, who, format!("{}.", shorten(what.trim_end_matches(['.', ' ', ':']))), advice)
            .with_details(&text),
    )
}

fn last_line(text: &str) -> String {
    // What Ray itself prints says nothing about the end.
    let of_ray = ["last available logs", "Running entrypoint for job"];
    let is_output = |line: &&str| !line.trim().is_empty() && !of_ray.iter().any(|text| line.contains(text));
    text.lines().rfind(is_output).map(|line| line.trim().to_owned()).unwrap_or_default()
}

pub(super) fn no_cluster_selected(evidence: &Evidence) -> Option<Cause> {
    let job = evidence.job.as_ref().filter(|job| !job.spec.cluster_selector.is_empty())?;
    let is_gone = evidence.clusters.is_empty() && evidence.unread("get rayclusters").is_none();
    let status = job.status.as_ref();
    let is_over = status.and_then(|status| status.job_deployment_status.as_deref());
    if !is_gone || is_over.is_some_and(|status| ["Complete", "Running"].contains(&status)) {
        return None;
    }
    let selector: Vec<String> = job.spec.cluster_selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let who = job_words(evidence);
    let what = format!(
        "{who} waits for a RayCluster that its clusterSelector {} names, and there is none.",
        selector.join(",")
    );
    let advice = "Create that RayCluster, correct the selector, or give the job its own cluster with rayClusterSpec.";
    Some(Cause::new("SelectedClusterMissing", who, what, advice))
}

pub(super) fn submission_failed(evidence: &Evidence) -> Option<Cause> {
    let text = message(evidence);
    if text.contains("Please use a different submission_id") {
        let what = format!("{} was submitted with an id that Ray already has", job(evidence));
        let advice = "Remove spec.jobId, or choose one that no earlier job of this cluster had.";
        return Some(Cause::new("JobIdTaken", job(evidence), sentence(&what, &one_line(&text)), advice));
    }
    if reason(evidence) != "SubmissionFailed" {
        return None;
    }
    let log =
        evidence.logs.iter().rfind(|log| log.source == super::super::LogSource::Submitter && !log.lines.is_empty());
    let log = log.map(|log| log.lines.join("\n")).unwrap_or_default();
    let line = exception(&log).map(shorten).unwrap_or_else(|| one_line(&text));
    let what = format!("{} could not be submitted to Ray", job(evidence));
    let advice = "The submitter's log says why; submissionMode: HTTPMode submits without a Pod.";
    Some(Cause::new("SubmissionFailed", job(evidence), sentence(&what, &line), advice).with_details(&log))
}

pub(super) fn supervisor_died(evidence: &Evidence) -> Option<Cause> {
    failed(evidence)?;
    let text = message(evidence);
    let lower = text.to_lowercase();
    let who = job(evidence);
    if lower.contains("failed to start within") || lower.contains("timed out waiting for the supervisor") {
        let what = format!("Ray found no room for the driver of {who}");
        let advice = "Lower entrypointNumCpus, entrypointNumGpus or entrypointResources, or give the cluster more.";
        return Some(Cause::new("DriverNotScheduled", who, sentence(&what, &one_line(&text)), advice));
    }
    let signs = ["job supervisor actor", "jobsupervisor", "actor died", "actordiederror", "node died", "unexpectedly"];
    if !signs.iter().any(|sign| lower.contains(sign)) {
        return None;
    }
    let what = format!("The process that supervises {who} died, most often with its node");
    let advice = "Look at the head: memory, restarts and the timeline below. GCS fault tolerance and backoffLimit make jobs survive it.";
    Some(Cause::new("SupervisorDied", who, sentence(&what, &one_line(&text)), advice))
}

pub(super) fn deadline_passed(evidence: &Evidence) -> Option<Cause> {
    let spec = &evidence.job.as_ref()?.spec;
    let who = job(evidence);
    let (name, what, advice) = match reason(evidence) {
        "DeadlineExceeded" => (
            "DeadlineExceeded",
            format!(
                "{who} ran longer than its activeDeadlineSeconds of {}.",
                spec.active_deadline_seconds.unwrap_or_default()
            ),
            "Raise activeDeadlineSeconds, or find out what took so long in the timeline and the driver's log.",
        ),
        "PreRunningDeadlineExceeded" => (
            "PreRunningDeadlineExceeded",
            format!(
                "{who} did not start to run within its preRunningDeadlineSeconds of {}.",
                spec.pre_running_deadline_seconds.unwrap_or_default()
            ),
            "Raise preRunningDeadlineSeconds, or find out in the timeline what its cluster waited for.",
        ),
        "JobDeploymentStatusTransitionGracePeriodExceeded" => (
            "NeverFinished",
            sentence(
                &format!("{who} ended at Ray, but its submitter did not, or the other way round"),
                &message(evidence),
            ),
            "Look at the submitter Pod: it may hang or have lost its connection.",
        ),
        _ => return None,
    };
    Some(Cause::new(name, who, what, advice))
}

pub(super) fn dashboard_unreachable(evidence: &Evidence) -> Option<Cause> {
    let who = job(evidence);
    let advice =
        "Check that the head runs and has CPU left, and that network policies let the operator reach port 8265.";
    if reason(evidence) == "JobStatusCheckTimeoutExceeded" {
        let what = format!("{who} failed because Ray's dashboard did not answer for too long");
        return Some(Cause::new("DashboardUnreachable", who, sentence(&what, &message(evidence)), advice));
    }
    let since = evidence.job_status()?.job_status_check_failure_start_time.as_ref()?.0;
    let seconds = evidence.at.duration_since(since).as_secs();
    let what = format!("Ray's dashboard has not answered about {who} for {seconds} s.");
    Some(Cause::new("DashboardUnreachable", who, what, advice))
}

/// Any other failure of a job.
pub(super) fn failed_otherwise(evidence: &Evidence) -> Option<Cause> {
    let status = failed(evidence).filter(|status| status.job_deployment_status.as_deref() != Some("Retrying"))?;
    let who = job(evidence);
    let text = message(evidence);
    let what = match status.reason.as_deref() {
        Some(reason) if !reason.is_empty() => format!("{who} failed ({reason})"),
        _ => format!("{who} failed"),
    };
    let advice = "The timeline and the logs below show what came before.";
    Some(Cause::new("JobFailed", who, sentence(&what, &one_line(&text)), advice).with_details(&text))
}

pub(super) fn retrying(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.job_status().filter(|status| status.job_deployment_status.as_deref() == Some("Retrying"))?;
    let who = job(evidence);
    let limit = evidence.job.as_ref()?.spec.backoff_limit.unwrap_or_default();
    let failures = status.failed.unwrap_or_default();
    let what =
        format!("{who} failed and is tried again on a new cluster: {failures} of at most {} attempts", limit + 1);
    Some(Cause::new(
        "JobRetrying",
        who,
        sentence(&what, &one_line(&message(evidence))),
        "The timeline shows why the attempts failed.",
    ))
}

pub(super) fn waiting_for_user(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.job_status().filter(|status| status.job_deployment_status.as_deref() == Some("Waiting"))?;
    let who = job(evidence);
    let cluster = status.ray_cluster_name.as_deref().unwrap_or_default();
    let what = format!("{who} is interactive: its cluster {cluster} is ready and waits for somebody to submit a job.");
    let advice =
        format!("Submit one with manta job submit -c {cluster}, or set the annotation ray.io/ray-job-submission-id.");
    Some(Cause::new("WaitsForUser", who, what, advice))
}
