//! Creates objects and waits for what operators make of them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::objects::{self, Cluster};
use crate::process::print_line;

/// How many objects are created concurrently.
const CONCURRENCY: usize = 16;

/// When RayClusters were created and ready.
#[derive(Debug)]
pub(super) struct Created {
    pub(super) created_in: Duration,
    pub(super) ready_in: Duration,
    /// Seconds of every RayCluster from its creation until it was ready.
    pub(super) ready_after: Vec<f64>,
}

/// Creates small RayClusters with these numbers, and waits until all are ready.
pub(super) async fn create_until_ready(
    client: &Client,
    prefix: &str,
    numbers: Range<usize>,
    workers: usize,
    limit: Duration,
) -> Result<Created> {
    let names: Vec<String> = numbers.map(|number| format!("{prefix}-{number:05}")).collect();
    let count = names.len();
    let begun = std::sync::Mutex::new(BTreeMap::new());
    let start = Instant::now();
    let create = async {
        create_all(client, "rayclusters", &names, |name| {
            lock(&begun).insert(name.to_owned(), Instant::now());
            objects::cluster(name, workers)
        })
        .await?;
        Ok(start.elapsed())
    };
    let mut ready_after = BTreeMap::new();
    let ready = follow(objects::ray::<Cluster>(client, "RayCluster"), |cluster| {
        let name = cluster.name_any();
        let Some(at) = lock(&begun).get(&name).filter(|_| objects::is_ready(&cluster)).copied() else { return false };
        let known = ready_after.len();
        ready_after.entry(name).or_insert_with(|| at.elapsed().as_secs_f64());
        if ready_after.len() != known && ready_after.len().is_multiple_of(500) {
            print_line(&format!("{} of {count} RayClusters are ready", ready_after.len()));
        }
        ready_after.len() == count
    });
    let both = futures::future::try_join(create, ready);
    let (created_in, ()) = within(limit, &format!("{count} RayClusters are ready"), both).await?;
    Ok(Created { created_in, ready_in: start.elapsed(), ready_after: ready_after.into_values().collect() })
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Creates an object of a Ray kind for every name.
pub(super) async fn create_all(
    client: &Client,
    plural: &str,
    names: &[String],
    object: impl Fn(&str) -> Value,
) -> Result<()> {
    let path = objects::ray_path(plural);
    let create = stream::iter(names).map(|name| send(client, "POST", &path, object(name).to_string()));
    create.buffer_unordered(CONCURRENCY).try_for_each(|()| std::future::ready(Ok(()))).await
}

/// Sends a request with a body of JSON; of the response only the metadata is asked for. A list is a JSON patch, any other
/// patch a merge patch.
pub(super) async fn send(client: &Client, method: &str, path: &str, body: String) -> Result<()> {
    let content = match method {
        "PATCH" if body.starts_with('[') => "application/json-patch+json",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", content).header("Accept", accept).body(body.into_bytes())?;
    client.request_text(request).await.with_context(|| format!("{method} {path}"))?;
    Ok(())
}

/// Calls a function with every object, and again when it changes, until it returns true.
pub(super) async fn follow<K>(api: Api<K>, observe: impl FnMut(K) -> bool) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    follow_some(api, watcher::Config::default(), observe).await
}

async fn follow_some<K>(api: Api<K>, which: watcher::Config, mut observe: impl FnMut(K) -> bool) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = std::pin::pin!(watcher(api, which).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                if observe(object) {
                    return Ok(());
                }
            }
            Ok(_) => {}
            // It starts again after a while.
            Err(error) => print_line(&format!("a watch broke: {error}")),
        }
    }
    bail!("a watch ended")
}

/// Waits until one object meets a condition.
pub(super) async fn wait_for<K>(api: Api<K>, name: &str, limit: Duration, met: impl Fn(&K) -> bool) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    within(limit, &format!("{name} changes as it should"), follow_some(api, only, |object| met(&object))).await
}

/// Fails with what did not happen in time.
pub(super) async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => bail!("not within {} s: {what}", limit.as_secs()),
    }
}
