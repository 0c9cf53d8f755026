//! `manta up`: runs local mode in the foreground.

use crate::local::{self, LocalArgs, Manifest, StateArgs};
use crate::manifests;
use crate::output::print_line;
use crate::page::{Entry, Page, Settings};
use anyhow::Context;
use manta_cli::lint::{Finding, Linter, Severity};
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Run Ray resources on this machine, without Kubernetes and without containers
///
/// Starts an API server, the operator and a node agent that runs pods as processes, and runs until interrupted. Checks
/// the manifests first, as manta lint does, and starts nothing if they are invalid. If local mode is running already,
/// applies the manifests to it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Manifest to apply once everything is running: a file, a directory, a URL, or - for standard
    /// input; may be repeated
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
    /// Port of the page on loopback; the next free one is used if it is taken, and 0 picks any free one
    #[arg(long, value_name = "NUMBER", default_value_t = 7265)]
    page_port: u16,
    /// Do not start the operator, so that another can run
    #[arg(long)]
    no_operator: bool,
    #[command(flatten)]
    local: LocalArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let manifests = match read(&args.files)? {
        Ok(manifests) => manifests,
        Err(code) => return Ok(code),
    };
    // The schemas of the check; the processes that only wait would hold on to them.
    manta_heap::release_freed();
    let state = args.state.folder()?;
    if !manifests.is_empty() && local::running_pid(&state)?.is_some() {
        return apply_to_running(&state, manifests);
    }
    let data = (!args.in_memory).then(|| state.join("data"));
    let mut options = args.local.options(state, data, args.port)?;
    if args.no_operator {
        options = options.without_operator();
    }
    let gpus = options.gpus();
    let page_port = args.page_port;
    local::run(options, async |local| {
        let result = up(&local, manifests, &gpus, page_port).await;
        (local, result)
    })
}

/// Reads and lints the manifests; returns the exit code if they cannot be used.
fn read(files: &[PathBuf]) -> anyhow::Result<Result<Vec<Manifest>, ExitCode>> {
    let mut linter = Linter::default();
    let mut findings = Vec::new();
    let mut manifests = Vec::new();
    let mut empty = Vec::new();
    manifests::read_each(files, |source, contents| match contents {
        Ok(contents) => {
            let (found, objects) = linter.read_to_apply(source, &contents);
            if objects.is_empty() {
                empty.push(source.to_owned());
            }
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
        _ if manifests.is_empty() && !files.is_empty() => {
            anyhow::bail!("nothing to apply: no objects found in {}", empty.join(", "))
        }
        _ => {
            for source in empty {
                writeln!(std::io::stderr(), "{source}: warning: no objects found")?;
            }
            Ok(Ok(manifests))
        }
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
        print_line("local mode is running already, with the flags it was started with; see manta status");
        Ok(ExitCode::SUCCESS)
    })
}

async fn up(
    local: &local::Local,
    manifests: Vec<Manifest>,
    gpus: &[String],
    page_port: u16,
) -> anyhow::Result<ExitCode> {
    print_line(&format!("local mode is up; use it with\n  export KUBECONFIG={}", local.kubeconfig.display()));
    let outputs = local.kubeconfig.with_file_name("job-output");
    let (page, listener, url) = open_page(local, page_port, &outputs).await?;
    local::remember_page(&local.kubeconfig, &url)?;
    print_line(&format!("see everything in a browser at\n  {url}"));
    if !gpus.is_empty() {
        print_line(&format!("GPUs: {}", gpus.join(", ")));
    }
    for applied in local::apply_all(&local.client, manifests).await? {
        print_line(&format!("applied {applied}"));
    }
    let print = |text: String| print_line(&format!("{}  {text}", jiff::Zoned::now().strftime("%H:%M:%S")));
    tokio::select! {
        () = local.stop.cancelled() => print_line("stopping"),
        served = page.serve(listener) => served.context("the page can no longer be served")?,
        () = local::print_changes(&local.client, &print) => {}
        () = local::expose_dashboards(local, &print) => {}
        () = local::keep_job_output(&local.client, &outputs, local.has_pod_networks, &print) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the page on loopback, and returns its address.
async fn open_page(
    local: &local::Local,
    port: u16,
    outputs: &Path,
) -> anyhow::Result<(Arc<Page>, std::net::TcpListener, String)> {
    let mut listener = None;
    // A port close to the usual one is easier to remember than a random one.
    for port in (port..port.saturating_add(20)).chain([0]) {
        if let Ok(free) = local.machine.listen((Ipv4Addr::LOCALHOST, port).into()).await {
            listener = Some(free);
            break;
        }
    }
    let listener = listener.context("no port on loopback is free for the page")?;
    let address = listener.local_addr()?;
    let access = local.port_access();
    let operator = local.operator.clone();
    let page = Page::new(Settings { entry: Entry::Link, access, job_output: Some(outputs.to_owned()), operator });
    let url = page.open_link(local.target().await?, address).await;
    Ok((page, listener, url))
}
