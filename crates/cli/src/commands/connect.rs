//! `manta connect`: makes a Ray cluster available to `ray.init` on this machine.

use super::INTERRUPTED;
use crate::connect::{ConnectionArgs, Target};
use crate::head;
use crate::job::Dashboard;
use crate::output::{print_line, print_note};
use crate::port_forward;
use crate::resource::Reference;
use crate::signals::StopSignals;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

const CLIENT: u16 = 10001;

/// Print what ray.init needs to use a Ray cluster, or run a notebook or script with it set
///
/// With a command, runs it with RAY_ADDRESS set and exits with its code. Without one, keeps the address open until
/// interrupted.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Name of a Ray cluster, or TYPE/NAME
    #[arg(value_name = "CLUSTER | TYPE/NAME")]
    resource: Reference,
    /// Command to run, such as jupyter lab
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    super::run_async(async {
        let mut stop = StopSignals::listen()?;
        let connecting = async {
            let target = args.connection.connect().await?;
            let head = head::find(&target, &args.resource).await?;
            let forward = port_forward::start(&target, &head.service, CLIENT, CLIENT, Arc::new(print_note)).await?;
            anyhow::Ok((forward, describe(&target, &args.resource).await?))
        };
        let Some(connected) = stop.unless_stopped(connecting).await else { return Ok(ExitCode::from(INTERRUPTED)) };
        let (forward, cluster) = connected?;
        let address = format!("ray://localhost:{}", forward.address.port());
        if let Some((program, rest)) = args.command.split_first() {
            return run_command(program, rest, &address, cluster.token.as_deref()).await;
        }
        print_line(&format!("import ray\nray.init(\"{address}\")"));
        print_note(&cluster.requirement);
        if cluster.token.is_some() {
            print_note("the cluster asks for a token: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to that of manta ray get token");
        }
        print_note("forwarding until interrupted");
        stop.recv().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// What a client must know of a cluster.
struct Described {
    requirement: String,
    token: Option<String>,
}

async fn describe(target: &Target, resource: &Reference) -> anyhow::Result<Described> {
    let dashboard = Dashboard::reach(target, resource).await?;
    let requirement = requirement(&dashboard.get("/api/version").await?);
    Ok(Described { requirement, token: dashboard.token })
}

fn requirement(version: &Value) -> String {
    let ray = version["ray_version"].as_str().unwrap_or("of the cluster");
    format!("needs Ray {ray}, and the Python version of the cluster")
}

async fn run_command(
    program: &str,
    rest: &[String],
    address: &str,
    token: Option<&str>,
) -> anyhow::Result<ExitCode> {
    let mut command = tokio::process::Command::new(program);
    command.args(rest).env("RAY_ADDRESS", address);
    if let Some(token) = token {
        command.env("RAY_AUTH_MODE", "token").env("RAY_AUTH_TOKEN", token);
    }
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    loop {
        tokio::select! {
            ended = child.wait() => {
                let ended = ended?;
                let code = ended.code().or_else(|| Some(128 + ended.signal()?));
                let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                return Ok(ExitCode::from(code));
            }
            // The terminal sends an interrupt to the command, too; it decides when to end.
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {
                if let Some(child) = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
                    // It may have ended at this moment.
                    let _ = kill_process(child, Signal::TERM);
                }
            }
        }
    }
}
