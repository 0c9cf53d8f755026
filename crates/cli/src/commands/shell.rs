//! `manta shell`: runs a shell or a command in the head of a Ray cluster.

use crate::connect::{ConnectionArgs, Target};
use crate::head;
use crate::resource::Reference;
use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, AttachedProcess, ListParams, TerminalSize};
use kube::{Api, ResourceExt};
use rustix::termios::{self, OptionalActions, Termios};
use std::io::IsTerminal;
use std::process::ExitCode;
use tokio::io::copy;
use tokio::signal::unix::{SignalKind, signal};

/// What runs without a command: bash where there is one.
pub(crate) const SHELL: &str = "command -v bash >/dev/null && exec bash || exec sh";

/// Run a shell in the head of a Ray cluster, job or service
///
/// With a command, runs that instead and exits with its code.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Name of a Ray cluster, or TYPE/NAME
    #[arg(value_name = "CLUSTER | TYPE/NAME")]
    resource: Reference,
    /// Node to use instead of the head
    #[arg(long, value_name = "POD")]
    node: Option<String>,
    /// Command to run
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    super::run_async(async {
        let target = args.connection.connect().await?;
        let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
        let pod = find(&target, &pods, &args).await?;
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first()).map(|c| c.name.clone());
        let command = match args.command.as_slice() {
            [] => ["sh", "-c", SHELL].map(str::to_owned).to_vec(),
            words => words.to_vec(),
        };
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let params = AttachParams { container, ..AttachParams::default() };
        let params = params.stdin(true).stdout(true).stderr(!is_terminal).tty(is_terminal);
        let process = pods
            .exec(&pod.name_any(), command, &params)
            .await
            .map_err(|error| target.failed(&format!("cannot run a command in {}", pod.name_any()), error))?;
        attach(process, is_terminal).await
    })
}

async fn find(target: &Target, pods: &Api<Pod>, args: &Args) -> anyhow::Result<Pod> {
    if let Some(name) = &args.node {
        return pods.get(name).await.map_err(|error| target.failed(&format!("cannot get Pod {name}"), error));
    }
    let object = target.get_ray(&args.resource).await?;
    let cluster = head::cluster_of(&args.resource, &object.data)?;
    let selector = format!("ray.io/cluster={cluster},ray.io/node-type=head");
    let found = pods.list(&ListParams::default().labels(&selector)).await;
    let found = found.map_err(|error| target.failed("cannot list Pods", error))?.items;
    let is_running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    found.into_iter().find(is_running).with_context(|| format!("the head of Ray cluster {cluster} is not running"))
}

/// Connects the process with this program's input and output until it ends.
async fn attach(mut process: AttachedProcess, is_terminal: bool) -> anyhow::Result<ExitCode> {
    let status = process.take_status().context("the command has no status")?;
    let mut input = process.stdin().context("the command has no input")?;
    let mut output = process.stdout().context("the command has no output")?;
    let mut errors = process.stderr();
    let raw = is_terminal.then(RawMode::enter).transpose()?;
    let resize = is_terminal.then(|| follow_size(&mut process)).transpose()?;
    // It blocks while the terminal is silent; the program ends without it.
    let typing = tokio::spawn(async move { copy(&mut tokio::io::stdin(), &mut input).await });
    let print_errors = async {
        match &mut errors {
            Some(errors) => copy(errors, &mut tokio::io::stderr()).await.map(drop),
            None => Ok(()),
        }
    };
    let (mut stdout, mut resize) = (tokio::io::stdout(), resize);
    let printing = async { tokio::try_join!(copy(&mut output, &mut stdout), print_errors) };
    let sizes = async {
        match &mut resize {
            Some(sizes) => sizes.await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        printed = printing => drop(printed),
        _ = sizes => {}
    }
    typing.abort();
    let status = status.await;
    drop(raw);
    exit_code(status.as_ref())
}

/// Reports the size of the terminal now and whenever it changes.
fn follow_size(process: &mut AttachedProcess) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let mut sizes = process.terminal_size().context("the command has no terminal")?;
    let mut changes = signal(SignalKind::window_change())?;
    Ok(tokio::spawn(async move {
        loop {
            if let Ok(size) = termios::tcgetwinsize(std::io::stdin()) {
                let size = TerminalSize { width: size.ws_col, height: size.ws_row };
                // The process has ended.
                if sizes.try_send(size).is_err_and(|error| error.is_disconnected()) {
                    return std::future::pending().await;
                }
            }
            changes.recv().await;
        }
    }))
}

/// The terminal without echo and line editing, which the other side does; restored when dropped.
struct RawMode(Termios);

impl RawMode {
    fn enter() -> anyhow::Result<Self> {
        let before = termios::tcgetattr(std::io::stdin()).context("cannot read the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).context("cannot change the terminal")?;
        Ok(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing else can be done when the terminal is gone.
        let _ = termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Returns the exit code that the status of a command carries.
fn exit_code(status: Option<&Status>) -> anyhow::Result<ExitCode> {
    let Some(status) = status.filter(|status| status.status.as_deref() == Some("Failure")) else {
        return Ok(ExitCode::SUCCESS);
    };
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    match codes.next().and_then(|cause| cause.message.as_deref()?.parse::<u8>().ok()) {
        Some(code) => Ok(ExitCode::from(code)),
        None => bail!("{}", status.message.as_deref().unwrap_or("the command could not be run")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_exit_code_is_the_commands() {
        let check = |status: Value, expect: Option<u8>| {
            let status: Status = serde_json::from_value(status).unwrap();
            assert_eq!(exit_code(Some(&status)).ok(), expect.map(ExitCode::from), "{status:?}");
        };
        check(json!({"status": "Success"}), Some(0));
        let causes = json!({"causes": [{"reason": "ExitCode", "message": "7"}]});
        check(json!({"status": "Failure", "reason": "NonZeroExitCode", "details": causes}), Some(7));
        check(json!({"status": "Failure", "message": "no such file"}), None);
        assert_eq!(exit_code(None).ok(), Some(ExitCode::SUCCESS));
    }
}
