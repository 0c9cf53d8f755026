//! `manta ray`, which is also `kubectl ray`: KubeRay's plugin for kubectl, in the same binary under another name.
//!
//! One file per command. Columns and messages are those of the plugin of KubeRay v1.7.0, except for what
//! docs/deviations.md lists.

pub(super) mod create;
mod delete;
pub(super) mod get;
pub(super) mod job;
mod log;
mod scale;
mod session;
mod version;

use crate::connect::ConnectionArgs;
use crate::output::print_note;
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
    #[command(visible_alias = "logs")]
    Log(log::Args),
    Session(session::Args),
    Job(job::Args),
    Version(version::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { connection, command } = args;
    let done = super::run_async(async {
        match command {
            Command::Get(args) => get::run(&connection, args).await,
            Command::Create(args) => create::run(&connection, args).await,
            Command::Scale(args) => scale::run(&connection, args).await,
            Command::Delete(args) => delete::run(&connection, args).await,
            Command::Log(args) => log::run(&connection, args).await,
            Command::Session(args) => session::run(&connection, args).await,
            Command::Job(args) => job::run(&connection, args).await,
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
