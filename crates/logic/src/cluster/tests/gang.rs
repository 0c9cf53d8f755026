//! The objects of batch schedulers.

use super::world::{World, cluster, group};
use crate::action::{Kind, ObjectKey, PodGroupApi};
use crate::config::{BatchScheduler, Config};
use crate::labels;
use serde_json::{Value, json};

const VOLCANO: Kind = Kind::PodGroup(PodGroupApi::Volcano);
const COSCHEDULING: Kind = Kind::PodGroup(PodGroupApi::SchedulerPlugins);
const POD_GROUP: Kind = Kind::PodGroup(PodGroupApi::KubernetesWorkloads);

fn with(scheduler: BatchScheduler, replicas: i32) -> World {
    let mut world = cluster(replicas);
    world.config = Config { batch_scheduler: Some(scheduler), ..Config::default() };
    world
}

/// Returns size and CPUs of a PodGroup.
fn size(world: &World, kind: Kind, name: &str) -> (Value, Value) {
    let spec = &world.object(kind, name).expect("a PodGroup")["spec"];
    (spec["minMember"].clone(), spec["minResources"]["cpu"].clone())
}

fn set_replicas(world: &mut World, replicas: i32) {
    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(replicas));
}

#[test]
fn volcano_keeps_the_size_of_the_gang_up_to_date() {
    let mut world = with(BatchScheduler::Volcano, 2);
    world.label("volcano.sh/queue-name", "q1");
    let plan = world.pass();
    let kinds: Vec<Kind> = plan.stages.iter().flatten().map(|step| step.action.key().kind).collect();
    let place = |wanted: Kind| kinds.iter().position(|kind| *kind == wanted);
    assert!(place(VOLCANO) < place(Kind::Pod), "{kinds:?}");
    world.settle_ready();
    assert_eq!(size(&world, VOLCANO, "ray-demo-pg"), (json!(3), json!("3")));

    set_replicas(&mut world, 5);
    world.label("volcano.sh/queue-name", "q2");
    world.settle();
    assert_eq!(size(&world, VOLCANO, "ray-demo-pg"), (json!(6), json!("6")));
    assert_eq!(world.object(VOLCANO, "ray-demo-pg").unwrap()["spec"]["queue"], "q1", "set when it was made");

    world.edit(|spec| spec["workerGroupSpecs"] = json!([group("small", 1), group("big", 1)]));
    world.edit(|spec| spec["workerGroupSpecs"][1]["suspend"] = json!(true));
    world.settle();
    assert_eq!(size(&world, VOLCANO, "ray-demo-pg"), (json!(2), json!("2")));
}

#[test]
fn volcano_drops_resources_that_are_no_longer_requested() {
    let mut world = with(BatchScheduler::Volcano, 1);
    world.edit(|spec| {
        spec["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] =
            json!("1");
    });
    world.settle();
    let resources = |world: &World| world.object(VOLCANO, "ray-demo-pg").unwrap()["spec"]["minResources"].clone();
    assert_eq!(resources(&world), json!({"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}));
    set_replicas(&mut world, 0);
    world.settle();
    assert_eq!(resources(&world), json!({"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "0"}), "as KubeRay writes it");
    world.edit(|spec| {
        let resources = &mut spec["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"];
        resources["limits"].as_object_mut().unwrap().remove("nvidia.com/gpu");
    });
    world.settle();
    assert_eq!(resources(&world), json!({"cpu": "1", "memory": "2Gi"}));
}

#[test]
fn the_resources_of_a_gang_are_those_of_its_members() {
    for (scheduler, kind, name) in
        [(BatchScheduler::Volcano, VOLCANO, "ray-demo-pg"), (BatchScheduler::SchedulerPlugins, COSCHEDULING, "demo")]
    {
        let mut world = with(scheduler, 20);
        world.label(labels::GANG_SCHEDULING, "true");
        world.settle();
        assert_eq!(size(&world, kind, name), (json!(11), json!("11")), "maxReplicas is 10");
    }
}

#[test]
fn a_suspended_cluster_takes_no_share_of_a_volcano_queue() {
    let mut world = with(BatchScheduler::Volcano, 2);
    world.settle_ready();
    assert_eq!(size(&world, VOLCANO, "ray-demo-pg"), (json!(3), json!("3")));
    world.edit(|spec| spec["suspend"] = json!(true));
    world.settle();
    assert_eq!(size(&world, VOLCANO, "ray-demo-pg"), (json!(0), Value::Null));
    world.edit(|spec| spec["suspend"] = json!(false));
    world.settle_ready();
    assert_eq!((size(&world, VOLCANO, "ray-demo-pg"), world.pods().len()), ((json!(3), json!("3")), 3));
}

#[test]
fn a_suspended_cluster_keeps_its_gang() {
    for (scheduler, kind, name) in [
        (BatchScheduler::Volcano, VOLCANO, "ray-demo-pg"),
        (BatchScheduler::SchedulerPlugins, COSCHEDULING, "demo"),
        (BatchScheduler::KubernetesWorkloads, POD_GROUP, "demo-cluster"),
    ] {
        let mut world = with(scheduler, 1);
        world.label(labels::GANG_SCHEDULING, "true");
        world.edit(|spec| spec["suspend"] = json!(true));
        world.settle();
        assert_eq!(world.object(kind, name), None, "nothing is made while suspended");
        world.edit(|spec| spec["suspend"] = json!(false));
        world.settle_ready();
        assert!(world.object(kind, name).is_some(), "{scheduler:?}");
        world.edit(|spec| spec["suspend"] = json!(true));
        world.settle();
        assert!(world.pods().is_empty());
        assert!(world.object(kind, name).is_some(), "{scheduler:?}");
    }
}

#[test]
fn volcano_skips_clusters_of_rayjobs_and_foreign_pod_groups() {
    let mut world = with(BatchScheduler::Volcano, 1);
    world.label(labels::ORIGINATED_FROM_CRD, "RayJob");
    world.label(labels::ORIGINATED_FROM_CR_NAME, "train");
    world.settle();
    assert!(world.api.names(VOLCANO).is_empty());
    assert_eq!(world.pods().len(), 2);
    for pod in world.api.names(Kind::Pod) {
        let annotations = &world.object(Kind::Pod, &pod).unwrap()["metadata"]["annotations"];
        assert_eq!(annotations["scheduling.k8s.io/group-name"], "ray-train-pg");
    }

    let mut world = with(BatchScheduler::Volcano, 1);
    let foreign = json!({
        "metadata": {"name": "ray-demo-pg", "namespace": "ns", "uid": "other", "ownerReferences": [
            {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "demo", "uid": "u-2", "controller": true},
        ]},
        "spec": {"minMember": 9},
    });
    world.api.objects.insert(ObjectKey::new(VOLCANO, "ns", "ray-demo-pg"), foreign.clone());
    world.settle();
    assert_eq!(world.object(VOLCANO, "ray-demo-pg"), Some(&foreign));
    assert_eq!(world.pods().len(), 2);
}

#[test]
fn an_invalid_pod_group_creates_no_pods() {
    let mut world = with(BatchScheduler::Volcano, 1);
    world.label("volcano.sh/network-topology-mode", "hard");
    world.label("volcano.sh/network-topology-highest-tier-allowed", "two");
    let plan = world.pass();
    let error = "failed to convert volcano.sh/network-topology-highest-tier-allowed label to int: strconv.Atoi: parsing \
                 \"two\": invalid syntax for podgroup ray-demo-pg in namespace ns";
    assert_eq!(plan.halts[0].error, error);
    assert_eq!(
        world.api.notes("FailedToCreatePodGroup"),
        [format!("Failed to create PodGroup ns/ray-demo-pg: {error}")]
    );
    assert!(world.pods().is_empty());
    world.label("volcano.sh/network-topology-highest-tier-allowed", "2");
    world.settle();
    assert_eq!(world.pods().len(), 2);
    let topology = &world.object(VOLCANO, "ray-demo-pg").unwrap()["spec"]["networkTopology"];
    assert_eq!(*topology, json!({"mode": "hard", "highestTierAllowed": 2}));

    let mut world = with(BatchScheduler::Volcano, 1);
    world.api.refuse = Box::new(|step| (step.action.key().kind == VOLCANO).then(|| "no such kind".to_owned()));
    world.pass();
    assert_eq!(world.api.notes("FailedToCreatePodGroup"), ["Failed to create PodGroup ns/ray-demo-pg: no such kind"]);
    assert!(world.pods().is_empty());
}

#[test]
fn scheduler_plugins_makes_a_group_once_and_only_shrinks_it() {
    let mut world = with(BatchScheduler::SchedulerPlugins, 2);
    world.settle();
    assert!(world.api.names(COSCHEDULING).is_empty(), "no gang is requested");

    let mut world = with(BatchScheduler::SchedulerPlugins, 2);
    world.label(labels::GANG_SCHEDULING, "");
    world.settle_ready();
    assert_eq!(size(&world, COSCHEDULING, "demo"), (json!(3), json!("3")));
    set_replicas(&mut world, 5);
    world.settle();
    assert_eq!(size(&world, COSCHEDULING, "demo"), (json!(3), json!("3")), "a gang that stands may grow");
    set_replicas(&mut world, 1);
    world.settle();
    assert_eq!(
        size(&world, COSCHEDULING, "demo"),
        (json!(2), json!("2")),
        "a gang of three is never complete with two Pods: a lost worker would not come back"
    );

    let mut world = with(BatchScheduler::SchedulerPlugins, 2);
    world.label(labels::GANG_SCHEDULING, "true");
    let foreign = json!({"metadata": {"name": "demo", "namespace": "ns"}, "spec": {"minMember": 9}});
    world.api.objects.insert(ObjectKey::new(COSCHEDULING, "ns", "demo"), foreign.clone());
    world.settle();
    assert_eq!(world.object(COSCHEDULING, "demo"), Some(&foreign), "a group that the user made is used as it is");
}

fn gang_of_kubernetes(replicas: i32) -> World {
    let mut world = with(BatchScheduler::KubernetesWorkloads, replicas);
    world.label(labels::GANG_SCHEDULING, "True");
    world
}

/// Returns how many Pods the Workload and the PodGroup ask for.
fn counts(world: &World) -> (Option<i64>, Option<i64>) {
    let count = |holder: &Value| holder["schedulingPolicy"]["gang"]["minCount"].as_i64();
    (
        world.object(Kind::Workload, "demo").and_then(|object| count(&object["spec"]["podGroupTemplates"][0])),
        world.object(POD_GROUP, "demo-cluster").and_then(|object| count(&object["spec"])),
    )
}

/// Adds the finalizer that Kubernetes puts on a PodGroup with Pods.
fn protect(world: &mut World) {
    let group = world.api.objects.get_mut(&ObjectKey::new(POD_GROUP, "ns", "demo-cluster")).unwrap();
    group["metadata"]["finalizers"] = json!(["scheduling.k8s.io/podgroup-protection"]);
}

#[test]
fn kubernetes_replaces_a_gang_of_another_size() {
    let mut world = gang_of_kubernetes(2);
    world.settle_ready();
    assert_eq!(counts(&world), (Some(3), Some(3)));
    assert!(world.pods().iter().all(|pod| pod.metadata.label(labels::CLUSTER) == Some("demo")));

    protect(&mut world);
    set_replicas(&mut world, 3);
    let steps: Vec<(String, _)> = (0..3)
        .map(|_| {
            let plan = world.pass();
            (plan.halts.first().map(|halt| halt.error.clone()).unwrap_or_default(), counts(&world))
        })
        .collect();
    let expect = [
        (
            "deleted PodGroup ns/demo-cluster before replacing stale Workload, will retry after deletion completes",
            (Some(3), None),
        ),
        ("deleted stale Workload ns/demo, will retry after deletion completes", (None, None)),
        ("", (Some(4), Some(4))),
    ];
    assert_eq!(steps, expect.map(|(error, counts)| (error.to_owned(), counts)));
    world.settle_ready();
    assert_eq!(world.pods().len(), 4);

    world.edit(|spec| spec["workerGroupSpecs"][0]["suspend"] = json!(true));
    world.settle_ready();
    assert_eq!(counts(&world), (Some(1), Some(1)), "a suspended group is no part of the gang");
}

#[test]
fn kubernetes_replaces_a_stale_group_alone() {
    let mut world = gang_of_kubernetes(2);
    world.settle_ready();
    protect(&mut world);
    let group = world.api.objects.get_mut(&ObjectKey::new(POD_GROUP, "ns", "demo-cluster")).unwrap();
    group["spec"]["schedulingPolicy"]["gang"]["minCount"] = json!(9);
    let plan = world.pass();
    let error = "deleted stale PodGroup ns/demo-cluster, will retry after deletion completes";
    assert_eq!(plan.halts[0].error, error);
    world.settle();
    assert_eq!(counts(&world), (Some(3), Some(3)));
}

#[test]
fn kubernetes_waits_for_objects_being_deleted() {
    let mut world = gang_of_kubernetes(1);
    world.settle();
    let terminate = |world: &mut World, kind: Kind, name: &str| {
        world.api.objects.get_mut(&ObjectKey::new(kind, "ns", name)).unwrap()["metadata"]["deletionTimestamp"] =
            json!("2026-01-01T00:00:00Z");
    };
    protect(&mut world);
    terminate(&mut world, POD_GROUP, "demo-cluster");
    let plan = world.pass();
    assert_eq!(plan.halts[0].error, "PodGroup ns/demo-cluster is being deleted, will retry");
    assert_eq!(world.object(POD_GROUP, "demo-cluster"), None, "the finalizer was taken off");
    world.settle();

    terminate(&mut world, Kind::Workload, "demo");
    let plan = world.pass();
    assert_eq!(plan.halts[0].error, "Workload ns/demo is being deleted, will retry");
    assert!(plan.stages.is_empty());

    world.api.objects.remove(&ObjectKey::new(POD_GROUP, "ns", "demo-cluster"));
    world.label(labels::GANG_SCHEDULING, "no");
    let plan = world.pass();
    assert_eq!(plan.halts[0].error, "Workload ns/demo is being deleted, will retry");
    assert!(plan.stages.is_empty(), "also when the gang is no longer wanted");
}

#[test]
fn kubernetes_removes_a_gang_that_is_no_longer_wanted() {
    let unwanted: [fn(&mut World); 3] = [
        |world| world.label(labels::GANG_SCHEDULING, "no"),
        |world| world.cluster.metadata.labels = None,
        |world| world.edit(|spec| spec["enableInTreeAutoscaling"] = json!(true)),
    ];
    for change in unwanted {
        let mut world = gang_of_kubernetes(1);
        world.settle_ready();
        protect(&mut world);
        change(&mut world);
        let plan = world.pass();
        assert_eq!(plan.halts[0].error, "waiting for PodGroup ns/demo-cluster to finish deleting");
        assert_eq!(counts(&world), (Some(2), None));
        world.settle();
        assert_eq!(counts(&world), (None, None));
    }
}

#[test]
fn kubernetes_never_takes_over_foreign_objects() {
    let workload = (Kind::Workload, "demo", "FailedToCreateWorkload", "Workload");
    let pod_group = (POD_GROUP, "demo-cluster", "FailedToCreatePodGroup", "PodGroup");
    for (kind, name, reason, word) in [workload, pod_group] {
        let mut world = gang_of_kubernetes(1);
        let foreign = json!({"metadata": {"name": name, "namespace": "ns", "uid": "other"}});
        world.api.objects.insert(ObjectKey::new(kind, "ns", name), foreign.clone());
        let plan = world.pass();
        let error = format!(
            "{word} ns/{name} already exists and is not owned by this RayCluster; rename it or use a different \
             RayCluster name to avoid the collision"
        );
        assert_eq!(plan.halts[0].error, error);
        assert_eq!(world.api.notes(reason), [format!("Failed to create {word} ns/{name}: {error}")]);
        assert!(world.pods().is_empty());

        world.label(labels::GANG_SCHEDULING, "false");
        world.settle();
        assert_eq!(world.object(kind, name), Some(&foreign));
        assert_eq!(world.pods().len(), 2);
    }
}
