//! Applies manifests as `kubectl apply --server-side` does.

use anyhow::{Context, bail};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::{ApiCapabilities, ApiResource, Scope};
use kube::{Api, Client, Discovery};
use serde_json::Value;
use std::path::PathBuf;

const MANAGER: &str = "manta-up";

/// Applies every document of the files in order and returns the applied objects as `kind/name`.
pub(crate) async fn apply_files(client: &Client, files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut documents = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.display().to_string();
        documents.extend(read(&name, &text)?.into_iter().map(|document| (name.clone(), document)));
    }
    apply_documents(client, documents).await
}

/// Applies a manifest that is already in memory.
pub(crate) async fn apply_text(client: &Client, name: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let documents = read(name, text)?.into_iter().map(|document| (name.to_owned(), document)).collect();
    apply_documents(client, documents).await
}

async fn apply_documents(client: &Client, documents: Vec<(String, Value)>) -> anyhow::Result<Vec<String>> {
    if documents.is_empty() {
        return Ok(Vec::new());
    }
    let known = Discovery::new(client.clone()).run().await.context("cannot discover the API server's resources")?;
    let mut applied = Vec::new();
    for (source, document) in documents {
        let object: DynamicObject = serde_json::from_value(document)
            .with_context(|| format!("{source}: a document is not a Kubernetes object"))?;
        let shown = apply(client, &known, object).await.with_context(|| source.clone())?;
        applied.push(shown);
    }
    Ok(applied)
}

async fn apply(client: &Client, known: &Discovery, object: DynamicObject) -> anyhow::Result<String> {
    let types = object.types.clone().context("a document has no apiVersion and kind")?;
    let name = object.metadata.name.clone().with_context(|| format!("a {} has no name", types.kind))?;
    let Some((resource, capabilities)) = find(known, &types.api_version, &types.kind) else {
        bail!("{} {name}: local mode does not serve {} of {}", types.kind, types.kind, types.api_version);
    };
    let api: Api<DynamicObject> = if capabilities.scope == Scope::Cluster {
        Api::all_with(client.clone(), &resource)
    } else {
        let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
        Api::namespaced_with(client.clone(), namespace, &resource)
    };
    let params = PatchParams::apply(MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("cannot apply {} {name}", types.kind))?;
    Ok(format!("{}/{name}", types.kind.to_lowercase()))
}

fn find(known: &Discovery, api_version: &str, kind: &str) -> Option<(ApiResource, ApiCapabilities)> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    known.resolve_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind))
}

fn read(name: &str, text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).with_context(|| format!("{name} is not YAML"))?;
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(mut map) if map.get("kind").is_some_and(|k| k == "List") => {
                let items = map.remove("items").unwrap_or_default();
                objects.extend(items.as_array().cloned().unwrap_or_default());
            }
            other => objects.push(other),
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists_are_read_in_order() {
        let text = "---\nkind: A\n---\n---\nkind: List\nitems:\n- kind: B\n- kind: C\n";
        let read_kinds = |text: &str| -> anyhow::Result<Vec<String>> {
            Ok(read("x.yaml", text)?.iter().map(|d| d["kind"].as_str().unwrap_or("?").to_owned()).collect())
        };
        assert_eq!(read_kinds(text).unwrap(), ["A", "B", "C"]);
        assert!(read_kinds("a: [").unwrap_err().to_string().contains("x.yaml is not YAML"));
    }
}
