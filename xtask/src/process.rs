//! Runs commands as named steps and reports their outcome.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;

use crate::workspace;

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// A step with a name for the summary.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) seconds: u64,
}

/// Runs a step; prints its name first and, unless it passed, the outcome.
pub(crate) fn step(name: &str, work: impl FnOnce() -> Result<Outcome>) -> Step {
    print_line(&format!("── {name}"));
    let start = Instant::now();
    let outcome = work().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    match &outcome {
        Outcome::Passed => {}
        Outcome::Failed(why) => print_line(&format!("── {name} FAILED: {why}")),
        Outcome::Skipped(why) => print_line(&format!("── {name} skipped: {why}")),
    }
    Step { name: name.to_owned(), outcome, seconds: start.elapsed().as_secs() }
}

/// Whether no step failed.
pub(crate) fn all_passed(steps: &[Step]) -> bool {
    !steps.iter().any(|step| matches!(step.outcome, Outcome::Failed(_)))
}

/// Runs a command in the workspace root; the outcome follows its exit status.
pub(crate) fn run_command(command: &mut Command) -> Result<Outcome> {
    let status = command.current_dir(workspace::root()).stdin(Stdio::null()).status()?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed(format!("{}: {status}", display(command))) })
}

/// Whether a command succeeds; its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the cargo that runs this program, else the one in the path.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Cargo describes xtask's own package in these. Build scripts of dependencies would see a change and run again.
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command
}

/// Formats a command as typed in a shell.
pub(crate) fn display(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Prints a line and flushes.
pub(crate) fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Runs a future on a new runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(future)
}
