//! Measures how RayJobs with unresponsive dashboards slow down other objects.
//!
//! On one control plane RayClusters are created alone; on another beside many RayJobs whose dashboard accepts every
//! connection and never responds. Both should take the same time.

use super::{Args, clusters};
use crate::operator::{Build, Operator, Rights};
use crate::process::{block_on, print_line};
use anyhow::{Context, Result, bail};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use manta_testkit::{ControlPlane, Kubelet, Options, User};
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

pub(super) fn run(args: &Args) -> Result<()> {
    let alone = measure(args, 0)?;
    let beside = measure(args, args.silent_jobs)?;
    let count = args.clusters;
    let rows = [
        (format!("{count} RayClusters alone"), format!("{alone:.2} s")),
        (format!("{count} RayClusters beside {} silent RayJobs", args.silent_jobs), format!("{beside:.2} s")),
        ("ratio".to_owned(), format!("{:.2}", beside / alone)),
    ];
    print_line("\n| what | measured |\n| --- | --- |");
    rows.iter().for_each(|(what, value)| print_line(&format!("| {what} | {value} |")));
    Ok(())
}

/// Returns how many seconds the clusters take beside this many jobs, after a warm-up with as many clusters.
fn measure(args: &Args, jobs: usize) -> Result<f64> {
    let plane = ControlPlane::start_with(Options { audit: true, ..Options::default() })?;
    let command = args.operator.prepare(&plane, Build::Release, Rights::All, "")?;
    block_on(plane.install_ray_crds())?;
    let mut operator = Operator::start(&plane, &command, "rayclusters")?;
    let limit = Duration::from_secs(args.limit_seconds);
    let seconds = block_on(async {
        let _kubelet = Kubelet::start(plane.client_for(User::Kubelet).await?, None);
        let client = plane.client().await?;
        clusters::create_until_ready(&client, 0..args.clusters, limit).await?;
        let dashboard = silent_dashboard().await?;
        print_line(&format!("beside {jobs} RayJobs with an unresponsive dashboard"));
        create_jobs(&client, jobs, dashboard, limit).await?;
        let start = Instant::now();
        clusters::create_until_ready(&client, args.clusters..2 * args.clusters, limit).await?;
        anyhow::Ok(start.elapsed().as_secs_f64())
    })?;
    operator.process.check()?;
    Ok(seconds)
}

/// Starts a server that accepts every connection and never responds.
async fn silent_dashboard() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    Ok(address)
}

/// Creates RayJobs that claim to run on the first cluster and use this dashboard.
async fn create_jobs(client: &Client, count: usize, dashboard: SocketAddr, limit: Duration) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayJob"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    for number in 0..count {
        let name = format!("silent-{number:04}");
        let job = json!({
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": name},
            "spec": {
                "submissionMode": "HTTPMode",
                "entrypoint": "python train.py",
                "clusterSelector": {"ray.io/cluster": "bench-0000"},
            },
        });
        api.create(&PostParams::default(), &serde_json::from_value(job)?).await.context("cannot create a RayJob")?;
        let status = json!({"status": {
            "jobDeploymentStatus": "Running", "jobId": name, "rayClusterName": "bench-0000",
            "dashboardURL": dashboard.to_string(), "startTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }});
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    let start = Instant::now();
    loop {
        let jobs = api.list(&Default::default()).await?;
        let polled = jobs.iter().filter(|job| !job.data["status"]["jobStatusCheckFailureStartTime"].is_null()).count();
        if polled == count {
            return Ok(());
        }
        if start.elapsed() > limit {
            bail!("the dashboards of only {polled} of {count} RayJobs were polled");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
