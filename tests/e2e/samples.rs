//! The recorded sample manifests, one cluster after the other: `MANTA_SAMPLES=1`, since it takes half an hour.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::Discovery;
use serde_json::Value;

use crate::user::User;

/// How long one cluster may take on a busy machine.
const EACH: Duration = Duration::from_secs(180);
/// What one machine without the cloud cannot have, as it appears in manifests.
const ELSEWHERE: [&str; 7] =
    ["nodeSelector", "nvidia.com/gpu", "google.com/tpu", "cloud.google.com", "gke-", "-gpu", "schedulerName"];

/// Applies each sample with a RayCluster and prints how many became ready.
pub(crate) async fn run(user: &User) -> bool {
    let (mut ready, mut tried) = (0, 0);
    for path in samples() {
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(documents) = documents(&path) else { continue };
        if let Some(why) = impossible(&documents) {
            println!("sample {name} ... left out: {why}");
            continue;
        }
        tried += 1;
        let began = std::time::Instant::now();
        let done = tokio::time::timeout(EACH, bring_up(user, &documents)).await;
        let word = match done {
            Ok(Ok(())) => {
                ready += 1;
                "ready".to_owned()
            }
            Ok(Err(why)) => why,
            Err(_) => format!("not ready after {} s\n{}", EACH.as_secs(), user.describe().await),
        };
        println!("sample {name} ... {word} ({:.0} s)", began.elapsed().as_secs_f64());
        user.clean().await;
    }
    println!("{ready} of {tried} sample clusters became ready");
    ready == tried
}

fn samples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity/cases");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut found: Vec<PathBuf> = entries
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("sample-ray-cluster")))
        .collect();
    found.sort();
    if found.is_empty() {
        println!("skipped: there are no samples in {}", folder.display());
    }
    found
}

fn documents(path: &Path) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(path).ok()?;
    let case: Value = serde_json::from_str(&text).ok()?;
    let documents = case["docs"].as_array()?.clone();
    documents.iter().any(|d| d["kind"] == "RayCluster").then_some(documents)
}

fn impossible(documents: &[Value]) -> Option<String> {
    let text = serde_json::to_string(documents).unwrap_or_default();
    ELSEWHERE.iter().find(|part| text.contains(**part)).map(|part| format!("it needs {part}"))
}

async fn bring_up(user: &User, documents: &[Value]) -> Result<(), String> {
    let known = Discovery::new(user.client.clone()).run().await.map_err(|e| e.to_string())?;
    let mut clusters = Vec::new();
    for document in documents {
        let object: DynamicObject = serde_json::from_value(document.clone()).map_err(|e| e.to_string())?;
        let types = object.types.clone().unwrap_or_default();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let kind = kube::core::GroupVersionKind::gvk(group, version, &types.kind);
        let (resource, _) = known.resolve_gvk(&kind).ok_or(format!("{} is not served here", types.kind))?;
        let api: kube::Api<DynamicObject> = kube::Api::namespaced_with(user.client.clone(), "default", &resource);
        let params = PatchParams::apply("samples").force();
        api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.map_err(|e| e.to_string())?;
        if types.kind == "RayCluster" {
            clusters.push(object.name_any());
        }
    }
    for cluster in clusters {
        user.until_ready(&cluster).await;
    }
    Ok(())
}
