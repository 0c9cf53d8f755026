//! `manta up`: runs local mode in the foreground.

use crate::local::{self, LocalArgs, StateArgs};
use crate::output::print_line;
use std::path::PathBuf;
use std::process::ExitCode;

/// Runs Ray resources on this machine, without Kubernetes and without containers
///
/// Starts an API server, the operator and a node agent that runs pods as processes. Runs until interrupted.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Manifest to apply once everything is running; may be repeated
    #[arg(short, long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    state: StateArgs,
    /// Keep all objects in memory instead of on disk
    #[arg(long)]
    in_memory: bool,
    /// Port of the API server on loopback; 0 picks a free one
    #[arg(long, default_value_t = 6443)]
    port: u16,
    #[command(flatten)]
    local: LocalArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state.folder()?;
    let data = (!args.in_memory).then(|| state.join("data"));
    let options = args.local.options(state, data, args.port)?;
    let gpus = options.gpus();
    local::run(options, async |local| {
        let result = up(&local, &args.files, &gpus).await;
        (local, result)
    })
}

async fn up(local: &local::Local, files: &[PathBuf], gpus: &[String]) -> anyhow::Result<ExitCode> {
    print_line(&format!("local mode is up; use it with\n  export KUBECONFIG={}", local.kubeconfig.display()));
    if !gpus.is_empty() {
        print_line(&format!("GPUs: {}", gpus.join(", ")));
    }
    for applied in local::apply_files(&local.client, files).await? {
        print_line(&format!("applied {applied}"));
    }
    let print = |text: String| print_line(&format!("{}  {text}", jiff::Zoned::now().strftime("%H:%M:%S")));
    let outputs = local.kubeconfig.with_file_name("job-output");
    tokio::select! {
        () = local.stop.cancelled() => print_line("stopping"),
        () = local::print_changes(&local.client, &print) => {}
        () = local::expose_dashboards(local, &print) => {}
        () = local::keep_job_output(&local.client, &outputs, local.has_pod_networks, &print) => {}
    }
    Ok(ExitCode::SUCCESS)
}
