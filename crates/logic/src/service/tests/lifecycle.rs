//! The lifecycle of a RayService: start, upgrade, deletion, initializing timeout.

use super::world::{World, incremental, key, service};
use crate::action::Kind;
use crate::labels::annotation::{DELETE_AFTER, INITIALIZING_TIMEOUT, SERVICE_HASH};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use std::collections::BTreeSet;

#[test]
fn statuses_always_have_both_slots() {
    let mut world = service();
    world.steps(2);
    let status = serde_json::to_value(world.status()).unwrap();
    let empty = json!({
        "rayClusterStatus": {"desiredCPU": "0", "desiredMemory": "0", "desiredGPU": "0", "desiredTPU": "0", "head": {}},
    });
    assert_eq!(status["activeServiceStatus"], empty);
    for absent in ["numServeEndpoints", "serviceStatus"] {
        assert!(status.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn the_deletion_delay_follows_the_spec_and_survives_a_restart() {
    let check = |delay: Option<i32>, seconds: i64| {
        let mut world = service();
        world.until_ready();
        let c1 = world.active();
        world.edit(|spec| spec["rayClusterDeletionDelaySeconds"] = json!(delay));
        world.set_version("2.54.0");
        world.until("scheduled", |world| {
            let cluster = world.api.objects.get(&key(Kind::RayCluster, &c1));
            cluster.is_some_and(|cluster| !cluster["metadata"]["annotations"][DELETE_AFTER].is_null())
        });
        let scheduled = world.now;
        world.restart_operator();
        world.until("gone", |world| !world.api.names(Kind::RayCluster).contains(&c1));
        let took = world.now.duration_since(scheduled).as_secs();
        assert!((seconds..=seconds + 4).contains(&took), "{delay:?}: {took}");
    };
    check(None, 60);
    check(Some(0), 0);
    check(Some(5), 5);
}

#[test]
fn the_old_cluster_drains_before_it_is_deleted() {
    let mut world = service();
    world.edit(|spec| spec["rayClusterDeletionDelaySeconds"] = json!(0));
    world.until_ready();
    let c1 = world.active();
    world.set_version("2.54.0");
    world.until("promoted", |world| world.active() != c1);
    // Endpoints that lag behind: the old Pods are still among them.
    let uid = world.object(Kind::Pod, &format!("{c1}-head-0"))["metadata"]["uid"].clone();
    let stale = |world: &mut World| {
        let slice = world.object(Kind::EndpointSlice, "web-serve-svc");
        slice["endpoints"] = json!([{"conditions": {"ready": true}, "targetRef": {"uid": uid}}]);
    };
    for _ in 0..5 {
        world.advance(2);
        stale(&mut world);
        world.pass();
    }
    assert!(world.api.names(Kind::RayCluster).contains(&c1));
    world.until("gone", |world| !world.api.names(Kind::RayCluster).contains(&c1));
}

#[test]
fn deletion_removes_the_clusters_first() {
    let mut world = service();
    world.until_ready();
    world.delete_service();
    let c1 = world.active();
    world.object(Kind::RayCluster, &c1)["metadata"]["finalizers"] = json!(["held"]);
    world.steps(3);
    assert_eq!(world.notes("DeletedRayCluster"), [format!("Deleted the RayCluster ns/{c1}")]);
    assert!(world.service.metadata.finalizers.is_some(), "it waits for the cluster");
    world.remove(&key(Kind::RayCluster, &c1));
    world.step();
    assert_eq!(world.service.metadata.finalizers, Some(Vec::new()));
}

#[test]
fn a_dangling_cluster_that_cannot_be_deleted_is_harmless() {
    let mut world = service();
    world.edit(|spec| spec["rayClusterDeletionDelaySeconds"] = json!(0));
    world.until_ready();
    let c1 = world.active();
    world.object(Kind::RayCluster, &c1)["metadata"]["finalizers"] = json!(["held"]);
    world.set_version("2.54.0");
    world.until("promoted", |world| world.active() != c1);
    world.steps(10);
    assert_eq!(world.condition("Ready").0, "True");
    assert_eq!(world.clusters(), 2);
}

#[test]
fn the_initializing_timeout_fails_the_service() {
    let mut world = service();
    world.annotate(INITIALIZING_TIMEOUT, "10s");
    world.outcome = "DEPLOYING".to_owned();
    world.until("timed out", |world| world.condition("Ready") == ("False", "InitializingTimeout"));
    let message = world.full_condition("Ready").unwrap().message;
    assert_eq!(
        message,
        "RayService failed to become ready within the configured timeout of 10s. Time spent initializing: 10s"
    );
    assert_eq!(
        world.notes("RayServiceInitializingTimeout"),
        ["RayService initializing timeout exceeded after 10s (configured timeout: 10s)"]
    );
    assert_eq!((world.active(), world.pending()), (String::new(), String::new()));
    assert_eq!(world.condition("UpgradeInProgress"), ("False", "Initializing"));
    assert_eq!(world.status().observed_generation, Some(2));
    world.until("clean", |world| world.clusters() == 0);

    world.annotate(INITIALIZING_TIMEOUT, "10m");
    world.set_version("2.54.0");
    world.steps(10);
    assert_eq!((world.clusters(), world.condition("Ready").1), (0, "InitializingTimeout"));

    world.edit(|spec| spec["suspend"] = json!(true));
    world.until("suspended", |world| world.condition("Suspended").0 == "True");
    world.outcome = "RUNNING".to_owned();
    world.edit(|spec| spec["suspend"] = json!(false));
    world.until_ready();
}

#[test]
fn the_initializing_timeout_ignores_services_that_became_ready() {
    let mut world = service();
    world.annotate(INITIALIZING_TIMEOUT, "10m");
    world.until_ready();
    world.advance(3600);
    world.steps(2);
    assert_eq!(world.condition("Ready").0, "True");
    // Endpoints that are lost later are no start.
    world.proxy_down.insert(world.active());
    let worker = format!("{}-worker-1", world.active());
    world.object(Kind::Pod, &worker)["metadata"]["labels"]["ray.io/serve"] = json!("false");
    world.until("no endpoints", |world| world.condition("Ready") == ("False", "ZeroServeEndpoints"));
    world.advance(3600);
    world.steps(2);
    assert_eq!(world.condition("Ready"), ("False", "ZeroServeEndpoints"));
}

#[test]
fn an_invalid_spec_is_reported_and_can_be_corrected() {
    let mut world = service();
    world.edit(|spec| spec["upgradeStrategy"] = json!({"type": "invalidStrategy"}));
    world.steps(3);
    let text = "The RayService spec is invalid: Spec.UpgradeStrategy.Type value invalidStrategy is invalid, valid \
                options are NewClusterWithIncrementalUpgrade, NewCluster, or None";
    assert_eq!(world.condition("Ready"), ("False", "ValidationFailed"));
    assert_eq!(world.full_condition("Ready").unwrap().message, text);
    assert_eq!(world.notes("InvalidRayServiceSpec"), [format!("ns/web: {text}")]);
    assert_eq!(world.status_writes, 1, "written once");
    assert_eq!(world.clusters(), 0);
    world.edit(|spec| spec["upgradeStrategy"] = json!({"type": "NewCluster"}));
    world.step();
    assert_eq!(world.condition("UpgradeInProgress"), ("Unknown", "NoActiveCluster"));
    world.until_ready();
    assert_eq!(world.condition("UpgradeInProgress"), ("False", "NoPendingCluster"));
}

#[test]
fn the_cluster_knows_where_serve_runs_no_proxies() {
    for (config, expect) in [
        ("proxy_location: HeadOnly\napplications: []", Some("HeadOnly")),
        ("proxy_location: EveryNode", None),
        ("applications: []", None),
        ("[", None),
    ] {
        let mut world = service();
        world.edit(|spec| spec["serveConfigV2"] = json!(config));
        world.steps(3);
        let cluster = world.api.all(Kind::RayCluster).remove(0);
        assert_eq!(cluster["metadata"]["annotations"]["ray.io/serve-proxy-location"].as_str(), expect, "{config}");
    }
}

#[test]
fn a_service_managed_by_another_controller_is_ignored() {
    let check = |manager: Option<&str>, ours: bool| {
        let mut world = service();
        world.edit(|spec| spec["managedBy"] = json!(manager));
        world.steps(4);
        assert_eq!(world.clusters() > 0, ours, "{manager:?}");
        assert_eq!(world.service.metadata.finalizers.is_some(), ours, "{manager:?}");
    };
    check(None, true);
    check(Some("ray.io/kuberay-operator"), true);
    check(Some(""), false);
    check(Some("kueue.x-k8s.io/multikueue"), false);
}

#[test]
fn a_cluster_gets_labels_annotations_and_hashes() {
    let mut world = service();
    world.annotate("example.com/note", "kept");
    world.service.metadata.labels = Some([("team".to_owned(), "x".to_owned())].into());
    world.steps(3);
    let name = world.pending();
    let cluster = world.object(Kind::RayCluster, &name).clone();
    let metadata = &cluster["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"team": "x", "ray.io/originated-from-cr-name": "web", "ray.io/originated-from-crd": "RayService"})
    );
    assert_eq!(metadata["annotations"]["example.com/note"], "kept");
    assert_eq!(metadata["annotations"]["ray.io/kuberay-version"], "v1.7.0");
    assert_eq!(metadata["annotations"]["ray.io/num-worker-groups"], "1");
    assert_eq!(metadata["annotations"][SERVICE_HASH].as_str().unwrap().len(), 32);
    assert_eq!(
        metadata["ownerReferences"],
        json!([{
            "apiVersion": "ray.io/v1", "kind": "RayService", "name": "web", "uid": "u-web", "controller": true,
            "blockOwnerDeletion": true,
        }])
    );
    let group = &cluster["spec"]["workerGroupSpecs"][0];
    assert_eq!((&group["replicas"], &group["scaleStrategy"]), (&json!(1), &json!({})));
    assert_eq!(group["template"]["metadata"], json!({}));
}

#[test]
fn the_longest_valid_name_is_not_truncated() {
    let mut world = service();
    let name = "s".repeat(47);
    world.service.metadata.name = Some(name.clone());
    world.until("Services", |world| world.api.names(Kind::Service).len() == 2);
    assert_eq!(world.api.names(Kind::Service), [format!("{name}-head-svc"), format!("{name}-serve-svc")]);
}

#[test]
fn the_finalizer_is_written_with_the_spec_as_go_encodes_it() {
    let mut world = service();
    world.edit(|spec| {
        spec["serveConfigV2"] = json!("");
        spec["rayClusterConfig"]["headGroupSpec"]["serviceType"] = json!("");
    });
    world.step();
    let spec = serde_json::to_value(&world.service.spec).unwrap();
    assert!(spec.get("serveConfigV2").is_none(), "an empty text is left out");
    assert!(spec["rayClusterConfig"]["headGroupSpec"].get("serviceType").is_none());
    assert_eq!(spec["rayClusterConfig"]["workerGroupSpecs"][0]["scaleStrategy"], json!({}));
}

#[test]
fn what_an_earlier_service_left_is_deleted_and_made_again() {
    for mut world in [service(), incremental(30, 5, 50)] {
        world.until_ready();
        let kinds = [Kind::Service, Kind::Gateway, Kind::HttpRoute];
        let names = |world: &World| kinds.map(|kind| world.api.names(kind));
        let controllers = |world: &World| -> BTreeSet<String> {
            let all = kinds.iter().flat_map(|kind| world.api.all(*kind));
            let owners = all.map(|object| object["metadata"]["ownerReferences"][0].clone());
            owners.filter(|owner| owner["kind"] == "RayService").map(|owner| owner["uid"].to_string()).collect()
        };
        // Deleted and created again, which the garbage collector has missed.
        let (before, earlier) = (names(&world), world.active());
        world.service.metadata.uid = Some("later".into());
        world.service.metadata.finalizers = None;
        world.service.status = None;
        world.restart_operator();
        world.until_ready();
        world.until("the earlier cluster is gone", |world| !world.api.names(Kind::RayCluster).contains(&earlier));
        assert_eq!(controllers(&world), ["\"later\"".to_owned()].into(), "{:?}", world.api.deleted);
        assert_eq!(names(&world)[1..], before[1..]);
    }
}

#[test]
fn what_leads_to_a_cluster_that_serves_stays_whoever_made_it() {
    let mut world = service();
    world.until_ready();
    world.object(Kind::Service, "web-serve-svc")["metadata"]["ownerReferences"][0]["uid"] = json!("earlier");
    world.steps(5);
    assert_eq!(world.api.deleted, [""; 0]);
    world.service.metadata.deletion_timestamp = Some(Time(world.now));
    world.step();
    assert!(world.api.deleted.contains(&"Service web-serve-svc".to_owned()), "{:?}", world.api.deleted);
}
