//! The commands of `manta`, one file each.
//!
//! A file defines `Args` (clap's derive; its doc comment is the help text) and `run`. To add a command, add that file
//! and one line to the list below. An async command starts its own runtime, so that the others do not pay for one.

use std::future::Future;
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

/// The exit code after an interrupt, as shells report it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Runs an async command to its end.
pub(crate) fn run_async(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(command);
    // A task that blocks, such as one that reads the terminal, must not keep the program alive.
    runtime.shutdown_background();
    code
}

commands! {
    Apiserver => apiserver,
    Completion => completion,
    Connect => connect,
    Crds => crds,
    Demo => demo,
    Down => down,
    Explain => explain,
    History => history,
    Job => job,
    Lint => lint,
    Logs => logs,
    Man => man,
    MigrateStorage => migrate_storage,
    New => new,
    Open => open,
    Operator => operator,
    Page => page,
    Plan => plan,
    Policy => policy,
    Ray => ray,
    Shell => shell,
    SmokeTest => smoke_test,
    Status => status,
    Submitter => submitter,
    Up => up,
    Version => version,
}
