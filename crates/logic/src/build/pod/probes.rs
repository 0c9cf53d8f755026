//! Liveness and readiness probes of the Ray container.
//!
//! From Ray 2.53 on the dashboard agent serves the health of the node over HTTP. Before that a shell command queries the
//! raylet and, on the head, the GCS. Workers of a RayService are ready only when their Serve proxy is, so that they get
//! no traffic before.

use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use crate::cluster_spec;
use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

const DEFAULT_AGENT_PORT: i32 = 52365;

/// Adds the probes that the user did not define.
pub(super) fn add(context: &PodContext<'_>, builder: &mut PodBuilder) {
    if !context.config.inject_probes || (builder.ray.liveness_probe.is_some() && builder.ray.readiness_probe.is_some())
    {
        return;
    }
    let agent = port(&builder.params, "dashboard-agent-listen-port", DEFAULT_AGENT_PORT);
    let health = if cluster_spec::has_unified_health_check(&context.cluster.spec) {
        http_get(agent)
    } else {
        let dashboard = port(&builder.params, "dashboard-port", cluster_spec::DEFAULT_DASHBOARD_PORT);
        exec(match context.node_type {
            NodeType::Head => format!("{} && {}", query_raylet(agent), query_gcs(dashboard)),
            NodeType::Worker => query_raylet(agent),
        })
    };
    let timeout = Some(if context.node_type == NodeType::Head { 5 } else { 2 });
    let liveness = Probe {
        initial_delay_seconds: Some(30),
        timeout_seconds: timeout,
        period_seconds: Some(5),
        success_threshold: Some(1),
        failure_threshold: Some(120),
        ..health
    };
    if builder.ray.readiness_probe.is_none() {
        let mut readiness = Probe { initial_delay_seconds: Some(10), failure_threshold: Some(10), ..liveness.clone() };
        if context.is_serve_worker() {
            let serve = cluster_spec::container_port(&builder.ray, "serve").unwrap_or(cluster_spec::DEFAULT_SERVE_PORT);
            readiness.http_get = None;
            readiness.exec = exec(format!("{} && {}", query_raylet(agent), query_serve(serve))).exec;
            readiness.failure_threshold = Some(1);
        }
        builder.ray.readiness_probe = Some(readiness);
    }
    builder.ray.liveness_probe.get_or_insert(liveness);
}

fn http_get(port: i32) -> Probe {
    let path = Some("/api/healthz".to_owned());
    let action = HTTPGetAction { path, port: IntOrString::Int(port), ..HTTPGetAction::default() };
    Probe { http_get: Some(action), ..Probe::default() }
}

fn exec(line: String) -> Probe {
    let command = Some(vec!["bash".to_owned(), "-c".to_owned(), line]);
    Probe { exec: Some(ExecAction { command }), ..Probe::default() }
}

fn query_raylet(port: i32) -> String {
    query(2, port, "api/local_raylet_healthz")
}

fn query_gcs(port: i32) -> String {
    query(10, port, "api/gcs_healthz")
}

fn query_serve(port: i32) -> String {
    query(10, port, "-/healthz")
}

fn query(timeout: u32, port: i32, path: &str) -> String {
    format!("wget --tries 1 -T {timeout} -q -O- http://localhost:{port}/{path} | grep success")
}

/// Returns a port from the parameters, or the default if it is missing or not a number.
fn port(params: &BTreeMap<String, String>, key: &str, default: i32) -> i32 {
    params.get(key).and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, head, label, ray, worker};
    use crate::config::Config;
    use crate::labels::SERVE as SERVE_LABEL;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    const RAYLET: &str = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success";
    const GCS: &str = "wget --tries 1 -T 10 -q -O- http://localhost:8265/api/gcs_healthz | grep success";
    const SERVE: &str = "wget --tries 1 -T 10 -q -O- http://localhost:8000/-/healthz | grep success";

    fn of_service(mut given: Value) -> Value {
        given["metadata"] = json!({"labels": {"ray.io/originated-from-crd": "RayService"}});
        given
    }

    fn pods(given: Value) -> [Pod; 2] {
        let cluster = cluster(given);
        [head(&cluster, &Config::default()), worker(&cluster, &Config::default())]
    }

    fn liveness(pod: &Pod) -> &Probe {
        ray(pod).liveness_probe.as_ref().unwrap()
    }

    fn readiness(pod: &Pod) -> &Probe {
        ray(pod).readiness_probe.as_ref().unwrap()
    }

    /// Returns the command of a probe, or its path and port.
    fn target(probe: &Probe) -> String {
        match (&probe.exec, &probe.http_get) {
            (Some(exec), None) => exec.command.as_ref().unwrap()[2].clone(),
            (None, Some(get)) => format!("{} {:?}", get.path.as_deref().unwrap(), get.port),
            both => panic!("{both:?}"),
        }
    }

    fn numbers(probe: &Probe) -> [Option<i32>; 5] {
        let Probe {
            initial_delay_seconds, timeout_seconds, period_seconds, success_threshold, failure_threshold, ..
        } = probe;
        [*initial_delay_seconds, *timeout_seconds, *period_seconds, *success_threshold, *failure_threshold]
    }

    #[test]
    fn before_ray_2_53_a_shell_command_checks_health() {
        for version in [json!(null), json!("2.52.0"), json!("2"), json!("nightly")] {
            let [head, worker] = pods(json!({"spec": {"rayVersion": version}}));
            for probe in [liveness(&head), readiness(&head)] {
                assert_eq!(target(probe), format!("{RAYLET} && {GCS}"));
            }
            for probe in [liveness(&worker), readiness(&worker)] {
                assert_eq!(target(probe), RAYLET);
            }
            assert_eq!(numbers(liveness(&head)), [Some(30), Some(5), Some(5), Some(1), Some(120)]);
            assert_eq!(numbers(readiness(&head)), [Some(10), Some(5), Some(5), Some(1), Some(10)]);
            assert_eq!(numbers(liveness(&worker)), [Some(30), Some(2), Some(5), Some(1), Some(120)]);
            assert_eq!(numbers(readiness(&worker)), [Some(10), Some(2), Some(5), Some(1), Some(10)]);
        }
    }

    #[test]
    fn from_ray_2_53_on_the_agent_serves_health() {
        for version in ["2.53.0", "2.53.0rc1", " v3.0"] {
            for pod in pods(json!({"spec": {"rayVersion": version}})) {
                for probe in [liveness(&pod), readiness(&pod)] {
                    assert_eq!(target(probe), "/api/healthz Int(52365)", "{version}");
                }
            }
        }
        let [head, worker] = pods(of_service(json!({"spec": {"rayVersion": "2.53.0"}})));
        assert_eq!(target(liveness(&worker)), "/api/healthz Int(52365)");
        assert_eq!(target(readiness(&worker)), format!("{RAYLET} && {SERVE}"));
        assert_eq!(target(readiness(&head)), "/api/healthz Int(52365)");
    }

    #[test]
    fn workers_of_a_rayservice_are_ready_when_serve_is() {
        let [head, worker] = pods(of_service(json!({})));
        assert_eq!(target(readiness(&worker)), format!("{RAYLET} && {SERVE}"));
        assert_eq!(target(liveness(&worker)), RAYLET);
        assert_eq!(numbers(readiness(&worker)), [Some(10), Some(2), Some(5), Some(1), Some(1)]);
        assert_eq!(numbers(liveness(&worker)), [Some(30), Some(2), Some(5), Some(1), Some(120)]);
        for probe in [liveness(&head), readiness(&head)] {
            assert_eq!(target(probe), format!("{RAYLET} && {GCS}"));
            assert_eq!(probe.timeout_seconds, Some(5));
        }
        for (location, expect) in [("HeadOnly", RAYLET.to_owned()), ("EveryNode", format!("{RAYLET} && {SERVE}"))] {
            let mut given = of_service(json!({}));
            given["metadata"]["annotations"] = json!({"ray.io/serve-proxy-location": location});
            let [_, worker] = pods(given);
            assert_eq!(target(readiness(&worker)), expect, "{location}");
            assert_eq!(label(&worker, SERVE_LABEL), Some(if location == "HeadOnly" { "false" } else { "true" }));
        }
        let given = json!({
            "worker": {"rayStartParams": {"dashboard-agent-listen-port": "8500"}},
            "workerRay": {"ports": [{"name": "serve", "containerPort": 9999}]},
        });
        let [_, worker] = pods(of_service(given));
        let expect = format!("{} && {}", RAYLET.replace("52365", "8500"), SERVE.replace("8000", "9999"));
        assert_eq!(target(readiness(&worker)), expect);
        assert_eq!(readiness(&worker).failure_threshold, Some(1));
    }

    #[test]
    fn probes_use_the_ports_of_the_parameters() {
        let [head, worker] = pods(json!({
            "head": {"rayStartParams": {"dashboard-agent-listen-port": "8266", "dashboard-port": "8365"}},
            "worker": {"rayStartParams": {"dashboard-agent-listen-port": "9000"}},
        }));
        for probe in [liveness(&head), readiness(&head)] {
            assert_eq!(target(probe), format!("{RAYLET} && {GCS}").replace("52365", "8266").replace("8265", "8365"));
        }
        for probe in [liveness(&worker), readiness(&worker)] {
            assert_eq!(target(probe), RAYLET.replace("52365", "9000"));
        }
        let odd = json!({"dashboard-agent-listen-port": "invalid-port", "dashboard-port": "not-a-number"});
        let [head, _] = pods(json!({"head": {"rayStartParams": odd}}));
        assert_eq!(target(liveness(&head)), format!("{RAYLET} && {GCS}"));
    }

    #[test]
    fn user_defined_probes_are_kept() {
        let own = json!({"httpGet": {"path": "/mine", "port": 1}});
        for pod in pods(json!({"both": {"livenessProbe": own, "readinessProbe": own}})) {
            assert_eq!(target(liveness(&pod)), "/mine Int(1)");
            assert_eq!(target(readiness(&pod)), "/mine Int(1)");
            assert_eq!(numbers(liveness(&pod)), [None; 5]);
        }
        let [head, _] = pods(json!({"both": {"livenessProbe": own}}));
        assert_eq!(target(liveness(&head)), "/mine Int(1)");
        assert_eq!(target(readiness(&head)), format!("{RAYLET} && {GCS}"));
    }

    #[test]
    fn probes_can_be_disabled() {
        let config = Config { inject_probes: false, ..Config::default() };
        let pod = head(&cluster(json!({})), &config);
        assert_eq!((&ray(&pod).liveness_probe, &ray(&pod).readiness_probe), (&None, &None));
    }
}
