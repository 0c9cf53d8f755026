//! The operator as a command: from its flags to the exit code.
//!
//! Flags follow Go's syntax, so that command lines written for KubeRay work unchanged.

use crate::args::{ArgsError, Arguments, UsageError, usage};
use crate::connect::{self, ConnectError};
use crate::log;
use crate::process::{self, ProcessError};
use crate::signals::StopSignals;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// How long running passes may take after the first signal.
const DRAIN: Duration = Duration::from_secs(30);
/// The exit code of Go's `flag` package for wrong usage.
const WRONG_USAGE: u8 = 2;

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Args(ArgsError),
    #[error("cannot print the usage")]
    Print(#[source] io::Error),
    #[error("cannot write the log to {0}")]
    Log(PathBuf, #[source] io::Error),
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("stopped before all running passes had finished")]
    NotDrained,
}

/// Runs the operator with these flags until it is stopped.
pub fn run(flags: Vec<String>) -> Result<ExitCode, CommandError> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let arguments = match Arguments::read(flags, variable, read) {
        Ok(arguments) => arguments,
        Err(ArgsError::Usage(UsageError::Help)) => {
            io::stdout().write_all(usage().as_bytes()).map_err(CommandError::Print)?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(ArgsError::Usage(error)) => {
            write!(io::stderr(), "{error}\n{}", usage()).map_err(CommandError::Print)?;
            return Ok(ExitCode::from(WRONG_USAGE));
        }
        Err(error) => return Err(CommandError::Args(error)),
    };
    let file = arguments.process.log.file.as_ref().map(|(path, _)| path.clone()).unwrap_or_default();
    log::start(&arguments.process.log).map_err(|error| CommandError::Log(file, error))?;
    for note in &arguments.notes {
        info!("{note}");
    }
    manta_heap::keep_small();
    // One thread: the longest computation is decoding one page of a list, and waking other threads costs more.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CommandError::Runtime)?;
    let ended = runtime.block_on(reconcile_until_stopped(arguments));
    // Tasks that are still running must not write any more.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

async fn reconcile_until_stopped(arguments: Arguments) -> Result<(), CommandError> {
    let signals = StopSignals::listen().map_err(CommandError::Runtime)?;
    let config = connect::config(arguments.process.kubeconfig.as_deref()).await?;
    let stop = CancellationToken::new();
    let operator = process::run(config, arguments.settings, arguments.process, stop.clone());
    tokio::select! {
        ended = operator => Ok(ended?),
        () = manta_heap::keep_releasing() => Ok(()),
        () = stop_on_signal(signals, stop) => Err(CommandError::NotDrained),
    }
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
