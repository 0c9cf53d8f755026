//! New objects: templates, findings while a manifest is written, and creation.

use super::Page;
use super::act::FIELD_MANAGER;
use super::failure::{Failure, Json};
use super::question::{check_name, parse};
use super::session::Session;
use crate::commands::new;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use http::StatusCode;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use manta_cli::lint::{Finding, Linter, Severity};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// How findings name the text that is being written.
const FILE: &str = "manifest";
/// What manifests may create: Ray's kinds, and the ConfigMaps that often hold their code.
const KINDS: [(&str, &str); 5] = [
    ("ray.io", "RayCluster"),
    ("ray.io", "RayJob"),
    ("ray.io", "RayService"),
    ("ray.io", "RayCronJob"),
    ("", "ConfigMap"),
];

/// Examples of what `manta new` has no flag for.
const EXAMPLES: [(&str, &str); 6] = [
    ("Cluster that scales by itself", include_str!("../../../../examples/raycluster-autoscaler.yaml")),
    ("Cluster with replicas of several hosts", include_str!("../../../../examples/raycluster-multihost.yaml")),
    ("Cluster that asks for a token", include_str!("../../../../examples/raycluster-auth.yaml")),
    ("Job with a submitter Pod", include_str!("../../../../examples/rayjob-submitter.yaml")),
    ("Job that is retried", include_str!("../../../../examples/rayjob-retry.yaml")),
    ("Cron job", include_str!("../../../../examples/raycronjob.yaml")),
];

/// The linter, which compiles each schema once.
#[derive(Default)]
pub(super) struct Lint(Arc<Mutex<Linter>>);

impl Lint {
    /// Returns the findings about a manifest and its objects. Takes a while for the first one of a kind.
    async fn read(&self, text: Bytes) -> Result<(Vec<Finding>, Vec<Value>), Failure> {
        let linter = Arc::clone(&self.0);
        let read = move || linter.lock().unwrap_or_else(PoisonError::into_inner).read(FILE, &text);
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the manifest could not be checked"))
    }
}

/// Returns manifests to start from.
pub(super) async fn templates() -> Json<Value> {
    let new = new::templates().into_iter().map(|(title, text)| json!({"title": title, "text": text}));
    let examples = EXAMPLES.iter().map(|(title, text)| json!({"title": title, "text": text}));
    Json(new.chain(examples).collect())
}

/// Returns the findings about a manifest.
pub(super) async fn lint(State(page): State<Arc<Page>>, body: Bytes) -> Result<Json<impl Serialize>, Failure> {
    let (findings, objects) = page.linter.read(body).await?;
    let named = |object: &Value| {
        let metadata = &object["metadata"];
        json!({"kind": object["kind"], "name": metadata["name"], "namespace": metadata["namespace"]})
    };
    Ok(Json(json!({"findings": findings, "objects": objects.iter().map(named).collect::<Vec<_>>()})))
}

#[derive(Deserialize)]
struct Creation {
    text: String,
    /// The namespace of objects that name none.
    namespace: String,
}

/// Creates the objects of a manifest: all, or none if the API server would refuse one of them. If it changes its mind
/// half-way, the failure names those that exist.
pub(super) async fn create(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<Arc<Session>>,
    body: Bytes,
) -> Result<Json<Value>, Failure> {
    let Creation { text, namespace } = parse(&body)?;
    let (findings, objects) = page.linter.read(text.into()).await?;
    if let Some(finding) = findings.iter().find(|finding| finding.severity <= Severity::Error) {
        return Err(Failure::bad_request(finding.to_string()));
    }
    if objects.is_empty() {
        return Err(Failure::bad_request("the manifest holds no object"));
    }
    let (mut created, mut made) = (Vec::new(), Vec::new());
    for dry_run in [true, false] {
        for object in &objects {
            let (api, object) = target_of(&session, object, &namespace)?;
            let params = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
            let what = format!("cannot create {}", name_of(&object));
            let stored = api.create(&params, &object).await;
            let stored = stored.map_err(|error| Failure::from_kube(&what, &error).after(&made))?;
            if !dry_run {
                made.push(name_of(&stored));
                let kind = stored.types.as_ref().map(|types| types.kind.clone());
                created
                    .push(json!({"kind": kind, "namespace": stored.metadata.namespace, "name": stored.metadata.name}));
            }
        }
    }
    Ok(Json(json!({"created": created})))
}

fn target_of(
    session: &Session,
    object: &Value,
    namespace: &str,
) -> Result<(Api<DynamicObject>, DynamicObject), Failure> {
    let object: DynamicObject = serde_json::from_value(object.clone())
        .map_err(|error| Failure::bad_request(format!("this is no Kubernetes object: {error}")))?;
    let types = object.types.clone().unwrap_or_default();
    let kind = GroupVersionKind::try_from(&types).map_err(|error| Failure::bad_request(error.to_string()))?;
    if !KINDS.contains(&(kind.group.as_str(), kind.kind.as_str())) {
        let kinds = KINDS.map(|(_, kind)| kind).join(", ");
        return Err(Failure::bad_request(format!("{} cannot be created here; only {kinds} can", kind.kind)));
    }
    let namespace = object.metadata.namespace.clone().unwrap_or_else(|| namespace.to_owned());
    check_name(&namespace).map_err(Failure::bad_request)?;
    let api = Api::namespaced_with(session.target.client.clone(), &namespace, &ApiResource::from_gvk(&kind));
    Ok((api, object))
}

fn name_of(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
    let metadata = &object.metadata;
    format!("{kind} {}", metadata.name.as_deref().or(metadata.generate_name.as_deref()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_can_be_created() {
        let examples = EXAMPLES.iter().map(|(title, text)| ((*title).to_owned(), (*text).to_owned()));
        for (title, text) in new::templates().into_iter().chain(examples) {
            let (findings, objects) = Linter::default().read(FILE, text.as_bytes());
            let errors: Vec<&Finding> = findings.iter().filter(|finding| finding.severity <= Severity::Error).collect();
            assert!(errors.is_empty(), "{title}: {errors:?}");
            for object in objects {
                let kind = object["kind"].as_str().unwrap_or_default();
                assert!(KINDS.iter().any(|(_, allowed)| *allowed == kind), "{title}: {kind}");
            }
        }
    }
}
