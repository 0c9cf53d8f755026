//! Gathers the evidence that [`manta_logic::explain`] reads: objects, events, logs and Ray's own reports.
//!
//! It only reads. A source that cannot be read is listed in the evidence, with the verb and the resource, and never stops
//! the others. `manta explain` uses it from outside, and the operator for post-mortems.

mod logs;
mod ray;
mod reader;
mod secrets;

use crate::dashboard;
use futures::future::join_all;
use jiff::Timestamp;
use manta_logic::explain::evidence::{Cluster, Event, Evidence, Job, Pod, Subject, Workload};
use manta_logic::post_mortem::{redact, withhold};
use reader::Reader;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The versions of Kueue's API, the newest first; a release of Kueue serves one or both.
const KUEUE: [&str; 2] = ["/apis/kueue.x-k8s.io/v1beta2", "/apis/kueue.x-k8s.io/v1beta1"];

/// Where evidence comes from.
#[derive(Clone)]
pub struct Sources {
    pub client: kube::Client,
    /// The way to Ray's dashboards.
    pub dashboards: dashboard::Client,
    /// The domain of Services, where dashboards are reached directly.
    pub cluster_domain: String,
    /// Whether to read Kueue's Workloads, which the operator itself has no permission for.
    pub workloads: bool,
}

/// Gathers what is known about an object; nothing if it does not exist.
///
/// # Errors
/// Fails if the object itself cannot be read.
pub async fn gather(sources: &Sources, subject: &Subject, now: Timestamp) -> Result<Option<Evidence>, kube::Error> {
    Ok(gather_with_objects(sources, subject, now).await?.map(|(evidence, _)| evidence))
}

/// Gathers what is known about an object, without the secrets that its programs print.
pub(crate) async fn gather_redacted(
    sources: &Sources,
    subject: &Subject,
    now: Timestamp,
) -> Result<Option<Evidence>, kube::Error> {
    let Some((evidence, objects)) = gather_with_objects(sources, subject, now).await? else { return Ok(None) };
    Ok(Some(redacted(sources, &evidence, &objects).await))
}

/// Gathers what is left of an object that has been deleted, as it was last seen, without secrets.
pub(crate) async fn gather_rest(sources: &Sources, subject: &Subject, object: Value, now: Timestamp) -> Evidence {
    let reader = Reader::new(sources.client.clone(), &subject.namespace);
    let (evidence, objects) = Box::pin(around(sources, reader, subject, object, now)).await;
    Evidence { is_deleted: true, ..redacted(sources, &evidence, &objects).await }
}

/// Returns the evidence without secrets; without what programs print, if their secrets cannot be read.
async fn redacted(sources: &Sources, evidence: &Evidence, objects: &RayObjects) -> Evidence {
    // What its spec sets is not known.
    if let Some(unreadable) = evidence.unread("get rayclusters") {
        return withhold(evidence, unreadable);
    }
    let reader = Reader::new(sources.client.clone(), &evidence.subject.namespace);
    match secrets::of(reader, objects).await {
        Ok(secrets) => redact(evidence, &secrets),
        Err(unreadable) => withhold(evidence, &unreadable),
    }
}

/// Whole Ray objects, of which only parts become evidence.
struct RayObjects {
    /// The subject, if it is no RayCluster itself.
    owner: Option<Value>,
    clusters: Vec<Value>,
}

async fn gather_with_objects(
    sources: &Sources,
    subject: &Subject,
    now: Timestamp,
) -> Result<Option<(Evidence, RayObjects)>, kube::Error> {
    let reader = Reader::new(sources.client.clone(), &subject.namespace);
    match reader.get_object(plural(&subject.kind), &subject.name).await {
        Ok(object) => Ok(Some(Box::pin(around(sources, reader, subject, object, now)).await)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the evidence, and the Ray objects that it is about.
async fn around(
    sources: &Sources,
    mut reader: Reader,
    subject: &Subject,
    object: Value,
    now: Timestamp,
) -> (Evidence, RayObjects) {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut evidence = Evidence { subject: Subject { uid, ..subject.clone() }, at: now, ..Evidence::default() };
    let mut objects = match subject.kind.as_str() {
        "RayCluster" => RayObjects { owner: None, clusters: vec![object] },
        _ => RayObjects { owner: Some(object), clusters: Vec::new() },
    };
    match (subject.kind.as_str(), &objects.owner) {
        (_, None) => {}
        ("RayJob", Some(object)) => evidence.job = decode(object),
        ("RayService", Some(object)) => evidence.service = decode(object),
        (_, Some(object)) => {
            evidence.cron_job = decode(object);
            evidence.job = last_run(&mut reader, &subject.name).await;
        }
    }
    for name in evidence.cluster_names() {
        objects.clusters.extend(reader.get_optional("rayclusters", "/apis/ray.io/v1", &name).await);
    }
    evidence.clusters = objects.clusters.iter().filter_map(|cluster| Cluster::deserialize(cluster).ok()).collect();
    evidence.pods = pods(&mut reader, &evidence).await;
    evidence.batch_jobs = batch_jobs(&mut reader, &evidence).await;
    if sources.workloads {
        evidence.workloads = workloads(&mut reader, &evidence).await;
    }
    evidence.events = events(&mut reader, &evidence).await;
    logs::read(&mut reader, &mut evidence).await;
    ray::ask(sources, &mut reader, &objects.clusters, &mut evidence).await;
    evidence.unreadable = reader.unreadable;
    (evidence, objects)
}

fn plural(kind: &str) -> &'static str {
    match kind {
        "RayCluster" => "rayclusters",
        "RayJob" => "rayjobs",
        "RayService" => "rayservices",
        _ => "raycronjobs",
    }
}

fn decode<T: DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object).ok()
}

/// Returns the newest RayJob of a RayCronJob.
async fn last_run(reader: &mut Reader, cron_job: &str) -> Option<Job> {
    let jobs: Vec<Job> = reader.list("rayjobs", "/apis/ray.io/v1", "").await;
    let is_run = |job: &Job| {
        job.metadata.owner_references.iter().any(|owner| owner.kind == "RayCronJob" && owner.name == cron_job)
    };
    jobs.into_iter().filter(is_run).max_by_key(|job| job.metadata.creation_timestamp)
}

async fn pods(reader: &mut Reader, evidence: &Evidence) -> Vec<Pod> {
    let mut names = evidence.cluster_names();
    names.extend(evidence.clusters.iter().map(|cluster| cluster.metadata.name.clone()));
    names.sort();
    names.dedup();
    let mut pods: Vec<Pod> = Vec::new();
    for name in names {
        pods.extend(reader.list("pods", "/api/v1", &format!("ray.io/cluster={name}")).await);
    }
    if let Some(job) = &evidence.job {
        pods.extend(reader.list("pods", "/api/v1", &format!("job-name={}", job.metadata.name)).await);
    }
    pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    pods.dedup_by(|a, b| a.metadata.name == b.metadata.name);
    pods
}

async fn batch_jobs(reader: &mut Reader, evidence: &Evidence) -> Vec<manta_logic::explain::evidence::BatchJob> {
    let submitter = evidence.job.as_ref().map(|job| job.metadata.name.clone());
    let deleted = evidence.clusters.iter().filter(|cluster| cluster.metadata.deletion_timestamp.is_some());
    let cleanups = deleted.map(|cluster| format!("{}-redis-cleanup", cluster.metadata.name));
    let names: Vec<String> = submitter.into_iter().chain(cleanups).collect();
    let mut found = Vec::new();
    for name in names {
        found.extend(reader.list_named("jobs", "/apis/batch/v1", &name).await);
    }
    found
}

/// Returns Kueue's Workloads of the subject; none where Kueue is not installed.
async fn workloads(reader: &mut Reader, evidence: &Evidence) -> Vec<Workload> {
    let is_queued =
        evidence.meta().is_some_and(|meta| meta.labels.keys().any(|key| key.starts_with("kueue.x-k8s.io/")));
    if !is_queued {
        return Vec::new();
    }
    let (kind, name) = (&evidence.subject.kind, &evidence.subject.name);
    let ours = |workload: Workload| {
        let is_ours = workload.metadata.owner_references.iter().any(|owner| owner.kind == *kind && owner.name == *name);
        is_ours.then_some(workload)
    };
    for api in KUEUE {
        if let Some(found) = reader.list_served("workloads", api, "", ours).await {
            return found;
        }
    }
    Vec::new()
}

/// Returns the events about these objects, and about Pods of these clusters that are gone.
async fn events(reader: &mut Reader, evidence: &Evidence) -> Vec<Event> {
    let about = |event: Value| Some(Event::of(&event)).filter(|event| evidence.concerns(event));
    let mut found: Vec<Event> = reader.list_if("events", "/api/v1", "", about).await;
    found.sort_by_key(|event| event.last);
    found
}

/// Runs requests side by side.
async fn all<T>(requests: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    join_all(requests).await
}

#[cfg(test)]
mod tests;
