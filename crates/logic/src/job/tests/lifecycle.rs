//! A RayJob from New to its end, mode by mode.

use super::fixture::{World, at, info, moment};
use crate::action::Kind;
use crate::job::Mode;
use crate::labels::KUEUE_QUEUE;
use crate::plan::Wake;
use manta_api::RayClusterStatus;
use serde_json::json;

#[test]
fn k8s_job_mode_waits_for_the_submitter() {
    let mut world = World::new(Mode::K8sJob);
    world.pass();
    assert_eq!(world.seen.job.metadata.finalizers, Some(vec!["ray.io/rayjob-finalizer".to_owned()]));
    assert_eq!(world.phase(), "", "the finalizer comes first");
    world.pass();
    let status = world.status();
    assert_eq!(world.phase(), "Initializing");
    assert!(status.job_id.unwrap().starts_with("train-"));
    assert!(status.ray_cluster_name.as_ref().unwrap().starts_with("train-"));
    assert_eq!(status.start_time, Some(at(0)));
    assert!(world.api.created.is_empty(), "names are stored before anything is made");

    world.settle();
    assert_eq!(world.api.created.len(), 1, "only the cluster: {:?}", world.api.created);
    world.make_ready();
    world.settle();
    let url = world.status().dashboard_url.unwrap();
    assert_eq!(url, format!("{}-head-svc.default.svc.cluster.local:8265", status.ray_cluster_name.unwrap()));
    assert_eq!(world.phase(), "Running");
    assert!(world.seen.submitter.is_some());
    assert_eq!(world.seen.head_service.as_ref().unwrap().metadata.name, "train-head-svc");

    world.report_unknown();
    assert_eq!(world.summary(), "Running//");
    world.report_status("RUNNING");
    assert_eq!(world.summary(), "Running/RUNNING/");
    world.wait(30);
    world.report_status("SUCCEEDED");
    assert_eq!(world.summary(), "Running/SUCCEEDED/", "the submitter still follows the log");
    let info = world.status().ray_job_info.unwrap();
    assert_eq!((info.start_time, info.end_time), (Some(at(30)), Some(at(30))));
    world.submitter_is("SuccessCriteriaMet");
    assert_eq!(world.phase(), "Running");
    world.submitter_is("Complete");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
    let status = world.status();
    assert_eq!((status.succeeded, status.failed, status.end_time), (Some(1), Some(0), Some(at(30))));
    assert_eq!(world.message(), "it succeeded");
    let expect = [
        "Normal CreatedRayCluster: Created RayCluster default/",
        "Normal CreatedRayJobSubmitter: Created Kubernetes Job default/train",
        "Normal CreatedService: Created the service default/train-head-svc",
    ];
    for (event, expect) in world.events.iter().zip(expect) {
        assert!(event.starts_with(expect), "{event}");
    }
    assert_eq!(world.events.len(), 3);
}

#[test]
fn the_cluster_inherits_the_jobs_labels_and_annotations() {
    let mut world = World::new(Mode::K8sJob);
    world.seen.job.metadata.labels = Some([("team".to_owned(), "x".to_owned())].into());
    world.seen.job.metadata.annotations = Some([("note".to_owned(), "y".to_owned())].into());
    world.settle();
    let cluster = world.seen.cluster.clone().unwrap();
    let labels = cluster.metadata.labels.unwrap();
    assert_eq!(labels["team"], "x");
    assert_eq!(labels["ray.io/originated-from-cr-name"], "train");
    assert_eq!(labels["ray.io/originated-from-crd"], "RayJob");
    assert_eq!(labels["ray.io/job-submission-mode"], "K8sJobMode");
    assert_eq!(cluster.metadata.annotations.unwrap()["note"], "y");
    assert_eq!(cluster.spec.ray_version.as_deref(), Some("2.53.0"));
    assert_eq!(cluster.metadata.owner_references.unwrap()[0].uid, "uid-of-train");
    // Initializing mirrors the status of the cluster.
    world.seen.cluster.as_mut().unwrap().status =
        Some(RayClusterStatus { desired_worker_replicas: Some(1), ..RayClusterStatus::default() });
    world.settle();
    assert_eq!(world.status().ray_cluster_status.unwrap().desired_worker_replicas, Some(1));
    assert_eq!(world.phase(), "Initializing");
}

#[test]
fn the_active_deadline_is_not_retried() {
    for mode in [Mode::K8sJob, Mode::Http] {
        let mut world = World::new(mode).spec(|spec| {
            spec.active_deadline_seconds = Some(120);
            spec.backoff_limit = Some(2);
        });
        world.settle();
        assert_eq!(world.last.as_ref().unwrap().plan.wake, Wake::At(moment(120)));
        let mut starting = world.fork();
        starting.wait(120);
        assert_eq!(starting.summary(), "Failed//DeadlineExceeded");
        assert_eq!(starting.status().failed, Some(1));

        let mut world = world.run();
        world.report_status("RUNNING");
        world.now = moment(120);
        world.pass();
        assert_eq!(world.phase(), "Running", "a last look at the dashboard first");
        assert_eq!(world.last.as_ref().unwrap().plan.poll.as_ref().unwrap().fresher_than, Some(moment(120)));
        world.report_status("RUNNING");
        assert_eq!(world.summary(), "Failed/RUNNING/DeadlineExceeded");
        assert_eq!(
            world.message(),
            "The RayJob has passed the activeDeadlineSeconds. StartTime: 2026-01-01 00:00:00 +0000 UTC. \
             ActiveDeadlineSeconds: 120"
        );
        assert_eq!(world.status().end_time, Some(at(120)));
    }
}

#[test]
fn the_pre_running_deadline_ends_at_running() {
    let mut world = World::new(Mode::Http).spec(|spec| spec.pre_running_deadline_seconds = Some(5));
    world.settle();
    world.wait(5);
    assert_eq!(world.summary(), "Failed//PreRunningDeadlineExceeded");

    let mut world = World::new(Mode::Interactive).spec(|spec| spec.pre_running_deadline_seconds = Some(60));
    world.settle();
    world.make_ready();
    world.settle();
    assert_eq!(world.phase(), "Waiting");
    world.wait(60);
    assert_eq!(world.summary(), "Failed//PreRunningDeadlineExceeded");

    let mut world = World::new(Mode::Http).spec(|spec| spec.pre_running_deadline_seconds = Some(60)).run();
    world.wait(100);
    assert_eq!(world.phase(), "Running");
}

#[test]
fn a_retry_starts_with_a_new_cluster() {
    let mut world = World::new(Mode::K8sJob).spec(|spec| spec.backoff_limit = Some(1)).run();
    let first = world.status();
    world.report_status("FAILED");
    world.now = moment(20);
    let submitter = world.seen.submitter.as_mut().unwrap();
    submitter.status.conditions.push(crate::view::JobConditionView {
        type_: "Complete".into(),
        status: "True".into(),
        last_transition_time: Some(moment(20)),
        ..Default::default()
    });
    world.pass();
    assert_eq!(world.summary(), "Retrying/FAILED/AppFailed");
    assert_eq!(world.status().end_time, None);
    world.seen.seed = 8;
    world.settle();
    assert_eq!(world.api.deleted.len(), 2, "{:?}", world.api.deleted);
    let second = world.status();
    assert_eq!(world.phase(), "Initializing");
    assert_ne!(second.ray_cluster_name, first.ray_cluster_name);
    assert_ne!(second.job_id, first.job_id);
    assert_eq!(second.start_time, Some(at(20)));

    let mut world = world.run();
    assert!(
        world.events.iter().any(|event| event == "Normal UpdatedService: Updated the service default/train-head-svc")
    );
    world.report_status("SUCCEEDED");
    world.submitter_is("Complete");
    let status = world.status();
    assert_eq!((world.phase().as_str(), status.failed, status.succeeded), ("Complete", Some(1), Some(1)));
}

#[test]
fn an_application_that_always_fails_exhausts_its_retries() {
    for mode in [Mode::K8sJob, Mode::Http, Mode::Sidecar] {
        let mut world = World::new(mode).spec(|spec| spec.backoff_limit = Some(2));
        for tried in 0..3 {
            world.seen.seed += 1;
            world = world.run();
            assert_eq!(world.status().failed, Some(tried));
            world.report_status("FAILED");
            match mode {
                Mode::K8sJob => world.submitter_is("Complete"),
                Mode::Sidecar => world.sidecar_exits(0),
                _ => {}
            }
        }
        assert_eq!(world.summary(), "Failed/FAILED/AppFailed", "{mode:?}");
        assert_eq!((world.status().failed, world.status().succeeded), (Some(3), Some(0)));
    }
}

#[test]
fn a_submitter_out_of_retries_fails_the_submission() {
    for (limit, failures) in [(0, 1), (2, 3)] {
        let mut world = World::new(Mode::K8sJob).spec(|spec| spec.backoff_limit = Some(limit));
        for _ in 0..failures {
            world.seen.seed += 1;
            world = world.run();
            world.fail_poll();
            world.submitter_is("Failed");
            assert_eq!(world.phase(), "Running", "Ray is asked first");
            world.now += jiff::SignedDuration::from_secs(1);
            world.fail_poll();
        }
        assert_eq!(world.summary(), "Failed//SubmissionFailed");
        let message = "Job submission has failed. Reason: BackoffLimitExceeded. \
                       Message: Job has reached the specified backoff limit";
        assert_eq!(world.message(), message);
        assert_eq!(world.status().failed, Some(failures));
    }
}

#[test]
fn a_stopped_job_is_complete() {
    for mode in [Mode::K8sJob, Mode::Http, Mode::Sidecar] {
        let mut world = World::running(mode);
        world.report_status("STOPPED");
        match mode {
            Mode::K8sJob => world.submitter_is("Complete"),
            Mode::Sidecar => world.sidecar_exits(0),
            _ => {}
        }
        assert_eq!(world.summary(), "Complete/STOPPED/");
        assert_eq!(world.status().succeeded, Some(0));
    }
}

#[test]
fn a_submitter_that_finishes_before_the_job_fails_it_after_the_grace_period() {
    let mut world = World::running(Mode::K8sJob);
    world.report_status("RUNNING");
    world.submitter_is("Complete");
    world.wait(3);
    world.report_status("RUNNING");
    assert_eq!(world.phase(), "Running");
    assert_eq!(world.last.as_ref().unwrap().plan.wake, Wake::At(moment(40)));
    world.wait(27);
    assert_eq!(world.phase(), "Running", "a last look first");
    world.report_status("RUNNING");
    assert_eq!(world.summary(), "Failed/FAILED/JobDeploymentStatusTransitionGracePeriodExceeded");
    let message = "The RayJob submitter finished at 2026-01-01 00:00:10 but the ray job did not reach terminal state \
                   within 30s";
    assert_eq!(world.message(), message);
}

#[test]
fn a_submitter_that_ends_for_a_job_unknown_to_ray_fails_it() {
    let mut world = World::running(Mode::K8sJob);
    world.report_unknown();
    world.submitter_is("Complete");
    world.wait(2);
    world.report_unknown();
    assert_eq!(world.summary(), "Failed//AppFailed");
    assert_eq!(world.message(), "Submitter completed but Ray job not found in RayCluster.");
}

#[test]
fn a_submitter_that_outlives_its_job_ends_with_the_transition_grace() {
    let message = "JobDeploymentStatus does not transition to Complete or Failed within the grace period after JobStatus \
                   reaches a terminal state.";
    for (reported, expect) in [("FAILED", "Failed"), ("SUCCEEDED", "Complete"), ("STOPPED", "Complete")] {
        let mut world = World::running(Mode::K8sJob);
        world.report_status(reported);
        assert_eq!(world.last.as_ref().unwrap().plan.wake, Wake::At(moment(310)));
        world.wait(300);
        assert_eq!(world.summary(), format!("{expect}/{reported}/JobDeploymentStatusTransitionGracePeriodExceeded"));
        assert_eq!(world.message(), message);
    }
    let mut world = World::running(Mode::K8sJob);
    world.config.rayjob_transition_grace_seconds = -1;
    world.report_status("SUCCEEDED");
    assert_eq!(world.phase(), "Complete", "a negative grace is honoured");
}

#[test]
fn sidecar_mode_fails_with_its_head_pod() {
    let mut world = World::running(Mode::Sidecar);
    let cluster = world.seen.cluster.as_ref().unwrap();
    assert_eq!(cluster.metadata.annotations.as_ref().unwrap()["ray.io/disable-provisioned-head-restart"], "true");
    let pod = cluster.spec.head_group_spec.template.spec.as_ref().unwrap();
    assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
    assert_eq!(pod.containers[1].name, "ray-job-submitter");
    world.report_status("RUNNING");
    world.seen.head_pods.clear();
    world.settle();
    assert_eq!(world.summary(), "Failed/RUNNING/AppFailed");
    assert_eq!(world.message(), "Ray head pod not found.");
}

#[test]
fn other_modes_lose_the_job_with_the_head_pod() {
    let mut world = World::running(Mode::K8sJob);
    let cluster = world.seen.cluster.as_ref().unwrap();
    assert_eq!(cluster.metadata.annotations, None, "nothing keeps the head from being made again");
    world.report_status("RUNNING");
    world.seen.head_pods.clear();
    world.settle();
    assert_eq!(world.phase(), "Running");
    // The new head knows nothing of the job, and the submitter gives up.
    world.report_unknown();
    world.submitter_is("Failed");
    world.wait(2);
    world.report_unknown();
    assert_eq!((world.phase().as_str(), world.reason().as_str()), ("Failed", "SubmissionFailed"));
}

#[test]
fn a_sidecar_submitter_may_restart_twice() {
    let with_gate = || {
        let mut world = World::new(Mode::Sidecar);
        world.config.gates.sidecar_submitter_restart = true;
        world.run()
    };
    let restarted = |world: &mut World, count: i32, exit_code: Option<i32>| {
        let now = world.now;
        world.sidecar(|status| {
            status.restart_count = count;
            let ended = |exit_code, finished_at| {
                Box::new(crate::view::TerminatedView { exit_code, finished_at, ..Default::default() })
            };
            status.last_state.terminated = Some(ended(1, None));
            status.state.terminated = exit_code.map(|exit_code| ended(exit_code, Some(now)));
        });
        world.wait(2);
        world.report_status("RUNNING");
    };
    let mut world = with_gate();
    restarted(&mut world, 1, None);
    assert_eq!(world.summary(), "Running/RUNNING/");
    let mut world = with_gate();
    restarted(&mut world, 2, Some(1));
    assert_eq!(world.summary(), "Failed/RUNNING/SubmissionFailed");
    let message =
        "Ray head pod submitter container ray-job-submitter terminated after exceeding the maximum restart count";
    assert_eq!(world.message(), message);
    let mut world = with_gate();
    restarted(&mut world, 3, Some(0));
    assert_eq!(world.phase(), "Running");
    world.report_status("SUCCEEDED");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
}

#[test]
fn a_sidecar_that_exits_with_an_error_fails_the_submission() {
    let mut world = World::running(Mode::Sidecar);
    world.report_status("RUNNING");
    world.sidecar_exits(7);
    world.wait(1);
    world.report_status("RUNNING");
    assert_eq!(world.summary(), "Failed/RUNNING/SubmissionFailed");
    assert_eq!(world.message(), "Ray head pod container ray-job-submitter terminated with exit code 7: Error");

    let mut world = World::running(Mode::Sidecar);
    world.report_status("FAILED");
    world.sidecar_exits(1);
    assert_eq!(world.summary(), "Failed/FAILED/AppFailed");
    assert_eq!(world.message(), "it failed");
}

#[test]
fn http_mode_submits_once_and_creates_no_submitter() {
    let mut world = World::new(Mode::Http)
        .spec(|spec| {
            spec.entrypoint_num_cpus = Some(2.0);
            spec.entrypoint_resources = Some("{\"r\": 1}".into());
        })
        .run();
    world.report_unknown();
    assert_eq!(world.summary(), "Running/PENDING/");
    let id = world.status().job_id.unwrap();
    let expect = json!({"entrypoint": "python train.py", "submission_id": id, "entrypoint_num_cpus": 2, "entrypoint_resources": {"r": 1}});
    assert_eq!(world.submissions, [expect]);
    world.report_status("RUNNING");
    world.report_status("SUCCEEDED");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
    assert!(world.api.created.iter().all(|path| !path.starts_with("Job ")), "{:?}", world.api.created);
    assert_eq!(world.last.as_ref().unwrap().plan.poll, None, "nothing is polled any more");
}

#[test]
fn http_mode_with_malformed_resources_fails_at_once() {
    let mut world = World::new(Mode::Http).spec(|spec| spec.entrypoint_resources = Some("{\"r\": \"x\"}".into())).run();
    world.report_unknown();
    assert_eq!(world.summary(), "Failed//SubmissionFailed");
    assert!(world.message().contains("json: cannot unmarshal string"), "{}", world.message());
}

#[test]
fn interactive_mode_waits_for_the_users_job() {
    let mut world = World::new(Mode::Interactive);
    world.settle();
    world.make_ready();
    world.settle();
    assert_eq!((world.phase().as_str(), world.status().job_id), ("Waiting", None));
    assert!(world.seen.submitter.is_none() && world.seen.head_service.is_none());
    world.seen.job.spec.job_id = Some("my-job".into());
    world.settle();
    assert_eq!((world.phase().as_str(), world.status().job_id.as_deref()), ("Running", Some("my-job")));
    world.seen.job.spec.job_id = Some("another".into());
    world.report_unknown();
    assert_eq!(world.status().job_id.as_deref(), Some("my-job"), "later changes are ignored");
    assert!(world.submissions.is_empty());
    world.report_status("SUCCEEDED");
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
}

#[test]
fn a_job_managed_by_another_controller_is_ignored() {
    let mut world = World::new(Mode::K8sJob).spec(|spec| spec.managed_by = Some("kueue.x-k8s.io/multikueue".into()));
    world.settle();
    assert_eq!(world.seen.job.status, None);
    assert_eq!(world.seen.job.metadata.finalizers, None);
    world.seen.job.metadata.deletion_timestamp = Some(at(1));
    assert!(!world.pass());
    let mut world = World::new(Mode::K8sJob).spec(|spec| spec.managed_by = Some("ray.io/kuberay-operator".into()));
    world.settle();
    assert_eq!(world.phase(), "Initializing");
}

#[test]
fn a_selected_cluster_is_used_and_never_modified() {
    let mut world = World::new(Mode::K8sJob);
    world.seen.job.spec.cluster_selector = Some([("ray.io/cluster".to_owned(), "shared".to_owned())].into());
    world.settle();
    assert_eq!(world.status().ray_cluster_name.as_deref(), Some("shared"));
    let missing = "Warning RayClusterNotFound: RayCluster default/shared set in the clusterSelector is not found. \
                   It must be created manually";
    assert!(world.events.iter().any(|event| event == missing), "{:?}", world.events);
    assert!(world.api.created.is_empty());
    world.seen.cluster = Some(super::fixture::cluster("shared"));
    let mut world = world.run();
    assert_eq!(world.status().dashboard_url.as_deref(), Some("shared-head-svc.default.svc.cluster.local:8265"));
    assert_eq!(world.api.created, ["Job train"], "no head Service of its own");
    world.report_status("SUCCEEDED");
    world.submitter_is("Complete");
    world.seen.job.spec.shutdown_after_job_finishes = Some(true);
    world.wait(1000);
    assert_eq!(world.summary(), "Complete/SUCCEEDED/");
    assert!(world.api.deleted.is_empty());
}

#[test]
fn the_cluster_status_is_mirrored_while_running() {
    let mut world = World::running(Mode::Http);
    world.report_status("RUNNING");
    let mut status = world.seen.cluster.as_ref().unwrap().status.clone().unwrap();
    status.max_worker_replicas = Some(7);
    status.last_update_time = Some(at(12));
    world.seen.cluster.as_mut().unwrap().status = Some(status);
    world.now = moment(12);
    world.settle();
    let copied = |world: &World| world.status().ray_cluster_status.unwrap().max_worker_replicas;
    assert_eq!(copied(&world), None, "not with an answer that is older than the change");
    let watch = world.last.as_ref().unwrap().plan.poll.clone().unwrap();
    assert_eq!(watch.fresher_than, Some(moment(13)));
    world.now = moment(13);
    world.report_status("RUNNING");
    assert_eq!(copied(&world), Some(7));
}

#[test]
fn a_running_job_in_a_kueue_queue_shows_the_state_of_its_cluster_at_once() {
    for mode in [Mode::K8sJob, Mode::Http, Mode::Sidecar] {
        let state = |world: &World| world.status().ray_cluster_status.unwrap().state;
        let mut world = World::new(mode);
        world.seen.job.metadata.labels = Some([(KUEUE_QUEUE.to_owned(), "team".to_owned())].into());
        let world = world.run();
        assert_eq!(state(&world).as_deref(), Some("ready"), "{mode:?}: Kueue evicts a job whose Pods do not get ready");

        let mut world = World::running(mode);
        assert_eq!(state(&world), None, "{mode:?}: as in KubeRay");
        world.report_status("RUNNING");
        assert_eq!(state(&world).as_deref(), Some("ready"), "{mode:?}");
    }
}

#[test]
fn the_token_goes_to_the_cluster_that_it_belongs_to_and_to_no_other_host() {
    let mut world = World::running(Mode::Http);
    let cluster = world.seen.cluster.as_mut().unwrap();
    cluster.spec.auth_options = serde_json::from_value(serde_json::json!({"mode": "token"})).unwrap();
    let name = cluster.metadata.name.clone();
    world.pass();
    let endpoint = |world: &World| world.last.as_ref().unwrap().plan.poll.clone().unwrap().endpoint;
    assert_eq!(endpoint(&world).token_secret, name);
    for address in ["evil.example:8265", "evil.example", "x-head-svc.other.svc.cluster.local:8265"] {
        world.seen.job.status.as_mut().unwrap().dashboard_url = Some(address.to_owned());
        world.pass();
        let endpoint = endpoint(&world);
        assert_eq!((endpoint.address.as_str(), endpoint.token_secret), (address, None));
    }
}

#[test]
fn a_changed_message_alone_is_written() {
    let mut world = World::running(Mode::Http);
    let mut running = info("RUNNING", world.now);
    world.poll(Ok(Some(running.clone())));
    running.message = "half way".to_owned();
    world.poll(Ok(Some(running)));
    assert_eq!(world.message(), "half way");
}

#[test]
fn failed_writes_are_reported_and_change_no_state() {
    let mut world = World::new(Mode::K8sJob);
    world.pass();
    world.pass();
    world.refuse(&[Kind::RayCluster]);
    world.pass();
    let event = world.events.last().unwrap();
    assert!(
        event.starts_with("Warning FailedToCreateRayCluster: Failed to create RayCluster default/train-"),
        "{event}"
    );
    assert!(event.ends_with(": out of order"), "{event}");
    world.refuse(&[]);
    world.settle();
    world.make_ready();
    world.refuse(&[Kind::Job]);
    world.pass();
    let expect =
        "Warning FailedToCreateRayJobSubmitter: Failed to create new Kubernetes Job default/train: out of order";
    assert_eq!(world.events.last().unwrap(), expect);
    assert_eq!(world.phase(), "Initializing", "a refused submitter does not start the job");
    world.refuse(&[]);
    world.settle();
    assert_eq!(world.phase(), "Running");
}

#[test]
fn an_unknown_mode_is_rejected_and_can_be_corrected() {
    let mut world = World::new(Mode::K8sJob).spec(|spec| spec.submission_mode = Some("CarrierPigeon".into()));
    world.settle();
    assert_eq!(world.summary(), "ValidationFailed//ValidationFailed");
    assert!(world.message().contains("\"CarrierPigeon\""));
    world.seen.job.spec.submission_mode = Some("HTTPMode".into());
    world.settle();
    assert_eq!(world.summary(), "Initializing//");
    assert_eq!(world.message(), "");
}

#[test]
fn editing_the_cluster_spec_waits_for_the_next_attempt() {
    let mut world = World::running(Mode::Http);
    world.seen.job.spec.ray_cluster_spec.as_mut().unwrap().ray_version = Some("9.9.9".into());
    assert!(!world.pass());
    assert_eq!(world.seen.cluster.as_ref().unwrap().spec.ray_version.as_deref(), Some("2.53.0"));
}

#[test]
fn an_invalid_spec_is_reported_and_can_be_corrected_in_every_phase() {
    let invalid = |world: &mut World| world.seen.job.spec.runtime_env_yaml = Some("invalid_yaml_string".into());
    let valid = |world: &mut World| world.seen.job.spec.runtime_env_yaml = None;
    let mut finished = World::running(Mode::Http);
    finished.report_status("SUCCEEDED");
    let mut starting = World::new(Mode::Http);
    starting.settle();
    for (mut world, phase) in [
        (World::new(Mode::Http), "Initializing"),
        (starting, "Initializing"),
        (World::running(Mode::Http), "Running"),
        (finished, "Complete"),
    ] {
        invalid(&mut world);
        world.settle();
        assert_eq!((world.phase().as_str(), world.reason().as_str()), ("ValidationFailed", "ValidationFailed"));
        assert!(world.message().starts_with("failed to unmarshal RuntimeEnvYAML: invalid_yaml_string: "));
        let event = world.events.last().unwrap();
        assert!(event.starts_with("Warning InvalidRayJobSpec: default/train: failed to unmarshal"), "{event}");
        assert!(world.api.deleted.is_empty());
        valid(&mut world);
        world.settle();
        assert_eq!(
            (world.phase().as_str(), world.reason().as_str(), world.message().contains("unmarshal")),
            (phase, "", false)
        );
    }
}

#[test]
fn a_status_that_contradicts_the_mode_is_reported_and_left_unchanged() {
    let mut world = World::running(Mode::Http);
    world.seen.job.status.as_mut().unwrap().job_deployment_status = Some("Waiting".into());
    world.pass();
    assert_eq!(world.phase(), "ValidationFailed");
    assert!(world.events.last().unwrap().starts_with("Warning InvalidRayJobStatus: "));
    world.settle();
    assert_eq!(world.phase(), "Running");
}

#[test]
fn the_longest_valid_name_gets_a_cluster() {
    let mut job = super::fixture::job(&"j".repeat(47));
    job.spec.submission_mode = Some("HTTPMode".into());
    let mut world = World::of(job);
    world.settle();
    assert_eq!(world.status().ray_cluster_name.unwrap().len(), 53);
    assert!(world.seen.cluster.is_some());
    for bad in ["j".repeat(48), "1".repeat(47)] {
        let mut world = World::of(super::fixture::job(&bad));
        world.settle();
        assert_eq!(world.phase(), "ValidationFailed", "{bad}");
    }
}
