//! `cargo test` with its verdicts added up, and an end to what hangs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{cargo, display, say};
use crate::workspace;

/// How long tests may print nothing. No test is allowed to take this long, so that it hangs, and would take what is
/// left of the time, and of the other tests, with it.
const SILENCE: Duration = Duration::from_mins(15);

/// How many passed and how many did not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Tests to run.
pub(crate) struct CargoTest {
    command: Command,
}

impl CargoTest {
    /// All tests of the workspace, each with its verdict.
    pub(crate) fn of_workspace() -> Self {
        let mut command = cargo();
        command.args(["test", "--workspace", "--no-fail-fast"]).current_dir(workspace::root()).stdin(Stdio::null());
        Self { command }
    }

    pub(crate) fn env(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.command.env(name, value);
    }

    /// Names one of the integration tests that shall run, instead of all tests.
    pub(crate) fn only(&mut self, name: &OsStr) {
        self.command.arg("--test").arg(name);
    }

    /// Builds and runs them; what they said, and whether cargo was content.
    pub(crate) fn run(mut self) -> Result<(Counts, bool)> {
        // Building may be silent for as long as it likes.
        let mut build = cargo();
        build.args(self.command.get_args()).arg("--no-run").current_dir(workspace::root()).stdin(Stdio::null());
        if !build.status().context("cannot start cargo")?.success() {
            return Ok((Counts::default(), false));
        }
        watch(&mut self.command, SILENCE, say)
    }
}

/// Passes on what cargo prints and adds up the verdicts of its test processes. A process that says nothing for too
/// long is ended, and the others have their turn.
fn watch(command: &mut Command, silence: Duration, say: fn(&str)) -> Result<(Counts, bool)> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {}", display(command)))?;
    let output = BufReader::new(child.stdout.take().context("no output")?);
    let (tell, told) = mpsc::channel();
    let reader = std::thread::spawn(move || output.lines().try_for_each(|line| tell.send(line).ok()));
    let mut counts = Counts::default();
    loop {
        match told.recv_timeout(silence) {
            Ok(line) => {
                let line = line?;
                if let Some(more) = verdict_of(&line) {
                    counts += more;
                }
                say(&line);
            }
            Err(RecvTimeoutError::Timeout) => {
                for program in end_children(child.id()) {
                    let seconds = silence.as_secs();
                    say(&format!("{} printed nothing for {seconds} s: it hangs, and is ended", program.display()));
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ = reader.join();
    Ok((counts, child.wait()?.success()))
}

/// Ends the processes that this one started, and names their programs.
fn end_children(parent: u32) -> Vec<PathBuf> {
    let end = |child: Pid| {
        let program = std::fs::read_link(format!("/proc/{}/exe", child.as_raw_nonzero())).unwrap_or_default();
        let _ = kill_process(child, Signal::KILL);
        program
    };
    children_of(parent).into_iter().map(end).collect()
}

fn children_of(parent: u32) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let ids: Vec<i32> =
        children.flat_map(|ids| ids.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    ids.into_iter().filter_map(Pid::from_raw).collect()
}

/// The numbers in `test result: ok. 3 passed; 0 failed; …`.
fn verdict_of(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut numbers = rest.split("; ").filter_map(|part| part.split_once(' '));
    let mut next = |what: &str| numbers.next().filter(|(_, name)| *name == what)?.0.parse().ok();
    Some(Counts { passed: next("passed")?, failed: next("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_of_a_test_process_is_read() {
        for (line, expect) in [
            (
                "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s",
                Some((12, 0)),
            ),
            (
                "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s",
                Some((3, 2)),
            ),
            ("test result_is_read ... ok", None),
            ("test result: ok.", None),
        ] {
            assert_eq!(verdict_of(line), expect.map(|(passed, failed)| Counts { passed, failed }), "{line}");
        }
    }

    #[test]
    fn what_hangs_is_ended_and_the_rest_goes_on() {
        let script = "sleep 1000; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let (counts, ended_well) =
            watch(Command::new("bash").args(["-c", script]), Duration::from_millis(200), |_| {}).expect("it runs");
        assert_eq!((counts, ended_well), (Counts { passed: 1, failed: 0 }, true));
    }
}
