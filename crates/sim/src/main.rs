//! `make simulate`: runs many seeds, replays one, or shows that the checker can see.

#![allow(clippy::print_stdout)]

use anyhow::{Context, Result, bail};
use clap::Parser;
use manta_logic::config::Safeguards;
use manta_sim::checker::Transitions;
use manta_sim::safeguards;
use manta_sim::script::Script;
use manta_sim::script::exhaustive::{everything_once, short_scripts};
use manta_sim::shrink::{is_same_sort, shrink};
use manta_sim::world::{Report, run_with};
use rustix::time::{ClockId, clock_gettime};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A third of a world's time went to the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many seeds run if nobody says so.
const SEEDS: u64 = 1_000;
/// Where shrunk scripts are written, from the folder in which the command runs.
const FAILURES: &str = "target/simulate";
/// How many failures are shrunk at most: each takes as long as hundreds of worlds.
const MOST_EXPLAINED: usize = 5;

/// Simulates the operator, the API server, nodes, Ray and users, with faults.
#[derive(Parser)]
struct Args {
    /// How many seeds to run, or how many of the worlds of --exhaustive, evenly spread [default: 1,000, or all]
    #[arg(long, env = "SEEDS")]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, env = "FROM", default_value_t = 0)]
    from: u64,
    /// How many worlds to run at once, each on a thread [default: the number of cores]
    #[arg(long, env = "JOBS")]
    jobs: Option<NonZero<usize>>,
    /// Replays this seed, prints its transcript, and shrinks its script if it fails
    #[arg(long, env = "SEED")]
    seed: Option<u64>,
    /// Replays this script and prints its transcript
    #[arg(long, env = "SCRIPT")]
    script: Option<PathBuf>,
    /// Switches a safeguard of the operator off, to see what the checker finds without it
    #[arg(long, env = "WITHOUT", value_name = "SAFEGUARD", value_parser = safeguards::without)]
    without: Option<Safeguards>,
    /// Runs the script of --seed or --script, or short ones, with every fault at every write
    #[arg(long, env = "EXHAUSTIVE", value_parser = clap::builder::FalseyValueParser::new(), default_value_t = false)]
    exhaustive: bool,
}

impl Args {
    fn safeguards(&self) -> Safeguards {
        self.without.unwrap_or_default()
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let script = match (args.seed, &args.script) {
        (Some(seed), _) => Some(Script::from_seed(seed)),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            Some(serde_json::from_str(&text).with_context(|| format!("{} is not a valid script", path.display()))?)
        }
        (None, None) => None,
    };
    match script {
        Some(script) if args.exhaustive => run_exhaustively(vec![("script".to_owned(), script)], &args),
        Some(script) => replay(&script, &args),
        None if args.exhaustive => run_exhaustively(short_scripts(), &args),
        None => run_seeds(&args),
    }
}

/// Replays a script. One of a seed that fails is shrunk.
fn replay(script: &Script, args: &Args) -> Result<()> {
    let report = run_with(script, args.safeguards())?;
    println!("{script}\n{}", report.transcript);
    let Some(violation) = report.violation else {
        println!("all invariants hold");
        return Ok(());
    };
    println!("{violation}");
    if let Some(seed) = args.seed {
        let failure = Failure { name: format!("seed {seed}"), script: script.clone(), violation: violation.clone() };
        explain(&failure, args.safeguards())?;
    }
    bail!("{violation}")
}

fn run_seeds(args: &Args) -> Result<()> {
    let count = args.seeds.unwrap_or(SEEDS);
    println!("seeds {} to {}", args.from, args.from.saturating_add(count.saturating_sub(1)));
    run_all(count, args, |number| {
        let seed = args.from.saturating_add(number);
        (format!("seed {seed}"), Script::from_seed(seed))
    })
}

/// Runs scripts with every fault at every write, one at a time.
fn run_exhaustively(scripts: Vec<(String, Script)>, args: &Args) -> Result<()> {
    let mut all = Vec::new();
    for (name, script) in scripts {
        let sent = run_with(&script, args.safeguards())?.sent;
        println!("{name}: {} writes, {} requests to Ray", sent.writes.len(), sent.to_ray.len());
        all.push((format!("{name}, undisturbed"), script.clone()));
        all.extend(
            everything_once(&script, &sent).into_iter().map(|(what, script)| (format!("{name}, {what}"), script)),
        );
    }
    let worlds = all.len() as u64;
    let count = args.seeds.unwrap_or(worlds).min(worlds);
    println!("{count} of {worlds} worlds");
    run_all(count, args, |number| all[(number * worlds / count) as usize].clone())
}

/// Runs so many scripts on several threads. Worlds share nothing, so that the order in which they end changes no result.
fn run_all(count: u64, args: &Args, script: impl Fn(u64) -> (String, Script) + Sync) -> Result<()> {
    let jobs = args.jobs.map_or_else(thread::available_parallelism, Ok)?;
    let safeguards = args.safeguards();
    let next = AtomicU64::new(0);
    let mut totals = Totals::new();
    thread::scope(|scope| {
        let (sender, results) = mpsc::sync_channel(jobs.get());
        for _ in 0..jobs.get() {
            let (sender, next, script) = (sender.clone(), &next, &script);
            scope.spawn(move || {
                let claimed = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                for number in claimed.take_while(|number| *number < count) {
                    let (name, script) = script(number);
                    let report = run_with(&script, safeguards);
                    if sender.send((name, script, report)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        results.into_iter().try_for_each(|(name, script, report)| {
            totals.add(name, script, report?);
            anyhow::Ok(())
        })
    })?;
    totals.print();
    explain_failures(&totals.failures, safeguards)?;
    if !totals.failures.is_empty() {
        bail!("{} of {} worlds failed", totals.failures.len(), totals.worlds);
    }
    println!("all invariants hold");
    Ok(())
}

/// Shrinks the first scripts that failed, once the others have run, and says how to replay them.
fn explain_failures(failures: &[Failure], safeguards: Safeguards) -> Result<()> {
    for failure in failures.iter().take(MOST_EXPLAINED) {
        explain(failure, safeguards)?;
    }
    if failures.len() > MOST_EXPLAINED {
        println!("\nonly the first {MOST_EXPLAINED} failures were shrunk");
    }
    Ok(())
}

/// Shrinks a script to the shortest that fails in the same way, and writes it to a file.
fn explain(failure: &Failure, safeguards: Safeguards) -> Result<()> {
    let Failure { name, script, violation } = failure;
    let fails_alike = |other: &str| is_same_sort(other, violation);
    let shortest = shrink(script, |script| {
        run_with(script, safeguards).is_ok_and(|report| report.violation.as_deref().is_some_and(fails_alike))
    });
    let file = Path::new(FAILURES).join(format!("{}.json", name.replace(|char: char| !char.is_alphanumeric(), "-")));
    std::fs::create_dir_all(FAILURES).with_context(|| format!("cannot create {FAILURES}"))?;
    std::fs::write(&file, serde_json::to_string(&shortest)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    let report = run_with(&shortest, safeguards)?;
    println!("\n{name}, shrunk: {}\n{shortest}\n{}", report.violation.unwrap_or_default(), report.transcript);
    println!("replay: make simulate SCRIPT={}", file.display());
    Ok(())
}

/// A script that failed, and how.
struct Failure {
    name: String,
    script: Script,
    violation: String,
}

/// What all worlds together brought.
struct Totals {
    start: Instant,
    worlds: u64,
    failures: Vec<Failure>,
    writes: u64,
    to_ray: u64,
    answered: u64,
    time: Duration,
    transitions: Transitions,
}

impl Totals {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            worlds: 0,
            failures: Vec::new(),
            writes: 0,
            to_ray: 0,
            answered: 0,
            time: Duration::ZERO,
            transitions: Transitions::default(),
        }
    }

    fn add(&mut self, name: String, script: Script, report: Report) {
        self.worlds += 1;
        self.writes += report.sent.writes.len() as u64;
        self.to_ray += report.sent.to_ray.len() as u64;
        self.answered += report.answered;
        self.time += report.time;
        self.transitions.add(&report.transitions);
        if let Some(violation) = report.violation {
            println!("{name}: {violation}");
            self.failures.push(Failure { name, script, violation });
        }
        if self.worlds.is_multiple_of(1_000) {
            let rate = self.worlds as f64 / processor_time().as_secs_f64();
            println!(
                "{} worlds, {:.1} a second, {rate:.1} a second and core, {} failed",
                self.worlds,
                self.rate(),
                self.failures.len()
            );
        }
    }

    fn rate(&self) -> f64 {
        self.worlds as f64 / self.start.elapsed().as_secs_f64()
    }

    fn print(&self) {
        let wall = self.start.elapsed().as_secs_f64();
        let cpu = processor_time().as_secs_f64();
        let worlds = self.worlds as f64;
        println!("{}", self.transitions);
        println!("worlds     {}", self.worlds);
        println!("failed     {}", self.failures.len());
        println!("wall time  {wall:.0} s, {:.1} worlds a second", self.rate());
        println!("CPU time   {cpu:.0} s, {:.1} worlds a second and core", worlds / cpu);
        println!("simulated  {:.1} days", self.time.as_secs_f64() / 86_400.0);
        println!("writes     {} by operators, and {} requests to Ray", self.writes, self.to_ray);
        println!("requests   {} answered by services", self.answered);
    }
}

/// Returns the CPU time of all threads of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
