//! `make simulate`: runs many seeds, or replays one.

#![allow(clippy::print_stdout)]

use anyhow::{Result, bail};
use clap::Parser;
use manta_sim::script::Script;
use manta_sim::shrink::shrink;
use manta_sim::world::run;
use std::time::{Duration, Instant};

/// Simulates the operator, the API server, nodes, Ray and users, with faults.
#[derive(Parser)]
struct Args {
    /// How many seeds to run
    #[arg(long, env = "SEEDS", default_value_t = 1_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, env = "FROM", default_value_t = 0)]
    from: u64,
    /// Replays this seed and prints its transcript
    #[arg(long, env = "SEED")]
    seed: Option<u64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.seed {
        Some(seed) => replay(seed),
        None => run_all(args.from, args.seeds),
    }
}

fn replay(seed: u64) -> Result<()> {
    let script = Script::from_seed(seed);
    let report = run(&script)?;
    println!("{script}\n{}", report.transcript);
    match report.violation {
        Some(violation) => bail!("seed {seed}: {violation}"),
        None => println!("seed {seed}: all invariants hold"),
    }
    Ok(())
}

fn run_all(from: u64, seeds: u64) -> Result<()> {
    let start = Instant::now();
    let (mut writes, mut time, mut failed) = (0, Duration::ZERO, 0);
    for seed in from..from + seeds {
        let script = Script::from_seed(seed);
        let report = run(&script)?;
        writes += report.writes;
        time += report.time;
        if let Some(violation) = report.violation {
            failed += 1;
            println!("seed {seed}: {violation}");
            let shortest = shrink(&script, |script| run(script).is_ok_and(|report| report.violation.is_some()));
            println!("{shortest}replay: make simulate SEED={seed}\n");
        }
        let done = seed - from + 1;
        if done.is_multiple_of(1_000) {
            println!("{done} seeds, {:.1} a second", done as f64 / start.elapsed().as_secs_f64());
        }
    }
    let rate = seeds as f64 / start.elapsed().as_secs_f64();
    println!(
        "{} of {seeds} seeds passed in {:.0} s ({rate:.1} a second): {writes} writes, {:.1} days of simulated time",
        seeds - failed,
        start.elapsed().as_secs_f64(),
        time.as_secs_f64() / 86_400.0
    );
    if failed > 0 {
        bail!("{failed} seeds failed");
    }
    Ok(())
}
