//! `manta status`: shows what runs in local mode.

use crate::event;
use crate::local::{self, Address, Application, StateArgs};
use crate::output::{without_controls, write_stdout};
use anyhow::Context;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How often `--watch` looks for changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Show whether local mode is running, and its Ray resources and pods with their addresses and problems
///
/// Exits with 1 if local mode is not running.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    state: StateArgs,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    /// Watch for changes, until interrupted or local mode stops
    #[arg(short, long)]
    watch: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// A table
    Text,
    /// One JSON object
    Json,
}

/// Everything that is shown.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Status {
    pid: u32,
    kubeconfig: PathBuf,
    /// The addresses that do not depend on an object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<Address>,
    objects: Vec<Row>,
}

/// An object and its state.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    kind: &'static str,
    namespace: String,
    name: String,
    state: String,
    /// The last Warning event, while the object is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    applications: Vec<Application>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (state, Some(pid)) = args.state.running()? else {
        write_stdout(|out| match args.output {
            Format::Text => writeln!(out, "local mode is not running; start it with manta up"),
            Format::Json => writeln!(out, "null"),
        })?;
        return Ok(ExitCode::FAILURE);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = local::client_of(&state).await?;
        let mut shown = None;
        let mut tick = tokio::time::interval(INTERVAL);
        loop {
            tick.tick().await;
            match gather(&client, &state, pid).await {
                Ok(status) if shown.as_ref() == Some(&status) => {}
                Ok(status) => {
                    let text = match args.output {
                        Format::Text => without_controls(&table(&status)),
                        Format::Json => serde_json::to_string_pretty(&status)? + "\n",
                    };
                    write_stdout(|out| out.write_all(text.as_bytes()))?;
                    shown = Some(status);
                }
                // While it stops, its API server ends before its process does.
                Err(_) if args.watch && shown.is_some() => {}
                Err(error) => return Err(error),
            }
            if !args.watch || local::running_pid(&state)? != Some(pid) {
                return Ok(ExitCode::SUCCESS);
            }
        }
    })
}

async fn gather(client: &Client, state: &Path, pid: u32) -> anyhow::Result<Status> {
    let all = ListParams::default();
    let mut addresses = local::addresses(state);
    let events = Api::<Event>::all(client.clone()).list(&all).await.context("cannot list events")?;
    let warnings = last_warnings(&events.items);
    let mut objects = Vec::new();
    for kind in local::KINDS {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &local::ray_resource(kind));
        for object in api.list(&all).await.with_context(|| format!("cannot list {kind}s"))? {
            let summary = local::summarise(kind, &object.data);
            let mut row = row(kind, &object, summary, &warnings, &mut addresses);
            if kind == "RayService" {
                row.applications = local::applications(&object.data);
            }
            objects.push(row);
        }
    }
    for pod in Api::<Pod>::all(client.clone()).list(&all).await.context("cannot list pods")? {
        objects.push(row("Pod", &pod, local::summarise_pod(&pod), &warnings, &mut addresses));
    }
    addresses.retain(|address| address.object.is_empty());
    Ok(Status { pid, kubeconfig: state.join("kubeconfig"), addresses, objects })
}

/// Returns the last Warning of every object.
fn last_warnings(events: &[Event]) -> HashMap<String, String> {
    let mut warnings: Vec<&Event> = events.iter().filter(|event| local::is_warning(event)).collect();
    warnings.sort_by_key(|warning| event::time(warning));
    warnings.into_iter().map(|event| (local::involved(event), local::describe_event(event))).collect()
}

fn row<K: ResourceExt>(
    kind: &'static str,
    object: &K,
    state: String,
    warnings: &HashMap<String, String>,
    addresses: &mut Vec<Address>,
) -> Row {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let key = format!("{kind} {namespace}/{name}");
    let (mut own, others) = std::mem::take(addresses).into_iter().partition::<Vec<_>, _>(|a| a.object == key);
    *addresses = others;
    own.sort_by_key(|address| address.endpoint.name());
    let warning = warnings.get(&key).filter(|_| !is_well(&state)).cloned();
    Row { kind, namespace, name, state, warning, addresses: own, applications: Vec::new() }
}

/// Returns whether old warnings about an object in this state no longer matter.
fn is_well(state: &str) -> bool {
    let (first, rest) = state.split_once([' ', ',']).unwrap_or((state, ""));
    match first {
        "ready" | "Complete" | "Succeeded" => true,
        // A pod's containers, or the condition of a RayService.
        "Running" => {
            let containers = rest.split(',').next().and_then(|counts| counts.split_once('/'));
            rest.contains("Ready=True") || containers.is_some_and(|(ready, all)| ready == all)
        }
        _ => false,
    }
}

fn table(status: &Status) -> String {
    let mut out = String::new();
    let width = status.objects.iter().map(|row| row.namespace.len() + 1 + row.name.len()).max().unwrap_or(0).max(20);
    let mut line = |first: &str, second: &str, text: &str| {
        let _ = writeln!(out, "{}", format!("{first:<11} {second:<width$} {text}").trim_end());
    };
    line("running as", &format!("process {}", status.pid), &format!("export KUBECONFIG={}", status.kubeconfig.display()));
    for address in &status.addresses {
        line("", address.endpoint.name(), &address.url);
    }
    for row in &status.objects {
        line(row.kind, &format!("{}/{}", row.namespace, row.name), &row.state);
        for application in &row.applications {
            line("", "  application", &application.to_string());
        }
        for address in &row.addresses {
            line("", &format!("  {}", address.endpoint.name()), &address.url);
        }
        if let Some(warning) = &row.warning {
            line("", "  warning", warning);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_come_with_their_addresses_and_problems() {
        let cluster: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "demo", "namespace": "default"},
        }))
        .unwrap();
        let mut addresses: Vec<Address> = serde_json::from_value(json!([
            {"object": "RayCluster default/demo", "endpoint": "dashboard", "url": "http://127.0.0.1:8265"},
            {"object": "RayCluster default/other", "endpoint": "dashboard", "url": "http://127.0.0.1:8266"},
        ]))
        .unwrap();
        let event = |second: u32, reason: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "type": "Warning", "reason": reason, "message": "why\nmore",
                // As the operator and the agent report it.
                "eventTime": format!("2026-01-01T00:00:0{second}.000000Z"),
                "involvedObject": {"kind": "RayCluster", "namespace": "default", "name": "demo"},
            }))
            .unwrap()
        };
        let warnings = last_warnings(&[event(2, "Last"), event(1, "First")]);
        let row = row("RayCluster", &cluster, "0/1 workers ready".to_owned(), &warnings, &mut addresses);
        assert_eq!(addresses.len(), 1);
        let status = Status { pid: 7, kubeconfig: "/k".into(), addresses: Vec::new(), objects: vec![row] };
        let line = |first: &str, second: &str, text: &str| format!("{first:<11} {second:<20} {text}\n");
        let expect = [
            line("running as", "process 7", "export KUBECONFIG=/k"),
            line("RayCluster", "default/demo", "0/1 workers ready"),
            line("", "  dashboard", "http://127.0.0.1:8265"),
            line("", "  warning", "Last: why"),
        ];
        assert_eq!(table(&status), expect.concat());
        assert_eq!(serde_json::to_value(&status).unwrap()["objects"][0]["warning"], "Last: why");
    }

    #[test]
    fn warnings_of_objects_that_are_well_are_old() {
        for state in [
            "ready, 2/2 workers ready",
            "Running 1/1",
            "Running 1/1, 1 restart",
            "Running, Ready=True",
            "Complete, SUCCEEDED",
            "Succeeded 0/1",
        ] {
            assert!(is_well(state), "{state}");
        }
        for state in [
            "",
            "0/1 workers ready",
            "Running 0/1, x",
            "Running 1/2, 1 restart",
            "Pending 0/1",
            "Running, Ready=False",
            "Failed, FAILED",
        ] {
            assert!(!is_well(state), "{state}");
        }
    }
}
