//! Builds programs of other projects, runs the operator beside them, and counts the tests of each.

use anyhow::{Result, bail};
use manta_testkit::{ControlPlane, Neighbour, SHARED_VARIABLE};

use crate::cargo_test::{CargoTest, Counts};
use crate::process::{Outcome, Step, all_passed, print_line, step};
use crate::{debian_package, test};

/// Selects the tests in `tests/e2e` that need a neighbour; `make test` does not set it.
const E2E_VARIABLE: &str = "MANTA_NEIGHBOURS";

/// The neighbours with the test program that each is used by.
const NEIGHBOURS: [(&str, Program); 5] = [
    ("cert_manager", Program::Operator),
    ("cert_manager", Program::LocalMode),
    ("prometheus", Program::Operator),
    ("redis", Program::LocalMode),
    ("traefik", Program::LocalMode),
];

#[derive(Debug, Clone, Copy)]
enum Program {
    /// `crates/operator/tests/neighbours`, on a real control plane.
    Operator,
    /// `tests/e2e`, in local mode with real Ray.
    LocalMode,
}

/// Selects neighbours.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Only the neighbour of this name
    #[arg(long, env = "ONLY", default_value = "")]
    only: String,
}

/// Builds everything, runs the tests of one neighbour after the other, and returns whether all passed.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let chosen: Vec<(&str, Program)> =
        NEIGHBOURS.into_iter().filter(|(name, _)| args.only.is_empty() || args.only == *name).collect();
    if chosen.is_empty() {
        bail!("no neighbour is called {}: {}", args.only, NEIGHBOURS.map(|(name, _)| name).join(", "));
    }
    let mut steps = prepare(&chosen);
    let mut counted = Vec::new();
    if all_passed(&steps) {
        for (name, program) in chosen {
            steps.push(step(name, || {
                let (counts, succeeded) = program.run(name)?;
                counted.push((name, counts));
                Ok(test::test_outcome(counts, succeeded))
            }));
        }
    }
    print_line("");
    for (name, Counts { passed, failed }) in counted {
        print_line(&format!("{name}: {passed} passed, {failed} failed"));
    }
    Ok(all_passed(&steps))
}

/// Installs and builds what the chosen neighbours need.
fn prepare(chosen: &[(&str, Program)]) -> Vec<Step> {
    let mut steps = test::prepare();
    let is_chosen = |name: &str| chosen.iter().any(|(chosen, _)| *chosen == name);
    for neighbour in Neighbour::ALL {
        let used_by = if neighbour == Neighbour::Promtool { Neighbour::Prometheus } else { neighbour };
        if is_chosen(&used_by.name().replace('-', "_")) {
            steps.push(step(neighbour.name(), || neighbour.program().map(|_| Outcome::Passed)));
        }
    }
    if is_chosen("redis") {
        // Here the test must not be left out.
        steps.push(step("redis-server", || {
            Ok(match debian_package::obtain("redis-server")? {
                Outcome::Skipped(why) => Outcome::Failed(why),
                outcome => outcome,
            })
        }));
    }
    steps
}

impl Program {
    fn run(self, neighbour: &str) -> Result<(Counts, bool)> {
        let mut tests = CargoTest::of_workspace();
        match self {
            Self::Operator => {
                let plane = ControlPlane::start()?;
                tests.only("neighbours".as_ref());
                tests.env(SHARED_VARIABLE, plane.folder());
                tests.pass(["--ignored", format!("{neighbour}::").as_str()]);
                tests.run()
            }
            Self::LocalMode => {
                tests.only("e2e".as_ref());
                tests.env(E2E_VARIABLE, "1");
                tests.pass([format!("{neighbour}::").as_str()]);
                tests.run()
            }
        }
    }
}
