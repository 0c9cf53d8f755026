//! Conversion webhooks: what is stored at one version is shown, and written, at another.

use std::sync::Arc;

use serde_json::{Value, json};

use super::call;
use crate::error::ApiError;
use crate::ops::conversion::with_metadata_of;
use crate::ops::{Cluster, WriteOptions};
use crate::registry::{ConversionWebhook, Resource};
use crate::selector::Selection;
use crate::store::{Entry, Event, ListRange};

/// How long a webhook may take, as in the real server.
const TIMEOUT_SECONDS: u64 = 30;
/// How many conversions one write may need: that of the old object, that of the new one, and again after lost races.
const TRIES: usize = 16;

/// Runs a verb until every conversion that it needs is there.
pub(crate) async fn converting<T>(
    cluster: &Cluster,
    resource: &Resource,
    options: &WriteOptions,
    verb: impl Fn() -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    for _ in 0..TRIES {
        let result = verb();
        let Some((wanted, object)) = options.conversions.take_wanted() else { return result };
        let converted = ask(cluster, resource, &wanted, std::slice::from_ref(&object)).await?;
        for converted in converted {
            options.conversions.add(&wanted, &object, converted);
        }
    }
    Err(ApiError::internal("the object changes faster than it can be converted"))
}

/// Returns an object as its resource shows it.
pub(crate) async fn entry(cluster: &Cluster, resource: &Resource, entry: Arc<Entry>) -> Result<Arc<Entry>, ApiError> {
    let mut converted = entries(cluster, resource, vec![entry.clone()]).await?;
    Ok(converted.pop().unwrap_or(entry))
}

/// Returns objects as their resource shows them; a webhook gets all those of other versions at once.
pub(crate) async fn entries(
    cluster: &Cluster,
    resource: &Resource,
    mut entries: Vec<Arc<Entry>>,
) -> Result<Vec<Arc<Entry>>, ApiError> {
    if resource.conversion().is_none() {
        return Ok(entries);
    }
    let others: Vec<usize> =
        (0..entries.len()).filter(|at| !entries[*at].has_api_version(&resource.api_version)).collect();
    let objects: Vec<Value> = others.iter().map(|at| entries[*at].value()).collect();
    let converted = ask(cluster, resource, &resource.api_version, &objects).await?;
    for (at, (before, converted)) in others.into_iter().zip(objects.iter().zip(converted)) {
        entries[at] = Arc::new(entries[at].converted(&with_metadata_of(before, converted)));
    }
    Ok(entries)
}

/// Returns changes as a watch of a resource shows them.
pub(crate) async fn events(
    cluster: &Cluster,
    resource: &Resource,
    events: Vec<Arc<Event>>,
) -> Result<Vec<Arc<Event>>, ApiError> {
    if resource.conversion().is_none() {
        return Ok(events);
    }
    let after = events.iter().map(|event| event.entry.clone());
    let before = events.iter().filter_map(|event| event.before.clone());
    let mut all = entries(cluster, resource, after.chain(before).collect()).await?.into_iter();
    let after: Vec<Arc<Entry>> = all.by_ref().take(events.len()).collect();
    let shown = events.iter().zip(after).map(|(event, entry)| {
        let before = event.before.is_some().then(|| all.next()).flatten();
        Arc::new(Event { change: event.change, entry, before })
    });
    Ok(shown.collect())
}

/// Returns the objects of a selection, as their resource shows them, if only a webhook can tell which they are.
pub(crate) async fn select(
    cluster: &Cluster,
    resource: &Resource,
    selection: &Selection,
) -> Result<Option<Vec<Arc<Entry>>>, ApiError> {
    if resource.conversion().is_none() || !selection.reads_content() {
        return Ok(None);
    }
    let stored = selection.without_content();
    let span = ListRange { namespace: selection.namespace.as_deref(), ..ListRange::default() };
    let page = cluster.store.list(&resource.table, &span, |entry| stored.matches(entry));
    let mut found = entries(cluster, resource, page.map(|page| page.entries).unwrap_or_default()).await?;
    found.retain(|entry| selection.matches(entry));
    Ok(Some(found))
}

/// Asks the webhook of a kind to convert objects, none of which has the wanted version.
async fn ask(cluster: &Cluster, resource: &Resource, wanted: &str, objects: &[Value]) -> Result<Vec<Value>, ApiError> {
    let (Some(webhook), false) = (resource.conversion(), objects.is_empty()) else { return Ok(Vec::new()) };
    let failed = |why: String| {
        let from = objects[0]["apiVersion"].as_str().unwrap_or("");
        ApiError::internal(format!("conversion webhook for {from}, Kind={} failed: {why}", resource.kind))
    };
    let review = review(webhook, &cluster.clock.uid(), wanted, objects)
        .ok_or_else(|| failed("it understands no version of ConversionReview that this server knows".to_owned()))?;
    let hook = json!({"clientConfig": webhook.client_config, "timeoutSeconds": TIMEOUT_SECONDS});
    let answer = call::post(cluster, &hook, &review).await;
    let converted = answer.and_then(|answer| read(&review, answer, objects)).map_err(failed)?;
    let schema = resource.custom().filter(|_| wanted == &*resource.api_version).and_then(|custom| custom.schema());
    Ok(converted
        .into_iter()
        .map(|mut object| {
            if let Some(schema) = schema {
                schema.prune(&mut object);
                schema.default(&mut object);
            }
            object
        })
        .collect())
}

fn review(webhook: &ConversionWebhook, uid: &str, wanted: &str, objects: &[Value]) -> Option<Value> {
    let version = webhook.review_versions.iter().find(|version| matches!(version.as_str(), "v1" | "v1beta1"))?;
    Some(json!({
        "kind": "ConversionReview",
        "apiVersion": format!("apiextensions.k8s.io/{version}"),
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
    }))
}

/// Reads the converted objects from the response to a review.
fn read(review: &Value, mut answer: Value, objects: &[Value]) -> Result<Vec<Value>, String> {
    if answer["kind"] != "ConversionReview" || answer["apiVersion"] != review["apiVersion"] {
        return Err(format!("expected webhook response of {}, Kind=ConversionReview", review["apiVersion"]));
    }
    let mut response = answer["response"].take();
    let (wanted, got) = (&review["request"]["uid"], &response["uid"]);
    if wanted != got {
        return Err(format!("expected response.uid={wanted}, got {got}"));
    }
    let result = &response["result"];
    if result["status"] != "Success" {
        return Err(result["message"].as_str().unwrap_or("unknown error").to_owned());
    }
    let Value::Array(converted) = response["convertedObjects"].take() else {
        return Err("it returned no objects".to_owned());
    };
    if converted.len() != objects.len() {
        return Err(format!("it returned {} objects, expected {}", converted.len(), objects.len()));
    }
    for (index, (before, after)) in objects.iter().zip(&converted).enumerate() {
        let version = &review["request"]["desiredAPIVersion"];
        if &after["apiVersion"] != version || after["kind"] != before["kind"] {
            return Err(format!("converted object {index} is not of {version} and {}", before["kind"]));
        }
        for key in ["name", "namespace", "uid"] {
            if before["metadata"][key] != after["metadata"][key] {
                return Err(format!("converted object {index} has another metadata.{key}"));
            }
        }
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_responses_are_failures() {
        let object = json!({"apiVersion": "x.io/v1", "kind": "A", "metadata": {"name": "a", "uid": "1"}});
        let webhook = ConversionWebhook { client_config: Value::Null, review_versions: vec!["v2".into(), "v1".into()] };
        let review = review(&webhook, "u", "x.io/v2", std::slice::from_ref(&object)).expect("v1 is known");
        let good = json!({"apiVersion": "x.io/v2", "kind": "A", "metadata": {"name": "a", "uid": "1"}});
        let check = |response: Value, expect: Result<usize, &str>| {
            let answer = json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response});
            let read = read(&review, answer, std::slice::from_ref(&object)).map(|objects| objects.len());
            assert_eq!(read, expect.map_err(str::to_owned), "{response}");
        };
        let success = json!({"status": "Success"});
        check(json!({"uid": "u", "result": success, "convertedObjects": [good]}), Ok(1));
        check(json!({"uid": "u", "result": {"status": "Failure", "message": "no"}}), Err("no"));
        check(json!({"uid": "x"}), Err("expected response.uid=\"u\", got \"x\""));
        check(json!({"uid": "u", "result": success}), Err("it returned no objects"));
        check(json!({"uid": "u", "result": success, "convertedObjects": []}), Err("it returned 0 objects, expected 1"));
        check(
            json!({"uid": "u", "result": success, "convertedObjects": [object]}),
            Err("converted object 0 is not of \"x.io/v2\" and \"A\""),
        );
        let mut other = good.clone();
        other["metadata"]["uid"] = "2".into();
        check(
            json!({"uid": "u", "result": success, "convertedObjects": [other]}),
            Err("converted object 0 has another metadata.uid"),
        );
    }
}
