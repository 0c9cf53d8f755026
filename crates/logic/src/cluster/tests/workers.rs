use super::world::{World, cluster, group};
use crate::action::{Action, Kind};
use crate::labels::{HOST_INDEX, REPLICA_INDEX, REPLICA_NAME};
use crate::view::PodView;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Five running workers, then a spec that wants `replicas` and names some Pods for deletion.
fn shrink(replicas: i32, named: impl Fn(&[String]) -> Vec<String>, prepare: impl FnOnce(&mut World)) -> World {
    let mut world = cluster(5);
    prepare(&mut world);
    world.settle_ready();
    let names = world.pod_names("small");
    assert_eq!(names.len(), 5);
    world.edit(|spec| {
        spec["workerGroupSpecs"][0]["replicas"] = json!(replicas);
        spec["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": named(&names)});
    });
    world.settle();
    world
}

fn autoscaling(world: &mut World) {
    world.edit(|spec| spec["enableInTreeAutoscaling"] = json!(true));
}

fn autoscaling_with_random_delete(world: &mut World) {
    autoscaling(world);
    world.config.random_pod_delete = true;
}

#[test]
fn workers_to_delete_are_deleted_first() {
    let check = |replicas: i32, named: &[usize], unknown: usize, prepare: fn(&mut World), expect: usize| {
        let mut doomed = Vec::new();
        let world = {
            let doomed = std::cell::RefCell::new(&mut doomed);
            shrink(
                replicas,
                |names| {
                    let picked: Vec<String> = named.iter().map(|index| names[*index].clone()).collect();
                    doomed.borrow_mut().clone_from(&picked);
                    picked.into_iter().chain((0..unknown).map(|n| format!("unknown-{n}"))).collect()
                },
                prepare,
            )
        };
        let left = world.pod_names("small");
        assert_eq!(left.len(), expect, "replicas {replicas}, named {named:?}, unknown {unknown}");
        assert!(doomed.iter().all(|name| !left.contains(name)), "a named Pod is still there");
    };
    check(3, &[0, 1], 0, autoscaling_with_random_delete, 3);
    check(3, &[0], 1, autoscaling_with_random_delete, 3);
    check(3, &[], 2, autoscaling_with_random_delete, 3);
    check(3, &[1], 1, autoscaling, 4);
    check(3, &[], 2, autoscaling, 5);
    check(2, &[3, 4], 0, |_| {}, 2);
    check(3, &[2, 3], 0, autoscaling, 3);
    check(3, &[2], 0, autoscaling_with_random_delete, 3);
    check(3, &[2], 0, autoscaling, 4);
}

#[test]
fn a_named_pod_is_replaced_while_it_terminates() {
    let mut world = cluster(3);
    world.settle_ready();
    let doomed = world.pod_names("small")[0].clone();
    world.api.slow_deletion = vec![Kind::Pod];
    world.edit(|spec| spec["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": [doomed]}));
    world.settle();
    assert_eq!(world.pod_names("small").len(), 4, "three Pods beside the one that terminates");
    assert_eq!(world.api.deleted.len(), 1, "it is deleted once");
}

#[test]
fn workers_to_delete_of_another_group_stay() {
    let mut world = cluster(2);
    world.edit(|spec| spec["workerGroupSpecs"].as_array_mut().unwrap().push(group("big", 1)));
    world.settle_ready();
    let other = world.pod_names("big");
    world.edit(|spec| spec["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": other}));
    world.settle();
    assert_eq!((world.pod_names("small").len(), world.pod_names("big")), (2, other));
}

#[test]
fn scaling_down_takes_first_what_does_not_run() {
    let mut world = cluster(5);
    world.settle_ready();
    let names = world.pod_names("small");
    world.change_pod(&names[1], |pod| pod["status"]["conditions"] = json!([{"type": "Ready", "status": "False"}]));
    world.change_pod(&names[3], |pod| pod["status"] = json!({"phase": "Pending"}));
    world.change_pod(&names[4], |pod| {
        pod["spec"]["nodeName"] = json!("node");
        pod["status"] = json!({"phase": "Pending"});
    });
    for (replicas, left) in [(4, vec![0, 1, 2, 4]), (3, vec![0, 1, 2]), (2, vec![0, 2]), (1, vec![2])] {
        world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(replicas));
        world.settle();
        let left: Vec<&String> = left.into_iter().map(|index| &names[index]).collect();
        assert_eq!(world.pod_names("small").iter().collect::<Vec<_>>(), left, "{replicas}");
    }
}

#[test]
fn scaling_down_again_takes_what_may_be_deleted_already() {
    let mut world = cluster(3);
    world.settle_ready();
    let names = world.pod_names("small");
    let uid = |pod: &PodView| (pod.metadata.name == names[2]).then(|| pod.metadata.uid.to_string());
    world.in_flight.broken_deletions = world.pods().iter().filter_map(uid).collect();
    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(2));
    world.settle();
    assert_eq!(world.pod_names("small"), names[..2]);
}

#[test]
fn scaling_down_takes_first_the_replicas_that_do_not_run() {
    let mut world = multi_host(3);
    let before = replicas(&world);
    let (waiting, running) = (before.keys().last().unwrap(), before.keys().next().unwrap());
    for pod in world.pods().iter().filter(|pod| pod.metadata.label(REPLICA_NAME) == Some(waiting)) {
        world.change_pod(&pod.metadata.name, |pod| pod["status"] = json!({"phase": "Pending"}));
    }
    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(2));
    world.settle();
    let left = replicas(&world);
    assert!(left.len() == 2 && left.contains_key(running) && !left.contains_key(waiting), "{left:?}");
}

#[test]
fn pods_that_are_already_deleted_count_towards_scaling_down() {
    let mut world = cluster(5);
    world.settle_ready();
    let names = world.pod_names("small");
    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(3));
    world.remove_pod(&names[0]);
    world.remove_pod(&names[1]);
    let plan = world.pass();
    assert!(plan.stages.is_empty(), "three are left and three are wanted");

    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(2));
    world.settle();
    assert_eq!(world.pod_names("small").len(), 2);
}

#[test]
fn ended_workers_are_replaced() {
    for (phase, code) in [("Failed", 1), ("Succeeded", 0)] {
        let mut world = cluster(3);
        world.settle_ready();
        let doomed = world.pod_names("small")[0].clone();
        world.end_pod(&doomed, phase, code);
        let plan = world.pass();
        assert_eq!(plan.halts[0].error, "delete 1 unhealthy worker Pods");
        assert_eq!(world.pod_names("small").len(), 2);
        world.settle_ready();
        let left = world.pod_names("small");
        assert!(left.len() == 3 && !left.contains(&doomed));
        assert!(world.api.notes("DeletedWorkerPod")[0].contains(&format!("Pod status: {phase}; Pod restart policy: ")));
    }
}

#[test]
fn worker_counts_follow_the_spec() {
    let check = |fields: Value, expect: usize| {
        let mut world = cluster(1);
        world.edit(|spec| {
            spec["workerGroupSpecs"][0].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        });
        world.settle_ready();
        assert_eq!(world.pod_names("small").len(), expect, "{fields}");
    };
    check(json!({"replicas": 1, "numOfHosts": 4}), 4);
    check(json!({"replicas": 1}), 1);
    check(json!({"replicas": 5, "maxReplicas": 4}), 4);
    check(json!({"replicas": 3, "numOfHosts": 0}), 0);
    check(json!({"replicas": 0, "minReplicas": 2}), 2);
}

fn multi_host(replicas: i32) -> World {
    let mut world = cluster(replicas);
    world.edit(|spec| spec["workerGroupSpecs"][0]["numOfHosts"] = json!(4));
    world.settle_ready();
    world
}

fn replicas(world: &World) -> BTreeMap<String, BTreeSet<String>> {
    let mut replicas: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in world.pods() {
        if let Some(name) = pod.metadata.label(REPLICA_NAME) {
            let host = pod.metadata.label(HOST_INDEX).unwrap().to_owned();
            replicas.entry(name.to_owned()).or_default().insert(host);
        }
    }
    replicas
}

#[test]
fn hosts_are_labelled_with_replica_name_and_indices() {
    let world = multi_host(3);
    let found = replicas(&world);
    assert_eq!(found.len(), 3);
    let all_hosts: BTreeSet<String> = (0..4).map(|host| host.to_string()).collect();
    assert!(found.values().all(|hosts| *hosts == all_hosts));
    let indices: BTreeSet<String> =
        world.pods().iter().filter_map(|pod| pod.metadata.label(REPLICA_INDEX).map(str::to_owned)).collect();
    assert_eq!(indices, BTreeSet::from(["0".into(), "1".into(), "2".into()]));
    let status = world.cluster.status.as_ref().unwrap();
    assert_eq!((status.desired_worker_replicas, status.max_worker_replicas), (Some(12), Some(40)));
    assert_eq!(world.api.names(crate::action::Kind::Service), ["demo-head-svc", "demo-headless"]);
}

#[test]
fn a_multi_host_replica_is_deleted_and_created_whole() {
    let mut world = multi_host(3);
    let victim = world.pod_names("small")[0].clone();
    world.edit(|spec| {
        spec["workerGroupSpecs"][0]["replicas"] = json!(2);
        spec["workerGroupSpecs"][0]["scaleStrategy"] = json!({"workersToDelete": [victim]});
    });
    world.settle_ready();
    assert_eq!(world.pod_names("small").len(), 8);

    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(4));
    world.settle_ready();
    assert_eq!(replicas(&world).len(), 4);

    let before = replicas(&world);
    let lost = world.pod_names("small")[0].clone();
    world.remove_pod(&lost);
    let plan = world.pass();
    assert!(plan.halts[0].error.starts_with("cleaned up incomplete replica group "));
    world.settle_ready();
    let after = replicas(&world);
    assert_eq!(after.len(), 4);
    assert_eq!(after.keys().filter(|name| before.contains_key(*name)).count(), 3, "one replica was replaced");
    assert!(
        world.api.notes("DeletedWorkerPod").iter().any(|note| note.ends_with("cleanup of incomplete multi-host group"))
    );
}

#[test]
fn a_worker_whose_creation_broke_off_keeps_its_name() {
    let mut world = cluster(2);
    world.seed = Some(7);
    world.settle_ready();
    let before = world.pod_names("small");
    let broken = world.pods().into_iter().find(|pod| pod.metadata.name == before[0]).unwrap().metadata;
    let head = world.pod_names("headgroup").remove(0);
    // The head is created first now, and its name drawn before those of the workers.
    for name in before.iter().chain([&head]) {
        world.remove_pod(name);
    }
    world.in_flight.broken_creations = vec![broken];
    world.settle_ready();
    let after = world.pod_names("small");
    assert!(after.len() == 2 && after.contains(&before[0]), "{before:?} {after:?}");
}

#[test]
fn a_replica_is_completed_if_the_creation_of_a_host_broke_off() {
    let mut world = multi_host(1);
    let before = world.pod_names("small");
    let lost = world.pods().into_iter().find(|pod| pod.metadata.name == before[1]).unwrap().metadata;
    for name in &before[1..] {
        world.remove_pod(name);
    }
    world.in_flight.broken_creations = vec![lost];
    world.settle_ready();
    let after = world.pod_names("small");
    assert_eq!((after.len(), replicas(&world).len()), (4, 1), "the host that was there stays");
    assert!(after.contains(&before[0]) && after.contains(&before[1]), "{before:?} {after:?}");

    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(0));
    world.remove_pod(&before[1]);
    world.settle_ready();
    assert!(world.pod_names("small").is_empty(), "no replica is asked for any more");
}

#[test]
fn hosts_of_a_completed_replica_get_different_names() {
    let mut world = multi_host(0);
    // The operator draws from the same seed until its writes succeed.
    world.seed = Some(7);
    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(1));
    world.settle_ready();
    let host =
        |index: &str| world.pods().into_iter().find(|pod| pod.metadata.label(HOST_INDEX) == Some(index)).unwrap();
    let (broken, refused) = (host("1").metadata, host("2").metadata);
    let before = world.pod_names("small");
    world.remove_pod(&broken.name);
    world.remove_pod(&refused.name);
    world.in_flight.broken_creations = vec![broken.clone()];
    world.settle_ready();
    let after = world.pod_names("small");
    assert_eq!((after.len(), replicas(&world).len()), (4, 1));
    assert!(
        before.iter().filter(|name| **name != refused.name).all(|name| after.contains(name)),
        "{before:?} {after:?}"
    );
}

#[test]
fn a_terminating_host_takes_its_whole_replica_along() {
    let mut world = multi_host(2);
    world.api.slow_deletion = vec![Kind::Pod];
    let leaving = world.pod_names("small")[0].clone();
    let now = world.now.to_string();
    world.change_pod(&leaving, |pod| pod["metadata"]["deletionTimestamp"] = json!(now));
    world.pass();
    world.pass();
    assert_eq!((world.api.deleted.len(), world.pod_names("small").len()), (3, 8), "the replica is not replaced yet");
    world.end_pods();
    world.api.slow_deletion.clear();
    world.settle_ready();
    assert_eq!(replicas(&world).len(), 2);
}

#[test]
fn an_ended_host_deletes_its_whole_replica() {
    let mut world = multi_host(2);
    let lost = world.pod_names("small")[0].clone();
    world.end_pod(&lost, "Failed", 1);
    world.settle_ready();
    assert_eq!(world.pod_names("small").len(), 8);
    assert!(!world.pod_names("small").contains(&lost));
}

#[test]
fn a_replica_is_not_replaced_before_its_hosts_are_deleted() {
    let mut world = multi_host(2);
    let before = world.pod_names("small");
    world.end_pod(&before[0], "Failed", 1);
    world.api.refuse = Box::new(|step| matches!(step.action, Action::Delete { .. }).then(|| "denied".to_owned()));
    world.pass();
    assert_eq!(world.pod_names("small"), before);
}

#[test]
fn new_workers_take_the_lowest_free_index() {
    let mut world = cluster(3);
    world.settle_ready();
    let middle = world
        .pods()
        .into_iter()
        .find(|pod| pod.metadata.label(REPLICA_INDEX) == Some("1"))
        .map(|pod| pod.metadata.name)
        .unwrap();
    world.remove_pod(&middle);
    world.settle_ready();
    let mut indices: Vec<_> =
        world.pods().iter().filter_map(|pod| pod.metadata.label(REPLICA_INDEX).map(str::to_owned)).collect();
    indices.sort();
    assert_eq!(indices, ["0", "1", "2"]);
}

#[test]
fn a_pod_that_cannot_be_created_is_reported_in_event_and_status() {
    let mut world = cluster(2);
    world.settle_ready();
    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(4));
    world.api.refuse = Box::new(|step| {
        (step.failure_reason == Some("FailedCreateWorkerPod")).then(|| "exceeded quota: pods".to_owned())
    });
    world.pass();
    assert_eq!(
        world.api.notes("FailedToCreateWorkerPod")[0],
        "Failed to create worker Pod for the cluster ns/demo, exceeded quota: pods"
    );
    let failure = world.condition("ReplicaFailure").unwrap();
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("FailedCreateWorkerPod", "FailedCreateWorkerPod\nexceeded quota: pods")
    );
    world.api.refuse = Box::new(|_| None);
    world.settle_ready();
    assert_eq!(world.condition_status("ReplicaFailure"), "", "the condition goes with its cause");
}

#[test]
fn suspending_a_group_deletes_only_its_workers() {
    let mut world = cluster(2);
    world.edit(|spec| spec["workerGroupSpecs"].as_array_mut().unwrap().push(group("big", 1)));
    world.settle_ready();
    world.edit(|spec| spec["workerGroupSpecs"][0]["suspend"] = json!(true));
    world.settle_ready();
    assert_eq!((world.pod_names("small").len(), world.pod_names("big").len()), (0, 1));
    assert_eq!(
        world.api.notes("DeletedWorkerPod"),
        ["Deleted all pods for suspended worker group small in RayCluster ns/demo"]
    );

    world.edit(|spec| {
        spec["workerGroupSpecs"][1]["suspend"] = json!(true);
        spec["enableInTreeAutoscaling"] = json!(true);
    });
    let plan = world.pass();
    assert!(plan.stages.is_empty(), "an invalid spec deletes nothing");
    assert_eq!(world.pod_names("big").len(), 1);
}

#[test]
fn groups_of_the_same_name_share_their_pods() {
    let mut world = cluster(3);
    world.edit(|spec| spec["workerGroupSpecs"].as_array_mut().unwrap().push(group("small", 1)));
    world.settle_ready();
    assert_eq!(world.pod_names("small").len(), 3);
}

#[test]
fn pods_of_removed_groups_stay_and_are_reported() {
    let mut world = cluster(2);
    world.settle_ready();
    world.edit(|spec| spec["workerGroupSpecs"] = json!([]));
    world.settle();
    assert_eq!(world.pod_names("small").len(), 2);
    let message =
        "2 Pods belong to worker groups that are not in the spec: small. Delete them, or add the groups again";
    assert_eq!(world.api.notes("OrphanedWorkerGroupPodsDetected")[0], message);

    for pod in world.pod_names("small") {
        world.remove_pod(&pod);
    }
    let reported = world.api.notes("OrphanedWorkerGroupPodsDetected").len();
    world.settle();
    assert_eq!(world.api.notes("OrphanedWorkerGroupPodsDetected").len(), reported);
}

#[test]
fn a_worker_stuck_terminating_is_force_deleted() {
    let mut world = cluster(2);
    world.settle_ready();
    let stuck = world.pod_names("small")[0].clone();
    let now = world.now.to_string();
    world.change_pod(&stuck, |pod| pod["metadata"]["deletionTimestamp"] = json!(now));
    let plan = world.pass();
    assert!(plan.stages.is_empty(), "its node may still end it");
    assert!(matches!(plan.wake, crate::plan::Wake::At(at) if at > world.now), "the plan asks to be woken");
    world.advance(61);
    world.pass();
    assert_eq!(world.pod_names("small").len(), 3, "the lost one and its successor");
}

/// Returns how many Pods each pass creates until nothing is missing.
fn created_by_passes(world: &mut World) -> Vec<usize> {
    std::iter::from_fn(|| {
        let plan = world.pass();
        let steps = plan.stages.iter().flatten();
        let created = steps.filter(|step| matches!(&step.action, Action::Create { key, .. } if key.kind == Kind::Pod));
        Some(created.count()).filter(|created| *created > 0)
    })
    .collect()
}

#[test]
fn thousands_of_workers_are_created_over_several_passes() {
    let check = |prepare: fn(&mut World), expect: &[usize]| {
        let mut world = cluster(0);
        world.settle_ready();
        world.edit(|spec| spec["workerGroupSpecs"].as_array_mut().unwrap().push(group("big", 0)));
        prepare(&mut world);
        assert_eq!(created_by_passes(&mut world), expect);
        let multi_host = world.pods().iter().filter(|pod| pod.metadata.label(REPLICA_NAME).is_some()).count();
        assert_eq!(multi_host % 100, 0, "replicas are whole");
    };
    check(|world| scale_to(world, [256, 0]), &[256]);
    check(|world| scale_to(world, [600, 0]), &[256, 256, 88]);
    check(|world| scale_to(world, [200, 100]), &[256, 44]);
    check(
        |world| {
            world.edit(|spec| spec["workerGroupSpecs"][0]["numOfHosts"] = json!(100));
            scale_to(world, [4, 3]);
        },
        &[300, 103],
    );
}

fn scale_to(world: &mut World, replicas: [i32; 2]) {
    for (group, replicas) in replicas.into_iter().enumerate() {
        world.edit(|spec| {
            spec["workerGroupSpecs"][group]["replicas"] = json!(replicas);
            spec["workerGroupSpecs"][group]["maxReplicas"] = json!(replicas.max(1));
        });
    }
}
