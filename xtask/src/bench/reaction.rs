//! Measures how soon a Pod's change is in the status of its RayCluster, while other Pods change all the time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::Scenario;
use super::clusters::{PREFIX, WORKERS};
use super::load::{create_until_ready, follow, send};
use super::measured::{Measured, Unit};
use super::objects::{self, Cluster, NAMESPACE};
use super::trial::{Trial, from};

/// Changes in a minute; each is measured.
const CHANGES_PER_MINUTE: u32 = 1_000;
/// How long the status may take before a change counts as not seen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A change whose status has not been written yet.
struct Change {
    sent: Instant,
    ready_workers: usize,
}

/// Changes one worker after the other, each of another RayCluster, for as long as is measured at rest.
pub(super) fn measure(trial: &mut Trial<'_>, size: usize) -> Result<Measured> {
    let mut measured = trial.measured(Scenario::Reaction, size);
    trial.block_on(create_until_ready(&trial.client, PREFIX, 0..size, WORKERS, trial.settings.limit()))?;
    trial.settle()?;
    trial.stop_kubelet();
    let (start, before) = (trial.usage()?, trial.requests()?.len());
    let changes = (trial.settings.rest().as_secs_f64() / 60.0 * f64::from(CHANGES_PER_MINUTE)).ceil() as usize;
    let samples = trial.block_on(change_all(trial, changes))?;
    let seen = samples.len();
    measured.add("changes", changes as f64, Unit::Count);
    measured.add("changes not seen", (changes - seen) as f64, Unit::Count);
    measured.add_percentiles("Pod changed to status written", samples, Unit::Milliseconds);
    if let Some((start, end)) = start.zip(trial.usage()?) {
        measured.add("operator CPU", end.cpu_seconds - start.cpu_seconds, Unit::Seconds);
    }
    measured.add_requests(from(trial.requests()?, before));
    Ok(measured)
}

/// Changes workers at a steady pace, and returns the milliseconds until each status was seen.
async fn change_all(trial: &Trial<'_>, changes: usize) -> Result<Vec<f64>> {
    let workers = one_worker_of_each(trial).await?;
    let open: Mutex<HashMap<String, Change>> = Mutex::default();
    let lock = || open.lock().unwrap_or_else(PoisonError::into_inner);
    let mut samples = Vec::with_capacity(changes);
    let follow = follow(objects::ray::<Cluster>(&trial.client, "RayCluster"), |cluster| {
        let mut open = lock();
        let name = cluster.name_any();
        if open.get(&name).is_some_and(|change| change.ready_workers == objects::ready_workers(&cluster))
            && let Some(change) = open.remove(&name)
        {
            samples.push(change.sent.elapsed().as_secs_f64() * 1e3);
        }
        false
    });
    let change = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(60) / CHANGES_PER_MINUTE);
        // The watch above lists first.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for number in 0..changes {
            ticks.tick().await;
            let (cluster, pod) = &workers[number % workers.len()];
            let ready = !(number / workers.len()).is_multiple_of(2);
            let ready_workers = if ready { WORKERS } else { WORKERS - 1 };
            lock().insert(cluster.clone(), Change { sent: Instant::now(), ready_workers });
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/status");
            send(&trial.client, "PATCH", &path, conditions(ready).to_string()).await?;
        }
        let end = Instant::now() + PATIENCE;
        while !lock().is_empty() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        ended = follow => ended?,
        ended = change => ended?,
    }
    Ok(samples)
}

async fn one_worker_of_each(trial: &Trial<'_>) -> Result<Vec<(String, String)>> {
    let workers = ListParams::default().labels("ray.io/node-type=worker");
    let pods = objects::pods(&trial.client).list_metadata(&workers).await?.items;
    let mut found: HashMap<String, String> = HashMap::new();
    for pod in pods {
        let cluster = pod.labels().get("ray.io/cluster").context("a worker without a RayCluster")?;
        found.insert(cluster.clone(), pod.name_any());
    }
    let of_this = found.into_iter().filter(|(cluster, _)| cluster.starts_with(PREFIX));
    let mut found: Vec<(String, String)> = of_this.collect();
    if found.is_empty() {
        bail!("there are no workers");
    }
    found.sort();
    Ok(found)
}

/// Returns a patch with the conditions of a worker that is ready or not.
fn conditions(ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"status": {"conditions": [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Initialized", "status": "True"},
        {"type": "ContainersReady", "status": ready},
        {"type": "Ready", "status": ready},
    ]}})
}
