//! Runs Kubernetes' conformance suite against `manta up`, one process for each spec, and counts per group.
//!
//! A spec that once passed and fails now is an error: `tests/conformance/passing.txt` lists those that passed.

mod node;
mod outcome;
mod passing;
mod specs;
mod tools;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use manta_testkit::{ConformanceSuite, find_kubectl};

use crate::operator::Build;
use crate::process::print_line;
use crate::workspace;
use node::Node;
use outcome::Outcome;
use specs::{GROUPS, Spec};

/// How long a spec may take to clean up after its timeout.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// Selects specs, and the program that they run against.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Only specs whose name contains this text
    #[arg(long, env = "ONLY", default_value = "")]
    only: String,
    /// Only specs of this group [default: api-machinery, apps, auth, cli, network and node]
    #[arg(long, env = "GROUP", default_value = "")]
    group: String,
    /// Number of specs that run at the same time
    #[arg(long, env = "JOBS", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Write the list of passing specs instead of comparing with it
    #[arg(long, env = "UPDATE", num_args = 0..=1, default_missing_value = "1", value_parser = clap::builder::FalseyValueParser::new(), default_value = "")]
    update: bool,
    /// Run a debug build of `manta`
    #[arg(long, env = "DEBUG", num_args = 0..=1, default_missing_value = "1", value_parser = clap::builder::FalseyValueParser::new(), default_value = "")]
    debug: bool,
    /// Program to run [default: this workspace's `manta`, built with the profile `sim`]
    #[arg(long, env = "MANTA", value_name = "PROGRAM")]
    manta: Option<PathBuf>,
}

/// Builds the suite, runs the chosen specs, prints the counts, and returns whether no spec got worse.
pub(crate) fn run(args: &Args) -> Result<bool> {
    tools::obtain();
    let suite = ConformanceSuite::obtain()?;
    let chosen = choose(specs::read(&suite.list())?, args)?;
    let build = if args.debug { Build::Debug } else { Build::Sim };
    let kubectl = find_kubectl()?;
    let node = Node::start(&suite, &kubectl, args.manta.as_deref(), build)?;
    let runner = Runner { suite, kubectl, logs: logs_folder()?, node };
    print_line(&format!(
        "{} specs of Kubernetes {}, {} at a time; their output is in {}",
        chosen.len(),
        runner.suite.version,
        args.jobs,
        runner.logs.display()
    ));
    let start = Instant::now();
    let known = passing::read()?;
    let mut outcomes = runner.run_all(&chosen, args.jobs);
    // A busy machine makes specs fail that wait for something: whatever passed before has a second chance, alone.
    let again: Vec<Spec> = chosen
        .iter()
        .filter(|spec| known.contains(&spec.name) && outcomes.get(&spec.name) != Some(&Outcome::Passed))
        .cloned()
        .collect();
    outcomes.extend(runner.run_all(&again, 1));
    report(&chosen, &outcomes, start.elapsed());
    let passed: BTreeSet<String> =
        outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Passed).map(|(name, _)| name.clone()).collect();
    if args.update {
        passing::write(&passing::merge(&known, &chosen, &passed))?;
        return Ok(true);
    }
    let worse: Vec<&Spec> = again.iter().filter(|spec| !passed.contains(&spec.name)).collect();
    for spec in &worse {
        print_line(&format!("passed before, and fails now: {}", spec.name));
    }
    Ok(worse.is_empty())
}

fn choose(all: Vec<Spec>, args: &Args) -> Result<Vec<Spec>> {
    let in_group = |spec: &Spec| match args.group.as_str() {
        "" => GROUPS.contains(&spec.group.as_str()),
        group => spec.group == group,
    };
    let groups: BTreeSet<String> = all.iter().map(|spec| spec.group.clone()).collect();
    let chosen: Vec<Spec> = all.into_iter().filter(|spec| in_group(spec) && spec.name.contains(&args.only)).collect();
    if chosen.is_empty() {
        let groups = groups.into_iter().collect::<Vec<_>>().join(", ");
        bail!("no spec matches ONLY={:?} GROUP={:?}; the groups are {groups}", args.only, args.group);
    }
    Ok(chosen)
}

fn logs_folder() -> Result<PathBuf> {
    let folder = workspace::root().join("target/conformance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

struct Runner {
    suite: ConformanceSuite,
    kubectl: PathBuf,
    logs: PathBuf,
    node: Node,
}

impl Runner {
    /// Runs the specs, those that disturb others at the end and alone.
    fn run_all(&self, specs: &[Spec], jobs: u16) -> BTreeMap<String, Outcome> {
        let (alone, together): (Vec<&Spec>, Vec<&Spec>) = specs.iter().partition(|spec| spec.is_serial());
        let outcomes = Mutex::new(BTreeMap::new());
        for (specs, jobs) in [(together, jobs), (alone, 1)] {
            let queue = Mutex::new(VecDeque::from(specs));
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            std::thread::scope(|scope| {
                for _ in 0..jobs {
                    scope.spawn(|| {
                        while let Some(spec) = next() {
                            let start = Instant::now();
                            let outcome = self.run_one(spec);
                            print_line(&format!("{outcome:7} {:4} s  {}", start.elapsed().as_secs(), spec.name));
                            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                            outcomes.insert(spec.name.clone(), outcome);
                        }
                    });
                }
            });
        }
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_one(&self, spec: &Spec) -> Outcome {
        self.start(spec).unwrap_or_else(|error| {
            print_line(&format!("{}: {error:#}", spec.name));
            Outcome::Failed
        })
    }

    fn start(&self, spec: &Spec) -> Result<Outcome> {
        let log = self.logs.join(spec.file_name());
        let output = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(&self.suite.program);
        command
            .arg(format!("--kubeconfig={}", self.node.kubeconfig().display()))
            .arg(format!("--kubectl-path={}", self.kubectl.display()))
            .args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--system-pods-startup-timeout=1s"])
            .arg(format!("--ginkgo.focus={}$", specs::quoted(&spec.name)))
            .arg(format!("--ginkgo.timeout={}s", spec.timeout().as_secs()))
            .args(["--ginkgo.grace-period=15s", "--ginkgo.no-color", "--ginkgo.silence-skips"])
            .current_dir(&self.logs)
            .env("KUBECONFIG", self.node.kubeconfig())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut process = command.spawn().context("cannot start e2e.test")?;
        let end = Instant::now() + spec.timeout() + CLEAN_UP_TIMEOUT;
        while process.try_wait()?.is_none() {
            if Instant::now() > end {
                process.kill()?;
                process.wait()?;
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(outcome::read(&fs::read_to_string(&log).unwrap_or_default()))
    }
}

fn report(chosen: &[Spec], outcomes: &BTreeMap<String, Outcome>, took: Duration) {
    let mut groups: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for spec in chosen {
        let counts = groups.entry(&spec.group).or_default();
        counts[outcomes.get(&spec.name).copied().unwrap_or(Outcome::Absent) as usize] += 1;
    }
    print_line("\n| group | specs | passed | failed | absent |\n| --- | --- | --- | --- | --- |");
    for (group, [passed, failed, absent]) in &groups {
        print_line(&format!("| {group} | {} | {passed} | {failed} | {absent} |", passed + failed + absent));
    }
    let of = |index: usize| groups.values().map(|counts| counts[index]).sum::<usize>();
    let all = format!("| all | {} | {} | {} | {} |", chosen.len(), of(0), of(1), of(2));
    print_line(&format!("{all}\n{} minutes", took.as_secs().div_ceil(60)));
}
