//! `manta`: Ray on Kubernetes, and on one machine without it.
//!
//! Every command is one file in [`commands`]. Exit codes: 0 success, 1 failure, 2 wrong usage; the help of a command
//! says where it differs.

mod auth_token;
mod commands;
mod complete;
mod connect;
mod event;
mod explain;
mod head;
mod history_server;
mod job;
mod local;
mod manifests;
mod output;
mod page;
mod port_forward;
mod program_output;
mod records;
mod resource;
mod table;
mod tar;
mod wait;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use manta_operator::signals;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// Run Ray on Kubernetes, and on one machine without it
#[derive(Parser)]
#[command(name = "manta", version, subcommand_required = false)]
struct Cli {
    #[command(subcommand)]
    command: Option<commands::Command>,
}

/// What `manta` prints without a command.
const FIRST_STEPS: &str = "\
Manta runs Ray on Kubernetes, and on one machine without it.

On this machine:
  manta demo                    run a RayCluster, a RayJob and a RayService, then clean up
  manta up -f MANIFEST          run your own manifests until interrupted
  manta status                  show what is running

On Kubernetes:
  manta page                    see all Ray clusters, jobs and services in a browser
  manta ray get cluster         list Ray clusters; kubectl ray with a link called kubectl-ray
  manta job submit -- python train.py
                                run a command on a Ray cluster, with the files of this directory
  manta explain NAME            say why something does not run, or why it died
  manta history                 list what ended, failed or was deleted
  manta plan --all              show what the operator would do, without doing it
  manta lint MANIFEST           check manifests without a cluster
  manta new cluster             print a manifest to start from
  manta crds | kubectl apply --server-side -f -
  manta operator --kubeconfig FILE

manta help lists all commands, manta help COMMAND explains one.
";

/// The same program under the name `kubectl-ray`, which makes it kubectl's plugin `ray`.
#[derive(Parser)]
#[command(name = "kubectl-ray", bin_name = "kubectl ray", about = "Manage Ray clusters, jobs and services", version)]
struct Plugin {
    #[command(flatten)]
    args: commands::ray::Args,
}

/// The hidden command that completes a command line.
const COMPLETE: &str = "__complete";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let program = std::env::args_os().next();
    let is_plugin = called_as(program.as_deref(), "kubectl-ray");
    match words.split_first() {
        // kubectl runs this program to complete `kubectl ray`.
        _ if called_as(program.as_deref(), "kubectl_complete-ray") => return complete::run(Plugin::command(), &words),
        Some((first, words)) if first == COMPLETE && is_plugin => return complete::run(Plugin::command(), words),
        Some((first, words)) if first == COMPLETE => return complete::run(command(), words),
        _ if is_plugin => return run_plugin(),
        _ => {}
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The exit code 2 of `plan` says that there are changes.
    let wrong_usage = if arguments.get(1).is_some_and(|command| command == "plan") { 1 } else { 2 };
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed stdout or stderr is not worth an error.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { wrong_usage } else { 0 });
        }
    };
    let Some(command) = cli.command else {
        // A closed stdout is not worth an error.
        let _ = output::write_stdout(|out| out.write_all(FIRST_STEPS.as_bytes()));
        return ExitCode::SUCCESS;
    };
    command.run().unwrap_or_else(|error| {
        output::print_error(&error);
        ExitCode::FAILURE
    })
}

/// Returns the definition of the plugin's command line.
fn plugin() -> clap::Command {
    Plugin::command()
}

/// Runs the commands of `kubectl ray`. Wrong usage exits with 1, as kubectl and its plugins do.
fn run_plugin() -> ExitCode {
    let parsed = Plugin::command().try_get_matches().and_then(|matches| Plugin::from_arg_matches(&matches));
    match parsed {
        Ok(plugin) => commands::ray::run(plugin.args).unwrap_or(ExitCode::FAILURE),
        Err(error) if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::print_note(&error.to_string().replacen("error: ", "Error: ", 1));
            ExitCode::FAILURE
        }
        Err(help) => {
            // A closed stdout is not worth an error.
            let _ = output::write_stdout(|out| write!(out, "{help}"));
            ExitCode::SUCCESS
        }
    }
}

/// Returns whether the program was started under a name.
fn called_as(program: Option<&OsStr>, name: &str) -> bool {
    program.is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new(name)))
}

/// Returns the definition of all commands, for completions and man pages.
fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::{Cli, FIRST_STEPS, command};
    use clap::Parser;

    #[test]
    fn operator_flags_are_not_parsed_by_clap() {
        assert!(Cli::try_parse_from(["manta", "operator", "-qps=1", "--nope", "--help"]).is_ok());
    }

    #[test]
    fn flags_do_not_conflict() {
        command().debug_assert();
    }

    #[test]
    fn help_texts_are_imperative() {
        for command in std::iter::once(command()).chain(command().get_subcommands().cloned()) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let first = about.split(' ').next().unwrap_or_default();
            assert!(!first.is_empty() && !first.ends_with('s'), "{}: {about}", command.get_name());
        }
    }

    #[test]
    fn first_steps_name_existing_commands() {
        let commands = FIRST_STEPS.lines().filter_map(|line| line.trim_start().strip_prefix("manta "));
        let named: Vec<&str> = commands.filter_map(|rest| rest.split(' ').next()).collect();
        assert!(named.len() > 5, "{named:?}");
        let mut definition = command();
        definition.build();
        for name in named {
            assert!(definition.find_subcommand(name).is_some(), "{name}");
        }
    }
}
