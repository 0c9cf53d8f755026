//! Serve: submitted configurations, reported errors, and the Pods that receive requests.

use super::world::{World, key, service};
use crate::action::Kind;
use crate::labels::SERVE;
use serde_json::json;

#[test]
fn all_applications_must_run() {
    let mut world = service();
    world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: a}, {name: b}]"));
    world.outcome = "DEPLOYING".to_owned();
    world.steps(6);
    let c1 = world.pending();
    world.apps.get_mut(&c1).unwrap().get_mut("a").unwrap()["status"] = json!("RUNNING");
    world.steps(4);
    assert_eq!((world.active().as_str(), world.api.names(Kind::Service).len()), ("", 0));
    world.set_apps(&c1, "RUNNING");
    world.until("promoted", |world| world.active() == c1);
}

#[test]
fn applications_that_cannot_be_deployed_are_a_condition() {
    let mut world = service();
    world.outcome = "DEPLOY_FAILED".to_owned();
    world.steps(6);
    assert_eq!(world.condition("ApplicationsFailed"), ("True", "DeployFailed"), "before the first one serves");
    let name = world.pending();
    world.set_apps(&name, "RUNNING");
    world.until("promoted", |world| world.active() == name);
    assert_eq!(world.full_condition("ApplicationsFailed"), None);
    world.set_apps(&name, "DEPLOY_FAILED");
    world.steps(3);
    assert_eq!(world.condition("ApplicationsFailed"), ("True", "DeployFailed"));
    assert_eq!(world.condition("Ready").0, "True", "the proxies still answer, as in KubeRay");
    world.set_apps(&name, "RUNNING");
    world.steps(3);
    assert_eq!(world.full_condition("ApplicationsFailed"), None);
}

#[test]
fn the_condition_shows_the_error_at_the_end_of_a_long_traceback() {
    let mut world = service();
    world.outcome = "DEPLOY_FAILED".to_owned();
    world.steps(6);
    let name = world.pending();
    let frames = "  File \"serve/api.py\", line 1, in import_attr\n".repeat(40);
    let traceback = format!(
        "Deploying app 'app' failed with exception:\nTraceback (most recent call last):\n{frames}\
         ModuleNotFoundError: No module named 'nope'\n"
    );
    for app in world.apps.get_mut(&name).unwrap().values_mut() {
        app["message"] = json!(traceback);
    }
    world.steps(3);
    let message = world.full_condition("ApplicationsFailed").unwrap().message;
    assert!(message.contains("Deploying app 'app' failed with exception"), "{message}");
    assert!(message.ends_with("ModuleNotFoundError: No module named 'nope'"), "{message}");
    assert!(message.chars().count() < 1100, "{message}");
}

#[test]
fn the_application_without_a_name_is_the_default_one() {
    let mut world = service();
    world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{import_path: 'a:b'}]"));
    world.outcome = "DEPLOYING".to_owned();
    world.steps(6);
    let apps = world.status().pending_service_status.unwrap().application_statuses.unwrap();
    assert_eq!(apps.keys().collect::<Vec<_>>(), ["default"]);
}

#[test]
fn a_config_lost_with_the_head_is_sent_again() {
    let mut world = service();
    world.until_ready();
    let active = world.active();
    let sent = world.puts.len();
    world.apps.remove(&active);
    let head = format!("{active}-head-0");
    world.api.objects.remove(&key(Kind::Pod, &head));
    world.steps(5);
    assert_eq!(world.puts.len(), sent + 1);
    assert_eq!(world.object(Kind::Pod, &head)["metadata"]["labels"][SERVE], "true");
    assert_eq!(world.condition("Ready").0, "True");
}

#[test]
fn a_config_lost_during_an_upgrade_is_sent_again_unchanged() {
    let mut world = service();
    world.until_ready();
    let active = world.active();
    world.outcome = "DEPLOYING".to_owned();
    world.edit(|spec| {
        spec["serveConfigV2"] = json!("applications: [{name: new}]");
        spec["rayClusterConfig"]["rayVersion"] = json!("2.54.0");
    });
    world.steps(5);
    world.apps.remove(&active);
    world.steps(3);
    let (to, body) = world.puts.last().unwrap();
    assert_eq!((to, body["applications"][0]["name"].as_str()), (&active, Some("app")));
}

#[test]
fn an_operator_that_restarts_sends_the_config_once() {
    let mut world = service();
    world.until_ready();
    let sent = world.puts.len();
    let writes = world.status_writes;
    world.restart_operator();
    world.steps(10);
    assert_eq!(world.puts.len(), sent + 1);
    assert_eq!(world.status_writes, writes, "and nothing else happens");
}

#[test]
fn an_empty_config_is_sent_once() {
    let mut world = service();
    world.edit(|spec| spec["serveConfigV2"] = json!(null));
    world.steps(30);
    assert_eq!(world.puts.len(), 1);
    assert_eq!(world.puts[0].1, json!({}));
    assert_eq!(world.condition("Ready"), ("False", "Initializing"));
}

#[test]
fn a_config_that_is_not_yaml_is_reported_and_harmless() {
    let mut world = service();
    world.until_ready();
    let (active, sent) = (world.active(), world.puts.len());
    world.edit(|spec| spec["serveConfigV2"] = json!("applications: ["));
    world.steps(3);
    let notes = world.notes("FailedToUpdateServeApplications");
    let start =
        format!("Failed to update serve applications to the RayCluster ns/{active}: error converting YAML to JSON");
    assert!(notes.len() == 1 && notes[0].starts_with(&start), "{notes:?}");
    assert_eq!((world.puts.len(), world.condition("Ready").0), (sent, "True"));
    assert_eq!(world.condition("ApplicationsFailed"), ("True", "ConfigRefused"));
}

#[test]
fn a_config_rejected_by_ray_is_reported_and_retried() {
    let mut world = service();
    world.refused = Some("no".to_owned());
    world.steps(8);
    let c1 = world.pending();
    let note = format!("Failed to update serve applications to the RayCluster ns/{c1}: no");
    assert_eq!(world.notes("FailedToUpdateServeApplications"), [note]);
    assert_eq!(world.active(), "");
    assert_eq!(world.full_condition("ApplicationsFailed"), None, "Ready is not True, and nothing else serves");
    world.refused = None;
    world.until_ready();
    assert_eq!(world.full_condition("ApplicationsFailed"), None);

    let accepted = world.service.spec.serve_config_v2.clone();
    world.refused = Some("no such field".to_owned());
    world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: other}]"));
    world.steps(3);
    let condition = world.full_condition("ApplicationsFailed").unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", "ConfigRefused"));
    assert_eq!(condition.message, "Ray refuses serveConfigV2: no such field");
    assert_eq!(world.condition("Ready").0, "True", "what runs goes on serving");
    let writes = world.status_writes;
    world.steps(5);
    assert_eq!(world.status_writes, writes, "another attempt changes nothing");
    world.dashboard_down.insert(world.active());
    world.steps(5);
    assert_eq!(world.condition("ApplicationsFailed").1, "ConfigRefused", "nobody knows better");
    world.dashboard_down.clear();
    world.edit(|spec| spec["serveConfigV2"] = json!(accepted));
    world.steps(3);
    assert_eq!(world.full_condition("ApplicationsFailed"), None, "the last accepted one is asked for again");
}

#[test]
fn a_submission_that_gets_lost_is_no_refusal() {
    let check = |what: &str, break_down: fn(&mut World)| {
        let mut world = service();
        break_down(&mut world);
        world.steps(8);
        assert!(!world.notes("FailedToUpdateServeApplications").is_empty(), "{what}: nothing was lost");
        assert_eq!(world.full_condition("ApplicationsFailed"), None, "{what}, before the first one serves");

        let mut world = service();
        world.until_ready();
        world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: other}]"));
        break_down(&mut world);
        world.steps(8);
        assert!(!world.notes("FailedToUpdateServeApplications").is_empty(), "{what}: nothing was lost");
        assert_eq!(world.full_condition("ApplicationsFailed"), None, "{what}, while an older one serves");
    };
    check("the request takes too long", |world| world.lost = Some("no answer within 10 s".to_owned()));
    check("the head dies during the request", |world| {
        world.lost = Some("connection reset".to_owned());
        world.until("sent", |world| !world.notes("FailedToUpdateServeApplications").is_empty());
        let clusters = [world.active(), world.pending()];
        world.head_not_ready.extend(clusters.clone());
        world.dashboard_down.extend(clusters);
    });
}

#[test]
fn a_refusal_is_reported_for_the_text_that_ray_refused() {
    let check = |what: &str, change: fn(&mut World), expect: Option<&str>| {
        let mut world = service();
        world.until_ready();
        world.refused = Some("no such field".to_owned());
        world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: wrong}]"));
        world.steps(3);
        assert_eq!(world.condition("ApplicationsFailed"), ("True", "ConfigRefused"));
        world.refused = None;
        world.lost = Some("connection reset".to_owned());
        change(&mut world);
        world.steps(3);
        let expect = expect.map(|why| format!("Ray refuses serveConfigV2: {why}"));
        let condition = world.full_condition("ApplicationsFailed");
        assert_eq!(condition.map(|condition| condition.message), expect, "{what}");
    };
    let same = Some("no such field");
    check("later requests get lost", |_| {}, same);
    check("the head dies", |world| world.head_not_ready.extend([world.active()]), same);
    check("the operator restarts", World::restart_operator, same);
    check("another field changes", |world| world.edit(|spec| spec["excludeHeadPodFromServeSvc"] = json!(true)), same);
    let fix = |world: &mut World| world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: fixed}]"));
    check("the text changes", fix, None);
    check(
        "the text changes while the operator is down",
        |world| {
            world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: fixed}]"));
            world.restart_operator();
        },
        None,
    );
    check(
        "the text changes in a spec that is invalid",
        |world| {
            world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: fixed}]"));
            world.edit(|spec| spec["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"] = json!([]));
        },
        None,
    );
    check(
        "Ray refuses the new text as well",
        |world| {
            (world.lost, world.refused) = (None, Some("no such route".to_owned()));
            world.edit(|spec| spec["serveConfigV2"] = json!("applications: [{name: fixed}]"));
        },
        Some("no such route"),
    );
    check("the service is suspended", |world| world.edit(|spec| spec["suspend"] = json!(true)), None);
}

#[test]
fn an_unreachable_dashboard_changes_nothing() {
    let mut world = service();
    world.until_ready();
    let before = world.status();
    world.dashboard_down.insert(world.active());
    world.steps(10);
    assert_eq!(world.status(), before, "what was known stays");
}

#[test]
fn an_unhealthy_application_is_reported_and_keeps_serving() {
    let mut world = service();
    world.until_ready();
    let active = world.active();
    world.set_apps(&active, "UNHEALTHY");
    world.steps(2);
    let apps = world.status().active_service_status.unwrap().application_statuses.unwrap();
    assert_eq!(apps["app"].status.as_deref(), Some("UNHEALTHY"));
    assert_eq!((world.condition("Ready").0, world.leads_to("web-serve-svc")), ("True", active));
}

#[test]
fn the_head_takes_requests_unless_excluded_or_unhealthy() {
    let check = |exclude: bool, healthy: bool, expect: &str| {
        let mut world = service();
        world.edit(|spec| spec["excludeHeadPodFromServeSvc"] = json!(exclude));
        world.until("serving", |world| !world.active().is_empty());
        let active = world.active();
        if !healthy {
            world.proxy_down.insert(active.clone());
        }
        world.steps(3);
        let head = format!("{active}-head-0");
        assert_eq!(world.object(Kind::Pod, &head)["metadata"]["labels"][SERVE], expect, "{exclude} {healthy}");
        assert_eq!(world.endpoints(), if expect == "true" { 2 } else { 1 });
    };
    check(true, true, "false");
    check(false, true, "true");
    check(true, false, "false");
    check(false, false, "false");
}

#[test]
fn without_conditions_the_head_is_ready_by_its_pod() {
    let mut world = service();
    world.config.gates.ray_cluster_status_conditions = false;
    world.steps(3);
    let c1 = world.pending();
    world.pods_not_ready.insert(c1.clone());
    world.steps(3);
    assert!(world.puts.is_empty(), "a head that is not ready is not asked");
    world.pods_not_ready.remove(&c1);
    world.until_ready();
}

#[test]
fn an_upgrade_replaces_a_cluster_without_endpoints() {
    let mut world = service();
    world.until_ready();
    let c1 = world.active();
    world.outcome = "DEPLOYING".to_owned();
    world.set_version("2.54.0");
    world.steps(3);
    world.pods_not_ready.insert(c1.clone());
    world.proxy_down.insert(c1.clone());
    world.until("no endpoints", |world| world.condition("Ready") == ("False", "ZeroServeEndpoints"));
    assert_eq!(world.condition("UpgradeInProgress").0, "True");
    let c2 = world.pending();
    world.set_apps(&c2, "RUNNING");
    world.until("promoted", |world| world.active() == c2);
    world.until_ready();
}

#[test]
fn traffic_moves_only_when_the_new_proxies_are_healthy() {
    let mut world = service();
    world.until_ready();
    let c1 = world.active();
    world.set_version("2.54.0");
    world.step();
    let c2 = world.pending();
    world.proxy_down.insert(c2.clone());
    world.steps(8);
    assert_eq!((world.leads_to("web-serve-svc"), world.endpoints()), (c1.clone(), 2), "one of two answers");
    world.proxy_down.remove(&c2);
    world.until("promoted", |world| world.active() == c2);
    assert_eq!(world.endpoints(), 2);

    // A proxy that never becomes healthy does not block an upgrade forever, if another one is.
    world.set_version("2.55.0");
    world.step();
    let c3 = world.pending();
    world.proxy_down.insert(c3.clone());
    world.until("promoted", |world| world.active() == c3);
}

#[test]
fn clusters_with_a_token_are_polled_with_it() {
    let mut world = service();
    world.edit(|spec| {
        spec["rayClusterConfig"]["authOptions"] = json!({"mode": "token"});
        spec["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] =
            json!([{"name": "dashboard", "containerPort": 9999}, {"name": "serve", "containerPort": 9000}]);
    });
    world.steps(4);
    let plan = world.step();
    let watch = &plan.poll.unwrap().clusters[0];
    let c1 = watch.cluster.clone();
    let dashboard = watch.dashboard.clone().unwrap();
    assert_eq!(dashboard.token_secret, Some(c1.clone()));
    assert_eq!(dashboard.address, format!("{c1}-head-svc.ns.svc.cluster.local:9999"), "the port of the spec");
    assert_eq!(watch.proxy.clone().unwrap().port, 9000);
}
