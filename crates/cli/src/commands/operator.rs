//! `manta operator`: runs the operator against a cluster.
//!
//! Its flags follow Go's syntax, so that command lines written for KubeRay work unchanged; clap does not parse them.

use crate::signals::StopSignals;
use crate::{connect, log};
use manta_operator::args::{Arguments, ArgsError, UsageError, usage};
use manta_operator::process;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// How long running passes may take after the first signal.
const DRAIN: Duration = Duration::from_secs(30);
/// The exit code of Go's `flag` package for wrong usage.
const WRONG_USAGE: u8 = 2;

/// Run the operator, which reconciles RayClusters, RayJobs, RayServices and RayCronJobs
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The flags of KubeRay's operator; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    flags: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let arguments = match Arguments::read(args.flags, variable, read) {
        Ok(arguments) => arguments,
        Err(ArgsError::Usage(UsageError::Help)) => {
            std::io::stdout().write_all(usage().as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(ArgsError::Usage(error)) => {
            write!(std::io::stderr(), "{error}\n{}", usage())?;
            return Ok(ExitCode::from(WRONG_USAGE));
        }
        Err(error) => return Err(error.into()),
    };
    log::start(&arguments.process.log)?;
    for note in &arguments.notes {
        info!("{note}");
    }
    // One thread: the longest computation is decoding one page of a list, and waking other threads costs more.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let signals = StopSignals::listen()?;
        let config = connect::config(arguments.process.kubeconfig.as_deref()).await?;
        let stop = CancellationToken::new();
        let operator = process::run(config, arguments.settings, arguments.process, stop.clone());
        tokio::select! {
            ended = operator => Ok(ended?),
            () = stop_on_signal(signals, stop) => anyhow::bail!("stopped before all running passes had finished"),
        }
    });
    // Tasks that are still running must not write any more.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Returns an environment variable; `HOSTNAME` falls back to the kernel's host name.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().or_else(|| match name {
        "HOSTNAME" => std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned()),
        _ => None,
    })
}

/// Starts a graceful stop on the first signal; returns on the second, or when stopping takes too long.
async fn stop_on_signal(mut signals: StopSignals, stop: CancellationToken) {
    signals.recv().await;
    info!("shutting down; waiting for running passes");
    stop.cancel();
    // A second signal or the end of the timeout: both mean to exit now.
    let _ = tokio::time::timeout(DRAIN, signals.recv()).await;
}
