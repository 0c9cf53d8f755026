//! `make simulate`: runs many seeds, replays one, or shows that the checker can see.

#![allow(clippy::print_stdout)]

use anyhow::{Context, Result, bail};
use clap::Parser;
use manta_sim::checker::Transitions;
use manta_sim::script::{Fault, Script};
use manta_sim::shrink::shrink;
use manta_sim::world::{Report, run};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
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
    /// How many worlds to run at once, each on a thread [default: the number of cores]
    #[arg(long, env = "JOBS")]
    jobs: Option<NonZero<usize>>,
    /// Replays this seed and prints its transcript
    #[arg(long, env = "SEED")]
    seed: Option<u64>,
    /// Replays this script and prints its transcript
    #[arg(long, env = "SCRIPT")]
    script: Option<PathBuf>,
    /// Runs the script of --seed or --script with every fault at every write
    #[arg(long, env = "EXHAUSTIVE", value_parser = clap::builder::FalseyValueParser::new(), default_value_t = false)]
    exhaustive: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let script = match (args.seed, &args.script) {
        (Some(seed), _) => Some(Script::from_seed(seed)),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Some(serde_json::from_str(&text).with_context(|| format!("{} is no script", path.display()))?)
        }
        (None, None) => None,
    };
    match script {
        Some(script) if args.exhaustive => run_exhaustively(&script),
        Some(script) => replay(&script),
        None => run_all(args.from, args.seeds, args.jobs),
    }
}

fn replay(script: &Script) -> Result<()> {
    let report = run(script)?;
    println!("{script}\n{}", report.transcript);
    match report.violation {
        Some(violation) => bail!("{violation}"),
        None => println!("all invariants hold"),
    }
    Ok(())
}

/// Runs a script with every fault at every write, one at a time.
fn run_exhaustively(script: &Script) -> Result<()> {
    let writes = run(script)?.writes;
    let mut totals = Totals::new();
    for number in 0..writes {
        for fault in Fault::ALL {
            let script = script.with_fault(number, fault);
            totals.add(&format!("write {number} {fault:?}"), &script, run(&script)?)?;
        }
    }
    totals.finish()
}

/// Runs the seeds on several threads. Worlds share nothing, so that the order in which they end changes no result.
fn run_all(from: u64, seeds: u64, jobs: Option<NonZero<usize>>) -> Result<()> {
    let jobs = jobs.map_or_else(thread::available_parallelism, Ok)?;
    let next = AtomicU64::new(from);
    let mut totals = Totals::new();
    thread::scope(|scope| {
        // Workers wait for the results to be added up, because a failing script is shrunk there.
        let (sender, results) = mpsc::sync_channel(jobs.get());
        for _ in 0..jobs.get() {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                let claimed = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                for seed in claimed.take_while(|seed| *seed < from.saturating_add(seeds)) {
                    let script = Script::from_seed(seed);
                    let report = run(&script);
                    if sender.send((seed, script, report)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().try_for_each(|(seed, script, report)| totals.add(&format!("seed {seed}"), &script, report?))
    })?;
    totals.finish()
}

/// What all worlds together brought.
struct Totals {
    start: Instant,
    worlds: u64,
    failed: u64,
    writes: u64,
    answered: u64,
    time: Duration,
    transitions: Transitions,
}

impl Totals {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            worlds: 0,
            failed: 0,
            writes: 0,
            answered: 0,
            time: Duration::ZERO,
            transitions: Transitions::default(),
        }
    }

    fn add(&mut self, name: &str, script: &Script, report: Report) -> Result<()> {
        self.worlds += 1;
        self.writes += report.writes;
        self.answered += report.answered;
        self.time += report.time;
        self.transitions.add(&report.transitions);
        if let Some(violation) = report.violation {
            self.failed += 1;
            println!("{name}: {violation}");
            let shortest = shrink(script, |script| run(script).is_ok_and(|report| report.violation.is_some()));
            println!("{shortest}{}", serde_json::to_string(&shortest)?);
            println!("replay: save the line above as a file and run make simulate SCRIPT=file\n");
        }
        if self.worlds.is_multiple_of(1_000) {
            println!("{} worlds, {:.1} a second, {} failed", self.worlds, self.rate(), self.failed);
        }
        Ok(())
    }

    fn rate(&self) -> f64 {
        self.worlds as f64 / self.start.elapsed().as_secs_f64()
    }

    fn finish(self) -> Result<()> {
        println!("{}", self.transitions);
        let unreached = self.transitions.unreached();
        if !unreached.is_empty() {
            println!("never reached: {}", unreached.join(", "));
        }
        println!(
            "{} of {} worlds hold all invariants, {:.0} s ({:.1} a second): {} writes, {} requests answered, {:.1} days",
            self.worlds - self.failed,
            self.worlds,
            self.start.elapsed().as_secs_f64(),
            self.rate(),
            self.writes,
            self.answered,
            self.time.as_secs_f64() / 86_400.0
        );
        if self.failed > 0 {
            bail!("{} worlds failed", self.failed);
        }
        Ok(())
    }
}
