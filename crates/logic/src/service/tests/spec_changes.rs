//! What a change of the spec does.

use super::world::{CONFIG, World, group, key, service};
use crate::action::Kind;
use crate::labels::annotation::{KUBERAY_VERSION, NUM_WORKER_GROUPS, SERVICE_HASH};
use crate::plan::Wake;
use jiff::SignedDuration;
use serde_json::{Value, json};

fn ready() -> World {
    let mut world = service();
    world.until_ready();
    world
}

/// Returns what a change did: whether there is a pending cluster, and the worker groups of the active one.
fn change(world: &mut World, change: impl FnOnce(&mut Value)) -> (bool, usize) {
    let active = world.active();
    world.edit(change);
    world.step();
    assert_eq!(world.active(), active);
    let groups = world.object(Kind::RayCluster, &active)["spec"]["workerGroupSpecs"].as_array().unwrap().len();
    (!world.pending().is_empty(), groups)
}

#[test]
fn cluster_spec_changes_that_need_a_new_cluster() {
    let check = |edit: fn(&mut Value), expect: (bool, usize)| {
        let mut world = ready();
        assert_eq!(change(&mut world, |spec| edit(&mut spec["rayClusterConfig"])), expect);
    };
    check(|cluster| cluster["workerGroupSpecs"][0]["replicas"] = json!(3), (false, 1));
    check(|cluster| cluster["workerGroupSpecs"][0]["minReplicas"] = json!(0), (false, 1));
    check(|cluster| cluster["workerGroupSpecs"][0]["maxReplicas"] = json!(20), (false, 1));
    check(
        |cluster| cluster["headGroupSpec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]),
        (false, 1),
    );
    check(
        |cluster| cluster["headGroupSpec"]["template"]["spec"]["schedulingGates"] = json!([{"name": "x"}]),
        (false, 1),
    );
    check(|cluster| cluster["rayVersion"] = json!("2.54.0"), (true, 1));
    check(|cluster| cluster["workerGroupSpecs"].as_array_mut().unwrap().push(group("more", 2)), (false, 2));
    check(
        |cluster| {
            cluster["workerGroupSpecs"][0]["replicas"] = json!(4);
            cluster["workerGroupSpecs"].as_array_mut().unwrap().push(group("more", 2));
        },
        (false, 2),
    );
    check(
        |cluster| {
            cluster["rayVersion"] = json!("2.54.0");
            cluster["workerGroupSpecs"].as_array_mut().unwrap().push(group("more", 2));
        },
        (true, 1),
    );
    check(|cluster| cluster["workerGroupSpecs"] = json!([]), (true, 1));
}

#[test]
fn an_outdated_pending_cluster_is_replaced() {
    let mut world = ready();
    world.outcome = "DEPLOYING".to_owned();
    let active = world.active();
    world.set_version("2.54.0");
    world.steps(4);
    let first = world.pending();
    let sent = world.puts.len();
    world.edit(|spec| {
        spec["serveConfigV2"] = json!("applications: [{name: new}]");
        spec["rayClusterConfig"]["rayVersion"] = json!("2.55.0");
    });
    world.step();
    let second = world.pending();
    assert!(second != first && !second.is_empty(), "a new cluster for the new spec");
    world.set_apps(&first, "RUNNING");
    world.steps(3);
    assert_eq!(world.active(), active, "what was replaced is not promoted");
    let to_first = world.puts[sent..].iter().filter(|(to, _)| *to == first).count();
    assert_eq!(to_first, 0, "and it is not given what came after it");
    world.outcomes.insert(second.clone(), "RUNNING".to_owned());
    world.set_apps(&second, "RUNNING");
    world.until("promoted", |world| world.active() == second);
    world.until("clean", |world| world.clusters() == 1);
}

#[test]
fn a_reserved_cluster_name_is_created_from_the_latest_spec() {
    let mut world = service();
    world.steps(2);
    let name = world.pending();
    world.set_version("2.99.0");
    world.step();
    assert_eq!(world.api.names(Kind::RayCluster), std::slice::from_ref(&name));
    assert_eq!(world.object(Kind::RayCluster, &name)["spec"]["rayVersion"], "2.99.0");
    assert_eq!((world.active(), world.pending()), (String::new(), name));
}

#[test]
fn clusters_of_other_versions_and_added_groups_are_updated_in_place() {
    let mut world = ready();
    let active = world.active();
    world.object(Kind::RayCluster, &active)["metadata"]["annotations"][KUBERAY_VERSION] = json!("v1.6.2");
    world.object(Kind::RayCluster, &active)["spec"]["suspend"] = json!(true);
    world.step();
    let cluster = world.object(Kind::RayCluster, &active).clone();
    assert_eq!(cluster["metadata"]["annotations"][KUBERAY_VERSION], "v1.7.0");
    assert_eq!(cluster["spec"]["suspend"], true, "suspend is not overwritten");
    assert_eq!(world.notes("UpdatedRayCluster"), [format!("Updated the active RayCluster ns/{active}")]);

    world.edit(|spec| spec["rayClusterConfig"]["workerGroupSpecs"].as_array_mut().unwrap().push(group("more", 2)));
    world.step();
    let cluster = world.object(Kind::RayCluster, &active).clone();
    assert_eq!(cluster["metadata"]["annotations"][NUM_WORKER_GROUPS], "2");
    assert_eq!(world.pending(), "");
    let (writes, uid) = (world.api.writes, cluster["metadata"]["uid"].clone());
    world.steps(3);
    assert_eq!(world.object(Kind::RayCluster, &active)["metadata"]["uid"], uid);
    assert_eq!(world.api.writes, writes, "once");
}

#[test]
fn added_groups_go_to_the_pending_cluster() {
    let mut world = ready();
    world.outcome = "DEPLOYING".to_owned();
    world.set_version("2.54.0");
    world.steps(3);
    let pending = world.pending();
    world.edit(|spec| spec["rayClusterConfig"]["workerGroupSpecs"].as_array_mut().unwrap().push(group("more", 2)));
    world.steps(2);
    assert_eq!(world.pending(), pending);
    assert_eq!(world.notes("UpdatedRayCluster"), [format!("Updated the pending RayCluster ns/{pending}")]);
}

#[test]
fn replicas_set_by_the_autoscaler_are_not_overwritten() {
    let mut world = service();
    world.edit(|spec| spec["rayClusterConfig"]["enableInTreeAutoscaling"] = json!(true));
    world.until_ready();
    let active = world.active();
    world.object(Kind::RayCluster, &active)["spec"]["workerGroupSpecs"][0]["replicas"] = json!(5);
    world.steps(3);
    assert_eq!((world.active(), world.pending()), (active.clone(), String::new()));
    // Also when the cluster is brought up to date in place.
    world.edit(|spec| spec["rayClusterConfig"]["workerGroupSpecs"].as_array_mut().unwrap().push(group("more", 2)));
    world.step();
    let groups = world.object(Kind::RayCluster, &active)["spec"]["workerGroupSpecs"].clone();
    assert_eq!((&groups[0]["replicas"], &groups[1]["replicas"]), (&json!(5), &json!(2)));
}

#[test]
fn a_new_serve_config_goes_to_the_active_cluster() {
    let mut world = ready();
    let active = world.active();
    let sent = world.puts.len();
    world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: app}, {name: second}]"));
    world.steps(3);
    assert_eq!(world.puts.len(), sent + 1);
    assert_eq!(world.puts[sent], (active.clone(), json!({"applications": [{"name": "app"}, {"name": "second"}]})));
    let apps = world.status().active_service_status.unwrap().application_statuses.unwrap();
    assert_eq!(apps.keys().collect::<Vec<_>>(), ["app", "second"]);
    assert_eq!((world.active(), world.pending()), (active, String::new()));
}

#[test]
fn a_config_changed_with_the_cluster_spec_goes_to_the_new_cluster() {
    let mut world = ready();
    let active = world.active();
    let sent = world.puts.len();
    world.edit(|spec| {
        spec["serveConfigV2"] = json!("applications: [{name: new}]");
        spec["rayClusterConfig"]["rayVersion"] = json!("2.54.0");
    });
    world.step();
    world.restart_operator();
    world.until("promoted", |world| world.active() != active);
    world.until("clean", |world| world.clusters() == 1);
    let wrong = world.puts[sent..].iter().filter(|(to, _)| *to == active).count();
    assert_eq!(wrong, 0, "the old cluster never gets the new configuration, also after a restart");
    assert_eq!(world.puts.last().unwrap().1, json!({"applications": [{"name": "new"}]}));
}

#[test]
fn with_upgrades_disabled_only_the_config_is_updated() {
    let mut world = service();
    world.edit(|spec| spec["upgradeStrategy"] = json!({"type": "None"}));
    world.until_ready();
    let active = world.active();
    let before = world.object(Kind::RayCluster, &active).clone();
    world.edit(|spec| {
        spec["serveConfigV2"] = json!("applications: [{name: new}]");
        spec["rayClusterConfig"]["rayVersion"] = json!("2.54.0");
    });
    world.steps(4);
    assert_eq!((world.active(), world.pending()), (active.clone(), String::new()));
    assert_eq!(world.puts.last().unwrap(), &(active.clone(), json!({"applications": [{"name": "new"}]})));
    assert_eq!(world.object(Kind::RayCluster, &active)["spec"], before["spec"]);
    assert_eq!(world.object(Kind::RayCluster, &active)["metadata"], before["metadata"]);
}

#[test]
fn a_reverted_spec_keeps_the_running_cluster() {
    for steps in [1, 2, 4] {
        let mut world = ready();
        world.outcome = "DEPLOYING".to_owned();
        let active = world.active();
        let made = world.puts.len();
        world.set_version("2.54.0");
        world.steps(steps);
        assert!(!world.pending().is_empty());
        world.set_version("2.53.0");
        world.step();
        assert_eq!((world.active(), world.pending()), (active.clone(), String::new()), "after {steps} steps");
        assert_eq!(world.condition("UpgradeInProgress"), ("False", "NoPendingCluster"));
        world.until("clean", |world| world.api.names(Kind::RayCluster) == [active.clone()]);
        let again = world.puts[made..].iter().filter(|(to, _)| *to == active).count();
        assert_eq!((again, world.condition("Ready").0), (0, "True"));
    }
}

#[test]
fn the_active_cluster_deleted_by_hand_is_replaced() {
    for strategy in ["NewCluster", "None"] {
        let mut world = service();
        world.edit(|spec| spec["upgradeStrategy"] = json!({"type": strategy}));
        world.until_ready();
        let lost = world.active();
        world.remove(&key(Kind::RayCluster, &lost));
        world.steps(2);
        assert_eq!(world.condition("UpgradeInProgress"), ("True", "BothActivePendingClustersExist"));
        assert_eq!(world.condition("Ready"), ("False", "ZeroServeEndpoints"));
        world.until("replaced", |world| world.active() != lost && world.condition("Ready").0 == "True");
        assert_eq!(world.condition("UpgradeInProgress"), ("False", "NoPendingCluster"));
    }
}

#[test]
fn the_pending_cluster_deleted_by_hand_is_recreated() {
    let mut world = ready();
    world.outcome = "DEPLOYING".to_owned();
    world.set_version("2.54.0");
    world.steps(4);
    let pending = world.pending();
    world.remove(&key(Kind::RayCluster, &pending));
    world.outcome = "RUNNING".to_owned();
    world.until("promoted", |world| world.active() == pending);
}

#[test]
fn upgrades_that_cannot_finish_are_reported_and_ended() {
    let mut world = ready();
    world.outcome = "DEPLOY_FAILED".to_owned();
    let active = world.active();
    world.set_version("2.54.0");
    world.steps(5);
    assert_eq!(world.full_condition("UpgradeStalled"), None);
    world.advance(600);
    world.step();
    assert_eq!(world.condition("UpgradeStalled"), ("True", "Failing"));
    let message = world.full_condition("UpgradeStalled").unwrap().message;
    assert!(message.contains(": Serve application app is DEPLOY_FAILED. The upgrade is rolled back at "), "{message}");
    assert_eq!(world.notes("UpgradeStalled"), [message]);
    let both = "Both active and pending Ray clusters exist";
    assert_eq!(world.full_condition("UpgradeInProgress").unwrap().message, both);
    world.advance(2900);
    world.steps(2);
    assert!(!world.pending().is_empty(), "not before its time");
    world.advance(100);
    world.steps(2);
    assert_eq!((world.active(), world.pending()), (active.clone(), String::new()));
    assert_eq!(world.condition("UpgradeInProgress"), ("False", "UpgradeGivenUp"));
    assert_eq!(world.full_condition("UpgradeStalled"), None);
    world.until("clean", |world| world.api.names(Kind::RayCluster) == [active.clone()]);
    let sent = world.puts.len();
    world.steps(100);
    assert_eq!((world.clusters(), world.puts.len()), (1, sent), "it is not tried again, and the active one stays");
    assert_eq!(world.condition("Ready").0, "True");
    world.outcome = "RUNNING".to_owned();
    world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: mended}]"));
    world.until("promoted", |world| world.active() != active);
    assert_eq!(
        world.puts.last().unwrap().1["applications"][0]["name"],
        "mended",
        "any change of the spec is a new try"
    );
}

#[test]
fn an_abandoned_upgrade_is_tried_again_hours_later() {
    let mut world = ready();
    let active = world.active();
    world.outcome = "DEPLOY_FAILED".to_owned();
    world.set_version("2.54.0");
    world.steps(5);
    world.advance(600);
    world.step();
    world.advance(3000);
    world.steps(2);
    assert_eq!(world.condition("UpgradeInProgress"), ("False", "UpgradeGivenUp"));
    let note = world.notes("UpgradeGivenUp").concat();
    assert!(note.contains("every 6 hours") && note.contains("ray.io/upgrade-timeout"), "{note}");
    world.until("clean", |world| world.api.names(Kind::RayCluster) == [active.clone()]);
    world.outcome = "RUNNING".to_owned();
    world.advance(5 * 3600);
    world.steps(5);
    let plan = world.step();
    assert_eq!(world.clusters(), 1, "not before its time");
    let soon = world.now + SignedDuration::from_hours(1);
    assert!(matches!(plan.wake, Wake::At(at) if at <= soon), "nothing wakes it: {:?}", plan.wake);
    world.advance(3600);
    world.until("promoted", |world| world.active() != active && world.pending().is_empty());
    assert_eq!(world.condition("UpgradeInProgress"), ("False", "NoPendingCluster"));
}

#[test]
fn slow_upgrades_are_reported_and_waited_for() {
    let mut world = ready();
    let active = world.active();
    world.set_version("2.54.0");
    world.step();
    let pending = world.pending();
    world.pods_not_ready.insert(pending.clone());
    world.steps(3);
    world.advance(24 * 3600);
    world.steps(3);
    assert_eq!(world.condition("UpgradeStalled"), ("True", "Waiting"));
    let message = world.full_condition("UpgradeStalled").unwrap().message;
    assert!(message.ends_with(&format!(": the head of RayCluster {pending} is not ready.")), "{message}");
    assert_eq!((world.active(), world.pending()), (active, pending.clone()), "nodes may take a day");
    world.pods_not_ready.clear();
    world.until("promoted", |world| world.active() == pending);
    assert_eq!(world.full_condition("UpgradeStalled"), None);
}

#[test]
fn a_configuration_fails_an_upgrade_only_when_ray_refuses_it() {
    let check = |refused: Option<&str>, lost: Option<&str>, expect: (&str, &str), why: &str| {
        let mut world = ready();
        world.set_version("2.54.0");
        (world.refused, world.lost) = (refused.map(str::to_owned), lost.map(str::to_owned));
        world.steps(5);
        let pending = world.pending();
        world.advance(600);
        world.steps(2);
        assert_eq!(world.condition("UpgradeStalled"), expect, "{refused:?} {lost:?}");
        let message = world.full_condition("UpgradeStalled").unwrap().message;
        assert!(message.contains(&why.replace("CLUSTER", &pending)), "{message}");
    };
    let refused = "the Serve configuration is refused by RayCluster CLUSTER: no such field";
    check(Some("no such field"), None, ("True", "Failing"), refused);
    let lost = "RayCluster CLUSTER has not accepted the Serve configuration yet: no answer within 10 s";
    check(None, Some("no answer within 10 s"), ("True", "Waiting"), lost);
}

#[test]
fn the_annotation_sets_the_upgrade_timeout() {
    let check = |limit: &str, outcome: &str, seconds: i64, given_up: bool| {
        let mut world = ready();
        world.annotate("ray.io/upgrade-timeout", limit);
        world.outcome = outcome.to_owned();
        world.set_version("2.54.0");
        world.steps(3);
        let reported = seconds.min(600);
        world.advance(reported);
        world.step();
        world.advance(seconds - reported);
        world.steps(2);
        assert_eq!(world.pending().is_empty(), given_up, "{limit} {outcome} {seconds}");
    };
    check("2h", "DEPLOYING", 7100, false);
    check("2h", "DEPLOYING", 7300, true);
    check("2h", "DEPLOY_FAILED", 7100, false);
    check("60", "DEPLOYING", 70, true);
    check("0", "DEPLOY_FAILED", 100_000, false);
    // The initializing timeout does not apply to upgrades, as in KubeRay.
    let mut world = ready();
    world.annotate("ray.io/initializing-timeout", "10s");
    world.outcome = "DEPLOYING".to_owned();
    world.set_version("2.54.0");
    world.steps(20);
    assert!(!world.pending().is_empty());
}

#[test]
fn a_spec_change_restarts_the_upgrade_timeout() {
    let mut world = ready();
    world.outcome = "DEPLOY_FAILED".to_owned();
    world.set_version("2.54.0");
    world.steps(5);
    world.advance(600);
    world.step();
    world.advance(2900);
    world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: mended}]"));
    world.steps(2);
    world.advance(2900);
    world.steps(2);
    assert!(!world.pending().is_empty(), "it has only had this configuration for that long");
    world.advance(200);
    world.steps(2);
    assert_eq!(world.condition("UpgradeInProgress"), ("False", "UpgradeGivenUp"));
}

#[test]
fn pods_that_can_never_start_fail_an_upgrade() {
    let check = |status: Value, expect: (&str, &str)| {
        let mut world = ready();
        world.set_version("2.54.0");
        world.step();
        let pending = world.pending();
        world.pods_not_ready.insert(pending.clone());
        world.steps(3);
        world.advance(600);
        world.object(Kind::Pod, &format!("{pending}-head-0"))["status"]["containerStatuses"] = json!([status]);
        world.pass();
        assert_eq!(world.condition("UpgradeStalled"), expect, "{status}");
    };
    let waiting = |reason: &str| json!({"name": "ray-head", "state": {"waiting": {"reason": reason}}});
    check(waiting("ImagePullBackOff"), ("True", "Failing"));
    check(waiting("ContainerCreating"), ("True", "Waiting"));
    check(json!({"name": "ray-head", "restartCount": 4, "state": {"running": {}}}), ("True", "Failing"));
}

#[test]
fn a_failed_upgrade_does_not_return_to_a_dead_cluster() {
    let mut world = ready();
    let active = world.active();
    world.outcome = "DEPLOYING".to_owned();
    world.set_version("2.54.0");
    world.steps(5);
    world.pods_not_ready.insert(active.clone());
    world.steps(2);
    world.advance(7200);
    world.steps(3);
    assert!(!world.pending().is_empty(), "the upgrade is the only way out");
    let pending = world.pending();
    world.set_apps(&pending, "RUNNING");
    world.until("promoted", |world| world.active() == pending);
}

#[test]
fn a_cluster_without_a_recorded_hash_is_updated_in_place() {
    let mut world = ready();
    let active = world.active();
    let annotations = world.object(Kind::RayCluster, &active)["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.remove(SERVICE_HASH);
    annotations.remove(NUM_WORKER_GROUPS);
    world.step();
    assert_eq!(world.pending(), "");
    assert!(world.object(Kind::RayCluster, &active)["metadata"]["annotations"][SERVICE_HASH].is_string());
    assert_eq!(world.service.spec.serve_config_v2.as_deref(), Some(CONFIG));
}
