//! Enforces the chart's permissions on every operator that a test starts.
//!
//! The API server of the tests authorizes everything, so a permission missing from the chart would only be noticed in
//! production. Here a request that the chart does not permit is denied as the API server would deny it.

use anyhow::{Context, Result};
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use manta_testkit::{helm, permission, permissions};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};

/// Enables every optional permission.
const SETTINGS: [&str; 2] = ["batchScheduler.enabled=true", "useKubernetesProxy=true"];

static PERMITTED: LazyLock<Result<BTreeSet<String>>> = LazyLock::new(|| {
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/manta-operator");
    let mut args = vec!["template", "kuberay-operator", chart];
    args.extend(SETTINGS.iter().flat_map(|setting| ["--set", setting]));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&helm(&args)?)?;
    let is_ours =
        |document: &&Value| document["kind"] == "ClusterRole" && document["metadata"]["name"] == "kuberay-operator";
    let role = documents.iter().find(is_ours).context("the chart has no ClusterRole")?;
    Ok(permissions(role))
});

/// Returns the permission that a request needs; none for requests without a resource.
fn needed(method: &Method, path: &str, query: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", "v1", rest @ ..] => ("", rest),
        ["apis", group, _version, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _namespace, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let (resource, name) = match rest {
        [] => return None,
        [resource] => ((*resource).to_owned(), None),
        [resource, name] => ((*resource).to_owned(), Some(name)),
        [resource, name, part, ..] => (format!("{resource}/{part}"), Some(name)),
    };
    let verb = match (method.as_str(), name) {
        ("GET", Some(_)) => "get",
        ("GET", None) if query.contains("watch=") => "watch",
        ("GET", None) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        _ => "delete",
    };
    Some(permission(verb, group, &resource))
}

/// The permissions of the requests denied so far.
#[derive(Clone, Default)]
pub(crate) struct DeniedRequests(Arc<Mutex<BTreeSet<String>>>);

impl DeniedRequests {
    pub(crate) fn check(&self) -> Result<()> {
        let denied = self.0.lock().unwrap();
        anyhow::ensure!(denied.is_empty(), "the chart does not permit what the operator did: {denied:?}");
        Ok(())
    }
}

/// Returns a client that may do only what the chart permits.
pub(crate) fn enforce(client: Client, denied: &DeniedRequests) -> Client {
    let denied = denied.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, denied) = (client.clone(), denied.clone());
        async move {
            let permitted = PERMITTED.as_ref().unwrap();
            let uri = request.uri();
            match needed(request.method(), uri.path(), uri.query().unwrap_or_default()) {
                Some(needed) if !permitted.contains(&needed) => {
                    let refusal = refusal(&needed);
                    denied.0.lock().unwrap().insert(needed);
                    Ok(refusal)
                }
                _ => client.send(request).await,
            }
        }
        .boxed()
    });
    Client::new(service, "default")
}

fn refusal(needed: &str) -> Response<Body> {
    let message = format!("the chart does not permit to {needed}");
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "reason": "Forbidden", "code": 403, "message": message});
    let body = Body::from(status.to_string().into_bytes());
    Response::builder().status(StatusCode::FORBIDDEN).body(body).unwrap()
}
