//! Applies objects as kubectl does, so that `kubectl apply` can take over.

use anyhow::{Context, bail};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::{ApiCapabilities, ApiResource, Scope};
use kube::{Api, Client, Discovery};
use serde_json::Value;

/// kubectl's own manager: fields that it applies later are no conflict, and those that it drops are removed.
const MANAGER: &str = "kubectl";
/// What kubectl compares with; without it, `kubectl apply` warns.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The most that all annotations of an object may take.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// An object of a manifest, and the manifest's name.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) source: String,
    pub(crate) object: Value,
}

/// Applies objects in order and returns them as `kind/name`.
pub(crate) async fn apply_all(client: &Client, manifests: Vec<Manifest>) -> anyhow::Result<Vec<String>> {
    if manifests.is_empty() {
        return Ok(Vec::new());
    }
    let known = Discovery::new(client.clone()).run().await.context("cannot discover the API server's resources")?;
    let mut applied = Vec::new();
    for Manifest { source, object } in manifests {
        let object: DynamicObject = serde_json::from_value(object)
            .with_context(|| format!("{source}: a document is not a Kubernetes object"))?;
        applied.push(apply(client, &known, object).await.with_context(|| source.clone())?);
    }
    Ok(applied)
}

/// Applies a manifest that is already in memory.
pub(crate) async fn apply_text(client: &Client, name: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).with_context(|| format!("{name} is not YAML"))?;
    let objects = documents.into_iter().filter(|document| !document.is_null());
    apply_all(client, objects.map(|object| Manifest { source: name.to_owned(), object }).collect()).await
}

async fn apply(client: &Client, known: &Discovery, mut object: DynamicObject) -> anyhow::Result<String> {
    let types = object.types.clone().context("a document has no apiVersion and kind")?;
    let name = object.metadata.name.clone().with_context(|| format!("a {} has no name", types.kind))?;
    let Some((resource, capabilities)) = find(known, &types.api_version, &types.kind) else {
        bail!("{} {name}: local mode does not serve {} of {}", types.kind, types.kind, types.api_version);
    };
    let namespace = match capabilities.scope {
        Scope::Cluster => None,
        Scope::Namespaced => Some(object.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned())),
    };
    let api: Api<DynamicObject> = match &namespace {
        None => Api::all_with(client.clone(), &resource),
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    record(&mut object, namespace.as_deref());
    let params = PatchParams::apply(MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&object)).await.map_err(|error| match error {
        // The server's sentence, not its whole reply.
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        other => anyhow::Error::new(other).context(format!("cannot apply {} {name}", types.kind)),
    })?;
    Ok(format!("{}/{name}", types.kind.to_lowercase()))
}

fn find(known: &Discovery, api_version: &str, kind: &str) -> Option<(ApiResource, ApiCapabilities)> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    known.resolve_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind))
}

/// Records the manifest in an annotation, as kubectl does.
fn record(object: &mut DynamicObject, namespace: Option<&str>) {
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.remove(LAST_APPLIED);
    if let Some(namespace) = namespace {
        object.metadata.namespace = Some(namespace.to_owned());
    }
    let Ok(mut text) = serde_json::to_string(&object) else { return };
    text.push('\n');
    if text.len() < MAX_ANNOTATIONS {
        object.metadata.annotations.get_or_insert_default().insert(LAST_APPLIED.to_owned(), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_manifest_is_recorded_as_by_kubectl() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}});
        let mut object: DynamicObject = serde_json::from_value(object).unwrap();
        record(&mut object, Some("default"));
        let recorded = object.metadata.annotations.as_ref().unwrap()[LAST_APPLIED].clone();
        let recorded: Value = serde_json::from_str(&recorded).unwrap();
        assert_eq!(
            recorded,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "c"},
                   "metadata": {"name": "a", "namespace": "default", "annotations": {}}})
        );
        record(&mut object, Some("default"));
        assert_eq!(recorded["metadata"]["annotations"], json!({}), "not itself");
        object.data = json!({"data": {"big": "x".repeat(MAX_ANNOTATIONS)}});
        record(&mut object, None);
        assert_eq!(object.metadata.annotations.unwrap().get(LAST_APPLIED), None);
    }
}
