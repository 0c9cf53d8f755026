//! Checks that taking over from KubeRay restarts nothing.
//!
//! The recorded objects of each case are loaded into a namespace and their pods made ready. Then the operator starts,
//! and every pod that it creates, changes or deletes is counted. There must be none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use manta_testkit::{ControlPlane, Kubelet, Options, Restore, User};
use serde_json::{Value, json};

use crate::cargo_test::Counts;
use crate::operator::{Build, Operator, OperatorArgs, Rights};
use crate::parity::{CaseFilter, case_name, read_case};
use crate::process::{block_on, print_line};
use crate::workspace;

/// The stage in which all pods of a case are ready.
const STAGE: &str = "ready";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(flatten)]
    filter: CaseFilter,
}

/// Takes over the cases of `make test`; returns None where there are no recordings.
pub(crate) fn run_default() -> Result<Option<Counts>> {
    if workspace::recordings().is_none() {
        return Ok(None);
    }
    run(&Args { operator: OperatorArgs::ours(), filter: CaseFilter::all() }).map(Some)
}

/// Takes over the selected cases; a case passes if its pods were not written.
pub(crate) fn run(args: &Args) -> Result<Counts> {
    let folder = workspace::recordings().context("no recordings in ../shared/parity")?;
    let cases = takeover_cases(&args.filter.select(&folder.join("cases"))?)?;
    let plane = ControlPlane::start_with(Options { audit: true, ..Options::default() })?;
    let command = args.operator.prepare(&plane, Build::Debug, Rights::All, "")?;
    let namespaces = block_on(load_all(&plane, &cases))?;
    print_line(&format!("takeover: loaded the objects of {} cases", namespaces.len()));

    let mut operator = Operator::start(&plane, &command, "rayclusters")?;
    operator.wait_quiet(Duration::from_secs(5), Duration::from_secs(300))?;
    let mut writes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for request in
        operator.requests.iter().filter(|request| request.is_write() && request.object_ref.resource == "pods")
    {
        let case = namespaces.get(&request.object_ref.namespace).map_or("another namespace", String::as_str);
        writes.entry(case).or_default().push(format!(
            "{} {} {}",
            request.verb,
            request.target(),
            request.object_ref.name
        ));
    }
    for (case, lines) in &writes {
        print_line(&format!("POD WRITES {case}"));
        lines.iter().for_each(|line| print_line(&format!("    {line}")));
    }
    let counts = Counts { passed: namespaces.len().saturating_sub(writes.len()), failed: writes.len() };
    let total: usize = writes.values().map(Vec::len).sum();
    print_line(&format!(
        "takeover: {total} pod writes; pods untouched in {} of {} cases",
        counts.passed,
        namespaces.len()
    ));
    Ok(counts)
}

/// Returns the recorded objects of the cases that settle with ready pods.
fn takeover_cases(files: &[PathBuf]) -> Result<Vec<(String, Vec<Value>)>> {
    let mut cases = Vec::new();
    for file in files {
        let Some(objects) = recorded_objects(file)? else { continue };
        // The recording masks the hash that decides whether a cluster is recreated.
        let recreates = objects
            .iter()
            .any(|object| object["spec"]["upgradeStrategy"]["type"] == "Recreate" || object["kind"] == "RayService");
        if recreates {
            print_line(&format!("takeover: {} skipped, its hash is not in the recording", case_name(file)));
        } else if objects.iter().any(|object| object["kind"] == "Pod") {
            cases.push((case_name(file), objects));
        }
    }
    if cases.is_empty() {
        bail!("no case to take over");
    }
    Ok(cases)
}

fn recorded_objects(file: &Path) -> Result<Option<Vec<Value>>> {
    let case = read_case(file)?;
    let mut objects = case["expect"][STAGE]["objects"].as_array().cloned();
    // The real job controller creates the pods of Jobs itself.
    objects
        .iter_mut()
        .for_each(|objects| objects.retain(|object| object["metadata"]["ownerReferences"][0]["kind"] != "Job"));
    Ok(objects)
}

/// Loads every case into its own namespace, waits until all pods are ready, and returns the case by namespace.
async fn load_all(plane: &ControlPlane, cases: &[(String, Vec<Value>)]) -> Result<BTreeMap<String, String>> {
    plane.install_ray_crds().await?;
    plane.install_gateway_crds().await?;
    plane.install_cert_manager_crds().await?;
    let client = plane.client().await?;
    let mut namespaces = BTreeMap::new();
    for (index, (case, objects)) in cases.iter().enumerate() {
        let namespace = format!("takeover-{index}");
        load(&client, &namespace, objects).await.with_context(|| format!("cannot load {case}"))?;
        namespaces.insert(namespace, case.clone());
    }
    let kubelet = Kubelet::start(plane.client_for(User::Kubelet).await?, None);
    wait_for_ready_pods(client).await?;
    drop(kubelet);
    Ok(namespaces)
}

async fn load(client: &Client, namespace: &str, objects: &[Value]) -> Result<()> {
    let metadata = ObjectMeta { name: Some(namespace.to_owned()), ..ObjectMeta::default() };
    Api::all(client.clone()).create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    let mut restore = Restore::new(namespace);
    // Owners first, because their dependents refer to their uid.
    let mut waiting: Vec<&Value> = objects.iter().collect();
    while !waiting.is_empty() {
        let before = waiting.len();
        let mut later = Vec::new();
        for recorded in waiting {
            match restore.object(recorded) {
                Some(object) => {
                    let uid = create(client, namespace, &object).await?;
                    restore.created(recorded, &object, &uid);
                }
                None => later.push(recorded),
            }
        }
        if later.len() == before {
            bail!("{} objects have owners that were not recorded", later.len());
        }
        waiting = later;
    }
    Ok(())
}

/// Creates an object, with its status if it is a Ray kind, and returns its uid.
async fn create(client: &Client, namespace: &str, object: &Value) -> Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version) = match object["apiVersion"].as_str().unwrap_or_default().split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), text(&object["apiVersion"])),
    };
    let kind = text(&object["kind"]);
    let mut resource = ApiResource::from_gvk(&GroupVersionKind { group, version, kind: kind.clone() });
    if kind == "NetworkPolicy" {
        resource.plural = "networkpolicies".to_owned();
    }
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let name = text(&object["metadata"]["name"]);
    let created = api.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await;
    let created = created.with_context(|| format!("{kind} {name}"))?;
    if kind.starts_with("Ray") && object["status"].is_object() {
        let patch = Patch::Merge(json!({ "status": object["status"] }));
        api.patch_status(&name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("status of {kind} {name}"))?;
    }
    created.metadata.uid.context("created without a uid")
}

async fn wait_for_ready_pods(client: Client) -> Result<()> {
    let pods: Api<Pod> = Api::all(client);
    for _ in 0..600 {
        let all = pods.list(&ListParams::default()).await?;
        let is_ready = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        if all.iter().all(is_ready) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("pods did not become ready within two minutes")
}
