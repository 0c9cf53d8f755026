//! Suspending and resuming.

use super::fixture::{World, at};
use crate::action::Kind;
use crate::job::Mode;
use crate::plan::Wake;

fn suspendable(mode: Mode) -> World {
    World::new(mode).spec(|spec| spec.shutdown_after_job_finishes = Some(true))
}

#[test]
fn a_job_created_suspended_creates_nothing_until_resumed() {
    let mut world = suspendable(Mode::K8sJob).spec(|spec| spec.suspend = Some(true));
    world.settle();
    assert_eq!(world.phase(), "Suspended");
    assert_eq!(world.status().ray_cluster_name, None);
    assert!(world.api.created.is_empty());
    world.seen.job.spec.suspend = Some(false);
    world.settle();
    assert_eq!(world.api.created.len(), 1, "the submitter comes after the cluster is ready: {:?}", world.api.created);
    let world = world.run();
    assert!(world.status().dashboard_url.unwrap().starts_with("train-"));
}

#[test]
fn a_running_job_is_suspended_and_resumed() {
    let mut world = suspendable(Mode::K8sJob).run();
    world.report_status("RUNNING");
    let first = world.status();
    world.seen.job.spec.suspend = Some(true);
    world.seen.seed = 8;
    world.wait(5);
    let status = world.status();
    assert_eq!(world.summary(), "Suspended//");
    assert_eq!((&status.ray_cluster_name, &status.job_id, &status.dashboard_url), (&None, &None, &None));
    assert_eq!(status.start_time, first.start_time);
    assert!(world.seen.cluster.is_none() && world.seen.submitter.is_none());
    assert!(world.seen.head_service.is_some(), "the head Service stays");
    assert!(
        world.events.iter().any(|event| event.starts_with("Normal DeletedRayCluster: Deleted cluster default/train-"))
    );
    assert!(
        world.events.contains(&"Normal DeletedRayJobSubmitter: Deleted submitter K8s Job default/train".to_owned())
    );
    world.seen.job.spec.suspend = Some(false);
    world.settle();
    assert_eq!(world.status().start_time, Some(at(15)));
    let world = world.run();
    assert_ne!(world.status().job_id, first.job_id);
}

#[test]
fn suspending_finishes_even_if_resumed_meanwhile() {
    let mut world = suspendable(Mode::K8sJob).run();
    world.api.slow_deletion = vec![Kind::RayCluster];
    world.seen.job.spec.suspend = Some(true);
    world.settle();
    assert_eq!(world.phase(), "Suspending");
    world.seen.job.spec.suspend = Some(false);
    world.wait(60);
    assert_eq!(world.phase(), "Suspending");
    world.seen.job.spec.suspend = Some(true);
    world.wait(60);
    assert_eq!(world.phase(), "Suspending");
    world.seen.cluster = None;
    world.settle();
    assert_eq!(world.phase(), "Suspended");
}

#[test]
fn a_suspended_job_does_nothing_until_resumed() {
    let mut world = suspendable(Mode::Http).spec(|spec| spec.suspend = Some(true));
    world.settle();
    assert!(!world.pass());
    assert_eq!(world.last.as_ref().unwrap().plan.wake, Wake::OnChange);
    world.seen.job.spec.suspend = Some(false);
    world.pass();
    assert_eq!(world.phase(), "");
}

#[test]
fn a_finished_job_ignores_suspend() {
    let mut world = suspendable(Mode::Http).run();
    world.report_status("SUCCEEDED");
    world.seen.job.spec.suspend = Some(true);
    world.settle();
    assert_eq!(world.phase(), "Complete");
}

#[test]
fn a_waiting_job_can_be_suspended() {
    let mut world = suspendable(Mode::Interactive);
    world.settle();
    world.make_ready();
    world.settle();
    assert_eq!(world.phase(), "Waiting");
    world.seen.job.spec.suspend = Some(true);
    world.settle();
    assert_eq!(world.phase(), "Suspended");
}

#[test]
fn a_failed_deletion_keeps_the_state() {
    let mut world = suspendable(Mode::K8sJob).run();
    world.seen.job.spec.suspend = Some(true);
    world.pass();
    world.refuse(&[Kind::RayCluster, Kind::Job]);
    world.pass();
    assert_eq!(world.phase(), "Suspending");
    let event = world.events.last().unwrap();
    assert!(event.starts_with("Warning FailedToDeleteRayCluster: Failed to delete cluster default/train-"), "{event}");
    world.refuse(&[Kind::Job]);
    world.pass();
    let expect =
        "Warning FailedToDeleteRayJobSubmitter: Failed to delete submitter K8s Job default/train: out of order";
    assert_eq!(world.events.last().unwrap(), expect);
    world.refuse(&[]);
    world.settle();
    assert_eq!(world.phase(), "Suspended");
}

#[test]
fn foreign_objects_are_not_deleted() {
    let mut world = suspendable(Mode::K8sJob).run();
    let meta = &mut world.seen.submitter.as_mut().unwrap().metadata;
    let mut owner = meta.owner_references[0].clone();
    (owner.name, owner.uid) = ("somebody".into(), "else".into());
    meta.owner_references = vec![owner].into();
    let cluster = world.seen.cluster.as_mut().unwrap();
    cluster.metadata.owner_references.as_mut().unwrap()[0].uid = "somebody".into();
    world.seen.job.spec.suspend = Some(true);
    world.settle();
    assert_eq!(world.phase(), "Suspended");
    assert!(world.api.deleted.is_empty(), "{:?}", world.api.deleted);
}

#[test]
fn a_job_with_deletion_rules_can_be_suspended() {
    let mut world = World::new(Mode::Http).spec(|spec| {
        let rules = serde_json::json!({
            "deletionRules": [{"policy": "DeleteCluster", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 0}}],
        });
        spec.deletion_strategy = Some(serde_json::from_value(rules).unwrap());
    });
    world = world.run();
    world.seen.job.spec.suspend = Some(true);
    world.settle();
    assert_eq!(world.phase(), "Suspended");
}
