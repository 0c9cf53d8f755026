//! `manta ray`, which is also `kubectl ray`: KubeRay's plugin for kubectl, in the same binary under another name.
//!
//! One file per command. Columns and messages are those of the plugin of KubeRay v1.7.0, except for what
//! docs/deviations.md lists.

mod create;
mod delete;
mod get;
mod scale;
mod version;

use crate::connect::ConnectionArgs;
use crate::output::print_note;
use std::future::Future;
use std::process::ExitCode;

/// Manage Ray clusters, jobs and services; install it as kubectl-ray for kubectl ray
///
/// The commands of KubeRay's plugin for kubectl. A link to this program called kubectl-ray makes them available as
/// kubectl ray.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    #[command(visible_alias = "list")]
    Get(get::Args),
    Create(create::Args),
    Scale(scale::Args),
    Delete(delete::Args),
    Version(version::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { connection, command } = args;
    let done = run_async(async {
        match command {
            Command::Get(args) => get::run(&connection, args).await,
            Command::Create(args) => create::run(&connection, args).await,
            Command::Scale(args) => scale::run(&connection, args).await,
            Command::Delete(args) => delete::run(&connection, args).await,
            Command::Version(args) => version::run(&connection, args).await,
        }
    });
    Ok(done.unwrap_or_else(|error| {
        print_error(&error);
        ExitCode::FAILURE
    }))
}

/// Prints an error as kubectl's plugins do.
fn print_error(error: &anyhow::Error) {
    print_note(&format!("Error: {error:#}"));
}

fn run_async(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(command);
    // A task that blocks, such as one that reads the terminal, must not keep the program alive.
    runtime.shutdown_background();
    code
}
