//! Runs `cargo test`, adds up the results, and kills tests that hang.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{cargo, display, print_line};
use crate::workspace;

/// How long a test process may print nothing before it is killed; no test takes this long unless it hangs.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(15);

/// The number of passed and failed tests.
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

/// A `cargo test` command.
pub(crate) struct CargoTest {
    command: Command,
    /// The arguments of the test programs.
    passed: Vec<String>,
}

impl CargoTest {
    /// Runs all tests of the workspace.
    pub(crate) fn of_workspace() -> Self {
        let mut command = cargo();
        command.args(["test", "--workspace", "--no-fail-fast"]).current_dir(workspace::root()).stdin(Stdio::null());
        Self { command, passed: Vec::new() }
    }

    pub(crate) fn env(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.command.env(name, value);
    }

    /// Adds an integration test to run instead of all tests.
    pub(crate) fn only(&mut self, name: &OsStr) {
        self.command.arg("--test").arg(name);
    }

    /// Passes arguments to the test programs.
    pub(crate) fn pass<'a>(&mut self, arguments: impl IntoIterator<Item = &'a str>) {
        self.passed.extend(arguments.into_iter().map(str::to_owned));
    }

    /// Builds and runs the tests; returns the counts and whether cargo succeeded.
    pub(crate) fn run(mut self) -> Result<(Counts, bool)> {
        // The silence timeout does not apply to the build.
        let mut build = cargo();
        build.args(self.command.get_args()).arg("--no-run").current_dir(workspace::root()).stdin(Stdio::null());
        if !build.status().context("cannot start cargo")?.success() {
            return Ok((Counts::default(), false));
        }
        watch(self.command.arg("--").args(&self.passed), SILENCE_TIMEOUT, print_line)
    }
}

/// Forwards cargo's output and adds up the results of its test processes; kills a process that is silent for too long.
fn watch(command: &mut Command, silence: Duration, print: fn(&str)) -> Result<(Counts, bool)> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {}", display(command)))?;
    let output = BufReader::new(child.stdout.take().context("no output")?);
    let (line_tx, line_rx) = mpsc::channel();
    let reader = std::thread::spawn(move || output.lines().try_for_each(|line| line_tx.send(line).ok()));
    let mut counts = Counts::default();
    loop {
        match line_rx.recv_timeout(silence) {
            Ok(line) => {
                let line = line?;
                if let Some(more) = parse_result(&line) {
                    counts += more;
                }
                print(&line);
            }
            Err(RecvTimeoutError::Timeout) => {
                for program in kill_children(child.id()) {
                    let seconds = silence.as_secs();
                    print(&format!("killed {}: it printed nothing for {seconds} s", program.display()));
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let _ = reader.join();
    Ok((counts, child.wait()?.success()))
}

/// Kills the children of a process and returns their programs.
fn kill_children(parent: u32) -> Vec<PathBuf> {
    let kill = |child: Pid| {
        let program = std::fs::read_link(format!("/proc/{}/exe", child.as_raw_nonzero())).unwrap_or_default();
        let _ = kill_process(child, Signal::KILL);
        program
    };
    children_of(parent).into_iter().map(kill).collect()
}

fn children_of(parent: u32) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let ids: Vec<i32> =
        children.flat_map(|ids| ids.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    ids.into_iter().filter_map(Pid::from_raw).collect()
}

/// Parses the counts in `test result: ok. 3 passed; 0 failed; …`.
fn parse_result(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut numbers = rest.split("; ").filter_map(|part| part.split_once(' '));
    let mut next = |what: &str| numbers.next().filter(|(_, name)| *name == what)?.0.parse().ok();
    Some(Counts { passed: next("passed")?, failed: next("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_parsed() {
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
            assert_eq!(parse_result(line), expect.map(|(passed, failed)| Counts { passed, failed }), "{line}");
        }
    }

    #[test]
    fn a_hanging_process_is_killed_and_the_rest_continues() {
        let script = "sleep 1000; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let (counts, succeeded) =
            watch(Command::new("bash").args(["-c", script]), Duration::from_millis(200), |_| {}).expect("it runs");
        assert_eq!((counts, succeeded), (Counts { passed: 1, failed: 0 }, true));
    }
}
