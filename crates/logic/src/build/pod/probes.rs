//! Liveness and readiness of the Ray container.
//!
//! From Ray 2.53 on the dashboard agent answers for the node's health; before that a shell asks the
//! raylet and, on the head, the global control store. Workers of a RayService are ready only
//! when Serve's proxy is, so that they get no traffic before.

use super::draft::{Draft, Node, Role};
use crate::build::cluster_facts as facts;
use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

const DEFAULT_AGENT_PORT: i32 = 52365;

/// Adds the probes that the user did not write.
pub(super) fn add(node: &Node<'_>, draft: &mut Draft) {
    if !node.config.inject_probes || (draft.ray.liveness_probe.is_some() && draft.ray.readiness_probe.is_some()) {
        return;
    }
    let agent = port(&draft.params, "dashboard-agent-listen-port", DEFAULT_AGENT_PORT);
    let health = if facts::has_unified_health_check(&node.cluster.spec) {
        http_get(agent)
    } else {
        let dashboard = port(&draft.params, "dashboard-port", facts::DEFAULT_DASHBOARD_PORT);
        exec(match node.role {
            Role::Head => format!("{} && {}", ask_raylet(agent), ask_gcs(dashboard)),
            Role::Worker => ask_raylet(agent),
        })
    };
    let timeout = Some(if node.role == Role::Head { 5 } else { 2 });
    let liveness = Probe {
        initial_delay_seconds: Some(30),
        timeout_seconds: timeout,
        period_seconds: Some(5),
        success_threshold: Some(1),
        failure_threshold: Some(120),
        ..health
    };
    if draft.ray.readiness_probe.is_none() {
        let mut readiness = Probe { initial_delay_seconds: Some(10), failure_threshold: Some(10), ..liveness.clone() };
        if node.is_serve_worker() {
            let serve = facts::container_port(&draft.ray, "serve").unwrap_or(facts::DEFAULT_SERVE_PORT);
            readiness.http_get = None;
            readiness.exec = exec(format!("{} && {}", ask_raylet(agent), ask_serve(serve))).exec;
            readiness.failure_threshold = Some(1);
        }
        draft.ray.readiness_probe = Some(readiness);
    }
    draft.ray.liveness_probe.get_or_insert(liveness);
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

fn ask_raylet(port: i32) -> String {
    ask(2, port, "api/local_raylet_healthz")
}

fn ask_gcs(port: i32) -> String {
    ask(10, port, "api/gcs_healthz")
}

fn ask_serve(port: i32) -> String {
    ask(10, port, "-/healthz")
}

fn ask(timeout: u32, port: i32, path: &str) -> String {
    format!("wget --tries 1 -T {timeout} -q -O- http://localhost:{port}/{path} | grep success")
}

/// The port that `ray start` is told, unless it is no number.
fn port(params: &BTreeMap<String, String>, key: &str, default: i32) -> i32 {
    params.get(key).and_then(|text| text.parse().ok()).unwrap_or(default)
}
