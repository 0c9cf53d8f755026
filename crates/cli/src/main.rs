//! `manta`: Ray on Kubernetes, and on one machine without it.
//!
//! Every command is one file in [`commands`]. Exit codes: 0 success, 1 failure, 2 wrong usage; the help of a command
//! says where it differs.

mod commands;
mod local;
mod log;
mod output;

use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Runs Ray on Kubernetes, and on one machine without it.
#[derive(Parser)]
#[command(name = "manta", version)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    Cli::parse_from(command_line(std::env::args_os())).command.run().unwrap_or_else(|error| {
        // Nowhere is left to report to when stderr is closed too.
        let _ = writeln!(std::io::stderr(), "manta: {error:#}");
        ExitCode::FAILURE
    })
}

/// Returns the command line to parse; a program called `manager` is the operator, as in KubeRay's image.
fn command_line(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.first().is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new("manager"))) {
        arguments.insert(1, "operator".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::{Cli, command_line};
    use clap::{CommandFactory, Parser};

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
        Cli::command().debug_assert();
    }
}
