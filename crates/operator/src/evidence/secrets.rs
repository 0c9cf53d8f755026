//! The secrets that the programs of a cluster know, and may have printed.

use super::ray::token_secret;
use super::reader::Reader;
use super::{RayObjects, plural};
use crate::dashboard::TOKEN_KEY;
use k8s_openapi::api::core::v1::Secret;
use manta_logic::explain::Unreadable;
use manta_logic::post_mortem::secrets_in;
use serde_json::Value;

/// Returns the values that must not be kept of Ray objects: those of their specs, of the RayJobs and RayServices that run on
/// the clusters, and the clusters' tokens.
///
/// # Errors
/// Returns the first source that could not be read: what is printed may hold its values.
pub(super) async fn of(mut reader: Reader, objects: &RayObjects) -> Result<Vec<String>, Unreadable> {
    let mut secrets: Vec<String> = objects.owner.iter().chain(&objects.clusters).flat_map(secrets_in).collect();
    for cluster in &objects.clusters {
        for (kind, name) in owners(cluster, objects.owner.as_ref()) {
            match reader.get_object(plural(kind), name).await {
                Ok(owner) => secrets.extend(secrets_in(&owner)),
                // Its values are as unknown as those of one that may not be read.
                Err(error) => return Err(Unreadable { what: format!("get {}", plural(kind)), why: error.to_string() }),
            }
        }
        secrets.extend(of_jobs_on(&mut reader, cluster).await);
        secrets.extend(token(&mut reader, cluster).await);
    }
    match reader.unreadable.into_iter().next() {
        Some(unreadable) => Err(unreadable),
        None => Ok(secrets),
    }
}

/// Returns the RayJobs and RayServices that a cluster belongs to, but for the one that is known.
fn owners<'a>(cluster: &'a Value, known: Option<&Value>) -> Vec<(&'a str, &'a str)> {
    let known = known.and_then(|object| object.pointer("/metadata/uid")).filter(|uid| uid.is_string());
    let owners = cluster.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let others = owners.into_iter().flatten().filter(|owner| known.is_none() || owner.get("uid") != known);
    let named = others.filter_map(|owner| Some((owner.get("kind")?.as_str()?, owner.get("name")?.as_str()?)));
    named.filter(|(kind, _)| ["RayJob", "RayService"].contains(kind)).collect()
}

/// Returns the secrets of the RayJobs that have selected a cluster.
async fn of_jobs_on(reader: &mut Reader, cluster: &Value) -> Vec<String> {
    let name = cluster.pointer("/metadata/name");
    let on_cluster = |job: Value| (job.pointer("/status/rayClusterName") == name).then(|| secrets_in(&job));
    reader.list_if("rayjobs", "/apis/ray.io/v1", "", on_cluster).await.concat()
}

/// Returns the token that a cluster asks for. A Secret that does not exist gives access to nothing.
async fn token(reader: &mut Reader, cluster: &Value) -> Option<String> {
    let secret = reader.get_optional("secrets", "/api/v1", &token_secret(cluster)?).await?;
    let secret: Secret = serde_json::from_value(secret).ok()?;
    String::from_utf8(secret.data?.remove(TOKEN_KEY)?.0).ok()
}
