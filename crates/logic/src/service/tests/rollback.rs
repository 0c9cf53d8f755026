//! Rollbacks of incremental upgrades.

use super::world::{World, incremental};
use crate::action::Kind;
use serde_json::json;

/// Returns an upgrade from A to B that has come this far.
fn on_the_way(pending_traffic: i64) -> (World, String, String) {
    let mut world = incremental(10, 5, 10);
    world.until("route", |world| world.weights() == [100] && world.condition("Ready").0 == "True");
    world.steps(2);
    let a = world.active();
    world.set_version("2.54.0");
    world.until("on the way", |world| world.weights().get(1) == Some(&pending_traffic));
    world.step();
    let b = world.pending();
    (world, a, b)
}

#[test]
fn a_rollback_works_from_every_step() {
    for traffic in [0, 10, 30, 70, 90] {
        let (mut world, a, b) = on_the_way(traffic);
        world.set_version("2.53.0");
        world.step();
        if traffic > 0 {
            assert_eq!(world.condition("RollbackInProgress"), ("True", "DesiredClusterSpecChanged"), "{traffic}");
            let message = world.full_condition("RollbackInProgress").unwrap().message;
            assert_eq!(message, "Goal state reverted to original cluster, rolling back.");
        }
        let mut last = 100 - traffic;
        while !world.pending().is_empty() {
            world.step();
            let weight = world.weights()[0];
            assert!(weight >= last, "{traffic}: {weight} after {last}");
            last = weight;
        }
        assert_eq!((world.active(), world.condition("RollbackInProgress")), (a.clone(), ("", "")));
        assert_eq!(world.condition("UpgradeInProgress"), ("False", "NoPendingCluster"));
        assert_eq!(world.shares()[0], (Some(100), Some(100)));
        world.until("one backend", |world| world.weights() == [100]);
        world.until("clean", |world| world.api.names(Kind::RayCluster) == [a.clone()]);
        assert!(world.capacities(&b).last().is_none_or(|last| *last == 0));
    }
}

#[test]
fn a_rollback_works_without_the_new_head() {
    let (mut world, a, b) = on_the_way(0);
    world.pods_not_ready.insert(b);
    world.steps(2);
    world.set_version("2.53.0");
    world.until("back", |world| world.pending().is_empty());
    assert_eq!(world.active(), a);
}

#[test]
fn a_rollback_can_be_reverted() {
    let (mut world, a, b) = on_the_way(50);
    world.set_version("2.53.0");
    world.steps(6);
    assert_eq!(world.condition("RollbackInProgress").0, "True");
    world.set_version("2.54.0");
    world.step();
    assert_eq!(world.condition("RollbackInProgress"), ("", ""));
    world.until("promoted", |world| world.active() == b && world.pending().is_empty());
    world.until("clean", |world| !world.api.names(Kind::RayCluster).contains(&a));
}

#[test]
fn a_third_spec_waits_for_the_rollback() {
    let (mut world, a, b) = on_the_way(50);
    let sent = world.puts.len();
    world.edit(|spec| {
        spec["rayClusterConfig"]["rayVersion"] = json!("2.55.0");
        spec["serveConfigV2"] = json!("applications: [{name: third}]");
    });
    world.step();
    let message = world.full_condition("RollbackInProgress").unwrap().message;
    assert_eq!(message, "Goal state changed mid-upgrade, rolling back to original cluster.");
    world.until("back", |world| world.pending() != b);
    assert_eq!(world.active(), a);
    let c = world.pending();
    assert!(!c.is_empty(), "the same pass starts the next upgrade");
    let third = |to: &str| {
        let sent = world.puts[sent..].iter().filter(|(other, _)| other == to);
        sent.filter(|(_, body)| body["applications"][0]["name"] == "third").count()
    };
    assert_eq!((third(&a), third(&b)), (0, 0), "neither gets the configuration of the third");
    world.until("promoted", |world| world.active() == c && world.pending().is_empty());
}

#[test]
fn the_config_goes_to_the_cluster_that_receives_traffic() {
    let (mut world, a, b) = on_the_way(50);
    let sent = world.puts.len();
    world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: next}]"));
    world.steps(3);
    let next = |world: &World, to: &str| {
        let sent = world.puts[sent..].iter().filter(|(other, _)| other == to);
        sent.filter(|(_, body)| body["applications"][0]["name"] == "next").count()
    };
    assert!(next(&world, &b) > 0 && next(&world, &a) == 0, "the pending one, during an upgrade");
    let so_far = next(&world, &b);
    world.edit(|spec| {
        spec["serveConfigV2"] = json!("applications: [{name: back}]");
        spec["rayClusterConfig"]["rayVersion"] = json!("2.53.0");
    });
    world.steps(4);
    let back = world.puts.iter().filter(|(_, body)| body["applications"][0]["name"] == "back");
    let to: Vec<&String> = back.map(|(to, _)| to).collect();
    assert!(!to.is_empty() && to.iter().all(|to| **to == a), "the active one, during a rollback");
    assert!(next(&world, &b) >= so_far);
}

#[test]
fn a_stalled_upgrade_rolls_back_step_by_step() {
    let (mut world, a, b) = on_the_way(30);
    world.set_apps(&b, "UNHEALTHY");
    world.steps(2);
    world.advance(700);
    world.step();
    assert_eq!(world.condition("UpgradeStalled"), ("True", "Failing"));
    world.advance(3000);
    world.step();
    assert_eq!(world.condition("RollbackInProgress"), ("True", "UpgradeGivenUp"));
    assert_eq!(world.full_condition("UpgradeStalled"), None);
    world.until("back", |world| world.pending().is_empty());
    assert_eq!((world.active(), world.condition("UpgradeInProgress")), (a.clone(), ("False", "UpgradeGivenUp")));
    world.until("clean", |world| world.api.names(Kind::RayCluster) == [a.clone()]);
    world.steps(50);
    assert_eq!((world.clusters(), world.weights()), (1, vec![100]));
    world.set_version("2.55.0");
    world.until("promoted", |world| world.active() != a && world.pending().is_empty());
}

#[test]
fn a_rollback_ends_once_the_pending_cluster_is_drained_or_lost() {
    let check = |pending: (i32, i32), healthy: bool, exists: bool, over: bool| {
        let (mut world, a, b) = on_the_way(50);
        world.set_version("2.53.0");
        world.steps(2);
        assert_eq!(world.condition("RollbackInProgress").0, "True");
        let status = world.service.status.as_mut().unwrap();
        let active = status.active_service_status.as_mut().unwrap();
        (active.target_capacity, active.traffic_routed_percent) = (Some(100), Some(100));
        let slot = status.pending_service_status.as_mut().unwrap();
        (slot.target_capacity, slot.traffic_routed_percent) = (Some(pending.0), Some(pending.1));
        if !healthy {
            world.pods_not_ready.insert(b.clone());
        }
        if !exists {
            world.remove(&super::world::key(Kind::RayCluster, &b));
        }
        world.play();
        world.pass();
        assert_eq!(world.pending().is_empty(), over, "{pending:?} {healthy} {exists}");
        assert_eq!((world.active(), world.condition("RollbackInProgress").0 == "True"), (a, !over));
    };
    check((0, 0), true, true, true);
    check((30, 0), false, true, true);
    check((50, 0), true, false, true);
    check((50, 0), true, true, false);
}

#[test]
fn traffic_percentages_come_from_the_route() {
    let (mut world, ..) = on_the_way(20);
    assert_eq!(world.weights(), [80, 20]);
    assert_eq!(world.shares().map(|(_, traffic)| traffic), [Some(80), Some(20)]);
    let b = world.pending();
    world.remove(&super::world::key(Kind::RayCluster, &b));
    world.pass();
    assert_eq!(world.weights(), [100], "one backend has all traffic");
    assert_eq!(world.shares()[1], (Some(0), None), "it is recreated and starts over");
}

#[test]
fn a_rollback_to_lost_applications_is_given_up() {
    let (mut world, a, b) = on_the_way(50);
    world.set_version("2.55.0");
    world.step();
    assert_eq!(world.condition("RollbackInProgress").0, "True");
    world.apps.remove(&a);
    world.restart_operator();
    world.until("promoted", |world| world.active() == b);
    assert_eq!(world.notes("RollbackImpossible").len(), 1);
    world.until("the third", |world| world.active() != b && world.pending().is_empty());
    assert_ne!(world.active(), a);
}

#[test]
fn an_upgrade_between_two_clusters_without_applications_starts_again() {
    let (mut world, a, b) = on_the_way(50);
    world.set_version("2.55.0");
    world.step();
    world.apps.clear();
    world.restart_operator();
    world.until("dropped", |world| world.pending() != b && world.weights().len() == 2);
    assert_eq!(world.weights(), [100, 0], "nothing serves on the third yet");
    world.until("the third", |world| ![&a, &b].contains(&&world.active()) && world.pending().is_empty());
}

#[test]
fn a_step_whose_status_was_lost_is_not_forgotten() {
    let (mut world, _, b) = on_the_way(10);
    let mut statuses = Vec::new();
    while world.weights() != [80, 20] {
        statuses.push(world.service.status.clone());
        world.step();
    }
    world.service.status = statuses.pop().unwrap();
    world.set_version("2.53.0");
    world.step();
    assert_eq!(world.shares().map(|(_, traffic)| traffic), [Some(80), Some(20)], "as the route says");
    assert_eq!(world.pending(), b, "requests are still sent there");
    world.until("back", |world| world.pending().is_empty() && world.weights() == [100]);
}
