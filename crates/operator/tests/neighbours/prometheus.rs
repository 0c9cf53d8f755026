//! Prometheus scrapes the operator and evaluates the queries of our dashboard and our alerts.

use crate::fake_ray::FakeRayClusters;
use crate::harness::{Harness, small_cluster};
use crate::{Operator, admin, free_address};
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use manta_api::{RayJob, RayService};
use manta_testkit::{Kubelet, Neighbour, Play, Supervised, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tokio::net::TcpListener;

const DASHBOARD: &str = include_str!("../../../../deploy/grafana/manta-operator.json");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/alerts.yaml");
const PROMETHEUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");
const NODE: &str = "node-of-prometheus";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "make test-neighbours builds Prometheus and runs it"]
async fn every_panel_of_the_dashboard_shows_data() -> Result<()> {
    let world = World::start().await?;
    let prometheus = Prometheus::start(world.metrics).await?;
    let queries = queries();
    assert!(queries.len() >= 19, "{queries:?}");
    for (panel, query) in queries {
        // What a panel shows when there is nothing to count proves nothing.
        let query = query.trim_end_matches(" or vector(0)");
        eventually(&format!("{panel}: {query}"), async || prometheus.has_data(query).await).await?;
    }
    for metric in metrics_of_alerts()? {
        eventually(&metric, async || prometheus.has_data(&format!("count({metric})")).await).await?;
    }
    let rules = prometheus.get("rules").await?;
    let rules = rules["data"]["groups"][0]["rules"].as_array().cloned().context("no rules are loaded")?;
    assert_eq!(rules.len(), alerts()?.len());
    eventually("every rule evaluated", async || {
        let rules = prometheus.get("rules").await?["data"]["groups"][0]["rules"].clone();
        ensure!(rules.as_array().unwrap().iter().all(|rule| rule["health"] == "ok"), "{rules}");
        Ok(())
    })
    .await?;
    world.operator.stop().await
}

#[test]
#[ignore = "make test-neighbours builds promtool and runs it"]
fn every_alert_fires_once() -> Result<()> {
    let promtool = Neighbour::Promtool.program()?;
    let run = |args: &[&str]| -> Result<String> {
        let output = Command::new(&promtool).args(args).current_dir(PROMETHEUS).output()?;
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "promtool {args:?}: {text}");
        Ok(text)
    };
    let checked = run(&["check", "rules", "--lint-fatal", "alerts.yaml"])?;
    assert!(checked.contains(&format!("{} rules found", alerts()?.len())), "{checked}");
    run(&["test", "rules", "alerts.test.yaml"])?;
    let tests: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(Path::new(PROMETHEUS).join("alerts.test.yaml"))?)?;
    let fired: BTreeSet<String> = list(&tests["tests"])
        .flat_map(|test| list(&test["alert_rule_test"]))
        .filter(|check| list(&check["exp_alerts"]).next().is_some())
        .map(|check| check["alertname"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(fired, alerts()?.into_iter().map(|(name, _)| name).collect());
    Ok(())
}

/// Returns the panels of the dashboard with their queries.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let of = |panel: &Value| {
        let title = panel["title"].as_str().unwrap().to_owned();
        list(&panel["targets"])
            .map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
            .collect()
    };
    list(&dashboard["panels"]).flat_map(|panel| -> Vec<_> { of(panel) }).collect()
}

/// Returns the alerts with their expressions.
fn alerts() -> Result<Vec<(String, String)>> {
    let file: Value = serde_saphyr::from_str(ALERTS)?;
    let text = |rule: &Value, key: &str| rule[key].as_str().unwrap().to_owned();
    Ok(list(&file["groups"][0]["rules"]).map(|rule| (text(rule, "alert"), text(rule, "expr"))).collect())
}

/// Returns the names of the metrics in the alerts' expressions.
fn metrics_of_alerts() -> Result<BTreeSet<String>> {
    let prefixes = ["leader_", "manta_", "controller_runtime_", "rest_client_", "kuberay_"];
    let is_metric = |word: &&str| prefixes.iter().any(|prefix| word.starts_with(prefix));
    let words = |expr: &str| -> Vec<String> {
        expr.split(|c: char| !c.is_alphanumeric() && c != '_').filter(is_metric).map(str::to_owned).collect()
    };
    let found: BTreeSet<String> = alerts()?.iter().flat_map(|(_, expr)| words(expr)).collect();
    ensure!(found.len() >= 7, "{found:?}");
    Ok(found)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// A running Prometheus that scrapes the operator every second.
struct Prometheus {
    address: SocketAddr,
    _process: Supervised,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    async fn start(operator: SocketAddr) -> Result<Self> {
        let (folder, address) = (tempfile::tempdir()?, free_address().await?);
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [format!("{PROMETHEUS}/alerts.yaml")],
            "scrape_configs": [{"job_name": "operator", "static_configs": [{"targets": [operator.to_string()]}]}],
        });
        let file = folder.path().join("prometheus.yaml");
        std::fs::write(&file, config.to_string())?;
        let mut command = Command::new(Neighbour::Prometheus.program()?);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        let mut process = Supervised::start(folder.path(), "prometheus", &command)?;
        eventually("Prometheus to be ready", async || {
            process.check()?;
            Ok(reqwest::get(format!("http://{address}/-/ready")).await?.error_for_status()?)
        })
        .await?;
        Ok(Self { address, _process: process, _folder: folder })
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let response = reqwest::get(format!("http://{}/api/v1/{path}", self.address)).await?;
        Ok(serde_json::from_str(&response.text().await?)?)
    }

    /// Returns an error unless the query returns at least one number.
    async fn has_data(&self, query: &str) -> Result<()> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let reply = self.get(&format!("query?query={encoded}")).await?;
        ensure!(reply["status"] == "success", "{reply}");
        let is_number = |sample: &Value| sample["value"][1].as_str().is_some_and(|value| value != "NaN");
        ensure!(list(&reply["data"]["result"]).any(is_number), "no data: {reply}");
        Ok(())
    }
}

/// An operator with a bit of everything: clusters, one of them stuck, a finished job, and a service amid an upgrade.
struct World {
    operator: Operator,
    metrics: SocketAddr,
    _harness: Harness,
}

impl World {
    async fn start() -> Result<Self> {
        let mut harness = Harness::new("watched").await?;
        harness.kubelet = Kubelet::start_on_node(harness.client.clone(), &harness.namespace, NODE);
        let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
        Api::all(harness.client.clone()).create(&PostParams::default(), &node).await?;
        let stuck = |pod: &k8s_openapi::api::core::v1::Pod| {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            name.starts_with("stuck-").then(|| Play::Unschedulable { message: "no node".to_owned() })
        };
        harness.kubelet.rule(stuck).await?;

        let ray_clusters = FakeRayClusters::new(false);
        let mut config = admin().await?;
        let server = forward(ray_clusters.client(harness.client.clone())).await?;
        (config.cluster_url, config.root_cert) = (format!("http://{server}").parse()?, None);
        let metrics = free_address().await?;
        let flags = [format!("--metrics-addr={metrics}"), "--enable-metrics".into(), "--use-kubernetes-proxy".into()];
        let operator = Operator::start(&harness, config, &flags)?;

        for name in ["small", "stuck"] {
            harness.create(name, small_cluster()).await?;
        }
        finish_job(&harness, &ray_clusters).await?;
        upgrade_service(&harness, &ray_clusters).await?;
        harness.until_ready("small").await?;
        Ok(Self { operator, metrics, _harness: harness })
    }
}

/// Runs a RayJob to its end.
async fn finish_job(harness: &Harness, ray_clusters: &Arc<FakeRayClusters>) -> Result<()> {
    let jobs: Api<RayJob> = Api::namespaced(harness.client.clone(), &harness.namespace);
    let spec = json!({"entrypoint": "true", "submissionMode": "HTTPMode", "rayClusterSpec": small_cluster()});
    let job = serde_json::from_value(json!({"metadata": {"name": "train"}, "spec": spec}))?;
    jobs.create(&PostParams::default(), &job).await?;
    eventually("the end of the job", async || {
        let status = jobs.get("train").await?.status.unwrap_or_default();
        match (status.job_deployment_status.as_deref(), &status.ray_cluster_name, &status.job_id) {
            (Some("Complete"), ..) => Ok(()),
            (Some("Running"), Some(cluster), Some(id)) => {
                ray_clusters.with(cluster, |ray| ray.set_job(id, &json!({"status": "SUCCEEDED"}))).await?;
                bail!("it is about to end")
            }
            _ => bail!("{status:?}"),
        }
    })
    .await
}

/// Brings a RayService up and starts an upgrade that does not end.
async fn upgrade_service(harness: &Harness, ray_clusters: &Arc<FakeRayClusters>) -> Result<()> {
    let services: Api<RayService> = Api::namespaced(harness.client.clone(), &harness.namespace);
    let until = async |type_: &str| {
        eventually(type_, async || {
            let status = services.get("web").await?.status.unwrap_or_default();
            let conditions = status.conditions.clone().unwrap_or_default();
            let is_true = conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True");
            ensure!(is_true, "{status:?}");
            Ok(())
        })
        .await
    };
    let config = "applications: [{name: one, import_path: 'a:b'}]";
    let spec = json!({"rayClusterConfig": small_cluster(), "serveConfigV2": config});
    let service = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec}))?;
    services.create(&PostParams::default(), &service).await?;
    until("Ready").await?;
    ray_clusters.set_outcome("DEPLOYING");
    let next = json!({"spec": {"rayClusterConfig": {"rayVersion": "2.54.0"}}});
    services.patch("web", &PatchParams::default(), &Patch::Merge(next)).await?;
    until("UpgradeInProgress").await
}

/// Serves an API server on loopback by forwarding every request to a client.
async fn forward(client: Client) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let client = client.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
            match client.send(http::Request::from_parts(head, body.to_vec().into())).await {
                Ok(response) => response.map(axum::body::Body::new),
                Err(error) => {
                    let mut response = axum::response::Response::new(axum::body::Body::from(error.to_string()));
                    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
                    response
                }
            }
        }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}
