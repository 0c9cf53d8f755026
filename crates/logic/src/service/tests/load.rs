//! Requests under load: upgrades, scaling and restarts must fail none of them.

use super::world::{World, group, incremental, service};
use crate::action::Kind;
use serde_json::json;

/// Steps with a request to every endpoint after each; all must answer.
#[track_caller]
fn under_load(world: &mut World, steps: usize) {
    for step in 0..steps {
        world.step();
        let (answered, failed) = world.requests();
        assert!(answered > 0 && failed.is_empty(), "step {step}: {answered} answered, but not {failed:?}");
    }
}

#[test]
fn an_upgrade_fails_no_request() {
    for mut world in [service(), incremental(50, 4, 50)] {
        world.until_ready();
        world.until("served", |world| world.requests().0 > 0);
        under_load(&mut world, 5);
        let c1 = world.active();
        world.outcome = "DEPLOYING".to_owned();
        world.set_version("2.54.0");
        under_load(&mut world, 5);
        let c2 = world.pending();
        world.proxy_down.insert(c2.clone());
        world.set_apps(&c2, "RUNNING");
        world.outcome = "RUNNING".to_owned();
        under_load(&mut world, 5);
        world.proxy_down.clear();
        under_load(&mut world, 60);
        assert_eq!(world.active(), c2);
        world.until("clean", |world| !world.api.names(Kind::RayCluster).contains(&c1));
        under_load(&mut world, 5);
    }
}

#[test]
fn workers_scale_up_and_down_with_load() {
    let mut world = service();
    world.edit(|spec| spec["rayClusterConfig"]["enableInTreeAutoscaling"] = json!(true));
    world.until_ready();
    let c1 = world.active();
    let scale = |world: &mut World, replicas: i32| {
        world.object(Kind::RayCluster, &c1)["spec"]["workerGroupSpecs"][0]["replicas"] = json!(replicas);
    };
    scale(&mut world, 5);
    under_load(&mut world, 10);
    assert_eq!((world.endpoints(), world.clusters(), world.pending()), (6, 1, String::new()));
    scale(&mut world, 1);
    for worker in 2..=5 {
        world.api.objects.remove(&super::world::key(Kind::Pod, &format!("{c1}-worker-{worker}")));
    }
    under_load(&mut world, 10);
    assert_eq!((world.endpoints(), world.active()), (2, c1));
}

#[test]
fn workers_serve_while_a_fault_tolerant_head_restarts() {
    let mut world = service();
    world.edit(|spec| {
        spec["excludeHeadPodFromServeSvc"] = json!(true);
        spec["rayClusterConfig"]["workerGroupSpecs"] = json!([group("small", 1)]);
    });
    world.until_ready();
    let (c1, sent) = (world.active(), world.puts.len());
    assert_eq!(world.endpoints(), 1, "the worker alone");
    under_load(&mut world, 3);
    world.head_not_ready.insert(c1.clone());
    world.dashboard_down.insert(c1.clone());
    under_load(&mut world, 10);
    assert_eq!(world.condition("Ready").0, "True");
    world.head_not_ready.clear();
    world.dashboard_down.clear();
    under_load(&mut world, 10);
    assert_eq!((world.endpoints(), world.active(), world.puts.len()), (1, c1, sent), "no configuration was lost");
}
