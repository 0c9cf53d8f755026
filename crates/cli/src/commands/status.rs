//! `manta status`: shows what runs in local mode.

use crate::local::{self, StateArgs};
use crate::output::print_line;
use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};
use std::process::ExitCode;

/// Shows whether local mode is running, and the state of its Ray resources and pods
///
/// Exits with 1 if local mode is not running.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    state: StateArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (state, Some(pid)) = args.state.running()? else {
        print_line("local mode is not running; start it with `manta up`");
        return Ok(ExitCode::FAILURE);
    };
    let kubeconfig = state.join("kubeconfig");
    print_line(&format!("local mode is running as process {pid}; export KUBECONFIG={}", kubeconfig.display()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let file = Kubeconfig::read_from(&kubeconfig)
            .with_context(|| format!("cannot read {}; local mode may still be starting", kubeconfig.display()))?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        show(Client::try_from(config)?).await
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn show(client: Client) -> anyhow::Result<()> {
    let all = ListParams::default();
    for kind in local::KINDS {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &local::ray_resource(kind));
        for object in api.list(&all).await.with_context(|| format!("cannot list {kind}s"))? {
            print_row(kind, &object, &local::summarise(kind, &object.data));
        }
    }
    for pod in Api::<Pod>::all(client).list(&all).await.context("cannot list pods")? {
        print_row("Pod", &pod, &local::summarise_pod(&pod));
    }
    Ok(())
}

fn print_row<K: ResourceExt>(kind: &str, object: &K, summary: &str) {
    let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    print_line(&format!("{kind:<11} {name:<44} {summary}"));
}
