//! Suspending and resuming.

use super::world::{World, group, incremental, key, service};
use crate::action::Kind;
use crate::labels::KUEUE_QUEUE;
use serde_json::json;

const REST: [&str; 4] = ["Suspending", "UpgradeInProgress", "RollbackInProgress", "Ready"];

#[test]
fn a_service_is_suspended_and_resumed() {
    let mut world = service();
    world.until_ready();
    let c1 = world.active();
    world.edit(|spec| spec["suspend"] = json!(true));
    world.step();
    assert_eq!(world.condition("Suspending"), ("True", "SuspendRequested"));
    assert_eq!(world.condition("Ready"), ("False", "SuspendInProgress"));
    assert_eq!((world.clusters(), world.status().observed_generation), (1, Some(3)), "nothing is deleted yet");
    world.step();
    assert_eq!(world.condition("Suspending"), ("True", "SuspendInProgress"));
    world.step();
    assert_eq!(world.condition("Suspended"), ("True", "SuspendComplete"));
    for type_ in REST {
        assert_eq!(world.condition(type_), ("False", "SuspendComplete"), "{type_}");
    }
    assert_eq!((world.clusters(), world.api.names(Kind::Service).len()), (0, 0));
    let status = world.status();
    assert_eq!((world.active(), status.num_serve_endpoints, status.service_status), (String::new(), None, None));
    assert_eq!(world.notes("DeletedRayCluster"), [format!("Deleted the RayCluster ns/{c1} during suspend")]);
    assert_eq!(
        world.notes("DeletedService"),
        ["Deleted the Service ns/web-head-svc during suspend", "Deleted the Service ns/web-serve-svc during suspend"]
    );
    let writes = world.status_writes;
    world.edit(|spec| spec["serveConfigV2"] = json!(""));
    world.steps(3);
    assert_eq!((world.status_writes, world.status().observed_generation), (writes, Some(3)), "idle");

    world.edit(|spec| {
        spec["suspend"] = json!(false);
        spec["serveConfigV2"] = json!(super::world::CONFIG);
    });
    let before = world.full_condition("Ready").unwrap();
    world.step();
    assert_eq!(world.condition("Suspended"), ("False", "RayServiceResumed"));
    let after = world.full_condition("Ready").unwrap();
    assert_eq!(
        (after.reason.as_str(), after.message.as_str()),
        ("Initializing", "RayService is initializing after resuming from suspend.")
    );
    assert_ne!(after.last_transition_time, before.last_transition_time, "the initializing timeout starts over");
    assert!(!world.pending().is_empty(), "in the same pass");
    world.until_ready();
    assert_ne!(world.active(), c1);
}

#[test]
fn suspending_finishes_even_if_resumed_meanwhile() {
    let mut world = service();
    world.until_ready();
    let c1 = world.active();
    world.object(Kind::RayCluster, &c1)["metadata"]["finalizers"] = json!(["held"]);
    world.edit(|spec| spec["suspend"] = json!(true));
    world.steps(3);
    for suspend in [false, true, false] {
        world.edit(|spec| spec["suspend"] = json!(suspend));
        world.steps(2);
        assert_eq!(world.condition("Suspending"), ("True", "SuspendInProgress"));
    }
    world.remove(&key(Kind::RayCluster, &c1));
    world.until_ready();
    assert_ne!(world.active(), c1);
}

#[test]
fn a_service_created_suspended_creates_nothing() {
    let mut world = service();
    world.edit(|spec| spec["suspend"] = json!(true));
    world.steps(6);
    assert_eq!(world.condition("Suspended").0, "True");
    assert!(world.notes("CreatedRayCluster").is_empty() && world.api.names(Kind::Service).is_empty());
    world.edit(|spec| spec["suspend"] = json!(false));
    world.until_ready();
}

#[test]
fn suspending_mid_upgrade_deletes_everything() {
    let mut world = incremental(50, 30, 50);
    world.until("route", |world| world.weights() == [100]);
    world.set_version("2.54.0");
    world.until("half way", |world| world.weights() == [50, 50]);
    world.edit(|spec| spec["suspend"] = json!(true));
    world.until("suspended", |world| world.condition("Suspended").0 == "True");
    for kind in [Kind::RayCluster, Kind::Service, Kind::Gateway, Kind::HttpRoute] {
        assert_eq!(world.api.names(kind), Vec::<String>::new(), "{kind:?}");
    }
    assert_eq!(world.notes("DeletedGateway"), ["Deleted the Gateway ns/web-gateway during suspend"]);
    assert_eq!(world.notes("DeletedHTTPRoute"), ["Deleted the HTTPRoute ns/web-httproute during suspend"]);
    world.edit(|spec| spec["suspend"] = json!(false));
    world.until("route", |world| world.weights() == [100]);
    let cluster = world.active();
    assert_eq!(world.object(Kind::RayCluster, &cluster)["spec"]["rayVersion"], "2.54.0");
}

#[test]
fn an_invalid_spec_is_not_suspended() {
    let mut world = service();
    world.until_ready();
    world.edit(|spec| {
        spec["suspend"] = json!(true);
        spec["upgradeStrategy"] = json!({"type": "nonsense"});
    });
    world.steps(3);
    assert_eq!((world.condition("Ready").1, world.clusters()), ("ValidationFailed", 1));
}

/// The label of Kueue's queues reaches the cluster, which Kueue then suspends and admits. The service neither undoes
/// that nor builds another cluster, and costs nothing while it waits.
#[test]
fn kueue_decides_when_the_cluster_of_a_service_runs() {
    let mut world = service();
    world.service.metadata.labels = Some([(KUEUE_QUEUE.to_owned(), "team".to_owned())].into());
    world.until("a cluster", |world| world.clusters() == 1);
    let name = world.api.names(Kind::RayCluster)[0].clone();
    assert_eq!(world.object(Kind::RayCluster, &name)["metadata"]["labels"][KUEUE_QUEUE], "team");
    suspend_cluster(&mut world, &name, true);
    rests(&mut world);

    suspend_cluster(&mut world, &name, false);
    world.until_ready();
    assert_eq!((world.active(), world.clusters()), (name.clone(), 1), "it runs once admitted");
    rests(&mut world);
    world.edit(|spec| spec["rayClusterConfig"]["workerGroupSpecs"].as_array_mut().unwrap().push(group("more", 1)));
    world.steps(5);
    let groups = &world.object(Kind::RayCluster, &name)["spec"]["workerGroupSpecs"];
    assert_eq!(groups.as_array().unwrap().len(), 2, "updated in place");
    assert_eq!(world.object(Kind::RayCluster, &name)["spec"]["suspend"], false);

    suspend_cluster(&mut world, &name, true);
    rests(&mut world);
    assert_eq!((world.active(), world.clusters()), (name.clone(), 1), "an evicted one lets its Pods go");
    assert_eq!(world.object(Kind::RayCluster, &name)["spec"]["suspend"], true);
    assert_eq!(world.condition("Ready").0, "False");
}

/// Suspends or resumes a cluster as Kueue does, with what follows for its Pods.
fn suspend_cluster(world: &mut World, name: &str, suspend: bool) {
    world.object(Kind::RayCluster, name)["spec"]["suspend"] = json!(suspend);
    match suspend {
        true => world.pods_not_ready.insert(name.to_owned()),
        false => world.pods_not_ready.remove(name),
    };
}

/// Asserts that the service comes to rest: minutes without a write.
fn rests(world: &mut World) {
    world.steps(10);
    let writes = (world.api.writes, world.status_writes, world.puts.len());
    world.steps(60);
    assert_eq!((world.api.writes, world.status_writes, world.puts.len()), writes);
}
