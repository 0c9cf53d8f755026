//! Random requests with restarts in between: nothing acknowledged is lost, nothing is invented, nothing panics.
//!
//! `make fuzz MINUTES=60` runs it for longer, with other requests each time. A failure is reduced to the fewest
//! requests that show it.

mod dice;
mod history;
mod kinds;
mod requests;
mod world;

use std::time::{Duration, Instant};

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use requests::Operation;
use world::{Tally, World};

/// Sequences of requests in a test run.
const CASES: u32 = 6;
/// Requests and restarts of one sequence.
const LENGTH: usize = 300;

fn run(operations: &[Operation], tally: &mut Tally) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let outcome: Result<(), String> = runtime.block_on(async {
        let mut world = World::open(folder.path()).await?;
        for operation in operations {
            world = world.apply(operation, tally).await?;
        }
        world.restart(tally).await?.close().await;
        Ok(())
    });
    outcome.map_err(TestCaseError::fail)
}

fn run_cases(cases: u32, tally: &mut Tally) {
    // The file of regressions is beside the sources; integration tests have no place of their own.
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let counted = std::cell::RefCell::new(std::mem::take(tally));
    let outcome = TestRunner::new(config)
        .run(&requests::sequence(LENGTH), |operations| run(&operations, &mut counted.borrow_mut()));
    *tally = counted.into_inner();
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn a_restart_changes_nothing() {
    let mut tally = Tally::default();
    let minutes = std::env::var("MANTA_FUZZ_MINUTES").ok().and_then(|text| text.parse::<u64>().ok());
    let Some(minutes) = minutes else {
        return run_cases(CASES, &mut tally);
    };
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let mut report = Instant::now();
    while Instant::now() < end {
        run_cases(CASES, &mut tally);
        if report <= Instant::now() {
            report = Instant::now() + Duration::from_secs(300);
            tally.print();
        }
    }
    tally.print();
}
