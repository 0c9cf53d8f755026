//! Running commands as named steps, and saying how they went.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;

use crate::workspace;

/// How a step went.
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

/// Runs a step and says so before and, unless it passed, after.
pub(crate) fn step(name: &str, work: impl FnOnce() -> Result<Outcome>) -> Step {
    say(&format!("── {name}"));
    let start = Instant::now();
    let outcome = work().unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    match &outcome {
        Outcome::Passed => {}
        Outcome::Failed(why) => say(&format!("── {name} FAILED: {why}")),
        Outcome::Skipped(why) => say(&format!("── {name} skipped: {why}")),
    }
    Step { name: name.to_owned(), outcome, seconds: start.elapsed().as_secs() }
}

/// Whether no step failed.
pub(crate) fn all_good(steps: &[Step]) -> bool {
    !steps.iter().any(|step| matches!(step.outcome, Outcome::Failed(_)))
}

/// Runs a command in the workspace; it passes if the command does.
pub(crate) fn passes(command: &mut Command) -> Result<Outcome> {
    let status = command.current_dir(workspace::root()).stdin(Stdio::null()).status()?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed(format!("{}: {status}", display(command))) })
}

/// The cargo that runs us, else the one in the path.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A command as one would type it.
pub(crate) fn display(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program).chain(command.get_args()).map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Prints a line at once; output is all that a task is for.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(future)
}
