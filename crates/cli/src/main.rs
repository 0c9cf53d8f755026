//! `manta`: Ray on Kubernetes, and on one machine without it.
//!
//! Every command is one file in [`commands`]. Exit codes: 0 success, 1 failure, 2 wrong usage; the help of a command
//! says where it differs.

mod auth_token;
mod commands;
mod connect;
mod head;
mod job;
mod local;
mod log;
mod manifests;
mod memory;
mod output;
mod port_forward;
mod resource;
mod signals;
mod table;
mod tar;
mod wait;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
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
  manta ray get cluster         list Ray clusters; kubectl ray with a link called kubectl-ray
  manta lint MANIFEST           check manifests without a cluster
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

fn main() -> ExitCode {
    if called_as(std::env::args_os().next().as_deref(), "kubectl-ray") {
        return run_plugin();
    }
    let Some(command) = Cli::parse_from(command_line(std::env::args_os())).command else {
        // A closed stdout is not worth an error.
        let _ = output::write_stdout(|out| out.write_all(FIRST_STEPS.as_bytes()));
        return ExitCode::SUCCESS;
    };
    command.run().unwrap_or_else(|error| {
        output::print_error(&error);
        ExitCode::FAILURE
    })
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

/// Returns the command line to parse; a program called `manager` is the operator, as in KubeRay's image.
fn command_line(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if called_as(arguments.first().map(OsString::as_os_str), "manager") {
        arguments.insert(1, "operator".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::{Cli, FIRST_STEPS, command, command_line};
    use clap::Parser;

    #[test]
    fn operator_flags_are_not_parsed_by_clap() {
        for line in ["/manager -qps=1 --nope --help", "manta operator -qps=1 --nope --help"] {
            let arguments = command_line(line.split(' ').map(Into::into));
            assert_eq!(arguments[1..], ["operator", "-qps=1", "--nope", "--help"]);
            assert!(Cli::try_parse_from(arguments).is_ok(), "{line}");
        }
        assert_eq!(command_line(["manta".into(), "lint".into()].into_iter()), ["manta", "lint"]);
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
