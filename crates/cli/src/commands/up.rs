//! `manta up`: runs local mode in the foreground.

use crate::local::{self, LocalArgs, Manifest, StateArgs};
use crate::manifests;
use crate::output::print_line;
use manta_agent::runtime::memory;
use manta_cli::lint::{Finding, Linter, Severity};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run Ray resources on this machine, without Kubernetes and without containers
///
/// Starts an API server, the operator and a node agent that runs pods as processes, and runs until interrupted. Checks
/// the manifests first, as manta lint does, and starts nothing if they are invalid. If local mode is running already,
/// applies the manifests to it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Manifest to apply once everything is running: a file, a directory, or - for standard input; may be repeated
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
    let manifests = match read(&args.files)? {
        Ok(manifests) => manifests,
        Err(code) => return Ok(code),
    };
    // The schemas of the check; the processes that only wait would hold on to them.
    memory::release_freed();
    let state = args.state.folder()?;
    if !manifests.is_empty() && local::running_pid(&state)?.is_some() {
        return apply_to_running(&state, manifests);
    }
    let data = (!args.in_memory).then(|| state.join("data"));
    let options = args.local.options(state, data, args.port)?;
    let gpus = options.gpus();
    local::run(options, async |local| {
        let result = up(&local, manifests, &gpus).await;
        (local, result)
    })
}

/// Reads and lints the manifests; returns the exit code if they cannot be used.
fn read(files: &[PathBuf]) -> anyhow::Result<Result<Vec<Manifest>, ExitCode>> {
    let mut linter = Linter::default();
    let mut findings = Vec::new();
    let mut manifests = Vec::new();
    manifests::read_each(files, |source, contents| match contents {
        Ok(contents) => {
            let (found, objects) = linter.read(source, &contents);
            findings.extend(found);
            manifests.extend(objects.into_iter().map(|object| Manifest { source: source.to_owned(), object }));
        }
        Err(why) => findings.push(Finding::unreadable(source, &why)),
    });
    findings.retain(|finding| finding.severity <= Severity::Warning);
    for finding in &findings {
        writeln!(std::io::stderr(), "{finding}")?;
    }
    match findings.iter().map(|finding| finding.severity).min() {
        Some(severity @ (Severity::Unreadable | Severity::Error)) => {
            writeln!(std::io::stderr(), "error: nothing was applied, because the manifests above are invalid")?;
            Ok(Err(ExitCode::from(if severity == Severity::Unreadable { 2 } else { 1 })))
        }
        _ => Ok(Ok(manifests)),
    }
}

/// Applies the manifests to the local mode that runs already.
fn apply_to_running(state: &Path, manifests: Vec<Manifest>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = local::client_of(state).await?;
        for applied in local::apply_all(&client, manifests).await? {
            print_line(&format!("applied {applied}"));
        }
        print_line("local mode is running already; see manta status");
        Ok(ExitCode::SUCCESS)
    })
}

async fn up(local: &local::Local, manifests: Vec<Manifest>, gpus: &[String]) -> anyhow::Result<ExitCode> {
    print_line(&format!("local mode is up; use it with\n  export KUBECONFIG={}", local.kubeconfig.display()));
    if !gpus.is_empty() {
        print_line(&format!("GPUs: {}", gpus.join(", ")));
    }
    for applied in local::apply_all(&local.client, manifests).await? {
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
