//! The rules, in order: the first that applies is the cause.
//!
//! Causes that lie deeper come first. A Python error of the user's program comes before the state of Pods, because the
//! program ran; Pods come before deadlines, because a deadline passes when Pods do not start. The last rule always applies.

mod creation;
mod cronjob;
mod demand;
mod exits;
mod job;
mod kueue;
mod lifecycle;
mod nodes;
mod patterns;
mod ready;
mod scheduling;
mod serve;
mod start;
mod upgrade;

use super::Cause;
use super::evidence::{Evidence, Pod};

type Rule = fn(&Evidence) -> Option<Cause>;

const RULES: &[Rule] = &[
    lifecycle::being_deleted,
    lifecycle::managed_elsewhere,
    lifecycle::never_observed,
    lifecycle::invalid,
    cronjob::suspended,
    cronjob::run_not_created,
    cronjob::never_ran,
    ready::job_succeeded,
    kueue::held,
    lifecycle::suspended,
    job::stopped,
    job::runtime_env_failed,
    job::out_of_memory,
    job::program_failed,
    serve::refused_config,
    serve::failed_application,
    creation::refused,
    scheduling::unscheduled,
    scheduling::no_scheduler,
    nodes::lost_pod,
    start::image,
    start::waiting_container,
    start::volumes,
    exits::init_container,
    exits::container,
    exits::replaced_head,
    nodes::stuck_terminating,
    lifecycle::certificates,
    job::no_cluster_selected,
    job::submission_failed,
    job::supervisor_died,
    job::deadline_passed,
    job::dashboard_unreachable,
    exits::failing_probe,
    upgrade::gave_up,
    upgrade::timed_out,
    upgrade::waiting,
    serve::unhealthy_application,
    demand::unmet,
    job::failed_otherwise,
    job::retrying,
    job::waiting_for_user,
    lifecycle::was_deleted,
    lifecycle::change_not_observed,
    ready::recovered,
    ready::job_running,
    ready::cluster_ready,
    ready::service_ready,
    cronjob::waits_for_schedule,
    ready::cluster_lost,
    ready::pod_starting,
    ready::unreadable,
    ready::pods_missing,
    ready::waiting_for_cluster,
    serve::waiting,
    ready::last_warning,
];

/// Returns the first cause.
pub(super) fn first_cause(evidence: &Evidence) -> Cause {
    RULES.iter().find_map(|rule| rule(evidence)).unwrap_or_else(|| ready::last_known(evidence))
}

/// Returns the Pods that matter, the head first: it has to run before anything else does.
fn pods(evidence: &Evidence) -> impl Iterator<Item = &Pod> {
    let of = |rank: u8| evidence.pods.iter().filter(move |pod| rank_of(pod) == rank && !pod.is_terminating());
    of(0).chain(of(1)).chain(of(2))
}

fn rank_of(pod: &Pod) -> u8 {
    match (pod.is_head(), pod.is_worker()) {
        (true, _) => 0,
        (_, true) => 1,
        _ => 2,
    }
}

fn pod_object(pod: &Pod) -> String {
    format!("Pod {}", pod.metadata.name)
}

/// Returns what to call the RayJob that is explained: the subject, or the last one of a RayCronJob.
fn job_words(evidence: &Evidence) -> String {
    let name = evidence.job.as_ref().map(|job| job.metadata.name.as_str());
    format!("RayJob {}", name.unwrap_or(&evidence.subject.name))
}

fn subject_words(evidence: &Evidence) -> String {
    evidence.subject.to_string()
}
