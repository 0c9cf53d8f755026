//! The commands of `manta`, one file each.
//!
//! A file defines `Args` (clap's derive; its doc comment is the help text) and `run`. To add a command, add that file
//! and one line to the list below. An async command starts its own runtime, so that the others do not pay for one.

use std::process::ExitCode;

/// Declares the modules, the subcommands and the dispatch to them.
macro_rules! commands {
    ($($variant:ident => $module:ident,)+) => {
        $(pub(crate) mod $module;)+

        #[derive(clap::Subcommand)]
        pub(crate) enum Command {
            $($variant($module::Args),)+
        }

        impl Command {
            pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
                match self {
                    $(Self::$variant(args) => $module::run(args),)+
                }
            }
        }
    };
}

commands! {
    Apiserver => apiserver,
    Completion => completion,
    Crds => crds,
    Demo => demo,
    Down => down,
    Lint => lint,
    Man => man,
    MigrateStorage => migrate_storage,
    Operator => operator,
    Policy => policy,
    Ray => ray,
    SmokeTest => smoke_test,
    Status => status,
    Submitter => submitter,
    Up => up,
    Version => version,
}
