//! Every name, label and help text of KubeRay's metrics.

use super::*;
use crate::raw_object::RawObject;
use crate::stores::Table;
use jiff::Timestamp;
use manta_api::{RayCluster, RayJob, RayService};
use serde_json::json;

fn put<K: serde::Serialize + 'static>(table: &Table<RawObject<K>>, kind: Kind, object: &K) {
    let raw: RawObject<K> = serde_json::from_str(&serde_json::to_string(object).unwrap()).unwrap();
    let owners = raw.owners(kind);
    table.put(0, Arc::new(raw), owners);
}

fn telemetry() -> Telemetry {
    let telemetry = Telemetry::default();
    let meta = |name: &str| {
        json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
               "creationTimestamp": "2026-01-01T00:00:00Z"})
    };
    let spec = json!({"headGroupSpec": {"template": {"spec": {"containers": []}}}});
    let cluster: RayCluster = serde_json::from_value(json!({
        "metadata": meta("c"), "spec": spec,
        "status": {"conditions": [{"type": "RayClusterProvisioned", "status": "True", "reason": "r", "message": "",
                                   "lastTransitionTime": "2026-01-01T00:00:42Z"}]},
    }))
    .unwrap();
    let mut job: RayJob = serde_json::from_value(json!({
        "metadata": meta("j"), "spec": {"rayClusterSpec": spec},
        "status": {"jobDeploymentStatus": "Running", "startTime": "2026-01-01T00:00:10Z", "failed": 2},
    }))
    .unwrap();
    let service: RayService = serde_json::from_value(json!({
        "metadata": meta("s"), "spec": {"rayClusterConfig": spec},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "",
                                   "lastTransitionTime": "2026-01-01T00:00:42Z"}]},
    }))
    .unwrap();
    let mut ended = job.status.clone().unwrap();
    ended.job_deployment_status = Some("Complete".to_owned());
    let now: Timestamp = "2026-01-01T00:00:25Z".parse().unwrap();
    telemetry.metrics.job_status_written(&job, &ended, now);
    job.status = Some(ended.clone());
    telemetry.metrics.job_status_written(&job, &ended, now + Duration::from_secs(60));

    let stores = &telemetry.stores;
    put(&stores.clusters, Kind::RayCluster, &cluster);
    put(&stores.jobs, Kind::RayJob, &job);
    put(&stores.services, Kind::RayService, &service);
    let key = ObjectKey::new(Kind::RayCluster, "ns", "c");
    let gone = ObjectKey::new(Kind::RayCluster, "ns", "gone");
    for key in [&key, &gone] {
        telemetry.metrics.pass_started(key, Duration::from_millis(20));
        telemetry.metrics.pass_ended(key, &crate::queue::Requeue::BackOff, Duration::from_millis(30));
    }
    telemetry.metrics.observe_request(&http::Method::GET, "host:6443", "200", Duration::from_millis(2));
    telemetry.metrics.observe_dashboard_request(Some(200));
    telemetry
}

#[test]
fn kuberay_metrics_have_the_documented_names_labels_and_help() {
    let text = telemetry().scrape(true).unwrap();
    let id = |name: &str| format!("name=\"{name}\",namespace=\"ns\",uid=\"uid-{name}\"");
    let (c, j, s) = (id("c"), id("j"), id("s"));
    for (name, labels, value, help) in [
        (
            "kuberay_cluster_provisioned_duration_seconds",
            c.clone(),
            "42.0",
            "The time, in seconds, when a RayCluster's `RayClusterProvisioned` status transitions from false (or unset) to true",
        ),
        (
            "kuberay_cluster_info",
            format!("{c},owner_kind=\"None\""),
            "1.0",
            "Metadata information about RayCluster custom resources",
        ),
        (
            "kuberay_cluster_condition_provisioned",
            format!("{c},condition=\"true\""),
            "1.0",
            "Indicates whether the RayCluster is provisioned",
        ),
        (
            "kuberay_job_execution_duration_seconds",
            format!("{j},job_deployment_status=\"Complete\",retry_count=\"2\""),
            "15.0",
            "Duration from when the RayJob CR’s JobDeploymentStatus transitions from Initializing to either the Retrying state or a terminal state, such as Complete or Failed. The Retrying state indicates that the CR previously failed and that spec.backoffLimit is enabled.",
        ),
        ("kuberay_job_info", j.clone(), "1.0", "Metadata information about RayJob custom resources"),
        (
            "kuberay_job_deployment_status",
            format!("{j},deployment_status=\"Complete\""),
            "1.0",
            "The RayJob's current deployment status",
        ),
        ("kuberay_service_info", s.clone(), "1.0", "Metadata information about RayService custom resources"),
        (
            "kuberay_service_condition_ready",
            format!("{s},condition=\"true\""),
            "1.0",
            "Describes whether the RayService is ready. Ready means users can send requests to the underlying cluster and the number of serve endpoints is greater than 0.",
        ),
        (
            "kuberay_service_condition_upgrade_in_progress",
            format!("{s},condition=\"false\""),
            "1.0",
            "Describes whether the RayService is performing a zero-downtime upgrade.",
        ),
    ] {
        for line in
            [format!("# HELP {name} {help}"), format!("# TYPE {name} gauge"), format!("{name}{{{labels}}} {value}")]
        {
            assert!(text.lines().any(|found| found == line), "{line}\nis missing in\n{text}");
        }
        assert_eq!(text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count(), 1, "{name}");
    }
}

/// Returns the names of one RayJob's series.
fn series_of(text: &str, name: &str) -> Vec<String> {
    let label = format!("{{name=\"{name}\",");
    let of_job = |line: &&str| line.starts_with("kuberay_job_") && line.contains(&label);
    text.lines().filter(of_job).map(|line| line.split('{').next().unwrap_or_default().to_owned()).collect()
}

/// Returns telemetry with a second RayJob, which has ended too.
fn with_another_job() -> Telemetry {
    let telemetry = telemetry();
    let job = |status: &str| -> RayJob {
        serde_json::from_value(json!({
            "metadata": {"name": "other", "namespace": "ns", "uid": "uid-other"}, "spec": {},
            "status": {"jobDeploymentStatus": status, "startTime": "2026-01-01T00:00:00Z"},
        }))
        .unwrap()
    };
    let (running, ended) = (job("Running"), job("Failed"));
    let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    telemetry.metrics.job_status_written(&running, ended.status.as_ref().unwrap(), now);
    put(&telemetry.stores.jobs, Kind::RayJob, &ended);
    telemetry
}

const SERIES: [&str; 3] =
    ["kuberay_job_execution_duration_seconds", "kuberay_job_info", "kuberay_job_deployment_status"];

#[test]
fn deleting_a_rayjob_removes_its_series() {
    let telemetry = with_another_job();
    let text = telemetry.scrape(true).unwrap();
    assert_eq!(series_of(&text, "j"), SERIES);
    assert_eq!(series_of(&text, "other"), SERIES);
    telemetry.stores.jobs.remove("ns", "other");
    let text = telemetry.scrape(true).unwrap();
    assert_eq!(series_of(&text, "j"), SERIES);
    assert!(!text.contains("uid-other"), "{text}");
}

#[test]
fn deleting_another_name_removes_no_series() {
    let telemetry = with_another_job();
    for (namespace, name) in [("", ""), ("ns", ""), ("", "other"), ("other", "ns")] {
        telemetry.stores.jobs.remove(namespace, name);
        let text = telemetry.scrape(true).unwrap();
        for job in ["j", "other"] {
            assert_eq!(series_of(&text, job), SERIES, "{namespace}/{name}");
        }
    }
}

#[test]
fn rayservice_series_follow_conditions_and_deletion() {
    let telemetry = Telemetry::default();
    let stores = &telemetry.stores;
    let put_service = |name: &str, ready: &str, upgrading: &str| {
        let condition = |type_: &str, status: &str| {
            json!({"type": type_, "status": status, "reason": "r", "message": "",
                   "lastTransitionTime": "2026-01-01T00:00:42Z"})
        };
        let service: RayService = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
            "spec": {"rayClusterConfig": {"headGroupSpec": {"template": {"spec": {"containers": []}}}}},
            "status": {"conditions": [condition("Ready", ready), condition("UpgradeInProgress", upgrading)]},
        }))
        .unwrap();
        put(&stores.services, Kind::RayService, &service);
    };
    let series = || -> Vec<String> {
        let text = telemetry.scrape(true).unwrap();
        let of_services = text.lines().filter(|line| line.starts_with("kuberay_service_"));
        of_services.map(|line| line.trim_start_matches("kuberay_service_").to_owned()).collect()
    };
    let id = |name: &str| format!("name=\"{name}\",namespace=\"ns\",uid=\"uid-{name}\"");
    let of = |name: &str, ready: &str, upgrading: &str| {
        let id = id(name);
        [
            format!("info{{{id}}} 1.0"),
            format!("condition_ready{{{id},condition=\"{ready}\"}} 1.0"),
            format!("condition_upgrade_in_progress{{{id},condition=\"{upgrading}\"}} 1.0"),
        ]
    };
    let check = |expect: Vec<[String; 3]>| {
        let mut expect: Vec<String> = expect.into_iter().flatten().collect();
        let mut found = series();
        expect.sort();
        found.sort();
        assert_eq!(found, expect);
    };
    put_service("a", "True", "False");
    put_service("b", "False", "True");
    check(vec![of("a", "true", "false"), of("b", "false", "true")]);
    put_service("a", "False", "Unknown");
    check(vec![of("a", "false", "false"), of("b", "false", "true")]);
    stores.services.remove("ns", "b");
    check(vec![of("a", "false", "false")]);
}

#[test]
fn without_enable_metrics_only_the_operators_own_metrics_are_served() {
    let text = telemetry().scrape(false).unwrap();
    assert!(!text.contains("kuberay_"), "{text}");
    for line in [
        "rest_client_requests_total{code=\"200\",method=\"GET\",host=\"host:6443\"} 1",
        "rest_client_request_duration_seconds_count{verb=\"GET\",host=\"host:6443\"} 1",
        "controller_runtime_reconcile_total{controller=\"raycluster\",result=\"error\"} 2",
        "controller_runtime_reconcile_errors_total{controller=\"raycluster\"} 2",
        "controller_runtime_reconcile_time_seconds_count{controller=\"raycluster\"} 2",
        "controller_runtime_active_workers{controller=\"raycluster\"} 0",
        "workqueue_queue_duration_seconds_count{name=\"raycluster\",controller=\"raycluster\"} 2",
        "workqueue_depth{name=\"rayjob\",controller=\"rayjob\",priority=\"\"} 0.0",
        "leader_election_master_status{name=\"ray-operator-leader\"} 0",
        "manta_queue_age_seconds 0.0",
        "manta_object_lag_seconds{controller=\"raycluster\",namespace=\"ns\",name=\"c\"} 0.02",
        "manta_dashboard_requests_total{result=\"200\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nis missing in\n{text}");
    }
    assert!(!text.contains("name=\"gone\""), "a deleted object has no series: {text}");
}

/// The client-go and controller-runtime families that published dashboards query, with their labels.
#[test]
fn controller_runtime_families_have_their_names_and_labels() {
    let telemetry = telemetry();
    let metrics = &telemetry.metrics;
    metrics.observe_sizes(&http::Method::GET, "host:6443", Some(0), Some(70));
    metrics.webhook_started("/validate-ray-io-v1-rayjob");
    metrics.webhook_ended("/validate-ray-io-v1-rayjob", 200, Duration::from_millis(1));
    metrics.certificate_read(false);
    metrics.pass_panicked(&ObjectKey::new(Kind::RayJob, "ns", "j"));
    metrics.pass_started(&ObjectKey::new(Kind::RayJob, "ns", "j"), Duration::ZERO);
    let text = telemetry.scrape(false).unwrap();
    let queue = "{name=\"rayjob\",controller=\"rayjob\"";
    let controller = "{controller=\"rayjob\"";
    let host = "{verb=\"GET\",host=\"host:6443\"";
    let hook = "{webhook=\"/validate-ray-io-v1-rayjob\"";
    for (name, kind, labels) in [
        ("rest_client_requests_total", "counter", "{code=\"200\",method=\"GET\",host=\"host:6443\"}"),
        ("rest_client_request_duration_seconds_count", "histogram", host),
        ("rest_client_request_size_bytes_count", "histogram", host),
        ("rest_client_response_size_bytes_sum", "histogram", host),
        ("controller_runtime_reconcile_total", "counter", "{controller=\"rayjob\",result=\"success\"}"),
        ("controller_runtime_reconcile_total", "counter", "{controller=\"rayjob\",result=\"requeue\"}"),
        ("controller_runtime_reconcile_errors_total", "counter", controller),
        ("controller_runtime_reconcile_panics_total", "counter", "{controller=\"rayjob\"} 1"),
        ("controller_runtime_reconcile_time_seconds_bucket", "histogram", "{le=\"0.15\",controller=\"raycluster\"}"),
        ("controller_runtime_active_workers", "gauge", "{controller=\"rayjob\"} 1"),
        ("workqueue_depth", "gauge", queue),
        ("workqueue_adds_total", "counter", queue),
        ("workqueue_retries_total", "counter", "{name=\"raycluster\",controller=\"raycluster\"} 2"),
        ("workqueue_queue_duration_seconds_count", "histogram", queue),
        ("workqueue_work_duration_seconds_count", "histogram", "{name=\"raycluster\",controller=\"raycluster\"} 2"),
        ("workqueue_unfinished_work_seconds", "gauge", queue),
        ("workqueue_longest_running_processor_seconds", "gauge", queue),
        ("leader_election_master_status", "gauge", "{name=\"ray-operator-leader\"}"),
        ("controller_runtime_webhook_latency_seconds_count", "histogram", hook),
        (
            "controller_runtime_webhook_requests_total",
            "counter",
            "{webhook=\"/validate-ray-io-v1-rayjob\",code=\"200\"} 1",
        ),
        ("controller_runtime_webhook_requests_in_flight", "gauge", hook),
        ("certwatcher_read_certificate_total", "counter", " 1"),
        ("certwatcher_read_certificate_errors_total", "counter", " 1"),
        ("process_cpu_seconds_total", "counter", " "),
        ("process_resident_memory_bytes", "gauge", " "),
        ("process_virtual_memory_bytes", "gauge", " "),
        ("process_open_fds", "gauge", " "),
        ("process_max_fds", "gauge", " "),
        ("process_start_time_seconds", "gauge", " "),
    ] {
        let family =
            ["_total", "_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let typed = format!("# TYPE {family} {kind}");
        assert!(text.lines().any(|line| line == typed), "{typed} is missing in\n{text}");
        let start = format!("{name}{}", labels.trim_end_matches('}'));
        assert!(text.lines().any(|line| line.starts_with(&start)), "{start} is missing in\n{text}");
    }
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let text = telemetry().scrape(true).unwrap();
    let exported: std::collections::BTreeSet<&str> =
        text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next()).collect();
    let board: serde_json::Value =
        serde_json::from_str(include_str!("../../../../deploy/grafana/manta-operator.json")).unwrap();
    let alerts: serde_json::Value =
        serde_saphyr::from_str(include_str!("../../../../deploy/prometheus/alerts.yaml")).unwrap();
    let panels = board["panels"].as_array().unwrap().iter().map(|panel| &panel["targets"][0]["expr"]);
    let rules = alerts["groups"][0]["rules"].as_array().unwrap().iter().map(|rule| &rule["expr"]);
    let mut queried = 0;
    for expression in panels.chain(rules).map(|expression| expression.as_str().unwrap()) {
        let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let is_metric = |word: &&str| {
            ["kuberay_", "controller_", "workqueue_", "rest_", "manta_", "process_", "leader_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
        };
        for name in words.filter(is_metric) {
            queried += 1;
            assert!(exported.contains(name), "{expression}: {name} does not exist");
        }
    }
    assert!(queried > 20, "only {queried} names were found");
}

#[tokio::test]
async fn a_version_of_an_object_is_parsed_for_the_first_scrape_only() {
    let telemetry = telemetry();
    telemetry.parse_ahead().await;
    let key = ObjectKey::new(Kind::RayCluster, "ns", "c");
    let cluster = telemetry.stores.clusters.get(&key, "c").unwrap();
    let first: *const _ = cluster.excerpt().unwrap();
    telemetry.scrape(true).unwrap();
    assert!(std::ptr::eq(first, cluster.excerpt().unwrap()));
}
