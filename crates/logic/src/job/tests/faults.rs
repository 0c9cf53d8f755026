//! Things that break: dashboards, operators, Pods, and people who delete things.

use super::fixture::{World, at, moment};
use crate::job::Mode;
use crate::job::dashboard::{JobAnswer, JobInfo, JobReply};
use serde_json::json;

#[test]
fn an_unreachable_dashboard_fails_the_job_after_the_timeout() {
    for mode in [Mode::K8sJob, Mode::Http] {
        let mut world = World::running(mode);
        world.report_status("RUNNING");
        world.now = moment(20);
        world.fail_poll();
        let timer = |world: &World| world.status().job_status_check_failure_start_time;
        assert_eq!(timer(&world), Some(at(20)));
        world.now = moment(40);
        world.fail_poll();
        assert_eq!(timer(&world), Some(at(20)), "the first failure counts");
        assert_eq!(world.summary(), "Running/RUNNING/");
        world.now = moment(320);
        world.settle();
        assert_eq!(world.phase(), "Running", "one last look");
        world.fail_poll();
        assert_eq!(world.summary(), "Failed/RUNNING/JobStatusCheckTimeoutExceeded");
        let message = "Job status checks have been failing since 2026-01-01 00:00:20; exceeded timeout of 300s";
        assert_eq!(world.message(), message);
    }
}

#[test]
fn the_status_check_timeout_is_in_the_message() {
    let mut world = World::running(Mode::Http);
    world.config.rayjob_status_check_timeout = std::time::Duration::from_secs(1);
    world.fail_poll();
    world.now = moment(11);
    world.fail_poll();
    assert!(world.message().ends_with("exceeded timeout of 1s"), "{}", world.message());
}

#[test]
fn a_reachable_dashboard_clears_the_timer() {
    let mut world = World::running(Mode::Http);
    world.fail_poll();
    assert!(world.status().job_status_check_failure_start_time.is_some());
    world.report_unknown();
    assert_eq!(world.submissions.len(), 1);
    assert_eq!(world.status().job_status_check_failure_start_time, None);
    assert_eq!(world.summary(), "Running/PENDING/");
}

#[test]
fn a_job_lost_with_its_dashboard_is_retried() {
    let mut world = World::new(Mode::Http).spec(|spec| spec.backoff_limit = Some(1)).run();
    world.report_status("RUNNING");
    world.fail_poll();
    world.now = moment(310);
    world.seen.seed = 9;
    world.fail_poll();
    assert_eq!(world.phase(), "Initializing");
    assert_eq!(world.status().failed, Some(1));
}

#[test]
fn a_reply_without_a_status_never_changes_the_job_status() {
    let mut world = World::running(Mode::Http);
    world.report_status("RUNNING");
    world.poll(Ok(Some(JobInfo { message: "out of order".into(), ..JobInfo::default() })));
    assert_eq!(world.summary(), "Running/RUNNING/");
    assert!(world.status().job_status_check_failure_start_time.is_some());
}

#[test]
fn a_job_that_ended_while_the_operator_was_down_is_recorded() {
    // The submitter finished long ago, and the deadline has passed too: the job has the status that Ray reports.
    for (reported, expect) in [("SUCCEEDED", "Complete/SUCCEEDED/"), ("FAILED", "Failed/FAILED/AppFailed")] {
        let mut world = World::new(Mode::K8sJob).spec(|spec| spec.active_deadline_seconds = Some(600)).run();
        world.report_status("RUNNING");
        world.fail_poll();
        let submitter = world.seen.submitter.as_mut().unwrap();
        submitter.status.conditions.push(crate::view::JobConditionView {
            type_: "Complete".into(),
            status: "True".into(),
            last_transition_time: Some(moment(100)),
            ..Default::default()
        });
        // A new process has no replies yet.
        world.seen.dashboard = Default::default();
        world.now = moment(5000);
        world.pass();
        assert_eq!(world.phase(), "Running");
        world.report_status(reported);
        assert_eq!(world.summary(), expect);
    }
}

#[test]
fn a_deadline_does_not_wait_forever_for_the_last_poll() {
    let mut world = World::new(Mode::Http).spec(|spec| spec.active_deadline_seconds = Some(60)).run();
    world.wait(50);
    assert_eq!(world.phase(), "Running");
    world.wait(30);
    assert_eq!(world.summary(), "Failed//DeadlineExceeded");
}

#[test]
fn an_operator_that_stopped_between_submission_and_status_submits_once() {
    let mut world = World::new(Mode::K8sJob).spec(|spec| spec.pre_running_deadline_seconds = Some(30));
    world.settle();
    world.make_ready();
    let before = world.fork();
    world.settle();
    assert_eq!(world.phase(), "Running");
    // The Job was made, but the status write was lost; the operator comes back after the deadline.
    let submitter = world.seen.submitter.clone();
    let mut world = before;
    world.seen.submitter = submitter;
    world.now = moment(500);
    world.settle();
    assert_eq!(world.phase(), "Running");
    assert_eq!(world.api.created.iter().filter(|path| path.starts_with("Job ")).count(), 0);
    world.report_status("SUCCEEDED");
    world.submitter_is("Complete");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
}

#[test]
fn http_mode_checks_for_the_job_before_it_submits() {
    // Posted, but the operator stopped before it could note anything: Ray knows the job.
    let mut world = World::running(Mode::Http);
    world.report_status("RUNNING");
    assert!(world.submissions.is_empty());
    world.report_status("SUCCEEDED");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
}

#[test]
fn a_successful_resubmission_clears_the_failure_clock() {
    let mut world = World::running(Mode::Http);
    world.report_status("RUNNING");
    world.fail_poll();
    assert!(world.status().job_status_check_failure_start_time.is_some());
    world.wait(5);
    // The dashboard is back, without the job.
    world.dashboard_down = false;
    world.reply(JobAnswer::NotFound);
    assert_eq!(world.submissions.len(), 1);
    world.reply(JobAnswer::NotFound);
    assert_eq!(world.status().job_status_check_failure_start_time, None, "the dashboard accepted the job");

    // One that refuses the job is not working again.
    world.fail_poll();
    let since = world.status().job_status_check_failure_start_time;
    world.wait(5);
    world.reply(JobAnswer::NotFound);
    assert_eq!((world.submissions.len(), world.status().job_status_check_failure_start_time), (1, since));
}

#[test]
fn a_head_that_refuses_the_job_is_not_flooded() {
    let mut world = World::running(Mode::Http);
    world.fail_poll();
    world.reply(JobAnswer::NotFound);
    world.dashboard_down = false;
    world.reply(JobAnswer::NotFound);
    assert_eq!(world.submissions.len(), 0, "it was refused a moment ago");
    world.wait(3);
    world.reply(JobAnswer::NotFound);
    assert_eq!(world.submissions.len(), 1);
}

#[test]
fn a_head_that_forgets_the_job_at_once_is_not_flooded() {
    let mut world = World::running(Mode::Http);
    world.reply(JobAnswer::NotFound);
    world.reply(JobAnswer::NotFound);
    assert_eq!(world.submissions.len(), 1, "it was submitted a moment ago");
    world.wait(3);
    world.reply(JobAnswer::NotFound);
    assert_eq!(world.submissions.len(), 2);
}

#[test]
fn a_deleted_submitter_is_recreated() {
    let mut world = World::running(Mode::K8sJob);
    world.report_status("RUNNING");
    world.seen.submitter = None;
    world.settle();
    assert!(world.seen.submitter.is_some());
    world.report_status("SUCCEEDED");
    world.submitter_is("Complete");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
    // A job that has ended needs no submitter.
    let mut world = World::running(Mode::K8sJob);
    world.report_status("SUCCEEDED");
    world.seen.submitter = None;
    world.settle();
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
}

#[test]
fn a_cluster_deleted_by_hand_is_recreated_with_its_name() {
    let mut world = World::running(Mode::Http);
    world.report_status("RUNNING");
    let name = world.status().ray_cluster_name.unwrap();
    world.seen.cluster = None;
    world.settle();
    assert_eq!(world.seen.cluster.as_ref().unwrap().metadata.name.as_deref(), Some(name.as_str()));
    world.report_unknown();
    assert_eq!((world.summary().as_str(), world.submissions.len()), ("Running/PENDING/", 1));
}

#[test]
fn a_head_that_was_lost_while_running_returns_without_the_job() {
    // HTTPMode: it is submitted again, under the same id. K8sJobMode: its submitter does that, or has given up.
    let mut world = World::running(Mode::Http);
    world.report_status("RUNNING");
    world.seen.head_pods.clear();
    world.fail_poll();
    assert_eq!(world.summary(), "Running/RUNNING/", "an unreachable dashboard proves nothing");
    world.make_ready();
    world.report_unknown();
    assert_eq!((world.summary().as_str(), world.submissions.len()), ("Running/PENDING/", 1));
    world.report_status("SUCCEEDED");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");

    let mut world = World::running(Mode::K8sJob);
    world.report_status("RUNNING");
    world.seen.head_pods.clear();
    world.fail_poll();
    world.make_ready();
    world.submitter_is("Failed");
    world.wait(1);
    world.report_unknown();
    world.wait(40);
    world.report_unknown();
    assert_eq!(world.phase(), "Failed", "{}", world.summary());
}

#[test]
fn a_submitter_that_failed_after_its_job_succeeded_does_not_fail_it() {
    let mut world = World::running(Mode::K8sJob);
    world.report_status("SUCCEEDED");
    world.submitter_is("Failed");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
    // The dashboard is polled before a failed submitter fails the job.
    let mut world = World::running(Mode::K8sJob);
    world.report_status("RUNNING");
    world.submitter_is("Failed");
    world.wait(1);
    world.report_status("FAILED");
    assert_eq!(world.summary(), "Failed/FAILED/AppFailed");
    assert_eq!(world.message(), "it failed");
}

#[test]
fn a_sidecar_job_that_ends_before_the_cluster_was_ready_completes() {
    let mut world = World::new(Mode::Sidecar);
    world.settle();
    world.make_ready();
    world.seen.cluster.as_mut().unwrap().status.as_mut().unwrap().state = None;
    world.settle();
    assert_eq!(world.phase(), "Initializing");
    world.sidecar_exits(0);
    assert_eq!(world.phase(), "Running");
    world.wait(1);
    world.report_status("SUCCEEDED");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
}

#[test]
fn an_unreachable_dashboard_after_the_submitter_does_not_fail_the_job() {
    let mut world = World::running(Mode::K8sJob);
    world.report_status("RUNNING");
    world.submitter_is("Complete");
    world.now = moment(45);
    world.fail_poll();
    assert_eq!(world.phase(), "Running");
    world.now = moment(60);
    world.report_status("SUCCEEDED");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
}

#[test]
fn replies_about_another_job_are_ignored() {
    let mut world = World::running(Mode::Http);
    let other = JobReply {
        job_id: "another".into(),
        at: world.now,
        answer: JobAnswer::Info(super::fixture::info("FAILED", world.now)),
    };
    world.seen.dashboard.last_reply = Some(other);
    world.settle();
    assert_eq!(world.summary(), "Running//");
}

#[test]
fn a_foreign_job_with_the_rayjobs_name_is_reported_and_not_modified() {
    let mut world = World::new(Mode::K8sJob);
    world.settle();
    world.make_ready();
    let mut foreign = crate::view::JobView::default();
    foreign.metadata.name = "train".into();
    foreign.metadata.uid = "foreign".into();
    world.seen.submitter = Some(foreign);
    world.refuse(&[crate::action::Kind::Job]);
    world.pass();
    assert_eq!(world.phase(), "Initializing");
    let event = world.events.last().unwrap();
    assert!(event.starts_with("Warning FailedToCreateRayJobSubmitter"), "{event}");
}

#[test]
fn a_template_that_cannot_submit_is_reported() {
    let mut world = World::new(Mode::K8sJob).spec(|spec| spec.submitter_pod_template = Some(Default::default()));
    world.settle();
    world.make_ready();
    world.settle();
    assert_eq!(world.phase(), "Initializing");
    let event = world.events.last().unwrap();
    assert!(event.starts_with("Warning FailedToCreateRayJobSubmitter"), "{event}");
    assert_eq!(world.status().dashboard_url, None);
    world.seen.job.spec.submitter_pod_template = None;
    world.settle();
    assert_eq!(world.phase(), "Running");
}

#[test]
fn a_head_service_without_dashboard_port_is_waited_for() {
    let mut world = World::new(Mode::Http);
    world.settle();
    world.make_ready();
    let service = world.seen.cluster_head_service.take();
    world.settle();
    assert_eq!(world.phase(), "Initializing");
    assert!(world.last.as_ref().unwrap().plan.waiting_for.as_ref().unwrap().contains("dashboard port is not found"));
    world.seen.cluster_head_service = service;
    world.settle();
    assert_eq!(world.phase(), "Running");
}

#[test]
fn what_an_earlier_job_left_is_deleted_and_made_again() {
    let mut world = World::running(Mode::K8sJob);
    // Deleted and created again, which the garbage collector has missed.
    let earlier = world.seen.cluster.take().unwrap();
    let before = (world.seen.submitter.clone().unwrap(), world.seen.head_service.clone().unwrap());
    world.seen.clusters = vec![serde_json::from_value(json!(earlier.metadata)).unwrap()];
    world.seen.job.metadata.uid = Some("later".into());
    world.seen.job.status = None;
    world.seen.seed = 9;
    world.pass();
    let last = world.last.as_ref().unwrap().plan.stages.last().unwrap().clone();
    let deleted: Vec<&str> = last.steps.iter().map(|step| step.action.key().name.as_str()).collect();
    assert_eq!(deleted, ["train", "train-head-svc", earlier.metadata.name.as_deref().unwrap()]);
    let note = "Deleted Job default/train, which belonged to an earlier RayJob of this name";
    assert!(world.events.contains(&format!("Normal DeletedLeftover: {note}")), "{:?}", world.events);
    world.seen.clusters.clear();
    let world = world.run();
    let after = (world.seen.submitter.unwrap(), world.seen.head_service.unwrap());
    assert!(after.0.metadata.is_controlled_by("later") && after.1.metadata.is_controlled_by("later"));
    assert_ne!((before.0.metadata.uid, before.1.metadata.uid), (after.0.metadata.uid, after.1.metadata.uid));
}
