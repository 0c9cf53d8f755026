//! Ray's packages: archives of working directories that jobs run in.

use super::client::{Client, RequestError};
use super::jobs::{is_success, with_status};
use http::Method;
use manta_logic::dashboard::DashboardEndpoint;

/// Why a package could not be uploaded.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{0}")]
    Refused(String),
}

/// Uploads a package, unless the cluster has one of this name. Returns its URI.
pub async fn upload(
    client: &Client,
    endpoint: &DashboardEndpoint,
    name: &str,
    contents: Vec<u8>,
) -> Result<String, PackageError> {
    let path = format!("/api/packages/gcs/{name}");
    let known = client.send(endpoint, Method::GET, &path, None).await?;
    if !is_success(known.status) {
        if known.status != 404 {
            return Err(PackageError::Refused(with_status(&known)));
        }
        let uploaded = client.send_bytes(endpoint, Method::PUT, &path, Some(contents.into())).await?;
        if !is_success(uploaded.status) {
            return Err(PackageError::Refused(with_status(&uploaded)));
        }
    }
    Ok(format!("gcs://{name}"))
}
