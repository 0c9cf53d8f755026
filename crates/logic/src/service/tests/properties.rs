//! Invariants of every RayService under arbitrary events.

use super::world::{World, group, incremental, service};
use crate::action::Kind;
use crate::properties::tries;
use proptest::prelude::*;
use serde_json::json;

/// Something that happens to a RayService.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Version(u8),
    Config(u8),
    AddGroup,
    Strategy(u8),
    Suspend(bool),
    LoseCluster(u8),
    LoseService,
    LoseRoute,
    Apps(u8),
    Proxies(u8),
    Heads(u8),
    DashboardDown(bool),
    Unreadable(bool),
    Restart,
    Time(u16),
    Steps(u8),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0u8..3).prop_map(Happening::Version),
        (0u8..4).prop_map(Happening::Config),
        Just(Happening::AddGroup),
        (0u8..3).prop_map(Happening::Strategy),
        any::<bool>().prop_map(Happening::Suspend),
        (0u8..3).prop_map(Happening::LoseCluster),
        Just(Happening::LoseService),
        Just(Happening::LoseRoute),
        (0u8..3).prop_map(Happening::Apps),
        (0u8..3).prop_map(Happening::Proxies),
        (0u8..3).prop_map(Happening::Heads),
        any::<bool>().prop_map(Happening::DashboardDown),
        any::<bool>().prop_map(Happening::Unreadable),
        Just(Happening::Restart),
        (0u16..5000).prop_map(Happening::Time),
        (1u8..12).prop_map(Happening::Steps),
    ]
}

fn happen(world: &mut World, happening: Happening) {
    let clusters = world.api.names(Kind::RayCluster);
    let some = |which: u8| clusters.get(usize::from(which)).cloned();
    match happening {
        Happening::Version(version) => world.set_version(&format!("2.5{version}.0")),
        Happening::Config(config) => {
            let configs = ["", "applications: [", "applications: [{name: a}]", super::world::CONFIG];
            world.edit(|spec| spec["serveConfigV2"] = json!(configs[usize::from(config)]));
        }
        Happening::AddGroup => world.edit(|spec| {
            let groups = spec["rayClusterConfig"]["workerGroupSpecs"].as_array_mut().unwrap();
            groups.push(group(&format!("g{}", groups.len()), 1));
        }),
        Happening::Strategy(strategy) => world.edit(|spec| {
            spec["rayClusterConfig"]["enableInTreeAutoscaling"] = json!(true);
            let types = ["None", "NewCluster", "NewClusterWithIncrementalUpgrade"];
            let options = json!({"gatewayClassName": "x", "stepSizePercent": 40, "intervalSeconds": 3});
            spec["upgradeStrategy"] = json!({"type": types[usize::from(strategy)], "clusterUpgradeOptions": options});
        }),
        Happening::Suspend(suspend) => world.edit(|spec| spec["suspend"] = json!(suspend)),
        Happening::LoseCluster(which) => {
            if let Some(name) = some(which) {
                world.remove(&super::world::key(Kind::RayCluster, &name));
            }
        }
        Happening::LoseService => world.api.objects.retain(|key, _| key.kind != Kind::Service),
        Happening::LoseRoute => world.api.objects.retain(|key, _| key.kind != Kind::HttpRoute),
        Happening::Apps(status) => {
            let status = ["RUNNING", "DEPLOYING", "DEPLOY_FAILED"][usize::from(status)];
            world.outcome = status.to_owned();
            clusters.iter().for_each(|name| world.set_apps(name, status));
        }
        Happening::Proxies(which) => {
            let name = some(which).unwrap_or_default();
            if !world.proxy_down.remove(&name) {
                world.proxy_down.insert(name);
            }
        }
        Happening::Heads(which) => {
            let name = some(which).unwrap_or_default();
            if !world.pods_not_ready.remove(&name) {
                world.pods_not_ready.insert(name);
            }
        }
        Happening::DashboardDown(dashboard_down) => {
            world.dashboard_down = if dashboard_down { clusters.into_iter().collect() } else { Default::default() };
        }
        Happening::Unreadable(unreadable) => world.api.unreadable = unreadable,
        Happening::Restart => world.restart_operator(),
        Happening::Time(seconds) => world.advance(seconds.into()),
        Happening::Steps(steps) => world.steps(steps.into()),
    }
}

/// Repairs everything.
fn heal(world: &mut World) {
    world.dashboard_down.clear();
    world.api.unreadable = false;
    world.proxy_down.clear();
    world.pods_not_ready.clear();
    world.outcomes.clear();
    world.outcome = "RUNNING".to_owned();
    world.edit(|spec| {
        spec["suspend"] = json!(false);
        spec["serveConfigV2"] = json!(super::world::CONFIG);
        // An abandoned spec is not tried again; a new one is.
        spec["rayClusterConfig"]["rayVersion"] = json!("2.59.0");
    });
    for name in world.api.names(Kind::RayCluster) {
        world.set_apps(&name, "RUNNING");
    }
}

proptest! {
    #![proptest_config(tries(24))]

    #[test]
    fn every_history_ends_serving_from_one_cluster(
        happenings in prop::collection::vec(happening(), 1..14), in_steps: bool,
    ) {
        let mut world = if in_steps { incremental(50, 4, 50) } else { service() };
        for happening in happenings {
            happen(&mut world, happening);
            world.step();
        }
        heal(&mut world);
        world.until("serving from one cluster", |world| {
            let clusters = world.api.all(Kind::RayCluster);
            let is_wanted = clusters.len() == 1 && clusters[0]["spec"]["rayVersion"] == "2.59.0";
            let is_kept = world.service.spec.upgrade_strategy.as_ref().is_some_and(|of| of.type_.as_deref() == Some("None"));
            let ready = world.condition("Ready").0 == "True" && world.pending().is_empty();
            ready && (is_wanted || (is_kept && clusters.len() == 1))
        });
        world.steps(5);
        world.steps(5);
        let before = (world.status_writes, world.api.writes, world.puts.len());
        world.steps(5);
        prop_assert_eq!((world.status_writes, world.api.writes, world.puts.len()), before, "at rest nothing is written");
    }

    #[test]
    fn no_status_makes_a_plan_panic(
        names in prop::collection::vec(prop::option::of("web-[a-z]{0,3}|.{0,8}"), 2),
        shares in prop::collection::vec(any::<Option<i32>>(), 4),
        conditions in prop::collection::vec(
            ("Ready|UpgradeInProgress|RollbackInProgress|UpgradeStalled|Suspending|Suspended|.{0,5}",
             "True|False|Unknown|", "Initializing|UpgradeGivenUp|Failing|.{0,5}", -1_000_000i64..1_000_000),
            0..6,
        ),
        in_steps: bool, endpoints: Option<i32>,
    ) {
        let mut world = if in_steps { incremental(50, 4, 50) } else { service() };
        world.until_ready();
        let mut status = serde_json::to_value(world.status()).unwrap();
        for (place, slot) in ["activeServiceStatus", "pendingServiceStatus"].into_iter().enumerate() {
            let known = status[slot].clone();
            status[slot] = json!({
                "rayClusterName": names[place].clone().map_or(known["rayClusterName"].clone(), |name| json!(name)),
                "targetCapacity": shares[place * 2], "trafficRoutedPercent": shares[place * 2 + 1],
            });
        }
        let conditions = conditions.into_iter().map(|(type_, status, reason, at)| json!({
            "type": type_, "status": status, "reason": reason, "message": "",
            "lastTransitionTime": jiff::Timestamp::from_second(1_767_225_600 + at).unwrap().to_string(),
        }));
        status["conditions"] = conditions.collect();
        status["numServeEndpoints"] = json!(endpoints);
        world.service.status = serde_json::from_value(status).unwrap();
        for _ in 0..3 {
            world.advance(2);
            world.play();
            let plan = world.pass();
            world.poll(plan.poll.as_ref());
        }
    }

    #[test]
    fn an_upgrade_never_reduces_serving_capacity(
        workers in 1i32..5, proxy_down: bool, late in 0usize..12, in_steps: bool, restart: Option<u8>, revert: Option<u8>,
        third: bool,
    ) {
        let mut world = if in_steps { incremental(50, 4, 50) } else { service() };
        world.edit(|spec| {
            spec["rayClusterConfig"]["workerGroupSpecs"] = json!([group("small", workers)]);
            spec["rayClusterConfig"]["workerGroupSpecs"][0]["minReplicas"] = json!(workers);
        });
        world.until_ready();
        let (before, c1) = (world.endpoints(), world.active());
        prop_assert_eq!(before, workers + 1);
        world.outcome = "DEPLOYING".to_owned();
        world.set_version("2.54.0");
        world.until("made", |world| world.clusters() == 2);
        let c2 = world.pending();
        if proxy_down {
            world.proxy_down.insert(c2.clone());
        }
        let (restart, revert) = (restart.map(|at| at % 60), revert.map(|at| at % 60));
        for step in 0..120 {
            if step == late {
                world.outcome = "RUNNING".to_owned();
                for name in world.api.names(Kind::RayCluster) {
                    world.set_apps(&name, "RUNNING");
                }
            }
            if step == late + 10 {
                world.proxy_down.clear();
            }
            if restart.is_some_and(|at| step == usize::from(at)) {
                world.restart_operator();
            }
            if revert.is_some_and(|at| step == usize::from(at)) {
                world.set_version(if third { "2.55.0" } else { "2.53.0" });
            }
            world.step();
            prop_assert!(world.endpoints() >= before, "{} of {before} at step {step}", world.endpoints());
            let (answered, failed) = world.requests();
            prop_assert!(answered > 0 && failed.is_empty(), "{failed:?} at step {step}");
            prop_assert!(revert.is_some() || world.clusters() <= 2);
        }
        let wanted = world.service.spec.ray_cluster_config.ray_version.clone();
        let active = world.active();
        prop_assert_eq!(&world.object(Kind::RayCluster, &active)["spec"]["rayVersion"], &json!(wanted));
        prop_assert!(revert.is_some() || active != c1);
    }
}
