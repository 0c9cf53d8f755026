//! Invariants of every RayJob under arbitrary events.

use super::fixture::{World, at, info};
use crate::job::phase::{Ended, Phase};
use crate::job::{Mode, Observed};
use crate::plan::{LookUps, Wake, plan};
use crate::properties::tries;
use crate::scheduler::tests::any_scheduler;
use jiff::SignedDuration;
use manta_api::{RayJob, RayJobStatus};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Happening {
    Wait(i64),
    Report(&'static str),
    Unknown,
    DashboardDown,
    Ready,
    Suspend(bool),
    ClusterLost,
    SubmitterLost,
    SubmitterDone,
    SubmitterFailed,
    HeadLost,
    Restart,
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0i64..400).prop_map(Happening::Wait),
        prop::sample::select(vec!["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "odd"])
            .prop_map(Happening::Report),
        Just(Happening::Unknown),
        Just(Happening::DashboardDown),
        Just(Happening::Ready),
        any::<bool>().prop_map(Happening::Suspend),
        Just(Happening::ClusterLost),
        Just(Happening::SubmitterLost),
        Just(Happening::SubmitterDone),
        Just(Happening::SubmitterFailed),
        Just(Happening::HeadLost),
        Just(Happening::Restart),
    ]
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::K8sJob, Mode::Http, Mode::Interactive, Mode::Sidecar])
}

fn play(world: &mut World, step: &Happening) {
    match step {
        Happening::Wait(seconds) => world.now += SignedDuration::from_secs(*seconds),
        Happening::Report(status) => world.poll(Ok(Some(info(status, world.now)))),
        Happening::Unknown => world.report_unknown(),
        Happening::DashboardDown => world.fail_poll(),
        Happening::Ready if world.seen.cluster.is_some() => world.make_ready(),
        Happening::Suspend(suspend) => world.seen.job.spec.suspend = Some(*suspend),
        Happening::ClusterLost => {
            world.seen.cluster = None;
            world.seen.cluster_head_service = None;
        }
        Happening::SubmitterLost => world.seen.submitter = None,
        Happening::SubmitterDone if world.seen.submitter.is_some() => world.submitter_is("Complete"),
        Happening::SubmitterFailed if world.seen.submitter.is_some() => world.submitter_is("Failed"),
        Happening::HeadLost => world.seen.head_pods.clear(),
        Happening::Restart => world.seen.dashboard = Default::default(),
        _ => {}
    }
    world.seen.seed += 1;
    world.settle();
}

fn check_invariants(world: &World) {
    let (phase, ended) = (world.phase(), Ended::read(&world.job_status()));
    match phase.as_str() {
        "Complete" => assert!(matches!(ended, Some(Ended::Succeeded | Ended::Stopped)), "{}", world.summary()),
        "Failed" | "Retrying" => {
            assert!(!matches!(ended, Some(Ended::Succeeded | Ended::Stopped)), "{}", world.summary());
        }
        _ => {}
    }
    assert_eq!(world.status().end_time.is_some(), matches!(phase.as_str(), "Complete" | "Failed"));
}

/// Returns whether something other than a change by the user will end the phase.
fn is_driven(world: &World) -> bool {
    let plan = &world.last.as_ref().expect("a plan").plan;
    plan.poll.is_some() || matches!(plan.wake, Wake::At(_) | Wake::BackOff) || plan.waiting_for.is_some()
}

proptest! {
    #![proptest_config(tries(400))]

    #[test]
    fn every_history_is_consistent_and_comes_to_rest(
        mode in any_mode(),
        scheduler in any_scheduler(),
        limit in 0..3i32,
        steps in prop::collection::vec(any_happening(), 0..25),
    ) {
        let mut world = World::new(mode).spec(|spec| {
            // InteractiveMode and retries exclude each other.
            spec.backoff_limit = Some(if mode == Mode::Interactive { 0 } else { limit });
            spec.shutdown_after_job_finishes = Some(true);
        });
        world.config.batch_scheduler = scheduler;
        world.settle();
        for step in &steps {
            play(&mut world, step);
            check_invariants(&world);
            prop_assert!(!world.pass(), "rest means no writes");
            let finished = matches!(world.phase().as_str(), "Complete" | "Failed");
            prop_assert!(finished || is_driven(&world), "{} waits for nothing", world.summary());
        }
    }

    /// With a deadline, every job ends although the dashboard never replies.
    #[test]
    fn deadlines_end_every_phase(mode in any_mode(), steps in prop::collection::vec(any_happening(), 0..12)) {
        let mut world = World::new(mode).spec(|spec| {
            spec.active_deadline_seconds = Some(3600);
            spec.pre_running_deadline_seconds = Some(1800);
            spec.job_id = Some("given".into());
        });
        world.settle();
        for step in &steps {
            play(&mut world, step);
        }
        world.seen.job.spec.suspend = Some(false);
        world.settle();
        for _ in 0..10 {
            world.now += SignedDuration::from_secs(3700);
            world.settle();
        }
        prop_assert!(matches!(world.phase().as_str(), "Complete" | "Failed"), "{}", world.summary());
    }

    #[test]
    fn no_status_makes_a_plan_panic(
        phase in "[A-Za-z]{0,12}|Running|Waiting|Initializing|Complete|Failed|Suspending|Suspended|Retrying|ValidationFailed",
        fields in prop::collection::vec(prop::option::of(".{0,20}"), 6),
        seconds in prop::collection::vec(prop::option::of(-1_000_000i64..1_000_000), 3),
        mode in ".{0,8}|K8sJobMode|HTTPMode|InteractiveMode|SidecarMode",
        deadline in any::<Option<i32>>(),
    ) {
        let mut job = super::fixture::job("train");
        job.metadata.finalizers = Some(vec!["ray.io/rayjob-finalizer".into()]);
        job.spec.submission_mode = Some(mode);
        job.spec.active_deadline_seconds = deadline;
        job.spec.pre_running_deadline_seconds = deadline;
        job.spec.ttl_seconds_after_finished = deadline;
        let mut fields = fields.into_iter();
        let mut text = || fields.next().flatten();
        let time = |place: usize| seconds[place].map(at);
        job.status = Some(RayJobStatus {
            job_deployment_status: Some(phase),
            job_status: text(),
            job_id: text(),
            ray_cluster_name: text(),
            dashboard_url: text(),
            reason: text(),
            message: text(),
            start_time: time(0),
            end_time: time(1),
            job_status_check_failure_start_time: time(2),
            failed: deadline,
            succeeded: deadline,
            ..RayJobStatus::default()
        });
        let seen = Observed { job: job.clone(), ..Observed::default() };
        let config = crate::config::Config::default();
        let plan = || plan::<RayJob>(&seen, &LookUps::new(), super::fixture::moment(0), &config);
        prop_assert_eq!(plan(), plan());
        if let Ok(mode) = Mode::of(&job.spec) {
            let _ = Phase::read(&job, mode);
        }
    }
}
