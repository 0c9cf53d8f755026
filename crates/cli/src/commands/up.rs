//! `manta up`: local mode in the foreground.

use crate::local::{self, LocalArgs, StateArgs};
use crate::output::print_line;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs Ray resources on this machine, without Kubernetes and without containers.
///
/// Starts an API server, the operator and a node agent that runs pods as processes, until interrupted.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Manifests to apply once everything runs; may be given several times
    #[arg(short, long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    state: StateArgs,
    /// Forget all objects at the end
    #[arg(long)]
    in_memory: bool,
    /// Port of the API server on loopback; 0 takes any free one
    #[arg(long, default_value_t = 6443)]
    port: u16,
    #[command(flatten)]
    local: LocalArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state.folder()?;
    let data = (!args.in_memory).then(|| state.join("data"));
    let options = args.local.options(state, data, args.port)?;
    local::run(options, async |local| {
        let result = up(&local, &args.files).await;
        (local, result)
    })
}

async fn up(local: &local::Local, files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    print_line(&format!("local mode is up; use it with\n  export KUBECONFIG={}", local.kubeconfig.display()));
    for applied in local::apply_files(&local.client, files).await? {
        print_line(&format!("applied {applied}"));
    }
    let print = |text: String| print_line(&format!("{}  {text}", jiff::Zoned::now().strftime("%H:%M:%S")));
    tokio::select! {
        () = local.stop.cancelled() => print_line("stopping"),
        () = local::print_changes(&local.client, &print) => {}
        () = local::expose_dashboards(local, &print) => {}
    }
    Ok(ExitCode::SUCCESS)
}
