//! Reads post-mortems, and explains objects with their help.

use crate::api_request::error_text;
use crate::evidence::{self, Sources};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use manta_logic::explain::{Evidence, Explanation, Subject, Unreadable, explain};
use manta_logic::post_mortem::{Kept, LABEL, Record, Summary, kept_about};
use serde::Serialize;

/// An explanation, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    #[serde(flatten)]
    pub explanation: Explanation,
    /// When the record was written that stands in for an object that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Timestamp>,
}

/// Explains an object; nothing if it neither exists nor left a record.
///
/// What an object that still exists has lost, such as the Pods of a RayJob that has ended, is taken from its record.
///
/// # Errors
/// Fails if the object itself cannot be read.
pub async fn explained(sources: &Sources, subject: &Subject, now: Timestamp) -> Result<Option<Explained>, kube::Error> {
    let live = evidence::gather(sources, subject, now).await?;
    let kept = match &live {
        Some(live) => kept(&sources.client, &live.subject, &live.cluster_names()).await,
        None => kept(&sources.client, subject, &[]).await,
    };
    match (live, kept) {
        // Without access to ConfigMaps, what exists is still explained.
        (Some(mut live), Err(error)) => {
            live.unreadable.push(Unreadable { what: "list configmaps".to_owned(), why: error_text(&error) });
            Ok(explained_by(Some(live), &Kept::default()))
        }
        (live, kept) => Ok(explained_by(live, &kept?)),
    }
}

/// Explains an object by what is known about it and what was kept; nothing if there is neither.
pub fn explained_by(live: Option<Evidence>, kept: &Kept) -> Option<Explained> {
    let recorded = kept.end.as_ref().filter(|_| live.is_none()).map(|end| end.evidence.at);
    Some(Explained { explanation: explain(&kept.complete(live)?), recorded })
}

/// Returns what a list shows of all records of a namespace, or of all namespaces, the newest first.
///
/// # Errors
/// Fails if ConfigMaps cannot be listed.
pub async fn summaries(client: &Client, namespace: Option<&str>) -> Result<Vec<Summary>, kube::Error> {
    let api: Api<ConfigMap> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let found = api.list_metadata(&ListParams::default().labels(LABEL)).await?;
    let values = found.items.iter().filter_map(|record| serde_json::to_value(record).ok());
    let mut summaries: Vec<Summary> = values.filter_map(|record| Summary::of(&record)).collect();
    summaries.sort_by_key(|summary| std::cmp::Reverse(summary.at));
    Ok(summaries)
}

/// Returns the records that tell about an object, which uses these clusters.
///
/// # Errors
/// Fails if ConfigMaps cannot be read.
pub async fn kept(client: &Client, subject: &Subject, clusters: &[String]) -> Result<Kept, kube::Error> {
    let all = summaries(client, Some(&subject.namespace)).await?;
    let chosen = kept_about(&all, subject, clusters);
    let mut kept = Kept::default();
    for summary in &chosen.failures {
        kept.failures.extend(read(client, summary).await?);
    }
    if let Some(summary) = &chosen.end {
        kept.end = read(client, summary).await?;
    }
    Ok(kept)
}

async fn read(client: &Client, summary: &Summary) -> Result<Option<Record>, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &summary.namespace);
    let Some(found) = api.get_opt(&summary.record).await? else { return Ok(None) };
    let value = serde_json::to_value(found).map_err(kube::Error::SerdeError)?;
    Ok(Record::of(&value)
        .inspect_err(|error| tracing::warn!(record = summary.record, error, "cannot read a post-mortem"))
        .ok())
}
