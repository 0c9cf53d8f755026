use super::world::{World, cluster};
use crate::action::PodsOf;
use crate::labels::{HEAD_GROUP, annotation};
use serde_json::json;

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

#[test]
fn several_heads_halt_the_pass() {
    let mut world = cluster(1);
    world.settle_ready();
    let head = world.pod_names(HEAD_GROUP)[0].clone();
    let mut twin = world.api.objects[&crate::action::ObjectKey::new(crate::action::Kind::Pod, "ns", &head)].clone();
    twin["metadata"]["name"] = json!("twin");
    world.api.objects.insert(crate::action::ObjectKey::new(crate::action::Kind::Pod, "ns", "twin"), twin);
    let plan = world.pass();
    assert!(plan.stages.is_empty());
    assert_eq!(plan.halts[0].error, format!("2 head pods found [{head} twin]. Please delete extra head pods"));
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
    world
        .in_flight
        .creating
        .push((crate::action::ObjectKey::new(crate::action::Kind::Pod, "ns", "demo-head-x"), Some(PodsOf::Head)));
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
