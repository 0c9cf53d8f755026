//! Scales one RayCluster up and down: single workers, and groups of four hosts to a replica.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::api::ListParams;
use serde_json::json;

use super::Scenario;
use super::load::{create_all, send, wait_for, within};
use super::measured::{Measured, Unit};
use super::objects::{self, Cluster};
use super::trial::{Trial, from};

/// The RayCluster that is scaled.
pub(super) const NAME: &str = "growing";
/// Its groups, and the hosts of their replicas.
const GROUPS: [(&str, usize); 2] = [("single-host", 1), ("multi-host", 4)];

/// Scales each group to this many Pods and back.
pub(super) fn measure(trial: &mut Trial<'_>, size: usize) -> Result<Measured> {
    let mut measured = trial.measured(Scenario::Scale, size);
    let limit = trial.settings.limit();
    trial.block_on(create(trial, limit))?;
    trial.settle()?;
    let begun = trial.requests()?.len();
    for (group, (name, hosts)) in GROUPS.into_iter().enumerate() {
        let replicas = (size / hosts).max(1);
        let (start, before) = (trial.usage()?, trial.requests()?.len());
        let peak = trial.follow_peak()?;
        let seconds = trial.block_on(async {
            let start = Instant::now();
            scale(trial, group, replicas).await?;
            wait_for_workers(trial, replicas * hosts, limit).await?;
            Ok(start.elapsed().as_secs_f64())
        })?;
        measured.add(&format!("{name} scaled up after"), seconds, Unit::Seconds);
        trial.settle()?;
        if let Some(start) = start {
            let end = trial.usage()?.context("the operator is gone")?;
            measured.add(&format!("{name} CPU to scale up"), end.cpu_seconds - start.cpu_seconds, Unit::Seconds);
            measured.add(&format!("{name} memory peak"), end.peak_bytes as f64, Unit::Bytes);
            if let Some(peak) = peak {
                measured.add(&format!("{name} memory peak, private"), peak.end() as f64, Unit::Bytes);
            }
            measured.add(&format!("{name} memory"), end.rss_bytes as f64, Unit::Bytes);
        }
        let writes = from(trial.requests()?, before).iter().filter(|request| request.is_write()).count();
        measured.add(&format!("{name} writes per worker"), writes as f64 / (replicas * hosts) as f64, Unit::Count);
        let start = trial.usage()?;
        let seconds = trial.block_on(async {
            let start = Instant::now();
            scale(trial, group, 0).await?;
            wait_for_no_workers(trial, limit).await?;
            Ok(start.elapsed().as_secs_f64())
        })?;
        measured.add(&format!("{name} scaled down after"), seconds, Unit::Seconds);
        trial.settle()?;
        if let Some((start, end)) = start.zip(trial.usage()?) {
            measured.add(&format!("{name} CPU to scale down"), end.cpu_seconds - start.cpu_seconds, Unit::Seconds);
            measured.add(&format!("{name} memory after scaling down"), end.rss_bytes as f64, Unit::Bytes);
        }
    }
    measured.add_requests(from(trial.requests()?, begun));
    Ok(measured)
}

/// Creates the RayCluster without workers.
pub(super) async fn create(trial: &Trial<'_>, limit: Duration) -> Result<()> {
    create_all(&trial.client, "rayclusters", &[NAME.to_owned()], objects::growing_cluster).await?;
    wait_for(objects::ray(&trial.client, "RayCluster"), NAME, limit, objects::is_ready).await
}

/// Sets the replicas of a group.
pub(super) async fn scale(trial: &Trial<'_>, group: usize, replicas: usize) -> Result<()> {
    let path = format!("{}/{NAME}", objects::ray_path("rayclusters"));
    let pointer = format!("/spec/workerGroupSpecs/{group}/replicas");
    let patch = json!([{"op": "replace", "path": pointer, "value": replicas}]);
    send(&trial.client, "PATCH", &path, patch.to_string()).await
}

/// Waits until this many workers are reported ready.
pub(super) async fn wait_for_workers(trial: &Trial<'_>, workers: usize, limit: Duration) -> Result<()> {
    let api = objects::ray::<Cluster>(&trial.client, "RayCluster");
    wait_for(api, NAME, limit, |cluster| objects::ready_workers(cluster) == workers).await
}

async fn wait_for_no_workers(trial: &Trial<'_>, limit: Duration) -> Result<()> {
    let workers = format!("ray.io/cluster={NAME},ray.io/node-type=worker");
    let (pods, first) = (objects::pods(&trial.client), ListParams::default().labels(&workers).limit(1));
    let wait = async {
        while !pods.list_metadata(&first).await?.items.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    };
    within(limit, "the workers are gone", wait).await
}
