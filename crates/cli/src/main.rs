//! `manta`: Ray on Kubernetes, and on one machine without it.
//!
//! Every command is one file in [`commands`]. Exit codes: 0 done, 1 failed, 2 wrong usage; a command
//! that means something else by them says so in its help.

mod commands;
mod local;
mod output;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// Runs Ray on Kubernetes, and on one machine without it.
#[derive(Parser)]
#[command(name = "manta", version)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    Cli::parse().command.run().unwrap_or_else(|error| {
        // Nothing is left to be told when stderr is closed too.
        let _ = writeln!(std::io::stderr(), "manta: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn flags_do_not_clash() {
        Cli::command().debug_assert();
    }
}
