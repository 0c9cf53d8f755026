//! Writes statuses: once per pass, the whole status, with the resource version that was read.
//!
//! A write is tracked until the watch shows it: a pass over the older version would only cause a conflict.

use crate::api_request::{collection_url, error_text, send};
use crate::in_flight::InFlightWrites;
use crate::write_budget::WriteBudget;
use kube::Client;
use kube::api::PostParams;
use kube::core::request::Request;
use manta_logic::action::ObjectKey;
use manta_logic::pass::StatusWrite;
use serde::Serialize;
use std::sync::Arc;
use tracing::warn;

/// Writes statuses.
pub(crate) struct StatusWriter {
    client: Client,
    budget: Arc<WriteBudget>,
    in_flight: Arc<InFlightWrites>,
    version_preconditions: bool,
}

impl StatusWriter {
    pub(crate) fn new(
        client: Client,
        budget: Arc<WriteBudget>,
        in_flight: Arc<InFlightWrites>,
        version_preconditions: bool,
    ) -> Self {
        Self { client, budget, in_flight, version_preconditions }
    }

    /// Replaces the status of an object, if it still has this resource version.
    pub(crate) async fn write<S: Serialize>(
        &self,
        key: &ObjectKey,
        resource_version: Option<&str>,
        status: &S,
    ) -> StatusWrite {
        let permit = self.budget.acquire().await;
        let write = || self.try_write(key, resource_version, status);
        match self.budget.send(&permit, write).await {
            Ok(version) => {
                // A status that changes nothing leaves the version as it was, and no watch shows it.
                if resource_version == Some(&version) {
                    return StatusWrite::Unchanged;
                }
                if let Some(onto) = resource_version {
                    self.in_flight.wrote_status(key, onto);
                }
                StatusWrite::Done
            }
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => StatusWrite::Conflict,
            Err(error) => {
                warn!(
                    kind = key.kind.resource().kind,
                    namespace = key.namespace,
                    name = key.name,
                    error = error_text(&error),
                    "cannot write the status"
                );
                StatusWrite::Failed
            }
        }
    }

    /// Returns the version that the object has now.
    async fn try_write<S: Serialize>(
        &self,
        key: &ObjectKey,
        resource_version: Option<&str>,
        status: &S,
    ) -> Result<String, kube::Error> {
        if !self.version_preconditions {
            let written = send(&self.client, unconditional(key, status)?).await?;
            return Ok(written.metadata.resource_version);
        }
        let resource = key.kind.resource();
        let body = Body {
            api_version: &resource.api_version(),
            kind: resource.kind,
            metadata: BodyMeta { name: &key.name, namespace: &key.namespace, resource_version },
            status,
        };
        let bytes = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
        let request = Request::new(collection_url(key))
            .replace_subresource("status", &key.name, &PostParams::default(), bytes)
            .map_err(kube::Error::BuildRequest)?;
        let written = send(&self.client, request).await?;
        Ok(written.metadata.resource_version)
    }
}

/// Returns a request that replaces a status, whatever has become of the object since it was read.
fn unconditional<S: Serialize>(key: &ObjectKey, status: &S) -> Result<http::Request<Vec<u8>>, kube::Error> {
    let patch = serde_json::json!([{"op": "add", "path": "/status", "value": status}]);
    http::Request::patch(format!("{}/{}/status", collection_url(key), key.name))
        .header(http::header::CONTENT_TYPE, "application/json-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(kube::Error::HttpError)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a, S> {
    api_version: &'a str,
    kind: &'a str,
    metadata: BodyMeta<'a>,
    status: &'a S,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BodyMeta<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
}
