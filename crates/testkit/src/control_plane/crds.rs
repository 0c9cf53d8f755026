//! Installs CRDs, and fetches those of other projects.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::{eventually, go};

/// The Go module that pins the projects that CRDs come from.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crds");
const GO_MOD: &str = include_str!("../../crds/go.mod");

/// Returns the directory with the standard CRDs of Gateway API.
pub(super) fn of_gateway_api() -> Result<PathBuf> {
    of_module("sigs.k8s.io/gateway-api", "config/crd/standard")
}

/// Returns the directory with the CRDs of cert-manager.
pub(super) fn of_cert_manager() -> Result<PathBuf> {
    of_module("github.com/cert-manager/cert-manager", "deploy/crds")
}

/// Returns the directory with cert-manager's Helm chart, as its release tool finds it.
pub(super) fn chart_of_cert_manager() -> Result<PathBuf> {
    of_module("github.com/cert-manager/cert-manager", "deploy/charts/cert-manager")
}

/// Returns a directory of a Go module's sources, which are downloaded if needed.
fn of_module(module: &str, inside: &str) -> Result<PathBuf> {
    let version = go::required_version(GO_MOD, module);
    let version = version.with_context(|| format!("crds/go.mod does not require {module}"))?;
    Ok(go::module_sources(MODULE, module, version)?.join(inside))
}

/// Applies every CRD in a file or directory and waits until they are served.
pub(super) async fn install(client: Client, path: &Path) -> Result<usize> {
    let definitions = read(path)?;
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let params = PatchParams::apply("testkit").force();
    for definition in &definitions {
        let name = definition["metadata"]["name"].as_str().context("a CRD without a name")?;
        api.patch(name, &params, &Patch::Apply(definition))
            .await
            .with_context(|| format!("cannot install the CRD {name}"))?;
    }
    let typed: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in &definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        wait_served(&client, &typed, name).await?;
    }
    Ok(definitions.len())
}

/// Waits until list requests succeed: the server may return 404 for a moment after the CRD is established.
async fn wait_served(client: &Client, api: &Api<CustomResourceDefinition>, name: &str) -> Result<()> {
    eventually(&format!("{name} served"), async || {
        let definition = api.get(name).await?;
        for version in definition.spec.versions.iter().filter(|version| version.served) {
            let path =
                format!("/apis/{}/{}/{}?limit=1", definition.spec.group, version.name, definition.spec.names.plural);
            client.request_text(http::Request::get(path).body(Vec::new())?).await?;
        }
        Ok(())
    })
    .await
}

fn read(path: &Path) -> Result<Vec<Value>> {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        files = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
        files.sort();
    }
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))?;
        found.extend(documents.into_iter().filter(|document| document["kind"] == "CustomResourceDefinition"));
    }
    if found.is_empty() {
        bail!("no CRD in {}", path.display());
    }
    Ok(found)
}
