//! Services, endpoints, conditions.

use super::world::{group, key, service};
use crate::action::Kind;
use crate::labels::annotation::DELETE_AFTER;
use crate::plan::Wake;
use crate::plan::{LookUps, StatusPlan, plan};
use crate::service::Observed;
use crate::view::EndpointSliceView;
use manta_api::RayService;
use serde_json::{Value, json};
use std::sync::Arc;

#[test]
fn services_are_rewritten_only_for_another_cluster() {
    let mut world = service();
    world.until_ready();
    let ports = json!([{"name": "mine", "port": 1}]);
    for service in ["web-head-svc", "web-serve-svc"] {
        world.object(Kind::Service, service)["spec"]["ports"] = ports.clone();
        world.object(Kind::Service, service)["metadata"]["finalizers"] = json!(["cloud/load-balancer"]);
    }
    world.steps(3);
    assert_eq!(world.object(Kind::Service, "web-head-svc")["spec"]["ports"], ports);
    let address = world.object(Kind::Service, "web-serve-svc")["spec"]["clusterIP"].clone();
    let c1 = world.active();
    world.set_version("2.54.0");
    world.until("promoted", |world| world.active() != c1);
    let after = world.object(Kind::Service, "web-serve-svc").clone();
    assert_eq!(after["spec"]["ports"], json!([{"name": "serve", "port": 8000}]));
    assert_eq!(after["spec"]["clusterIP"], address);
    assert_eq!(after["metadata"]["finalizers"], json!(["cloud/load-balancer"]), "the rest of it is the user's");
}

#[test]
fn a_head_without_a_serve_port_is_reported() {
    let mut world = service();
    world.edit(|spec| {
        spec["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] =
            json!([{"name": "server", "containerPort": 8000}]);
    });
    world.steps(12);
    let notes = world.notes("FailedToCreateService");
    let start = "Failed to create the service ns/web-serve-svc, Please specify a port named 'serve'";
    assert!(notes.len() == 1 && notes[0].starts_with(start), "{notes:?}");
    assert_eq!(world.active(), "", "nothing to promote to");
}

#[test]
fn endpoints_are_counted_for_a_custom_service_name() {
    let mut world = service();
    world.edit(|spec| {
        spec["serveService"] = json!({"metadata": {"name": "mine", "namespace": "elsewhere"}, "spec": {"ports": []}});
    });
    world.until_ready();
    assert_eq!(world.api.names(Kind::Service), ["mine", "web-head-svc"]);
    assert_eq!(world.endpoints(), 2);
}

#[test]
fn endpoints_count_each_ready_pod_once() {
    let mut world = service();
    world.until_ready();
    let check = |slices: Value, expect: Option<i32>| {
        let slices: Vec<Value> = serde_json::from_value(slices).unwrap();
        let labels = json!({"kubernetes.io/service-name": "web-serve-svc"});
        let slices = slices.into_iter().map(|endpoints| {
            let slice = json!({"metadata": {"name": "s", "labels": labels}, "endpoints": endpoints});
            Arc::new(serde_json::from_value::<EndpointSliceView>(slice).unwrap())
        });
        let seen = Observed { slices: slices.collect(), ..world.observed() };
        let plan = plan::<RayService>(&seen, &LookUps::new(), world.now, &world.config);
        let status = match plan.status {
            StatusPlan::Write(status) => status,
            _ => world.status(),
        };
        assert_eq!(status.num_serve_endpoints, expect);
    };
    let endpoint = |ready: Value, uid: &str| json!({"conditions": {"ready": ready}, "targetRef": {"uid": uid}});
    check(json!([[endpoint(json!(true), "a")], [endpoint(json!(true), "a"), endpoint(json!(true), "b")]]), Some(2));
    check(json!([[endpoint(json!(null), "a"), endpoint(json!(false), "b"), endpoint(json!(true), "")]]), None);
    check(json!([[{"conditions": {"ready": true}}, {}], null]), None);
}

#[test]
fn ready_follows_the_endpoints() {
    let mut world = service();
    world.until_ready();
    let set = |world: &mut super::world::World, status: &str, reason: &str| {
        let conditions = world.service.status.as_mut().unwrap().conditions.as_mut().unwrap();
        let ready = conditions.iter_mut().find(|condition| condition.type_ == "Ready").unwrap();
        (ready.status, ready.reason) = (status.to_owned(), reason.to_owned());
    };
    set(&mut world, "True", "Anything");
    world.step();
    assert_eq!(world.condition("Ready"), ("True", "NonZeroServeEndpoints"));
    let active = world.active();
    world.pods_not_ready.insert(active);
    world.steps(2);
    assert_eq!(world.condition("Ready"), ("False", "ZeroServeEndpoints"));
    set(&mut world, "False", "Anything");
    world.step();
    assert_eq!(world.condition("Ready"), ("False", "Anything"));
}

#[test]
fn an_unchanged_status_is_not_written() {
    let mut world = service();
    world.until_ready();
    let writes = world.status_writes;
    world.steps(2);
    assert_eq!(world.status_writes, writes);
    world.service.status.as_mut().unwrap().service_status = None;
    world.step();
    assert_eq!(world.status_writes, writes + 1);
    world.edit(|spec| spec["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"] = json!(2));
    world.steps(2);
    assert_eq!(world.status_writes, writes + 2, "the conditions carry the observed generation");
    assert_eq!(world.full_condition("Ready").unwrap().observed_generation, world.status().observed_generation);
}

#[test]
fn writes_that_fail_leave_the_status_as_it_is() {
    let mut world = service();
    world.until("reserved", |world| !world.pending().is_empty());
    world.api.refuse = Box::new(|step| (step.action.key().kind == Kind::RayCluster).then(|| "quota".to_owned()));
    let before = world.status();
    world.steps(3);
    assert_eq!((world.status(), world.clusters()), (before, 0));
    let c1 = world.pending();
    assert_eq!(world.notes("FailedToCreateRayCluster"), [format!("Failed to create the RayCluster ns/{c1}: quota")]);
    world.api.refuse = Box::new(|step| (step.action.key().kind == Kind::Service).then(|| "quota".to_owned()));
    world.steps(8);
    assert_eq!(world.active(), "", "no promotion without Services");
    assert!(
        world.notes("FailedToCreateService").contains(&"Failed to create the service ns/web-head-svc, quota".into())
    );
    world.api.refuse = Box::new(|_| None);
    world.until_ready();
}

#[test]
fn unreadable_services_keep_selecting_the_serving_cluster() {
    let mut world = service();
    world.until_ready();
    let c1 = world.active();
    world.api.unreadable = true;
    world.set_version("2.54.0");
    world.until("reported", |world| !world.notes("FailedToUpdateService").is_empty());
    let plan = world.pass();
    assert!(matches!(plan.wake, Wake::At(_)), "it is tried again: {:?}", plan.wake);
    world.steps(300);
    assert_eq!((world.active(), world.clusters()), (c1.clone(), 2), "it has not been replaced");
    assert_eq!(world.condition("Ready").0, "True");
    assert_eq!(
        world.notes("FailedToUpdateService")[0],
        "Failed to update the service ns/web-head-svc, forbidden".to_owned()
    );
    world.api.unreadable = false;
    world.until("promoted", |world| world.active() != c1 && world.clusters() == 1);
    world.until_ready();
}

#[test]
fn a_cluster_selected_by_a_service_is_not_deleted() {
    let mut world = service();
    world.until_ready();
    let c1 = world.active();
    world.set_version("2.54.0");
    world.until("promoted", |world| world.active() != c1);
    // A user changes the selector back, and the operator cannot write it.
    world.object(Kind::Service, "web-serve-svc")["spec"]["selector"]["ray.io/cluster"] = json!(c1);
    world.api.unreadable = true;
    world.steps(200);
    assert_eq!(world.clusters(), 2, "requests still go to the old one");
    assert!(world.object(Kind::RayCluster, &c1)["metadata"]["annotations"][DELETE_AFTER].is_null());
    world.api.unreadable = false;
    world.until("scheduled", |world| {
        let cluster = world.api.objects.get(&key(Kind::RayCluster, &c1));
        cluster.is_some_and(|cluster| !cluster["metadata"]["annotations"][DELETE_AFTER].is_null())
    });
    world.until("gone", |world| world.clusters() == 1);
}

#[test]
fn endpoints_follow_lost_and_recovered_workers() {
    let mut world = service();
    world.edit(|spec| {
        spec["excludeHeadPodFromServeSvc"] = json!(true);
        spec["rayClusterConfig"]["workerGroupSpecs"] = json!([group("small", 2)]);
    });
    world.until_ready();
    assert_eq!(world.endpoints(), 2);
    let active = world.active();
    world.pods_not_ready.insert(active.clone());
    world.until("lost", |world| world.condition("Ready") == ("False", "ZeroServeEndpoints"));
    world.pods_not_ready.remove(&active);
    world.until_ready();
    assert!(world.api.objects.contains_key(&key(Kind::Service, "web-serve-svc")));
}

#[test]
fn upgrade_in_progress_follows_the_cluster_names_in_the_status() {
    let check = |active: &str, pending: &str, reason: &str, expect: (&str, &str)| {
        let mut world = service();
        world.until_ready();
        world.outcome = "DEPLOYING".to_owned();
        let status = world.service.status.as_mut().unwrap();
        let conditions = status.conditions.as_mut().unwrap();
        let upgrade = conditions.iter_mut().find(|condition| condition.type_ == "UpgradeInProgress").unwrap();
        (upgrade.status, upgrade.reason) = ("False".to_owned(), reason.to_owned());
        let name = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        let known = status.active_service_status.as_mut().unwrap();
        known.ray_cluster_name = if active == "known" { known.ray_cluster_name.clone() } else { name(active) };
        status.pending_service_status.as_mut().unwrap().ray_cluster_name = name(pending);
        world.edit(|spec| {
            if !pending.is_empty() {
                spec["rayClusterConfig"]["rayVersion"] = json!("2.54.0");
            }
        });
        world.pass();
        assert_eq!(world.condition("UpgradeInProgress"), expect, "{active:?} {pending:?} {reason}");
    };
    check("known", "web-bbbbb", "Initializing", ("True", "BothActivePendingClustersExist"));
    check("known", "", "Initializing", ("False", "NoPendingCluster"));
    check("", "", "NoPendingCluster", ("Unknown", "NoActiveCluster"));
    check("", "web-bbbbb", "NoPendingCluster", ("Unknown", "NoActiveCluster"));
    check("", "", "Initializing", ("False", "Initializing"));
    check("", "web-bbbbb", "InitializingTimeout", ("False", "InitializingTimeout"));
}
