use super::world::{World, cluster};
use crate::action::{Action, Kind, ObjectKey};
use crate::plan::Wake;
use manta_api::RayCluster;
use serde_json::json;

/// Returns a cluster with a token, roles, an ingress and workers that has taken the name of an earlier one whose objects the
/// garbage collector has missed.
fn recreated() -> World {
    let make = || {
        let mut world = cluster(1);
        world.edit(|spec| {
            spec["enableInTreeAutoscaling"] = json!(true);
            spec["authOptions"] = json!({"mode": "token"});
            spec["headGroupSpec"]["enableIngress"] = json!(true);
            spec["networkPolicy"] = json!({"mode": "DenyAll"});
        });
        world
    };
    let mut earlier = make();
    earlier.settle_ready();
    let mut world = make();
    world.cluster.metadata.uid = Some("later".into());
    world.api = earlier.api;
    world.api.created.clear();
    world
}

#[test]
fn what_an_earlier_cluster_left_is_deleted_and_made_again() {
    let mut world = recreated();
    world.api.slow_deletion = vec![Kind::Pod];
    let before: Vec<ObjectKey> = world.api.objects.keys().cloned().collect();
    let plan = world.pass();
    assert_eq!(plan.waiting_for.as_deref(), Some("the Pods of an earlier cluster of this name to be deleted"));
    world.settle();
    let status = world.cluster.status.clone().unwrap();
    assert_eq!((status.state, status.ready_worker_replicas), (None, None), "{:?}", status.conditions);
    assert_eq!(world.pods().len(), 2, "none is created beside those that are terminating");
    for pod in world.pods() {
        assert!(pod.is_terminating(), "{}", pod.metadata.name);
        world.remove_pod(&pod.metadata.name);
    }
    world.settle_ready();
    assert_eq!(world.cluster.status.as_ref().unwrap().state.as_deref(), Some("ready"));
    assert_eq!(world.api.deleted.len(), before.len(), "{:?}", world.api.deleted);
    let notes: Vec<&str> = world.api.events.iter().map(|event| event.note.as_str()).collect();
    assert!(notes.contains(&"Deleted Role ns/demo, which belonged to an earlier RayCluster of this name"), "{notes:?}");
    for (key, object) in &world.api.objects {
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "later", "{key:?}");
    }
    assert_eq!(world.api.objects.len(), before.len());
}

#[test]
fn a_cache_that_lags_deletes_nothing_of_a_later_cluster() {
    let mut world = recreated();
    // The API server knows the later cluster, and an operator whose watch lags still sees the earlier one.
    let key = ObjectKey::new(Kind::RayCluster, "ns", "demo");
    for live in [Some(json!({"metadata": {"name": "demo", "namespace": "ns", "uid": "even-later"}})), None] {
        world.api.objects.remove(&key);
        world.api.objects.extend(live.map(|live| (key.clone(), live)));
        let seen = world.observed();
        world.api.run::<RayCluster>(&seen, world.now, &world.config, |_, _| Ok(()));
        assert!(world.api.deleted.is_empty(), "{:?}", world.api.deleted);
    }
    world.api.unreadable = true;
    let seen = world.observed();
    let ran = world.api.run::<RayCluster>(&seen, world.now, &world.config, |_, _| Ok(()));
    assert!(world.api.deleted.is_empty(), "{:?}", world.api.deleted);
    assert_ne!(ran.wake, Wake::OnChange, "it is looked up again");
}

#[test]
fn a_leftover_that_cannot_be_deleted_is_reported_and_blocks_nothing_else() {
    let mut world = recreated();
    world.api.objects.remove(&ObjectKey::new(Kind::Service, "ns", "demo-head-svc")).unwrap();
    world.api.refuse = Box::new(|step| {
        let is_role = matches!(&step.action, Action::Delete { key, .. } if key.kind == Kind::Role);
        is_role.then(|| "forbidden".to_owned())
    });
    world.pass();
    assert_eq!(world.api.created, ["Service demo-head-svc"]);
    let notes: Vec<&str> = world.api.events.iter().map(|event| event.note.as_str()).collect();
    let expect = "Failed to delete Role ns/demo, which belonged to an earlier RayCluster of this name: forbidden";
    assert!(notes.contains(&expect), "{notes:?}");
}
