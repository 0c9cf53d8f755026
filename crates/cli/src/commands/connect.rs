//! `manta connect`: makes a Ray cluster available to `ray.init` on this machine.

use crate::connect::{ConnectionArgs, Target};
use crate::head;
use crate::job::Dashboard;
use crate::output::{print_line, print_note};
use crate::port_forward;
use crate::resource::Reference;
use crate::signals::StopSignals;
use anyhow::Context;
use serde_json::Value;
use std::process::ExitCode;
use std::sync::Arc;

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
        let target = args.connection.connect().await?;
        let head = head::find(&target, &args.resource).await?;
        let forward = port_forward::start(&target, &head.service, CLIENT, CLIENT, Arc::new(print_note)).await?;
        let address = format!("ray://localhost:{}", forward.address.port());
        let cluster = describe(&target, &args.resource).await?;
        if let Some((program, rest)) = args.command.split_first() {
            return run_command(program, rest, &address, cluster.token.as_deref(), &mut stop).await;
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
    stop: &mut StopSignals,
) -> anyhow::Result<ExitCode> {
    let mut command = tokio::process::Command::new(program);
    command.args(rest).env("RAY_ADDRESS", address);
    if let Some(token) = token {
        command.env("RAY_AUTH_MODE", "token").env("RAY_AUTH_TOKEN", token);
    }
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    loop {
        tokio::select! {
            ended = child.wait() => {
                let code = ended?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
                return Ok(ExitCode::from(code));
            }
            // The terminal sends an interrupt to the command, too; it decides when to end.
            () = stop.recv() => {}
        }
    }
}
