//! RayJobs with a batch scheduler, which never blocks them.

use super::fixture::{World, cluster, info};
use crate::action::{Kind, PodGroupApi};
use crate::config::BatchScheduler;
use crate::job::Mode;
use crate::job::dashboard::{JobAnswer, JobReply};
use manta_api::RayJobSpec;
use serde_json::{Value, json};

const POD_GROUP: Kind = Kind::PodGroup(PodGroupApi::Volcano);
const MODES: [Mode; 4] = [Mode::K8sJob, Mode::Http, Mode::Interactive, Mode::Sidecar];
const SCHEDULERS: [BatchScheduler; 5] = [
    BatchScheduler::Volcano,
    BatchScheduler::Yunikorn,
    BatchScheduler::Kai,
    BatchScheduler::SchedulerPlugins,
    BatchScheduler::KubernetesWorkloads,
];

fn with(scheduler: BatchScheduler, mode: Mode) -> World {
    let mut world = World::new(mode).spec(ask_for_resources);
    world.config.batch_scheduler = Some(scheduler);
    let labels = [("ray.io/gang-scheduling-enabled", "true"), ("kai.scheduler/queue", "team-a")];
    world.seen.job.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    world
}

/// Two CPUs for the head, one for the worker.
fn ask_for_resources(spec: &mut RayJobSpec) {
    let of_cluster = spec.ray_cluster_spec.as_mut().unwrap();
    let templates = [
        (&mut of_cluster.head_group_spec.template, "2"),
        (&mut of_cluster.worker_group_specs.as_mut().unwrap()[0].template, "1"),
    ];
    for (template, cpus) in templates {
        let container = &mut template.spec.as_mut().unwrap().containers[0];
        container.resources = Some(serde_json::from_value(json!({"requests": {"cpu": cpus}})).unwrap());
    }
}

/// Returns the size and resources of the PodGroup.
fn asked(world: &World) -> (Value, Value) {
    let spec = &world.seen.pod_group.as_ref().expect("a PodGroup").object["spec"];
    (spec["minMember"].clone(), spec["minResources"].clone())
}

fn cleaned_up(world: &World) -> usize {
    let event = "Normal BatchSchedulerCleanedUp: Cleaned up batch scheduler resources for RayJob default/train";
    world.events.iter().filter(|published| *published == event).count()
}

/// Reports a status and runs some passes; with failing writes the world does not come to rest.
fn observe_status(world: &mut World, status: &str) {
    let job_id = world.status().job_id.unwrap();
    let answer = JobAnswer::Info(info(status, world.now));
    world.seen.dashboard.last_reply = Some(JobReply { job_id, at: world.now, answer });
    for _ in 0..6 {
        world.pass();
    }
}

#[test]
fn jobs_run_with_every_scheduler() {
    for scheduler in SCHEDULERS {
        for mode in MODES {
            let mut world = with(scheduler, mode);
            world.settle();
            world.make_ready();
            world.settle();
            let expect = if mode == Mode::Interactive { "Waiting" } else { "Running" };
            assert_eq!(world.phase(), expect, "{scheduler:?} {mode:?}");
            let made = world.api.created.iter().filter(|made| made.starts_with("PodGroup")).count();
            assert_eq!(made, usize::from(scheduler == BatchScheduler::Volcano), "{:?}", world.api.created);
        }
        // On a selected cluster, which KubeRay refuses with Volcano and breaks on with YuniKorn.
        let mut world = with(scheduler, Mode::K8sJob).spec(|spec| {
            spec.ray_cluster_spec = None;
            spec.cluster_selector = Some([("ray.io/cluster".to_owned(), "shared".to_owned())].into());
        });
        world.seen.cluster = Some(cluster("shared"));
        world.make_ready();
        world.settle();
        assert_eq!(world.phase(), "Running", "{scheduler:?}");
        assert_eq!(world.api.created, ["Job train"], "{scheduler:?}");
        world.submitter_is("Complete");
        world.report_status("SUCCEEDED");
        assert_eq!(world.phase(), "Complete", "{scheduler:?}");
    }
}

#[test]
fn volcano_counts_the_submitter_as_resources_only() {
    let own = |spec: &mut RayJobSpec| {
        spec.submitter_pod_template = Some(
            serde_json::from_value(json!({"spec": {"restartPolicy": "Never", "containers": [
                {"name": "mine", "resources": {"limits": {"cpu": "250m", "nvidia.com/gpu": "1"}}},
            ]}}))
            .unwrap(),
        );
    };
    let check = |world: World, expect: Value| {
        let mut world = world;
        world.settle();
        assert_eq!(asked(&world), (json!(2), expect));
        assert_eq!(world.api.created[0], "PodGroup ray-train-pg", "before the cluster");
    };
    let volcano = |mode| with(BatchScheduler::Volcano, mode);
    check(volcano(Mode::K8sJob), json!({"cpu": "3500m", "memory": "200Mi"}));
    check(volcano(Mode::Sidecar), json!({"cpu": "3500m", "memory": "200Mi"}));
    check(volcano(Mode::Http), json!({"cpu": "3"}));
    check(volcano(Mode::Interactive), json!({"cpu": "3"}));
    check(volcano(Mode::K8sJob).spec(own), json!({"cpu": "3250m", "nvidia.com/gpu": "1"}));
}

#[test]
fn suspending_a_job_shrinks_its_volcano_pod_group() {
    let mut world = with(BatchScheduler::Volcano, Mode::K8sJob).run();
    world.seen.job.spec.shutdown_after_job_finishes = Some(true);
    world.seen.job.spec.suspend = Some(true);
    world.refuse(&[POD_GROUP]);
    for _ in 0..6 {
        world.pass();
    }
    assert_eq!(world.phase(), "Suspending", "an error keeps the state");
    assert!(world.seen.cluster.is_none() && world.seen.submitter.is_none());
    let event = "Warning FailedToCleanupBatchScheduler: Failed to cleanup batch scheduler resources for RayJob \
                 default/train: out of order";
    assert!(world.events.iter().any(|published| published == event), "{:?}", world.events);
    assert_eq!(cleaned_up(&world), 0);

    world.refuse(&[]);
    world.settle();
    assert_eq!(world.phase(), "Suspended");
    assert_eq!(asked(&world), (json!(0), json!({})));
    assert_eq!(cleaned_up(&world), 1);

    world.seen.job.spec.suspend = Some(false);
    world.settle();
    assert_eq!(asked(&world), (json!(2), json!({"cpu": "3500m", "memory": "200Mi"})));
}

#[test]
fn retrying_a_job_shrinks_its_volcano_pod_group() {
    let mut world = with(BatchScheduler::Volcano, Mode::Http).spec(|spec| spec.backoff_limit = Some(1)).run();
    world.refuse(&[POD_GROUP]);
    observe_status(&mut world, "FAILED");
    assert_eq!(world.phase(), "Retrying", "an error keeps the state");
    world.refuse(&[]);
    world.seen.seed = 8;
    world.settle();
    assert_eq!((world.phase().as_str(), cleaned_up(&world)), ("Initializing", 1));
    assert_eq!(asked(&world), (json!(2), json!({"cpu": "3"})));
}

#[test]
fn a_finished_job_shrinks_its_pod_group() {
    let mut world = with(BatchScheduler::Volcano, Mode::K8sJob)
        .spec(|spec| {
            spec.shutdown_after_job_finishes = Some(true);
            spec.ttl_seconds_after_finished = Some(30);
        })
        .run();
    world.submitter_is("Complete");
    world.refuse(&[POD_GROUP]);
    observe_status(&mut world, "SUCCEEDED");
    assert_eq!(world.phase(), "Complete", "the error is only reported");
    world.refuse(&[]);
    world.settle();
    assert_eq!(asked(&world), (json!(2), json!({"cpu": "3"})), "the submitter has ended");
    assert_eq!(cleaned_up(&world), 1);
    world.settle();
    assert_eq!(cleaned_up(&world), 1, "nothing to do, nothing to report");
    world.wait(40);
    assert!(world.seen.cluster.is_none());
    assert_eq!(asked(&world), (json!(0), json!({})));
    assert_eq!(cleaned_up(&world), 2);
}

#[test]
fn an_invalid_pod_group_does_not_block_deletion() {
    let mut world =
        with(BatchScheduler::Volcano, Mode::Http).spec(|spec| spec.shutdown_after_job_finishes = Some(true)).run();
    world.refuse(&[POD_GROUP]);
    observe_status(&mut world, "SUCCEEDED");
    assert!(world.seen.cluster.is_none());
}

#[test]
fn an_invalid_pod_group_waits_for_a_correction_or_the_deadline() {
    let mut world =
        with(BatchScheduler::Volcano, Mode::K8sJob).spec(|spec| spec.pre_running_deadline_seconds = Some(60));
    let labels = world.seen.job.metadata.labels.as_mut().unwrap();
    labels.insert("volcano.sh/network-topology-mode".into(), "hard".into());
    labels.insert("volcano.sh/network-topology-highest-tier-allowed".into(), "9999999999999999999".into());
    world.settle();
    assert_eq!((world.phase().as_str(), world.api.created.len()), ("Initializing", 0));
    let published = world.events.last().unwrap();
    assert!(published.ends_with("value out of range for podgroup ray-train-pg in namespace default"), "{published}");
    world.wait(61);
    assert_eq!(world.summary(), "Failed//PreRunningDeadlineExceeded");
}
