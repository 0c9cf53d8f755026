//! The commands of `manta`, one file each.
//!
//! A file has `Args` (clap's derive; its doc comment is the help text) and `run`. A new command is
//! that file and one line in the list below. An async command starts its own runtime, so that the
//! others do without.

use std::process::ExitCode;

/// Declares the modules, the subcommands and their dispatch.
macro_rules! commands {
    ($($variant:ident => $module:ident,)+) => {
        $(mod $module;)+

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
    Crds => crds,
    Demo => demo,
    Down => down,
    Lint => lint,
    Operator => operator,
    Policy => policy,
    Status => status,
    Submitter => submitter,
    Up => up,
}
