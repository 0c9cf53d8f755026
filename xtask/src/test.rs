//! Runs everything that CI runs, and prints a summary.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use manta_testkit::{ControlPlane, LEDGER_VARIABLE, SERVER_VARIABLE, SHARED_VARIABLE};

use crate::cargo_test::{CargoTest, Counts};
use crate::operator::{Build, built_manta};
use crate::process::{Outcome, Step, all_passed, print_line, step};
use crate::{check, debian_package, disk_space, instructions, parity, takeover, workspace};

/// Builds the tools that tests use, once per user, so that no test waits for a build.
pub(crate) fn prepare() -> Vec<Step> {
    vec![
        step("Kubernetes and the CRDs of others", || ControlPlane::prepare().map(|()| Outcome::Passed)),
        step("Helm", || manta_testkit::helm_command().map(|_| Outcome::Passed)),
    ]
}

/// Runs all steps, even after one has failed, and returns whether all passed.
pub(crate) fn run() -> Result<bool> {
    let mut total = Counts::default();
    // Asked for now: building the tests replaces this program's file, and Linux then reports a path that does not exist.
    let xtask = std::env::current_exe()?;
    // A full disk would fail some test late in the run, with an error of its own.
    let mut steps = vec![step("disk space", disk_space::check)];
    if !all_passed(&steps) {
        return Ok(false);
    }
    steps.extend(check::run());
    steps.extend(prepare());

    for package in ["redis-server", "chromium"] {
        steps.push(step(package, || debian_package::obtain(package)));
    }
    let plane = step_with_value(&mut steps, "control plane", ControlPlane::start);
    let ledger = std::env::temp_dir().join(format!("manta-test-ledger-{}", std::process::id()));
    steps.push(step("tests", || {
        let (counts, succeeded) = run_tests(plane.as_ref(), &ledger)?;
        total += counts;
        Ok(test_outcome(counts, succeeded))
    }));
    let real = manta_testkit::count_tests(&ledger);
    let _ = std::fs::remove_file(ledger);
    drop(plane);

    steps.push(step("the operator's tests on the embedded server", || {
        let (counts, succeeded) = run_operator_tests_embedded()?;
        total += counts;
        Ok(test_outcome(counts, succeeded))
    }));

    steps.push(step("instructions of a pass", instructions::check));

    // Most of a life is waiting, so they run beside the other recordings.
    let lives = std::thread::spawn(move || parity::run_lives(&xtask));
    for (name, work) in [
        ("parity with KubeRay", parity::run_default as fn() -> Result<Option<Counts>>),
        ("parity with batch schedulers", parity::run_schedulers),
        ("parity with KubeRay on the embedded server", parity::run_default_embedded),
        ("takeover from KubeRay", takeover::run_default),
    ] {
        steps.push(step(name, || Ok(replayed(work()?, &mut total))));
    }
    steps.push(step("lives of jobs and services, beside the others", || {
        let counts = lives.join().map_err(|_| anyhow!("the thread panicked"))??;
        Ok(replayed(counts, &mut total))
    }));

    print_line("");
    for Step { name, outcome, seconds } in &steps {
        print_line(&match outcome {
            Outcome::Passed => format!("passed   {name} ({seconds} s)"),
            Outcome::Skipped(why) => format!("skipped  {name}: {why}"),
            Outcome::Failed(why) => format!("FAILED   {name}: {why}"),
        });
    }
    print_line(&format!("{real} tests ran against a real kube-apiserver"));
    // A step that failed without a failed test counts as one failure.
    let failed = if all_passed(&steps) { 0 } else { total.failed.max(1) };
    print_line(&format!("{} passed, {failed} failed", total.passed));
    Ok(all_passed(&steps))
}

/// Returns the outcome of replaying recordings, and adds them up.
fn replayed(counts: Option<Counts>, total: &mut Counts) -> Outcome {
    match counts {
        Some(counts) => {
            *total += counts;
            outcome(counts, "case")
        }
        None => {
            Outcome::Skipped("no recordings in ../shared/parity, or no python3, unshare and ip to replay them".into())
        }
    }
}

fn step_with_value<T>(steps: &mut Vec<Step>, name: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
    let mut value = None;
    steps.push(step(name, || {
        value = Some(work()?);
        Ok(Outcome::Passed)
    }));
    value
}

/// Returns the outcome of `cargo test`, which also fails if something did not build or a test process crashed.
pub(crate) fn test_outcome(counts: Counts, succeeded: bool) -> Outcome {
    match outcome(counts, "test") {
        Outcome::Passed if !succeeded => Outcome::Failed("cargo test did not finish, see above".to_owned()),
        outcome => outcome,
    }
}

fn outcome(counts: Counts, what: &str) -> Outcome {
    match counts {
        Counts { failed: 0, passed: 0 } => Outcome::Failed(format!("no {what} ran")),
        Counts { failed: 0, .. } => Outcome::Passed,
        Counts { failed, .. } => Outcome::Failed(format!("{failed} {what}s, see above")),
    }
}

/// Runs all tests; returns the counts and whether cargo succeeded.
fn run_tests(plane: Option<&ControlPlane>, ledger: &Path) -> Result<(Counts, bool)> {
    let mut tests = CargoTest::of_workspace();
    tests.env(LEDGER_VARIABLE, ledger);
    if let Some(plane) = plane {
        tests.env(SHARED_VARIABLE, plane.folder());
    }
    tests.run()
}

/// Runs the operator's integration tests again, on the embedded server instead of the real one.
fn run_operator_tests_embedded() -> Result<(Counts, bool)> {
    // The whole workspace, so that nothing is rebuilt with other features.
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
