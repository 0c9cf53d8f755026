use super::world::{World, cluster};
use crate::action::{Kind, ObjectKey, PodsOf};
use crate::labels::{HEAD_GROUP, annotation};
use serde_json::{Value, json};

#[test]
fn an_ended_head_is_replaced() {
    let check = |phase: &str, restart_policy: &str, ended: bool, replaced: bool| {
        let mut world = cluster(1);
        world.edit(|spec| spec["headGroupSpec"]["template"]["spec"]["restartPolicy"] = json!(restart_policy));
        world.settle_ready();
        let head = world.pod_names(HEAD_GROUP)[0].clone();
        if ended {
            world.end_pod(&head, phase, 1);
        } else {
            world.change_pod(&head, |pod| pod["status"]["phase"] = json!(phase));
        }
        world.settle_ready();
        let after = world.pod_names(HEAD_GROUP);
        assert_eq!(after.len(), 1);
        assert_eq!(after[0] != head, replaced, "{phase} {restart_policy} {ended}");
    };
    check("Failed", "Always", true, true);
    check("Failed", "OnFailure", true, true);
    check("Running", "Never", true, true);
    check("Running", "Always", true, false);
    check("Running", "Never", false, false);
    check("Succeeded", "Never", true, true);
    check("Pending", "Never", false, false);
}

#[test]
fn an_ended_head_is_reported_with_its_state() {
    let mut world = cluster(0);
    world.settle_ready();
    let head = world.pod_names(HEAD_GROUP)[0].clone();
    world.end_pod(&head, "Failed", 3);
    let plan = world.pass();
    assert!(
        plan.halts[0].error.starts_with(&format!("The head Pod {head} status is Failed which is a terminal state."))
    );
    assert_eq!(
        world.api.notes("DeletedHeadPod"),
        [format!(
            "Deleted head Pod ns/{head}; Pod status: Failed; Pod restart policy: ; Ray container terminated status: &ContainerStateTerminated{{ExitCode:3,Signal:0,Reason:Error,Message:,StartedAt:0001-01-01 00:00:00 +0000 UTC,FinishedAt:0001-01-01 00:00:00 +0000 UTC,ContainerID:,}}"
        )]
    );
}

/// Adds a second head Pod, created some seconds after the first.
fn add_twin(world: &mut World, change: impl FnOnce(&mut Value)) -> (String, String) {
    let head = world.pod_names(HEAD_GROUP)[0].clone();
    let mut twin = world.object(Kind::Pod, &head).unwrap().clone();
    twin["metadata"]["name"] = json!("a-twin");
    twin["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:05Z");
    change(&mut twin);
    world.api.create(&ObjectKey::new(Kind::Pod, "ns", "a-twin"), twin, world.now);
    (head, "a-twin".to_owned())
}

#[test]
fn the_oldest_live_head_wins() {
    let mut world = cluster(1);
    world.settle_ready();
    world.advance(5);
    let (head, twin) = add_twin(&mut world, |_| {});
    world.settle_ready();
    assert_eq!((world.pod_names(HEAD_GROUP), world.state()), (vec![head.clone()], "ready"));
    let note = format!("Deleted head Pod ns/{twin}; 2 head Pods found, {head} is kept");
    assert_eq!(world.api.notes("DeletedHeadPod"), [note]);

    let (head, twin) = add_twin(&mut world, |_| {});
    world.end_pod(&head, "Failed", 1);
    world.settle_ready();
    assert_eq!(world.pod_names(HEAD_GROUP), [twin], "one that has ended does not count");
}

#[test]
fn a_head_of_somebody_else_is_left_alone() {
    let mut world = cluster(1);
    world.settle_ready();
    let (head, twin) = add_twin(&mut world, |twin| twin["metadata"]["ownerReferences"] = json!([]));
    let plan = world.pass();
    assert!(plan.stages.is_empty());
    assert_eq!(plan.halts[0].error, format!("2 head pods found [{twin} {head}]. Please delete extra head pods"));
}

#[test]
fn a_provisioned_head_is_not_restarted_where_that_is_switched_off() {
    let mut world = cluster(1);
    world.annotate(annotation::DISABLE_HEAD_RESTART, "true");
    world.settle_ready();
    let head = world.pod_names(HEAD_GROUP)[0].clone();
    world.remove_pod(&head);
    world.settle();
    assert!(world.pod_names(HEAD_GROUP).is_empty());
    assert_eq!(world.pod_names("small").len(), 1, "the workers are left alone");
}

#[test]
fn a_head_in_flight_is_not_created_twice() {
    let mut world = cluster(1);
    world.in_flight.creating.push((ObjectKey::new(Kind::Pod, "ns", "demo-head-x"), Some(PodsOf::Head)));
    world.pass();
    assert!(world.pod_names(HEAD_GROUP).is_empty());
    assert_eq!(world.pod_names("small").len(), 1, "other groups do not wait");
}

#[test]
fn a_head_stuck_terminating_is_force_deleted() {
    let mut world: World = cluster(0);
    world.settle_ready();
    let head = world.pod_names(HEAD_GROUP)[0].clone();
    let now = world.now.to_string();
    world.change_pod(&head, |pod| pod["metadata"]["deletionTimestamp"] = json!(now));
    world.settle();
    assert_eq!(world.pod_names(HEAD_GROUP), [head.as_str()], "never a second head beside it");
    world.advance(61);
    world.settle_ready();
    assert_ne!(world.pod_names(HEAD_GROUP), [head]);
    assert_eq!(world.api.notes("ForceDeletedHeadPod").len(), 1);
}
