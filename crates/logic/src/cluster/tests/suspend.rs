use super::world::cluster;
use crate::action::Kind;
use serde_json::json;

fn suspended(world: &super::world::World) -> (&str, &str) {
    (world.condition_status("RayClusterSuspending"), world.condition_status("RayClusterSuspended"))
}

#[test]
fn a_cluster_is_suspended_and_resumed() {
    let mut world = cluster(2);
    world.settle_ready();
    assert_eq!((world.state(), suspended(&world)), ("ready", ("False", "False")));

    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    assert!(world.pods().is_empty());
    assert_eq!((world.state(), suspended(&world)), ("suspended", ("False", "True")));
    assert_eq!(world.condition_status("RayClusterProvisioned"), "False");
    assert_eq!(world.condition("RayClusterProvisioned").unwrap().message, "RayCluster has been suspended");
    assert_eq!(world.cluster.status.as_ref().unwrap().head.as_ref().unwrap().pod_name, None);
    assert_eq!(world.api.notes("DeletedPod")[0], "Deleted Pods for RayCluster ns/demo due to suspension");

    world.edit(|spec| spec["suspend"] = json!(false));
    world.settle();
    assert_eq!(world.pods().len(), 3);
    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    assert!(world.pods().is_empty(), "a change of mind before all were ready");
    world.edit(|spec| spec["suspend"] = json!(false));
    world.settle_ready();
    assert_eq!((world.state(), suspended(&world)), ("ready", ("False", "False")));
    assert_eq!(world.condition_status("RayClusterProvisioned"), "True");
}

#[test]
fn removing_the_field_resumes_too() {
    let mut world = cluster(1);
    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    assert_eq!(suspended(&world), ("False", "True"));
    world.edit(|spec| {
        spec.as_object_mut().unwrap().remove("suspend");
    });
    world.settle_ready();
    assert_eq!((world.state(), world.pods().len()), ("ready", 2));
}

#[test]
fn in_a_kueue_queue_only_an_explicit_false_resumes() {
    let mut world = cluster(1);
    world.label("kueue.x-k8s.io/queue-name", "team");
    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    let created = world.api.created.len();
    world.edit(|spec| {
        spec.as_object_mut().unwrap().remove("suspend");
    });
    world.settle();
    assert_eq!((suspended(&world), world.api.created.len()), (("False", "True"), created), "Kueue has not admitted it");

    world.edit(|spec| spec["suspend"] = json!(false));
    world.settle_ready();
    assert_eq!((world.state(), world.pods().len()), ("ready", 2));
    world.edit(|spec| {
        spec.as_object_mut().unwrap().remove("suspend");
    });
    world.settle();
    assert_eq!((world.state(), world.pods().len()), ("ready", 2), "an admitted cluster goes on");
}

#[test]
fn a_suspension_that_has_begun_is_finished() {
    let mut world = cluster(1);
    world.settle_ready();
    let before = world.pod_names("small");
    world.api.slow_deletion = vec![Kind::Pod];
    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    assert_eq!(suspended(&world), ("True", "False"));
    world.edit(|spec| spec["suspend"] = json!(false));
    world.settle();
    assert_eq!(suspended(&world), ("True", "False"), "still suspending while Pods are there");
    assert_eq!(world.pods().len(), 2);
    world.end_pods();
    world.api.slow_deletion.clear();
    world.settle_ready();
    assert_eq!(world.state(), "ready");
    assert_ne!(world.pod_names("small"), before, "new Pods have new names");
}

#[test]
fn without_conditions_the_field_alone_decides() {
    let mut world = cluster(1);
    world.config.gates.ray_cluster_status_conditions = false;
    world.settle_ready();
    assert!(world.cluster.status.as_ref().unwrap().conditions.is_none());
    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    assert_eq!((world.pods().len(), world.state()), (0, "suspended"));
}

#[test]
fn other_objects_are_created_while_suspended() {
    let mut world = cluster(1);
    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    assert_eq!(world.api.names(crate::action::Kind::Service), ["demo-head-svc"]);
}

#[test]
fn a_pod_that_comes_after_the_suspension_is_deleted() {
    let mut world = cluster(1);
    world.settle_ready();
    let (key, late) = world.api.objects.iter().find(|(key, _)| key.kind == Kind::Pod).unwrap();
    let (key, late) = (key.clone(), late.clone());
    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    assert!(world.pods().is_empty());
    world.api.objects.insert(key, late);
    world.settle();
    assert!(world.pods().is_empty());
    assert_eq!(suspended(&world), ("False", "True"));
}
