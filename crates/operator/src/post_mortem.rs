//! Keeps records of objects that ended, failed or were deleted.
//!
//! What is worth a record is decided in [`manta_logic::post_mortem`]. A record that cannot be written is reported and given up:
//! it delays a deletion by some seconds at most, and never prevents one.

use crate::clock::Clock;
use crate::evidence::{self, Sources};
use crate::execute::KubernetesExecutor;
use crate::record_files;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, Client};
use manta_api::RayJobStatus;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::explain::{Evidence, Subject};
use manta_logic::post_mortem::{self, LABEL, Limits, Occasion, Summary};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{debug, info, warn};

/// How long a record may take; a deletion waits for it.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How often records that are too old are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);
/// Deletions by others that wait for their record; a flood of them goes without.
const MAX_WAITING: usize = 64;
/// Records of deleted objects that are written at once.
const CONCURRENT: usize = 4;

/// An object that somebody deleted, as it was last seen.
pub(crate) struct DeletedObject {
    pub(crate) key: ObjectKey,
    pub(crate) text: Box<str>,
}

/// Returns the two ends of the queue of deleted objects.
pub(crate) fn deletions() -> (mpsc::Sender<DeletedObject>, mpsc::Receiver<DeletedObject>) {
    mpsc::channel(MAX_WAITING)
}

/// Writes records.
pub(crate) struct Recorder {
    sources: Sources,
    limits: Option<Limits>,
    /// Keeps records as files in this directory, instead of ConfigMaps.
    directory: Option<PathBuf>,
    namespaces: Vec<String>,
    clock: Clock,
}

/// Why a record cannot be kept.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("cannot write to {0}")]
    File(PathBuf, #[source] io::Error),
}

impl Recorder {
    /// Returns a recorder; without limits it keeps nothing.
    pub(crate) fn new(
        sources: Sources,
        limits: Option<Limits>,
        directory: Option<PathBuf>,
        namespaces: Vec<String>,
        clock: Clock,
    ) -> Self {
        Self { sources, limits, directory, namespaces, clock }
    }

    /// Returns whether anything is kept at all.
    pub(crate) fn is_on(&self) -> bool {
        self.limits.is_some()
    }

    /// Keeps a record of an object that exists.
    pub(crate) async fn keep(&self, executor: &KubernetesExecutor, key: &ObjectKey, occasion: Occasion) {
        let subject = subject(key);
        let found = evidence::gather_redacted(&self.sources, &subject, self.clock.now());
        self.write(executor, key, occasion, async { found.await.ok().flatten() }).await;
    }

    async fn write(
        &self,
        executor: &KubernetesExecutor,
        key: &ObjectKey,
        occasion: Occasion,
        evidence: impl Future<Output = Option<Evidence>>,
    ) {
        let Some(limits) = self.limits else { return };
        let (kind, namespace, name) = (key.kind.resource().kind, &key.namespace, &key.name);
        let work = async {
            let Some(evidence) = evidence.await else { return Ok(()) };
            let record = post_mortem::config_map(&evidence, occasion, &limits);
            match &self.directory {
                Some(directory) => {
                    let now = self.clock.now();
                    in_directory(directory, move |path| record_files::put(path, &record, now, &limits)).await?;
                }
                None => {
                    executor.put_record(namespace, &record).await?;
                    self.expire(executor, Some(namespace), &limits).await?;
                }
            }
            info!(kind, %namespace, %name, occasion = occasion.name(), "kept a post-mortem");
            Ok(())
        };
        match timeout(TIMEOUT, work).await {
            Ok(Ok(())) => {}
            // A namespace that is being deleted takes no new objects.
            Ok(Err(KeepError::Api(kube::Error::Api(status)))) if status.code == 403 || status.code == 404 => {
                debug!(kind, %namespace, %name, error = status.message, "cannot keep a post-mortem");
            }
            Ok(Err(error)) => warn!(kind, %namespace, %name, error = error_chain(&error), "cannot keep a post-mortem"),
            Err(_) => warn!(kind, %namespace, %name, "keeping a post-mortem took too long"),
        }
    }

    /// Keeps records of objects that others delete, until the queue ends.
    pub(crate) async fn follow_deletions(
        &self,
        executor: &KubernetesExecutor,
        deletions: &mut mpsc::Receiver<DeletedObject>,
    ) {
        // What came before our term was another instance's matter.
        while deletions.try_recv().is_ok() {}
        let stream = futures::stream::poll_fn(|context| deletions.poll_recv(context));
        stream.for_each_concurrent(CONCURRENT, |deleted| self.deleted(executor, deleted)).await;
    }

    async fn deleted(&self, executor: &KubernetesExecutor, deleted: DeletedObject) {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Job {
            status: Option<RayJobStatus>,
        }
        let object: Value = serde_json::from_str(&deleted.text).unwrap_or_default();
        let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let has_controller = owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true));
        let job = (deleted.key.kind == Kind::RayJob).then(|| Job::deserialize(&object).unwrap_or_default());
        let status = job.and_then(|job| job.status);
        if !post_mortem::on_deletion(deleted.key.kind, has_controller, status.as_ref()) {
            return;
        }
        let (key, now) = (&deleted.key, self.clock.now());
        let subject = subject(key);
        let rest = evidence::gather_rest(&self.sources, &subject, object, now);
        self.write(executor, key, Occasion::Deleted, async { Some(rest.await) }).await;
    }

    /// Deletes records that are too old, now and then.
    pub(crate) async fn sweep(&self, executor: &KubernetesExecutor) {
        let Some(limits) = self.limits else { return };
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            if let Some(directory) = &self.directory {
                let now = self.clock.now();
                if let Err(error) = in_directory(directory, move |path| record_files::expire(path, now, &limits)).await
                {
                    warn!(error = error_chain(&error), "cannot delete expired post-mortems");
                }
                continue;
            }
            let scopes: Vec<Option<&str>> = match self.namespaces.as_slice() {
                [] => vec![None],
                names => names.iter().map(|name| Some(name.as_str())).collect(),
            };
            for scope in scopes {
                if let Err(error) = self.expire(executor, scope, &limits).await {
                    warn!(%error, "cannot delete expired post-mortems");
                }
            }
        }
    }

    /// Deletes the records of one namespace, or of all, that are too old or too many.
    async fn expire(
        &self,
        executor: &KubernetesExecutor,
        namespace: Option<&str>,
        limits: &Limits,
    ) -> Result<(), kube::Error> {
        let mut by_namespace: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for record in list(&self.sources.client, namespace).await? {
            let at = at(&record);
            let meta = record.metadata;
            let entry = (meta.name.unwrap_or_default(), meta.uid.unwrap_or_default(), at);
            by_namespace.entry(meta.namespace.unwrap_or_default()).or_default().push(entry);
        }
        for (namespace, records) in by_namespace {
            for (name, uid) in post_mortem::expired(&records, self.clock.now(), limits) {
                executor.delete_record(&namespace, &name, &uid).await?;
            }
        }
        Ok(())
    }
}

/// Works on files without holding up other tasks.
async fn in_directory(
    directory: &Path,
    work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) -> Result<(), KeepError> {
    let path = directory.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&path)).await.unwrap_or_else(|error| Err(error.into()));
    done.map_err(|error| KeepError::File(directory.to_owned(), error))
}

/// Returns an error with its cause.
fn error_chain(error: &KeepError) -> String {
    match error {
        KeepError::Api(error) => error.to_string(),
        KeepError::File(_, cause) => format!("{error}: {cause}"),
    }
}

async fn list(client: &Client, namespace: Option<&str>) -> Result<Vec<PartialObjectMeta<ConfigMap>>, kube::Error> {
    let api: Api<ConfigMap> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    Ok(api.list_metadata(&ListParams::default().labels(LABEL)).await?.items)
}

/// Returns when a record was written; one that took the place of another has kept that one's creation time.
fn at(record: &PartialObjectMeta<ConfigMap>) -> Option<Timestamp> {
    let summary = Summary::of(&serde_json::to_value(record).unwrap_or_default());
    summary.and_then(|summary| summary.at).or(record.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn subject(key: &ObjectKey) -> Subject {
    Subject {
        kind: key.kind.resource().kind.to_owned(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::{Client as Dashboards, Route};
    use crate::in_flight::InFlightWrites;
    use crate::random::Random;
    use axum::Router;
    use axum::extract::Request;
    use manta_logic::config::Safeguards;
    use serde_json::json;
    use std::sync::{Arc, Mutex};

    /// Returns the names of the records that are deleted as expired, of those that the API server lists.
    async fn expired(records: Value) -> Vec<String> {
        let deleted: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&deleted);
        let answer = move |request: Request| {
            let (noted, records) = (Arc::clone(&noted), records.clone());
            async move {
                if request.method() == "DELETE" {
                    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
                    noted.lock().unwrap().push(name.to_owned());
                    return axum::Json(json!({"kind": "Status", "status": "Success"}));
                }
                axum::Json(json!({"kind": "PartialObjectMetadataList", "metadata": {}, "items": records}))
            }
        };
        let client = Client::new(Router::new().fallback(answer), "ns");
        let executor = KubernetesExecutor {
            client: client.clone(),
            budget: Arc::default(),
            in_flight: Arc::new(InFlightWrites::default()),
            random: Random::System,
            safeguards: Safeguards::default(),
        };
        let sources = Sources {
            dashboards: Dashboards::new(client.clone(), Route::ApiServerProxy),
            client,
            cluster_domain: String::new(),
            workloads: false,
        };
        let limits = Limits { count: 2, ..Limits::default() };
        let recorder = Recorder::new(sources, Some(limits), None, Vec::new(), Clock::System);
        recorder.expire(&executor, Some("ns"), &limits).await.unwrap();
        let deleted = deleted.lock().unwrap();
        deleted.clone()
    }

    #[tokio::test]
    async fn the_age_of_a_record_is_that_of_its_evidence() {
        let day = |days: i64| Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
        let record = |name: &str, created: Timestamp, at: Timestamp| {
            let annotations = json!({"post-mortem.ray.io/kind": "RayCluster", "post-mortem.ray.io/name": "a",
                "post-mortem.ray.io/at": at.to_string()});
            json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": created.to_string(),
                "annotations": annotations}})
        };
        let (rewritten, old) = (record("rewritten", day(90), day(0)), record("old", day(8), day(8)));
        assert_eq!(expired(json!([rewritten, old])).await, ["old"]);
        let surplus =
            [record("rewritten", day(6), day(1)), record("older", day(5), day(5)), record("new", day(0), day(0))];
        assert_eq!(expired(json!(surplus)).await, ["older"], "the oldest evidence goes first");
        let unmarked =
            json!({"metadata": {"name": "unmarked", "namespace": "ns", "creationTimestamp": day(8).to_string()}});
        assert_eq!(expired(json!([unmarked])).await, ["unmarked"]);
    }
}
