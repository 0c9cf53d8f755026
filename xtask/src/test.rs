//! Everything that CI runs, with a summary that says what was and what was not done.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use manta_testkit::{ControlPlane, LEDGER_VARIABLE, SERVER_VARIABLE, SHARED_VARIABLE};

use crate::operator::{Build, built_manta};
use crate::process::{Outcome, Step, all_good, cargo, say, step};
use crate::{check, parity, redis, takeover, workspace};

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

/// Gets the tools that tests use, once per user, so that no test waits for one to be built.
pub(crate) fn prepare() -> Vec<Step> {
    vec![
        step("Kubernetes and the CRDs of others", || ControlPlane::prepare().map(|()| Outcome::Passed)),
        step("Helm", || manta_testkit::helm_command().map(|_| Outcome::Passed)),
    ]
}

/// Runs all steps, also after one has failed; whether all are in order.
pub(crate) fn run() -> Result<bool> {
    let mut total = Counts::default();
    let mut steps = check::run();
    steps.extend(prepare());

    steps.push(step("redis-server", redis::obtain));
    let plane = step_with_value(&mut steps, "control plane", ControlPlane::start);
    let ledger = std::env::temp_dir().join(format!("manta-test-ledger-{}", std::process::id()));
    steps.push(step("tests", || {
        let (counts, ended_well) = run_tests(plane.as_ref(), &ledger)?;
        total += counts;
        // Without a failed test, cargo failed because something did not build or a process died before its verdict.
        Ok(if counts.failed == 0 && !ended_well {
            Outcome::Failed("cargo test did not come to its end, see above".to_owned())
        } else {
            verdict(counts, "test")
        })
    }));
    let real = manta_testkit::count_tests(&ledger);
    let _ = std::fs::remove_file(ledger);
    drop(plane);

    steps.push(step("the operator's tests on the embedded server", || {
        let (counts, ended_well) = run_operator_tests_embedded()?;
        total += counts;
        Ok(match verdict(counts, "test") {
            Outcome::Passed if !ended_well => Outcome::Failed("cargo test did not come to its end".to_owned()),
            outcome => outcome,
        })
    }));

    for (name, work) in [
        ("parity with KubeRay", parity::run_default as fn() -> Result<Option<Counts>>),
        ("parity with batch schedulers", parity::run_schedulers),
        ("parity with KubeRay on the embedded server", parity::run_default_embedded),
        ("takeover from KubeRay", takeover::run_default),
    ] {
        steps.push(step(name, || match work()? {
            Some(counts) => {
                total += counts;
                Ok(verdict(counts, "case"))
            }
            None => Ok(Outcome::Skipped("no recordings in ../shared/parity, or no python3 to play them".to_owned())),
        }));
    }

    say("");
    for Step { name, outcome, seconds } in &steps {
        say(&match outcome {
            Outcome::Passed => format!("passed   {name} ({seconds} s)"),
            Outcome::Skipped(why) => format!("skipped  {name}: {why}"),
            Outcome::Failed(why) => format!("FAILED   {name}: {why}"),
        });
    }
    say(&format!("{real} tests ran against a real kube-apiserver"));
    // A step that failed without a failed test still counts, or the last line would not be true.
    let failed = if all_good(&steps) { 0 } else { total.failed.max(1) };
    say(&format!("{} passed, {failed} failed", total.passed));
    Ok(all_good(&steps))
}

fn step_with_value<T>(steps: &mut Vec<Step>, name: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
    let mut made = None;
    steps.push(step(name, || {
        made = Some(work()?);
        Ok(Outcome::Passed)
    }));
    made
}

fn verdict(counts: Counts, what: &str) -> Outcome {
    match counts {
        Counts { failed: 0, passed: 0 } => Outcome::Failed(format!("no {what} ran")),
        Counts { failed: 0, .. } => Outcome::Passed,
        Counts { failed, .. } => Outcome::Failed(format!("{failed} {what}s, see above")),
    }
}

/// What the tests said, and whether cargo was content.
fn run_tests(plane: Option<&ControlPlane>, ledger: &Path) -> Result<(Counts, bool)> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]).env(LEDGER_VARIABLE, ledger);
    if let Some(plane) = plane {
        command.env(SHARED_VARIABLE, plane.folder());
    }
    stream(&mut command)
}

/// The integration tests of the operator once more, with the embedded server in the place of the real one.
fn run_operator_tests_embedded() -> Result<(Counts, bool)> {
    let mut command = cargo();
    // The whole workspace, so that nothing is built again with other features.
    command.args(["test", "--workspace", "--no-fail-fast"]).env(SERVER_VARIABLE, built_manta(Build::Debug)?);
    for entry in std::fs::read_dir(workspace::root().join("crates/operator/tests"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            command.arg("--test").arg(path.file_stem().context("a test without a name")?);
        }
    }
    stream(&mut command)
}

/// Passes on what cargo prints and adds up the verdicts of its test processes.
fn stream(command: &mut Command) -> Result<(Counts, bool)> {
    let mut child = command
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut counts = Counts::default();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        if let Some(more) = verdict_of(&line) {
            counts += more;
        }
        say(&line);
    }
    Ok((counts, child.wait()?.success()))
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
}
