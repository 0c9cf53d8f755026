//! Everything that CI runs, with a summary that says what was and what was not done.

use std::path::Path;

use anyhow::{Context, Result};
use manta_testkit::{ControlPlane, LEDGER_VARIABLE, SERVER_VARIABLE, SHARED_VARIABLE};

use crate::cargo_test::{CargoTest, Counts};
use crate::operator::{Build, built_manta};
use crate::process::{Outcome, Step, all_good, say, step};
use crate::{check, parity, redis, takeover, workspace};

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
    let mut tests = CargoTest::of_workspace();
    tests.env(LEDGER_VARIABLE, ledger);
    if let Some(plane) = plane {
        tests.env(SHARED_VARIABLE, plane.folder());
    }
    tests.run()
}

/// The integration tests of the operator once more, with the embedded server in the place of the real one.
fn run_operator_tests_embedded() -> Result<(Counts, bool)> {
    // The whole workspace, so that nothing is built again with other features.
    let mut tests = CargoTest::of_workspace();
    tests.env(SERVER_VARIABLE, built_manta(Build::Debug)?);
    for entry in std::fs::read_dir(workspace::root().join("crates/operator/tests"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            tests.only(path.file_stem().context("a test without a name")?);
        }
    }
    tests.run()
}
