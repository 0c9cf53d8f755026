//! What Ray's dashboard reports: the job, the driver's output and the autoscaler's demands.

use super::Sources;
use super::logs::last_lines;
use super::reader::Reader;
use crate::dashboard::jobs;
use http::Method;
use manta_api::RayCluster;
use manta_logic::cluster_spec::{auth_secret_name, is_token_auth};
use manta_logic::dashboard::DashboardEndpoint;
use manta_logic::explain::evidence::{Evidence, Log, LogSource};
use manta_logic::names;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// What is missing where the way leads through the API server.
const WHAT: &str = "get services/proxy (Ray's dashboard)";

/// How long Ray may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks the dashboard of the first cluster whose head is ready.
pub(super) async fn ask(sources: &Sources, reader: &mut Reader, clusters: &[Value], evidence: &mut Evidence) {
    let with_head = clusters.iter().find(|cluster| has_ready_head(cluster, evidence));
    let Some(endpoint) = with_head.and_then(|cluster| endpoint(sources, cluster, &reader.namespace)) else { return };
    let reported = tokio::time::timeout(TIMEOUT, report(sources, &endpoint, evidence)).await;
    if let Err(error) = reported.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs()))) {
        reader.note_text(WHAT, &error);
    }
}

async fn report(sources: &Sources, endpoint: &DashboardEndpoint, evidence: &mut Evidence) -> Result<(), String> {
    let client = &sources.dashboards;
    let status = evidence.job.as_ref().and_then(|job| job.status.as_ref());
    let job_id = status.and_then(|status| status.job_id.clone()).filter(|id| !id.is_empty());
    if let Some(id) = &job_id {
        match jobs::info(client, endpoint, id).await {
            Ok(info) => evidence.ray.job = Some(info),
            Err(jobs::JobError::NotFound(_)) => {}
            Err(error) => return Err(error.to_string()),
        }
        let text = jobs::logs(client, endpoint, id).await.map_err(|error| error.to_string())?;
        if !text.is_empty() {
            let (name, lines) = (id.clone(), last_lines(&text));
            evidence.logs.push(Log { source: LogSource::Driver, name, lines, ..Log::default() });
        }
    }
    let path = "/api/cluster_status?format=1";
    let response = client.send(endpoint, Method::GET, path, None).await.map_err(|error| error.to_string())?;
    if response.status == 200 {
        let reply: Value = serde_json::from_str(&response.body).unwrap_or_default();
        let report = reply.pointer("/data/clusterStatus").and_then(Value::as_str).unwrap_or_default();
        evidence.ray.autoscaler = last_lines(report).join("\n");
    }
    Ok(())
}

fn has_ready_head(cluster: &Value, evidence: &Evidence) -> bool {
    let name = cluster.pointer("/metadata/name").and_then(Value::as_str);
    evidence.pods.iter().any(|pod| {
        let label = |key: &str| pod.metadata.labels.get(key).map(String::as_str);
        let is_ready = pod.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
        label("ray.io/cluster") == name && label("ray.io/node-type") == Some("head") && is_ready
    })
}

/// Returns the dashboard of a cluster, by its own head Service: the token goes nowhere else.
fn endpoint(sources: &Sources, cluster: &Value, namespace: &str) -> Option<DashboardEndpoint> {
    let cluster: Box<RayCluster> = Box::deserialize(cluster).ok()?;
    let service = names::head_service(manta_logic::cluster_spec::name(&cluster), &cluster.spec);
    Some(DashboardEndpoint {
        namespace: namespace.to_owned(),
        address: format!("{}:8265", names::fqdn(&service, namespace, &sources.cluster_domain)),
        service,
        token_secret: secret_of(&cluster),
    })
}

/// Returns the Secret with the token that a cluster asks for.
pub(super) fn token_secret(cluster: &Value) -> Option<String> {
    let cluster: Box<RayCluster> = Box::deserialize(cluster).ok()?;
    secret_of(&cluster)
}

fn secret_of(cluster: &RayCluster) -> Option<String> {
    is_token_auth(&cluster.spec).then(|| auth_secret_name(cluster))
}
