//! `manta down`: ends a local mode that runs elsewhere.

use crate::local::{self, StateArgs};
use crate::output::print_line;
use anyhow::{Context, bail};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Stops the local mode that `manta up` started; what is persistent stays.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    state: StateArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state.folder()?;
    let Some(pid) = local::running_pid(&state)? else {
        print_line("local mode is not running");
        return Ok(ExitCode::SUCCESS);
    };
    // Only root's processes and our own can be signalled; the system says so better than we could.
    let sent = Command::new("kill").arg(pid.to_string()).status().context("cannot run kill")?;
    if !sent.success() {
        bail!("process {pid} holds {} and cannot be stopped by this user", state.display());
    }
    let end = Instant::now() + Duration::from_secs(40);
    while local::running_pid(&state)?.is_some() {
        if Instant::now() > end {
            bail!("process {pid} is still there after 40 s; end it with `kill -9 {pid}`, nothing will be left over");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    print_line("stopped");
    Ok(ExitCode::SUCCESS)
}
