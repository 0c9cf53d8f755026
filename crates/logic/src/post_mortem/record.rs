//! Records as ConfigMaps: compressed, bounded, and with what a list shows in annotations.

use super::{Limits, Occasion};
use crate::explain::{Evidence, Subject, explain};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde::Serialize;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use std::collections::HashMap;

/// The label of all records.
pub const LABEL: &str = "ray.io/post-mortem";
/// What the annotations of records begin with.
const ANNOTATION_PREFIX: &str = "post-mortem.ray.io/";
const KEY: &str = "record.json.z";
const LEVEL: u8 = 6;
/// The most that a record may take when it is read: others can write ConfigMaps, too.
const MAX_JSON: usize = 16 << 20;
/// What the names of records of failed Pods have between the object and the Pod.
const FAILED: &str = "-failed-";
/// Records of failed Pods of one object: a Pod that fails again and again leaves those of others alone.
const MAX_FAILURES: usize = 5;
/// What is left of evidence that is too large, in steps: lines of each log, events, Pods.
const SHORTER: [(usize, usize, usize); 4] = [(60, 300, 100), (30, 100, 30), (10, 50, 10), (5, 20, 4)];

/// A record that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub summary: Summary,
    pub evidence: Evidence,
}

/// What a list shows of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The name of the ConfigMap.
    pub record: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The RayCluster that it ran on.
    pub cluster: String,
    /// Why the record was written: `ended`, `failed` or `deleted`.
    pub occasion: String,
    pub at: Option<Timestamp>,
    /// The reason and the sentence of the first cause.
    pub reason: String,
    pub cause: String,
}

/// Returns the ConfigMap with a record; `evidence` holds no secrets any more.
pub fn config_map(evidence: &Evidence, occasion: Occasion, limits: &Limits) -> Value {
    let (evidence, data) = SHORTER
        .iter()
        .map(|limits| shortened(evidence, *limits))
        .map(|evidence| (compress_to_vec_zlib(&serde_json::to_vec(&evidence).unwrap_or_default(), LEVEL), evidence))
        .find(|(data, _)| data.len() <= limits.bytes)
        .map_or_else(|| (evidence.clone(), Vec::new()), |(data, evidence)| (evidence, data));
    let subject = &evidence.subject;
    let cause = explain(&evidence).cause;
    let cluster = evidence.clusters.first().map(|cluster| cluster.metadata.name.as_str()).unwrap_or_default();
    let annotations = [
        ("kind", subject.kind.as_str()),
        ("name", &subject.name),
        ("uid", &subject.uid),
        ("cluster", cluster),
        ("occasion", occasion.name()),
        ("at", &evidence.at.to_string()),
        ("reason", &cause.reason),
        ("cause", &cause.summary),
    ];
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("{ANNOTATION_PREFIX}{key}"), json!(value))).collect();
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name(subject, occasion, &cause.object),
            "namespace": subject.namespace,
            "labels": {LABEL: "true", "app.kubernetes.io/created-by": "kuberay-operator"},
            "annotations": annotations,
        },
        "binaryData": {KEY: BASE64_STANDARD.encode(data)},
    })
}

/// Returns the name of a record: the same for the same object and occasion, and for the same Pod that failed.
fn name(subject: &Subject, occasion: Occasion, failed: &str) -> String {
    let object = digest(&format!("{}/{}", subject.kind, subject.uid));
    match occasion {
        Occasion::PodFailed => format!("ray-post-mortem-{object}{FAILED}{}", digest(failed)),
        Occasion::Ended | Occasion::Deleted => format!("ray-post-mortem-{object}-{}", occasion.name()),
    }
}

fn digest(text: &str) -> String {
    Sha1::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn shortened(evidence: &Evidence, (lines, events, pods): (usize, usize, usize)) -> Evidence {
    let mut evidence = evidence.clone();
    for log in &mut evidence.logs {
        log.lines.drain(..log.lines.len().saturating_sub(lines));
    }
    evidence.events.drain(..evidence.events.len().saturating_sub(events));
    evidence.pods.truncate(pods);
    evidence
}

impl Summary {
    /// Reads what a list shows from a ConfigMap; nothing if it is no record.
    pub fn of(config_map: &Value) -> Option<Self> {
        let metadata = &config_map["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let annotation = |key: &str| text(&metadata["annotations"][format!("{ANNOTATION_PREFIX}{key}")]);
        let summary = Self {
            record: text(&metadata["name"]),
            kind: annotation("kind"),
            namespace: text(&metadata["namespace"]),
            name: annotation("name"),
            uid: annotation("uid"),
            cluster: annotation("cluster"),
            occasion: annotation("occasion"),
            at: annotation("at").parse().ok(),
            reason: annotation("reason"),
            cause: annotation("cause"),
        };
        (!summary.kind.is_empty() && !summary.name.is_empty()).then_some(summary)
    }
}

impl Record {
    /// Reads a record from a ConfigMap.
    ///
    /// # Errors
    /// Says what is wrong with the ConfigMap.
    pub fn of(config_map: &Value) -> Result<Self, String> {
        let summary = Summary::of(config_map).ok_or("it lacks the annotations of a record")?;
        let data = config_map["binaryData"][KEY].as_str().ok_or_else(|| format!("it has no {KEY}"))?;
        let data = BASE64_STANDARD.decode(data).map_err(|error| format!("{KEY} is not base64: {error}"))?;
        let json = decompress_to_vec_zlib_with_limit(&data, MAX_JSON).map_err(|error| format!("{KEY}: {error}"))?;
        let evidence = serde_json::from_slice(&json).map_err(|error| format!("{KEY} holds no evidence: {error}"))?;
        Ok(Self { summary, evidence })
    }
}

/// Returns those of the records of one namespace that are too old or too many, by name and UID.
pub fn expired(
    records: &[(String, String, Option<Timestamp>)],
    now: Timestamp,
    limits: &Limits,
) -> Vec<(String, String)> {
    let mut sorted: Vec<_> = records.iter().collect();
    sorted.sort_by_key(|(name, _, created)| (std::cmp::Reverse(*created), name.clone()));
    let is_old = |created: Option<Timestamp>| {
        let age = created.map(|created| now.duration_since(created));
        age.is_none_or(|age| age.unsigned_abs() > limits.age && age.is_positive())
    };
    let mut failures: HashMap<&str, usize> = HashMap::new();
    let (kept, surplus): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|(name, _, _)| {
        // Records in a directory are named by their paths.
        let file = name.rsplit('/').next().unwrap_or_default();
        let of_object = file.rsplit_once(FAILED).map(|(object, _)| failures.entry(object).or_default());
        of_object.is_none_or(|count| {
            *count += 1;
            *count <= MAX_FAILURES
        })
    });
    let old =
        kept.into_iter().enumerate().filter(|(index, (_, _, created))| *index >= limits.count || is_old(*created));
    let expired = surplus.into_iter().chain(old.map(|(_, record)| record));
    expired.map(|(name, uid, _)| (name.clone(), uid.clone())).collect()
}
