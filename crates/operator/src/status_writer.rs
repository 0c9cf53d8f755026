//! Writes statuses: once per pass, the whole status, and only onto the version that was seen.

use crate::act::{collection, text};
use kube::Client;
use kube::api::PostParams;
use kube::core::request::Request;
use manta_logic::action::Target;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::warn;

/// What became of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusWrite {
    Done,
    /// Somebody changed or removed the object: the watch brings the next look.
    Overtaken,
    Failed,
}

/// Replaces the status of an object, if it still has this resource version.
pub(crate) async fn write<S: Serialize>(
    client: &Client,
    target: &Target,
    resource_version: Option<&str>,
    status: &S,
) -> StatusWrite {
    match try_write(client, target, resource_version, status).await {
        Ok(()) => StatusWrite::Done,
        Err(kube::Error::Api(answer)) if answer.code == 409 || answer.code == 404 => StatusWrite::Overtaken,
        Err(error) => {
            warn!(
                kind = target.kind.resource().kind,
                namespace = target.namespace,
                name = target.name,
                error = text(&error),
                "the status could not be written"
            );
            StatusWrite::Failed
        }
    }
}

async fn try_write<S: Serialize>(
    client: &Client,
    target: &Target,
    resource_version: Option<&str>,
    status: &S,
) -> Result<(), kube::Error> {
    let resource = target.kind.resource();
    let body = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": {"name": target.name, "namespace": target.namespace, "resourceVersion": resource_version},
        "status": status,
    });
    let bytes = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
    let request = Request::new(collection(target))
        .replace_subresource("status", &target.name, &PostParams::default(), bytes)
        .map_err(kube::Error::BuildRequest)?;
    client.request::<Value>(request).await.map(drop)
}
