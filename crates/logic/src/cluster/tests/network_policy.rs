//! Network policies follow `spec.networkPolicy`, and foreign ones are never touched.

use super::world::{World, cluster, group};
use crate::action::{Action, Kind, ObjectKey, Step};
use crate::build;
use crate::cluster::Plan;
use crate::fake_api::view;
use crate::labels::CLUSTER;
use crate::plan::{Halt, LookUps, Wake, plan};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use manta_api::RayCluster;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const HEAD: &str = "demo-head";
const SMALL: &str = "demo-workers-small";
const BIG: &str = "demo-workers-big";

/// Returns a cluster with one worker and the policies of its mode.
fn isolated(mode: &str) -> World {
    let mut world = cluster(1);
    world.edit(|spec| spec["networkPolicy"] = json!({"mode": mode}));
    world
}

fn set_groups(world: &mut World, names: &[&str]) {
    world.edit(|spec| spec["workerGroupSpecs"] = names.iter().map(|name| group(name, 1)).collect());
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::NetworkPolicy, "ns", name)
}

/// Returns a policy that carries the cluster's label but is not controlled by it.
fn foreign(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": "foreign", "labels": {CLUSTER: "demo"}},
        "spec": {"podSelector": {}},
    })
}

fn insert_foreign(world: &mut World, name: &str) {
    world.api.objects.insert(key(name), foreign(name));
}

/// Returns labels and spec of the policies that the spec asks for, by name.
fn wanted(world: &World) -> BTreeMap<String, Value> {
    let policies = build::network_policies(&world.cluster).into_iter();
    policies.map(|policy| (policy.metadata.name.clone().unwrap(), content(&policy))).collect()
}

/// Returns labels and spec of the cluster's live policies, by name.
fn live(world: &World) -> BTreeMap<String, Value> {
    let ours = world.api.all(Kind::NetworkPolicy).into_iter().filter(|policy| policy["metadata"]["uid"] != "foreign");
    let policies = ours.map(view::<NetworkPolicy>);
    policies.map(|policy| (policy.metadata.name.clone().unwrap(), content(&policy))).collect()
}

fn content(policy: &NetworkPolicy) -> Value {
    json!([policy.metadata.labels, policy.spec])
}

fn is_of_policies(step: &Step) -> bool {
    step.action.key().kind == Kind::NetworkPolicy
}

#[test]
fn head_and_groups_get_policies_before_the_pods() {
    let mut world = isolated("DenyAll");
    world.settle_ready();
    assert_eq!(live(&world), wanted(&world));
    assert_eq!(world.api.created[..2], [format!("NetworkPolicy {HEAD}"), format!("NetworkPolicy {SMALL}")]);
    let notes = [HEAD, SMALL].map(|name| format!("Created NetworkPolicy ns/{name}"));
    assert_eq!(world.api.notes("CreatedNetworkPolicy"), notes);
    let writes = world.api.writes;
    world.pass();
    assert_eq!(world.api.writes, writes, "unchanged policies are not written");
}

#[test]
fn clusters_without_the_field_or_the_gate_get_no_policies() {
    let mut world = cluster(1);
    world.settle_ready();
    assert!(live(&world).is_empty());
    let mut world = isolated("DenyAll");
    world.config.gates.ray_cluster_network_policy = false;
    world.pass();
    assert!(live(&world).is_empty());
}

#[test]
fn a_changed_spec_replaces_the_policies_and_keeps_annotations() {
    let mut world = isolated("DenyAll");
    world.settle_ready();
    let annotations = json!({"example.com/note": "mine"});
    world.api.objects.get_mut(&key(HEAD)).unwrap()["metadata"]["annotations"] = annotations.clone();
    world.edit(|spec| spec["networkPolicy"] = json!({"mode": "DenyAllIngress"}));
    world.settle();
    assert_eq!(live(&world), wanted(&world));
    assert_eq!(world.object(Kind::NetworkPolicy, HEAD).unwrap()["metadata"]["annotations"], annotations);
    let notes = [HEAD, SMALL].map(|name| format!("Updated NetworkPolicy ns/{name}"));
    assert_eq!(world.api.notes("UpdatedNetworkPolicy"), notes);
}

#[test]
fn policies_of_removed_groups_are_deleted_once() {
    let mut world = isolated("DenyAll");
    set_groups(&mut world, &["small", "big"]);
    world.settle_ready();
    insert_foreign(&mut world, "foreign");
    world.api.slow_deletion = vec![Kind::NetworkPolicy];
    set_groups(&mut world, &["small"]);
    world.pass();
    world.pass();
    assert_eq!(world.api.deleted, [format!("NetworkPolicy {BIG}")], "a terminating policy is not deleted again");
    assert_eq!(world.api.notes("DeletedNetworkPolicy"), [format!("Deleted NetworkPolicy ns/{BIG}")]);

    world.api.slow_deletion.clear();
    world.end_pods();
    world.edit(|spec| drop(spec.as_object_mut().unwrap().remove("networkPolicy")));
    world.settle();
    assert_eq!(world.api.names(Kind::NetworkPolicy), ["foreign"]);
}

#[test]
fn a_policy_without_the_clusters_label_is_not_stale() {
    let mut world = isolated("DenyAll");
    set_groups(&mut world, &["small", "big"]);
    world.settle_ready();
    set_groups(&mut world, &["small"]);
    let deletions = |label: &str| {
        let mut seen = world.observed();
        let mut stale = world.object(Kind::NetworkPolicy, BIG).unwrap().clone();
        stale["metadata"]["labels"][CLUSTER] = json!(label);
        seen.related.retain(|(_, object)| object.metadata.name != BIG);
        seen.related.push((Kind::NetworkPolicy, std::sync::Arc::new(view(stale))));
        let plan: Plan = plan::<RayCluster>(&seen, &LookUps::new(), world.now, &world.config);
        plan.stages.iter().flatten().filter(|step| is_of_policies(step)).count()
    };
    assert_eq!((deletions("demo"), deletions("other")), (1, 0));
}

#[test]
fn a_foreign_policy_of_the_same_name_halts_only_the_policies() {
    let mut world = isolated("DenyAll");
    set_groups(&mut world, &["small", "big"]);
    world.settle_ready();
    set_groups(&mut world, &["small"]);
    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(3));
    insert_foreign(&mut world, HEAD);
    insert_foreign(&mut world, SMALL);
    let plan = world.pass();
    let error = format!("NetworkPolicy ns/{HEAD} already exists and is not owned by this RayCluster");
    assert_eq!(plan.halts, [Halt { controller: "networkpolicy-controller", error: error.clone() }]);
    assert_eq!(plan.wake, Wake::BackOff);
    let advice = "network isolation will not be applied. Rename the existing NetworkPolicy or use a different \
                  RayCluster name to avoid the collision";
    assert_eq!(world.api.notes("NetworkPolicyNameCollision"), [format!("{error}, {advice}")], "the first one only");
    let event = world.api.events.iter().find(|event| event.reason == "NetworkPolicyNameCollision").unwrap();
    assert_eq!((event.controller, event.action), ("networkpolicy-controller", "Validate"));
    for name in [HEAD, SMALL] {
        assert_eq!(world.object(Kind::NetworkPolicy, name), Some(&foreign(name)));
    }
    assert!(world.object(Kind::NetworkPolicy, BIG).is_some(), "nothing stale is removed");
    assert_eq!(world.pod_names("small").len(), 3, "the cluster's own controller goes on");

    for name in [HEAD, SMALL] {
        world.api.objects.remove(&key(name));
    }
    world.settle_ready();
    assert_eq!(live(&world), wanted(&world));
}

#[test]
fn a_foreign_policy_without_the_label_collides_too() {
    let mut world = isolated("DenyAll");
    let mut unlabelled = foreign(HEAD);
    unlabelled["metadata"]["labels"] = json!({"app": "firewall"});
    world.api.objects.insert(key(HEAD), unlabelled.clone());
    world.pass();
    assert_eq!(world.api.notes("NetworkPolicyNameCollision").len(), 1);
    assert!(world.api.notes("FailedToCreateNetworkPolicy").is_empty());
    assert_eq!(world.object(Kind::NetworkPolicy, HEAD), Some(&unlabelled));
    world.api.objects.remove(&key(HEAD));
    world.settle_ready();
    assert_eq!(live(&world), wanted(&world));
}

#[test]
fn a_policy_that_cannot_be_looked_up_is_created() {
    let mut world = isolated("DenyAll");
    world.api.unreadable = true;
    world.settle();
    assert_eq!(live(&world), wanted(&world));
}

#[test]
fn an_invalid_spec_is_isolated_too() {
    let mut world = isolated("DenyAll");
    world.edit(|spec| spec["headGroupSpec"]["template"]["spec"]["containers"] = json!([]));
    world.settle();
    assert_eq!(live(&world), wanted(&world));
    assert!(world.pods().is_empty() && !live(&world).is_empty());
}

#[test]
fn clusters_that_are_deleted_or_managed_by_others_are_ignored() {
    let ignored: [fn(&mut World); 2] = [World::delete_cluster, |world| {
        world.edit(|spec| spec["managedBy"] = json!("kueue.x-k8s.io/multikueue"));
    }];
    for ignore in ignored {
        let mut world = isolated("DenyAll");
        ignore(&mut world);
        world.pass();
        assert!(live(&world).is_empty());
        let mut world = isolated("DenyAll");
        world.settle_ready();
        let before = live(&world);
        set_groups(&mut world, &[]);
        ignore(&mut world);
        world.pass();
        assert_eq!(live(&world), before);
    }
}

#[test]
fn a_policy_in_flight_or_of_two_groups_is_created_once() {
    let mut world = isolated("DenyAll");
    world.in_flight.creating.push((key(HEAD), None));
    world.pass();
    assert_eq!(world.api.names(Kind::NetworkPolicy), [SMALL]);
    let mut world = isolated("DenyAll");
    set_groups(&mut world, &["small", "small"]);
    world.pass();
    assert_eq!(world.api.names(Kind::NetworkPolicy), [HEAD, SMALL]);
}

#[test]
fn failed_writes_are_reported_and_stop_only_the_policies() {
    type Change = fn(&mut World);
    let changes: [(&str, Change); 3] = [
        ("Create", |world| set_groups(world, &["small", "big"])),
        ("Update", |world| world.edit(|spec| spec["networkPolicy"] = json!({"mode": "DenyAllEgress"}))),
        ("Delete", |world| world.edit(|spec| drop(spec.as_object_mut().unwrap().remove("networkPolicy")))),
    ];
    for (verb, change) in changes {
        let mut world = isolated("DenyAll");
        world.settle_ready();
        let before = live(&world);
        change(&mut world);
        world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(2));
        world.api.refuse = Box::new(|step| is_of_policies(step).then(|| "denied".to_owned()));
        world.pass();
        let first = if verb == "Create" { BIG } else { HEAD };
        let note = format!("Failed to {} NetworkPolicy ns/{first}: denied", verb.to_lowercase());
        assert_eq!(world.api.notes(&format!("FailedTo{verb}NetworkPolicy")), [note]);
        assert_eq!((live(&world), world.pod_names("small").len()), (before, 2), "{verb}");
    }
}

/// Something that happens between passes.
#[derive(Clone, Debug)]
enum Happening {
    Isolate(Option<&'static str>),
    UserRules(bool),
    Groups(Vec<&'static str>),
    InsertForeign(&'static str),
    RemoveForeign,
    Remove(&'static str),
    Tamper(&'static str),
    Invalidate(bool),
    Refuse(bool),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let mode = proptest::sample::select(vec!["DenyAll", "DenyAllIngress", "DenyAllEgress"]);
    let groups = proptest::sample::subsequence(vec!["small", "big", "third"], 0..=3);
    let name = || proptest::sample::select(vec![HEAD, SMALL, BIG, "demo-workers-other"]);
    prop_oneof![
        proptest::option::of(mode).prop_map(Happening::Isolate),
        any::<bool>().prop_map(Happening::UserRules),
        groups.prop_map(Happening::Groups),
        name().prop_map(Happening::InsertForeign),
        Just(Happening::RemoveForeign),
        name().prop_map(Happening::Remove),
        name().prop_map(Happening::Tamper),
        any::<bool>().prop_map(Happening::Invalidate),
        any::<bool>().prop_map(Happening::Refuse),
    ]
}

fn happen(world: &mut World, happening: &Happening) {
    match happening {
        Happening::Isolate(mode) => {
            world.edit(|spec| spec["networkPolicy"] = json!(mode.map(|mode| json!({"mode": mode}))))
        }
        Happening::UserRules(given) => world.edit(|spec| {
            if let Some(policy) = spec["networkPolicy"].as_object_mut() {
                let rules = json!([{"ports": [{"port": 53, "protocol": "UDP"}]}]);
                policy.insert("head".to_owned(), if *given { json!({"egressRules": rules}) } else { Value::Null });
            }
        }),
        Happening::Groups(names) => set_groups(world, names),
        Happening::InsertForeign(name) => insert_foreign(world, name),
        Happening::RemoveForeign => world.api.objects.retain(|_, object| object["metadata"]["uid"] != "foreign"),
        Happening::Remove(name) => drop(world.api.objects.remove(&key(name))),
        Happening::Tamper(name) => {
            let policy = world.api.objects.get_mut(&key(name)).filter(|policy| policy["metadata"]["uid"] != "foreign");
            if let Some(policy) = policy {
                policy["spec"]["policyTypes"] = json!([]);
                policy["metadata"]["labels"]["extra"] = json!("x");
            }
        }
        Happening::Invalidate(invalid) => {
            let containers = if *invalid { json!([]) } else { json!([super::world::container("ray-head")]) };
            world.edit(|spec| spec["headGroupSpec"]["template"]["spec"]["containers"] = containers);
        }
        Happening::Refuse(refuse) => {
            let refuse = *refuse;
            world.api.refuse = Box::new(move |step| (refuse && is_of_policies(step)).then(|| "denied".to_owned()));
        }
    }
}

fn foreign_policies(world: &World) -> Vec<Value> {
    let mut policies = world.api.all(Kind::NetworkPolicy);
    policies.retain(|policy| policy["metadata"]["uid"] == "foreign");
    policies
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn policies_at_rest_are_those_of_the_spec(happenings in proptest::collection::vec(any_happening(), 0..12)) {
        let mut world = isolated("DenyAll");
        for happening in &happenings {
            happen(&mut world, happening);
            let before = foreign_policies(&world);
            let plan = world.pass();
            prop_assert_eq!(foreign_policies(&world), before, "foreign policies are never touched");
            let collided = plan.halts.iter().any(|halt| halt.controller == "networkpolicy-controller");
            let is_delete = |step: &Step| is_of_policies(step) && matches!(step.action, Action::Delete { .. });
            prop_assert!(!collided || !plan.stages.iter().flatten().any(is_delete), "a collision removes nothing");
        }
        world.api.refuse = Box::new(|_| None);
        let collides = wanted(&world);
        world.api.objects.retain(|key, object| {
            object["metadata"]["uid"] != "foreign" || !collides.contains_key(&key.name)
        });
        world.settle_ready();
        prop_assert_eq!(live(&world), wanted(&world));
        let writes = world.api.writes;
        world.pass();
        prop_assert_eq!(world.api.writes, writes, "rest means no writes");
    }
}
