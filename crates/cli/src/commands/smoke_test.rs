//! `manta smoke-test`: checks an installed operator with a tiny RayCluster; `helm test` runs it.

use crate::local::ray_resource;
use crate::output::print_line;
use crate::signals::StopSignals;
use anyhow::{Context, bail};
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The interval between two reads of the cluster's status.
const INTERVAL: Duration = Duration::from_secs(1);

/// Check an installed operator: create a tiny RayCluster, wait until it is ready, and delete it
///
/// Exits with 0 only if the cluster became ready in time. The cluster is deleted in any case.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Namespace to create the RayCluster in
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Ray image
    #[arg(long, default_value = "rayproject/ray:2.60.0")]
    image: String,
    /// Version of Ray in the image
    #[arg(long, default_value = "2.60.0", value_name = "VERSION")]
    ray_version: String,
    /// How long the RayCluster may take to become ready, image pull included
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    timeout_seconds: u64,
    /// Kubeconfig of the cluster [default: the Pod's service account, else the usual kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check(&args))?;
    Ok(ExitCode::SUCCESS)
}

async fn check(args: &Args) -> anyhow::Result<()> {
    let mut signals = StopSignals::listen()?;
    let client = Client::try_from(manta_operator::connect::config(args.kubeconfig.as_deref()).await?)?;
    let clusters: Api<DynamicObject> = Api::namespaced_with(client, &args.namespace, &ray_resource("RayCluster"));
    let created = clusters.create(&PostParams::default(), &serde_json::from_value(cluster(args))?).await;
    let name = created.context("cannot create a RayCluster; are the CRDs installed?")?.name_any();
    print_line(&format!("created RayCluster {}/{name}", args.namespace));
    let timeout = Duration::from_secs(args.timeout_seconds);
    let result = tokio::select! {
        result = wait_until_ready(&clusters, &name, timeout) => result,
        () = signals.recv() => Err(anyhow::anyhow!("interrupted")),
    };
    let deleted = clusters.delete(&name, &DeleteParams::default()).await;
    result?;
    deleted.with_context(|| format!("cannot delete RayCluster {}/{name}", args.namespace))?;
    print_line(&format!("deleted RayCluster {}/{name}", args.namespace));
    Ok(())
}

/// Returns a RayCluster with one small head and no workers.
fn cluster(args: &Args) -> Value {
    let head = json!({
        "name": "ray-head",
        "image": args.image,
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
    });
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"generateName": "smoke-test-"},
        "spec": {
            "rayVersion": args.ray_version,
            "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [head]}}},
        },
    })
}

async fn wait_until_ready(clusters: &Api<DynamicObject>, name: &str, timeout: Duration) -> anyhow::Result<()> {
    let start = tokio::time::Instant::now();
    let mut last = String::new();
    loop {
        let cluster = clusters.get(name).await.context("cannot read the RayCluster")?;
        let status = &cluster.data["status"];
        let seconds = start.elapsed().as_secs();
        if status["state"] == "ready" {
            print_line(&format!("ready after {seconds} s"));
            return Ok(());
        }
        let summary = summarise(status);
        if summary != last {
            print_line(&format!("{seconds:4} s  {summary}"));
            last = summary;
        }
        if start.elapsed() > timeout {
            bail!("not ready after {seconds} s: {last}");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns what keeps the cluster from being ready.
fn summarise(status: &Value) -> String {
    if status.is_null() {
        return "no status yet; is the operator running, and does it watch this namespace?".to_owned();
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let messages = conditions.filter_map(|condition| {
        let message = condition["message"].as_str().filter(|message| !message.is_empty())?;
        Some(format!("{}={}: {message}", condition["type"].as_str()?, condition["status"].as_str()?))
    });
    let reason = status["reason"].as_str().filter(|reason| !reason.is_empty()).map(str::to_owned);
    let all: Vec<String> = reason.into_iter().chain(messages).collect();
    if all.is_empty() { "waiting for the head Pod".to_owned() } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_cluster_is_valid() {
        let cluster = cluster(&Cli::parse_from(["x"]).args);
        let findings = manta_cli::lint::Linter::default().lint("cluster", cluster.to_string().as_bytes());
        assert_eq!(findings, []);
    }

    #[test]
    fn the_summary_says_what_is_missing() {
        let check = |status: Value, expect: &str| assert_eq!(summarise(&status), expect, "{status}");
        check(Value::Null, "no status yet; is the operator running, and does it watch this namespace?");
        check(json!({"state": ""}), "waiting for the head Pod");
        let condition = json!({"type": "HeadPodReady", "status": "False", "message": "ErrImagePull"});
        check(json!({"conditions": [condition]}), "HeadPodReady=False: ErrImagePull");
        check(json!({"reason": "quota", "conditions": []}), "quota");
    }
}
