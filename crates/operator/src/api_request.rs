//! Requests to the API server, as small as they can be: only the metadata of a written object is read back.

use http::header::{ACCEPT, HeaderValue};
use kube::Client;
use kube::core::request::Request;
use manta_logic::action::ObjectKey;
use manta_logic::plan::LookedUp;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// What we want back of an object that was written.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The part of a written object that is read back.
#[derive(Deserialize)]
pub(crate) struct Written {
    #[serde(default)]
    pub(crate) metadata: WrittenMeta,
}

/// The part of its `metadata` that is read back.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WrittenMeta {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

/// Writes an object.
pub(crate) async fn send(client: &Client, mut request: http::Request<Vec<u8>>) -> Result<Written, kube::Error> {
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA_ONLY));
    client.request(request).await
}

/// Looks an object up that is not watched.
pub(crate) async fn look_up(client: &Client, key: &ObjectKey) -> LookedUp {
    let request = match Request::new(collection_url(key)).get(&key.name, &Default::default()) {
        Ok(request) => request,
        Err(error) => return LookedUp::Failed(error.to_string()),
    };
    match client.request::<Value>(request).await {
        Ok(found) => LookedUp::Found(Arc::new(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => LookedUp::Absent,
        Err(error) => LookedUp::Failed(error_text(&error)),
    }
}

/// Returns the URL of the collection that an object is in.
pub(crate) fn collection_url(key: &ObjectKey) -> String {
    let resource = key.kind.resource();
    let group = match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    format!("{group}/namespaces/{}/{}", key.namespace, resource.plural)
}

/// Returns the API server's own message, or what went wrong before it could send one.
pub(crate) fn error_text(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}
