use super::world::{World, cluster};
use crate::config::KUBERAY_VERSION;
use crate::labels::{HEAD_GROUP, annotation};
use serde_json::{Value, json};

fn recreating(strategy: Value) -> World {
    let mut world = cluster(1);
    world.edit(|spec| spec["upgradeStrategy"] = strategy);
    world.settle_ready();
    world
}

/// Returns the head Pod's name after the spec was changed.
fn head_after(world: &mut World, change: impl FnOnce(&mut Value)) -> String {
    world.edit(change);
    world.settle_ready();
    world.pod_names(HEAD_GROUP).remove(0)
}

#[test]
fn recreate_replaces_all_pods_when_the_spec_changes() {
    let mut world = recreating(json!({"type": "Recreate"}));
    let before = world.pods();
    head_after(&mut world, |spec| spec["rayVersion"] = json!("2.54.0"));
    let after = world.pods();
    assert_eq!(after.len(), before.len());
    assert!(before.iter().all(|old| after.iter().all(|new| new.metadata.name != old.metadata.name)));
    assert_eq!(
        world.api.notes("DeletedPod")[0],
        "Deleted all Pods for RayCluster ns/demo due to spec change with Recreate upgradeStrategy"
    );
}

#[test]
fn sizes_tolerations_and_other_strategies_recreate_nothing() {
    let check = |strategy: Value, change: fn(&mut Value)| {
        let mut world = recreating(strategy.clone());
        let before = world.pod_names(HEAD_GROUP).remove(0);
        assert_eq!(head_after(&mut world, change), before, "{strategy}");
    };
    check(json!({"type": "Recreate"}), |spec| spec["workerGroupSpecs"][0]["replicas"] = json!(3));
    check(json!({"type": "Recreate"}), |spec| {
        spec["headGroupSpec"]["template"]["spec"]["tolerations"] = json!([{"key": "gpu", "operator": "Exists"}]);
    });
    check(json!({"type": "None"}), |spec| spec["rayVersion"] = json!("2.54.0"));
    check(json!({}), |spec| spec["rayVersion"] = json!("2.54.0"));
    check(Value::Null, |spec| spec["rayVersion"] = json!("2.54.0"));
}

#[test]
fn the_hash_of_another_version_is_replaced() {
    let mut world = recreating(json!({"type": "Recreate"}));
    let head = world.pod_names(HEAD_GROUP).remove(0);
    world.change_pod(&head, |pod| {
        pod["metadata"]["annotations"][annotation::KUBERAY_VERSION] = json!("v1.6.0");
        pod["metadata"]["annotations"][annotation::RECREATE_HASH] = json!("other");
    });
    world.settle_ready();
    let after = world.pods().into_iter().find(|pod| pod.metadata.name == head).expect("the head Pod stays");
    assert_eq!(after.metadata.annotations.get(annotation::KUBERAY_VERSION), Some(KUBERAY_VERSION));
    assert_ne!(after.metadata.annotations.get(annotation::RECREATE_HASH), Some("other"));
}

#[test]
fn a_head_without_a_hash_is_left_alone() {
    let mut world = recreating(json!({"type": "Recreate"}));
    let head = world.pod_names(HEAD_GROUP).remove(0);
    world.change_pod(&head, |pod| pod["metadata"]["annotations"] = json!({}));
    assert_eq!(head_after(&mut world, |spec| spec["rayVersion"] = json!("2.54.0")), head);
}
