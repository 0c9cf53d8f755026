//! `manta down`: stops local mode from another terminal.

use crate::local::{self, StateArgs};
use crate::output::print_line;
use anyhow::{Context, bail};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Stop the local mode that `manta up` started; persisted objects stay on disk
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    state: StateArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (state, Some(pid)) = args.state.running()? else {
        print_line("local mode is not running");
        return Ok(ExitCode::SUCCESS);
    };
    // `kill` reports a missing permission better than we could.
    let sent = Command::new("kill").arg(pid.to_string()).status().context("cannot run kill")?;
    if !sent.success() {
        bail!("process {pid} holds {}, and you are not allowed to stop it", state.display());
    }
    let end = Instant::now() + Duration::from_secs(40);
    while local::running_pid(&state)?.is_some() {
        if Instant::now() > end {
            bail!("process {pid} is still running after 40 s; end it with `kill -9 {pid}`, which leaves nothing behind");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    print_line("stopped");
    Ok(ExitCode::SUCCESS)
}
