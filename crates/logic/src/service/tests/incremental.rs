//! Incremental upgrades, step by step.

use super::world::{World, incremental, key, service};
use crate::action::Kind;
use jiff::SignedDuration;
use serde_json::{Value, json};

/// Returns an incremental service that serves, with its route.
fn steady(step: i32, interval: i32, surge: i32) -> World {
    let mut world = incremental(step, interval, surge);
    world.until("route", |world| world.weights() == [100] && world.condition("Ready").0 == "True");
    world.steps(2);
    world
}

/// Returns weights and shares whenever they change, until there is one cluster in the route again.
pub(super) fn migration(world: &mut World) -> Vec<String> {
    migration_after(world, Vec::new())
}

/// Returns the same from the middle of an upgrade, beginning with the current line.
pub(super) fn migration_from(world: &mut World, now: &str) -> Vec<String> {
    migration_after(world, vec![now.to_owned()])
}

fn migration_after(world: &mut World, mut seen: Vec<String>) -> Vec<String> {
    for _ in 0..900 {
        let [active, pending] = world.shares();
        let show = |(capacity, traffic): (Option<i32>, Option<i32>)| {
            let show = |share: Option<i32>| share.map_or("null".to_owned(), |share| share.to_string());
            format!("{}/{}", show(capacity), show(traffic))
        };
        let pending = if world.pending().is_empty() { "-".to_owned() } else { show(pending) };
        let weights: Vec<String> = world.weights().iter().map(i64::to_string).collect();
        let line = format!("A {} P {pending} route {}", show(active), weights.join("/"));
        if seen.last() != Some(&line) {
            seen.push(line);
        }
        if seen.len() > 3 && world.pending().is_empty() && world.weights() == [100] {
            return seen;
        }
        world.step();
    }
    panic!("it does not end: {seen:#?}");
}

#[test]
fn the_new_cluster_starts_with_the_fewest_workers_and_gets_what_it_asks_for() {
    let mut world = steady(50, 30, 50);
    world.set_version("2.54.0");
    world.until("made", |world| world.clusters() == 2);
    let group = world.object(Kind::RayCluster, &world.pending())["spec"]["workerGroupSpecs"][0].clone();
    assert_eq!((&group["replicas"], &group["minReplicas"]), (&Value::Null, &json!(1)));
}

#[test]
fn step_sizes_and_intervals_are_configurable() {
    let check = |step: i32, surge: i32, expect: &[&str]| {
        let mut world = steady(step, 30, surge);
        world.set_version("2.54.0");
        assert_eq!(migration(&mut world), expect, "{step} {surge}");
    };
    check(
        25,
        50,
        &[
            "A 100/100 P - route 100",
            "A 100/100 P 0/null route 100",
            "A 100/100 P 0/0 route 100/0",
            "A 100/100 P 50/0 route 100/0",
            "A 100/75 P 50/25 route 75/25",
            "A 100/50 P 50/50 route 50/50",
            "A 50/50 P 50/50 route 50/50",
            "A 50/50 P 100/50 route 50/50",
            "A 50/25 P 100/75 route 25/75",
            "A 50/0 P 100/100 route 0/100",
            "A 100/100 P - route 0/100",
            "A 100/100 P - route 100",
        ],
    );
    check(
        100,
        100,
        &[
            "A 100/100 P - route 100",
            "A 100/100 P 0/null route 100",
            "A 100/100 P 0/0 route 100/0",
            "A 100/100 P 100/0 route 100/0",
            "A 100/0 P 100/100 route 0/100",
            "A 100/100 P - route 0/100",
            "A 100/100 P - route 100",
        ],
    );
}

#[test]
fn traffic_steps_keep_their_interval_and_never_decrease() {
    for (step, interval, surge) in [(100, 1, 100), (25, 5, 50), (5, 10, 25)] {
        let mut world = steady(step, interval, surge);
        let c1 = world.active();
        world.set_version("2.54.0");
        let mut last = (world.now, 0, 100);
        let fewest = world.endpoints();
        while world.active() == c1 {
            world.step();
            let [active, pending] = world.shares();
            if world.active() != c1 {
                break;
            }
            let (grown, shrunk) = (pending.1.unwrap_or(0), active.0.unwrap_or(100));
            assert!(grown >= last.1 && shrunk <= last.2, "{grown} {shrunk} after {last:?}");
            if grown > last.1 {
                let waited = world.now.duration_since(last.0).as_secs();
                assert!(last.1 == 0 || waited >= i64::from(interval), "{waited}");
                last.0 = world.now;
            }
            (last.1, last.2) = (grown, shrunk);
            assert!(world.endpoints() >= fewest, "{} endpoints", world.endpoints());
        }
    }
}

#[test]
fn traffic_waits_for_applications_and_ready_pods() {
    let mut world = steady(50, 10, 50);
    world.outcome = "DEPLOY_FAILED".to_owned();
    world.set_version("2.54.0");
    world.steps(30);
    assert_eq!(world.shares()[1], (Some(50), Some(0)), "capacity, but no traffic");
    let c2 = world.pending();
    world.set_apps(&c2, "RUNNING");
    world.pods_not_ready.insert(c2.clone());
    world.steps(10);
    assert_eq!(world.weights(), [100, 0], "no Pod of it is ready");
    world.pods_not_ready.remove(&c2);
    world.until("traffic", |world| world.weights() == [50, 50]);
}

#[test]
fn traffic_waits_until_no_earlier_capacity_can_return() {
    let mut world = steady(50, 4, 50);
    world.lost = Some("connection reset".to_owned());
    world.set_version("2.54.0");
    world.until("lost", |world| !world.notes("FailedToUpdateServeApplications").is_empty());
    let lost = world.now;
    world.lost = None;
    world.until("traffic", |world| world.weights().get(1).is_some_and(|weight| *weight > 0));
    assert!(world.now.duration_since(lost) >= SignedDuration::from_secs(60), "it moved at {}", world.now);
    assert_eq!(world.capacities(&world.pending()), [0, 50, 50], "the last one is confirmed");
}

#[test]
fn traffic_waits_until_the_dashboard_shows_the_capacity() {
    let mut world = steady(50, 4, 50);
    world.set_version("2.54.0");
    world.shown_capacity = Some(0);
    world.steps(30);
    assert_eq!(world.shares()[1], (Some(50), Some(0)), "submitted, and not shown yet");
    world.shown_capacity = None;
    world.until("traffic", |world| world.weights() == [50, 50]);
}

#[test]
fn without_the_gateway_api_a_service_is_reported_and_started() {
    let mut world = incremental(10, 30, 10);
    world.gateway_api = false;
    world.until_ready();
    let notes = world.notes("FailedToCreateGateway");
    assert!(
        notes[0].starts_with("Failed to create Gateway for RayService ns/web-gateway: the API server"),
        "{notes:?}"
    );
    assert_eq!(world.leads_to("web-head-svc"), world.active());
    let c1 = world.active();
    world.set_version("2.54.0");
    world.steps(20);
    assert_eq!((world.active(), world.condition("Ready").0), (c1.clone(), "True"), "users are served by the old one");
    world.advance(600);
    world.step();
    let message = world.full_condition("UpgradeStalled").unwrap().message;
    assert!(message.contains("install the Gateway API"), "{message}");
    world.advance(3000);
    world.until("given up", |world| world.pending().is_empty());
    assert_eq!(world.condition("UpgradeInProgress"), ("False", "UpgradeGivenUp"));
    world.until("clean", |world| world.api.names(Kind::RayCluster) == [c1.clone()]);
}

#[test]
fn gateway_and_route_follow_the_spec() {
    let mut world = steady(10, 30, 10);
    world.object(Kind::Gateway, "web-gateway")["spec"]["listeners"][0]["allowedRoutes"] = json!({});
    world.step();
    assert!(world.notes("UpdatedGateway").is_empty());
    world.edit(|spec| spec["upgradeStrategy"]["clusterUpgradeOptions"]["gatewayClassName"] = json!("envoy"));
    world.step();
    assert_eq!(world.notes("UpdatedGateway"), ["Updated the Gateway ns/web-gateway"]);
    assert_eq!(world.object(Kind::Gateway, "web-gateway")["spec"]["gatewayClassName"], "envoy");
    world.object(Kind::HttpRoute, "web-httproute")["spec"]["rules"][0]["backendRefs"][0]["weight"] = json!(7);
    world.advance(2);
    world.pass();
    assert_eq!(world.weights(), [100], "a drifted weight is repaired");
}

#[test]
fn without_the_gate_the_strategy_does_nothing() {
    let mut world = incremental(10, 30, 10);
    world.config.gates.ray_service_incremental_upgrade = false;
    world.until_ready();
    assert!(world.api.names(Kind::Gateway).is_empty());
    assert_eq!(world.api.names(Kind::Service), ["web-head-svc", "web-serve-svc"]);
    let c1 = world.active();
    world.set_version("2.54.0");
    world.steps(5);
    assert_eq!((world.active(), world.pending()), (c1, String::new()));
}

#[test]
fn an_operator_restart_mid_upgrade_keeps_the_old_applications() {
    let mut world = steady(50, 10, 50);
    let c1 = world.active();
    world.edit(|spec| {
        spec["serveConfigV2"] = json!("applications: [{name: new}]");
        spec["rayClusterConfig"]["rayVersion"] = json!("2.54.0");
    });
    world.until("half way", |world| world.weights() == [50, 50]);
    world.restart_operator();
    world.until("promoted", |world| world.active() != c1 && world.pending().is_empty());
    let bodies = world.puts.iter().filter(|(to, _)| *to == c1).map(|(_, body)| body);
    let apps: Vec<_> = bodies.map(|body| body["applications"][0]["name"].as_str().unwrap().to_owned()).collect();
    assert!(apps.len() >= 3 && apps.iter().all(|app| app == "app"), "{apps:?}");
    assert_eq!(world.capacities(&c1).last(), Some(&0));
}

#[test]
fn losing_the_active_cluster_mid_upgrade_promotes_the_pending_one() {
    let mut world = steady(50, 10, 50);
    world.set_version("2.54.0");
    world.until("half way", |world| world.weights() == [50, 50]);
    let (c1, c2) = (world.active(), world.pending());
    world.remove(&key(Kind::RayCluster, &c1));
    world.until("promoted", |world| world.active() == c2);
    assert_eq!(world.notes("RollbackImpossible"), ["Active cluster not found, rollback cannot be initiated"]);
    world.until("all of it", |world| world.weights() == [100]);
    world.steps(3);
    assert_eq!(world.shares()[0], (Some(100), Some(100)));
    assert_eq!(world.capacities(&c2).last(), Some(&100));
}

#[test]
fn a_pending_cluster_lost_mid_upgrade_starts_over() {
    for third in [false, true] {
        let mut world = steady(50, 10, 50);
        let c1 = world.active();
        world.set_version("2.54.0");
        world.until("half way", |world| world.weights() == [50, 50]);
        let c2 = world.pending();
        world.remove(&key(Kind::RayCluster, &c2));
        world.step();
        assert_eq!((world.weights(), world.shares()[1]), (vec![100], (Some(0), None)), "nothing leads to it");
        if third {
            // It goes back before it was ever given anything.
            world.set_version("2.55.0");
        }
        world.until("first traffic", |world| world.weights().get(1).is_some_and(|weight| *weight > 0));
        assert_eq!(world.weights(), [50, 50], "one step, not all that it had");
        world.until("promoted", |world| world.active() != c1 && world.pending().is_empty());
        assert_eq!(world.active() == c2, !third);
        world.until("clean", |world| world.clusters() == 1);
    }
}

#[test]
fn the_only_cluster_lost_is_replaced_with_all_of_its_workers() {
    let mut world = steady(50, 10, 50);
    let c1 = world.active();
    world.remove(&key(Kind::RayCluster, &c1));
    world.until("made", |world| world.clusters() == 1);
    let c2 = world.pending();
    assert_eq!(world.object(Kind::RayCluster, &c2)["spec"]["workerGroupSpecs"][0]["replicas"], 1);
    world.until("serving", |world| world.active() == c2 && world.weights() == [100]);
    assert_eq!(world.capacities(&c2), [100]);
}

#[test]
fn switching_to_incremental_upgrades_and_back_keeps_serving() {
    let mut world = service();
    world.edit(|spec| spec["rayClusterConfig"]["enableInTreeAutoscaling"] = json!(true));
    world.until_ready();
    let options = json!({"gatewayClassName": "istio", "stepSizePercent": 50, "intervalSeconds": 5});
    world.edit(|spec| {
        spec["upgradeStrategy"] = json!({"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options});
    });
    world.until("route", |world| world.weights() == [100]);
    let c1 = world.active();
    world.set_version("2.54.0");
    world.until("on the way", |world| world.weights() == [50, 50]);
    world.edit(|spec| spec["upgradeStrategy"] = json!({"type": "NewCluster"}));
    world.until("promoted", |world| world.active() != c1);
    world.until_ready();
    world.until("clean", |world| world.clusters() == 1);
}
