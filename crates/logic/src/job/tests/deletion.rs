//! What is deleted when a job has finished, and what happens when the RayJob itself is deleted.

use super::fixture::{World, at, moment};
use crate::job::Mode;
use crate::plan::Wake;
use manta_api::DeletionStrategy;
use serde_json::{Value, json};

fn strategy(value: Value) -> DeletionStrategy {
    serde_json::from_value(value).unwrap()
}

fn rules(rules: &[(&str, &str, &str, i32)]) -> DeletionStrategy {
    let rules: Vec<_> = rules
        .iter()
        .map(|(policy, field, status, ttl)| json!({"policy": policy, "condition": {*field: status, "ttlSeconds": ttl}}))
        .collect();
    strategy(json!({"deletionRules": rules}))
}

fn finished(strategy: Option<DeletionStrategy>, reported: &str) -> World {
    let mut world = World::new(Mode::Http).spec(|spec| spec.deletion_strategy = strategy).run();
    world.report_status(reported);
    world
}

fn deleted_kinds(world: &World) -> Vec<&str> {
    world.api.deleted.iter().map(|path| path.split(' ').next().unwrap()).collect()
}

fn workers_suspended(world: &World) -> bool {
    let groups = world.seen.cluster.as_ref().and_then(|cluster| cluster.spec.worker_group_specs.clone());
    groups.is_some_and(|groups| groups.iter().all(|group| group.suspend == Some(true)))
}

#[test]
fn shutdown_deletes_the_cluster_after_the_ttl() {
    let mut world = World::new(Mode::K8sJob)
        .spec(|spec| {
            spec.shutdown_after_job_finishes = Some(true);
            spec.ttl_seconds_after_finished = Some(40);
        })
        .run();
    world.report_status("SUCCEEDED");
    world.submitter_is("Complete");
    assert_eq!(world.last.as_ref().unwrap().plan.wake, Wake::At(moment(50)));
    world.wait(39);
    assert!(world.api.deleted.is_empty());
    world.wait(1);
    assert_eq!(deleted_kinds(&world), ["RayCluster"]);
    assert!(world.seen.submitter.is_some(), "not deleted, for its log");
    assert_eq!(world.phase(), "Complete");

    let mut world = World::new(Mode::Http).spec(|spec| spec.shutdown_after_job_finishes = Some(true)).run();
    world.config.delete_rayjob_after_finish = true;
    world.report_status("SUCCEEDED");
    assert_eq!(deleted_kinds(&world), ["RayJob"]);
}

#[test]
fn each_deletion_policy_deletes_only_its_objects() {
    let outcomes = [("SUCCEEDED", "Complete"), ("FAILED", "Failed")];
    for (reported, phase) in outcomes {
        for policy in ["DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone"] {
            let (good, bad) = if reported == "SUCCEEDED" { (policy, "DeleteNone") } else { ("DeleteNone", policy) };
            let legacy = strategy(json!({"onSuccess": {"policy": good}, "onFailure": {"policy": bad}}));
            let by_rule = rules(&[(policy, "jobStatus", reported, 0)]);
            for chosen in [legacy, by_rule] {
                let mut world = finished(Some(chosen), reported);
                let expect: &[&str] = match policy {
                    "DeleteCluster" => &["RayCluster"],
                    "DeleteSelf" => &["RayJob"],
                    _ => &[],
                };
                assert_eq!(deleted_kinds(&world), expect, "{policy} on {reported}");
                assert_eq!(workers_suspended(&world), policy == "DeleteWorkers");
                assert!(world.phase() == phase);
                if policy == "DeleteWorkers" {
                    let note =
                        "Normal UpdatedRayCluster: Set the `suspend` field to true for all worker groups in cluster ";
                    let published = |world: &World| world.events.iter().filter(|event| event.starts_with(note)).count();
                    assert_eq!(published(&world), 1);
                    world.wait(100);
                    assert_eq!(published(&world), 1, "once is enough");
                }
            }
        }
    }
}

#[test]
fn the_strongest_of_several_due_rules_applies() {
    for outcome in ["SUCCEEDED", "FAILED"] {
        let all = |ttls: [i32; 3]| {
            rules(&[
                ("DeleteWorkers", "jobStatus", outcome, ttls[0]),
                ("DeleteCluster", "jobStatus", outcome, ttls[1]),
                ("DeleteSelf", "jobStatus", outcome, ttls[2]),
            ])
        };
        assert_eq!(deleted_kinds(&finished(Some(all([0, 0, 0])), outcome)), ["RayJob"]);
        let mut world = finished(Some(all([0, 5, 10])), outcome);
        assert!(workers_suspended(&world) && world.api.deleted.is_empty());
        assert_eq!(world.last.as_ref().unwrap().plan.wake, Wake::At(moment(15)));
        world.wait(5);
        assert_eq!(deleted_kinds(&world), ["RayCluster"]);
        world.wait(5);
        assert_eq!(deleted_kinds(&world), ["RayCluster", "RayJob"]);
    }
}

#[test]
fn a_rule_waits_for_its_ttl_and_delete_none_deletes_nothing() {
    let mut world = finished(Some(rules(&[("DeleteCluster", "jobStatus", "SUCCEEDED", 10)])), "SUCCEEDED");
    world.wait(8);
    assert!(world.api.deleted.is_empty());
    world.wait(2);
    assert_eq!(deleted_kinds(&world), ["RayCluster"]);
    let mut world = finished(Some(rules(&[("DeleteNone", "jobStatus", "SUCCEEDED", 1)])), "SUCCEEDED");
    world.wait(100);
    assert!(world.api.deleted.is_empty());
    assert_eq!(world.last.as_ref().unwrap().plan.wake, Wake::OnChange);
}

#[test]
fn the_legacy_strategy_uses_the_jobs_ttl() {
    let legacy = json!({"onSuccess": {"policy": "DeleteCluster"}, "onFailure": {"policy": "DeleteCluster"}});
    let mut world = World::new(Mode::Http)
        .spec(|spec| {
            spec.deletion_strategy = Some(strategy(legacy.clone()));
            spec.shutdown_after_job_finishes = Some(true);
            spec.ttl_seconds_after_finished = Some(10);
        })
        .run();
    world.report_status("SUCCEEDED");
    world.wait(9);
    assert!(world.api.deleted.is_empty());
    world.wait(1);
    assert_eq!(deleted_kinds(&world), ["RayCluster"]);
    // STOPPED is neither success nor failure to the legacy form.
    let mut world = finished(Some(strategy(legacy)), "STOPPED");
    world.wait(1000);
    assert!(world.api.deleted.is_empty());
}

#[test]
fn deployment_status_rules_apply_after_a_deadline() {
    for (policy, expect) in
        [("DeleteCluster", &["RayCluster"][..]), ("DeleteSelf", &["RayJob"]), ("DeleteWorkers", &[])]
    {
        let mut world = World::new(Mode::Http)
            .spec(|spec| {
                spec.active_deadline_seconds = Some(60);
                spec.deletion_strategy = Some(rules(&[(policy, "jobDeploymentStatus", "Failed", 5)]));
            })
            .run();
        world.report_status("RUNNING");
        world.wait(50);
        world.report_status("RUNNING");
        assert_eq!(world.summary(), "Failed/RUNNING/DeadlineExceeded");
        assert!(world.api.deleted.is_empty());
        world.wait(5);
        assert_eq!(deleted_kinds(&world), expect);
        assert_eq!(workers_suspended(&world), policy == "DeleteWorkers");
        assert_eq!(world.job_status(), "RUNNING");
    }
}

#[test]
fn the_feature_gate_disables_deletion_strategies() {
    let mut world = World::new(Mode::Http)
        .spec(|spec| spec.deletion_strategy = Some(rules(&[("DeleteSelf", "jobStatus", "SUCCEEDED", 0)])))
        .run();
    world.config.gates.ray_job_deletion_policy = false;
    world.report_status("SUCCEEDED");
    assert!(world.api.deleted.is_empty());
}

#[test]
fn a_job_on_a_shared_cluster_can_delete_itself_and_nothing_else() {
    let mut world = World::new(Mode::Http).spec(|spec| {
        spec.cluster_selector = Some([("ray.io/cluster".to_owned(), "shared".to_owned())].into());
        spec.deletion_strategy = Some(rules(&[("DeleteSelf", "jobStatus", "SUCCEEDED", 0)]));
    });
    world.seen.cluster = Some(super::fixture::cluster("shared"));
    let mut world = world.run();
    world.report_status("SUCCEEDED");
    assert_eq!(deleted_kinds(&world), ["RayJob"]);
}

fn deleted(mut world: World) -> World {
    world.seen.job.metadata.deletion_timestamp = Some(at(20));
    world.now = moment(20);
    world.settle();
    world
}

#[test]
fn deletion_stops_the_ray_job_first() {
    let mut world = World::running(Mode::K8sJob);
    world.report_status("RUNNING");
    let id = world.status().job_id.unwrap();
    let world = deleted(world);
    assert_eq!(world.stopped, [id]);
    assert!(world.job_deleted);
}

#[test]
fn a_job_whose_cluster_goes_with_it_is_not_waited_for() {
    let mut world = World::running(Mode::K8sJob);
    world.report_status("RUNNING");
    world.seen.job.metadata.deletion_timestamp = Some(at(20));
    world.now = moment(20);
    world.pass();
    assert!(world.job_deleted, "in one pass");
    assert_eq!(world.stopped.len(), 1, "Ray is asked all the same");
}

#[test]
fn deletion_polls_no_dashboard_if_there_is_nothing_to_stop() {
    let mut world = World::new(Mode::K8sJob);
    world.settle();
    assert!(deleted(world).job_deleted, "no dashboard yet");
    let mut world = World::running(Mode::Http);
    world.report_status("SUCCEEDED");
    assert!(deleted(world).job_deleted, "already over");
    // An unknown mode does not block deletion.
    let mut world = World::running(Mode::Http);
    world.report_status("SUCCEEDED");
    world.seen.job.spec.submission_mode = Some("Bogus".into());
    assert!(deleted(world).job_deleted);
}

#[test]
fn a_dashboard_that_cannot_stop_does_not_block_deletion() {
    let mut world = World::running(Mode::K8sJob);
    world.fail_poll();
    assert!(deleted(world).job_deleted, "its cluster goes with it");

    let mut world = World::new(Mode::Http)
        .spec(|spec| spec.cluster_selector = Some([("ray.io/cluster".to_owned(), "shared".to_owned())].into()));
    world.seen.cluster = Some(super::fixture::cluster("shared"));
    let mut world = world.run();
    world.fail_poll();
    let mut world = deleted(world);
    assert!(!world.job_deleted, "a shared cluster would go on running the job");
    world.wait(29);
    assert!(!world.job_deleted);
    world.wait(1);
    assert!(world.job_deleted);
}
