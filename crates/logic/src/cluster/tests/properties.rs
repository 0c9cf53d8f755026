//! Invariants of every cluster under arbitrary events.

use super::world::{World, group};
use crate::action::{Action, Kind};
use crate::labels::{CLUSTER, GANG_SCHEDULING, HEAD, NODE_TYPE};
use crate::plan::Wake;
use crate::plan::{LookUps, plan};
use crate::scheduler::tests::any_scheduler;
use manta_api::RayCluster;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Something that happens between passes.
#[derive(Clone, Debug)]
enum Happening {
    Scale { group: usize, replicas: i32 },
    Suspend(Option<bool>),
    SuspendGroup { group: usize, on: bool },
    AllReady,
    Lose(usize),
    End(usize, bool),
    Strand(usize),
    EndTerminating,
    NameForDeletion { group: usize, pod: usize },
    SpecChange(u8),
    TimePasses(i64),
    Refuse(bool),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0..2usize, 0..6i32).prop_map(|(group, replicas)| Happening::Scale { group, replicas }),
        proptest::option::of(any::<bool>()).prop_map(Happening::Suspend),
        (0..2usize, any::<bool>()).prop_map(|(group, on)| Happening::SuspendGroup { group, on }),
        Just(Happening::AllReady),
        (0..12usize).prop_map(Happening::Lose),
        (0..12usize, any::<bool>()).prop_map(|(pod, failed)| Happening::End(pod, failed)),
        (0..12usize).prop_map(Happening::Strand),
        Just(Happening::EndTerminating),
        (0..2usize, 0..6usize).prop_map(|(group, pod)| Happening::NameForDeletion { group, pod }),
        (0..4u8).prop_map(Happening::SpecChange),
        (0..200i64).prop_map(Happening::TimePasses),
        any::<bool>().prop_map(Happening::Refuse),
    ]
}

prop_compose! {
    fn any_spec()(
        recreate in any::<bool>(), autoscaling in any::<bool>(), hosts in 1..4i32,
        first in 0..4i32, second in 0..3i32, slow in any::<bool>(),
    ) -> (Value, bool) {
        let mut multi = group("multi", second);
        multi["numOfHosts"] = json!(hosts);
        let mut spec = json!({
            "rayVersion": "2.53.0", "enableInTreeAutoscaling": autoscaling,
            "headGroupSpec": {"template": {"spec": {"containers": [super::world::container("ray-head")]}}},
            "workerGroupSpecs": [group("small", first), multi],
        });
        if recreate {
            spec["upgradeStrategy"] = json!({"type": "Recreate"});
        }
        (spec, slow)
    }
}

fn happen(world: &mut World, happening: &Happening) {
    let pods: Vec<String> = world.pods().into_iter().map(|pod| pod.metadata.name.into()).collect();
    let pick = |index: usize| (!pods.is_empty()).then(|| pods[index % pods.len()].clone());
    match happening {
        Happening::Scale { group, replicas } => {
            world.edit(|spec| spec["workerGroupSpecs"][*group]["replicas"] = json!(replicas));
        }
        Happening::Suspend(suspend) => world.edit(|spec| match suspend {
            Some(on) => spec["suspend"] = json!(on),
            None => drop(spec.as_object_mut().unwrap().remove("suspend")),
        }),
        Happening::SuspendGroup { group, on } => {
            world.edit(|spec| spec["workerGroupSpecs"][*group]["suspend"] = json!(on));
        }
        Happening::AllReady => world.run_pods(),
        Happening::Lose(index) => pick(*index).into_iter().for_each(|name| world.remove_pod(&name)),
        Happening::End(index, failed) => {
            let phase = if *failed { "Failed" } else { "Succeeded" };
            pick(*index).into_iter().for_each(|name| world.end_pod(&name, phase, i32::from(*failed)));
        }
        Happening::Strand(index) => {
            let now = world.now.to_string();
            if let Some(name) = pick(*index) {
                world.change_pod(&name, |pod| pod["metadata"]["deletionTimestamp"] = json!(now));
            }
        }
        Happening::EndTerminating => world.end_pods(),
        Happening::NameForDeletion { group, pod } => {
            let named = pick(*pod).into_iter().collect::<Vec<_>>();
            world.edit(|spec| {
                spec["workerGroupSpecs"][*group]["scaleStrategy"] = json!({"workersToDelete": named});
            });
        }
        Happening::SpecChange(version) => {
            world.edit(|spec| spec["rayVersion"] = json!(format!("2.{}.0", 53 + version)));
        }
        Happening::TimePasses(seconds) => world.advance(*seconds),
        Happening::Refuse(refuse) => {
            let refuse = *refuse;
            world.api.refuse = Box::new(move |step| {
                (refuse && matches!(step.action, Action::Create { .. })).then(|| "exceeded quota".to_owned())
            });
        }
    }
}

fn live_heads(world: &World) -> usize {
    let is_live_head =
        |pod: &crate::view::PodView| pod.metadata.label(NODE_TYPE) == Some(HEAD) && !pod.is_terminating();
    world.pods().iter().filter(|pod| is_live_head(pod)).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_happening_breaks_a_cluster(
        (spec, slow) in any_spec(),
        scheduler in any_scheduler(),
        happenings in proptest::collection::vec(any_happening(), 0..12),
    ) {
        let mut world = World::new(spec);
        world.config.batch_scheduler = scheduler;
        world.label(GANG_SCHEDULING, "true");
        world.api.slow_deletion = if slow { vec![Kind::Pod] } else { Vec::new() };
        for happening in &happenings {
            happen(&mut world, happening);
            let suspended = world.condition_status("RayClusterSuspending") == "True"
                || world.condition_status("RayClusterSuspended") == "True";
            let plan = world.pass();
            prop_assert!(live_heads(&world) <= 1, "never two live heads");
            for step in plan.stages.iter().flatten() {
                let key = step.action.key();
                prop_assert_eq!(&key.namespace, "ns");
                prop_assert!(!step.why.is_empty(), "every action has a reason");
                if let Action::Create { body, .. } = &step.action {
                    prop_assert!(!(suspended && key.kind == Kind::Pod), "no Pod while suspended");
                    prop_assert!(key.kind != Kind::Pod || body.value()["metadata"]["labels"][CLUSTER] == "demo");
                }
            }
            if let Wake::At(at) = plan.wake {
                prop_assert!(at > world.now, "a wake lies in the future");
            }
        }
        // Left alone, every cluster comes to rest, and rest means no writes.
        world.api.refuse = Box::new(|_| None);
        world.api.slow_deletion.clear();
        world.end_pods();
        world.edit(|spec| {
            let autoscaling = spec["enableInTreeAutoscaling"] == json!(true);
            for group in spec["workerGroupSpecs"].as_array_mut().unwrap() {
                group["scaleStrategy"] = json!({});
                if autoscaling {
                    group["suspend"] = json!(false);
                }
            }
        });
        world.settle_ready();
        let writes = world.status_writes;
        let plan = world.pass();
        prop_assert!(plan.stages.is_empty() && plan.events.iter().all(|event| event.reason == "DeletedPod"));
        prop_assert_eq!(world.status_writes, writes);
    }

    #[test]
    fn the_order_of_pods_does_not_matter((spec, _) in any_spec(), seed in any::<u64>()) {
        let mut world = World::new(spec);
        world.settle_ready();
        world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(9));
        let seen = world.observed();
        let mut shuffled = seen.clone();
        let count = shuffled.pods.len().max(1);
        shuffled.pods.rotate_left(seed as usize % count);
        let writes = |seen: &crate::cluster::Observed| {
            let plan = plan::<RayCluster>(seen, &LookUps::new(), world.now, &world.config);
            plan.stages.iter().map(|stage| stage.steps.len()).collect::<Vec<_>>()
        };
        prop_assert_eq!(writes(&seen), writes(&shuffled));
    }
}
