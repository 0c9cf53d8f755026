//! Replays the recordings of KubeRay against an operator and compares the differences with the list of known ones.
//!
//! `../shared/parity/parity` replays and compares; this module starts what it needs and evaluates its output. A
//! difference that is not listed in `tests/parity/deviations.yaml` fails, and so does a listed one that vanished.

mod deviations;
mod permissions;
mod schedulers;
mod verdicts;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use manta_testkit::audit::Request;
use manta_testkit::{ControlPlane, Options};
use serde_json::Value;

use crate::cargo_test::Counts;
use crate::chart::Chart;
use crate::operator::{self, Build, Operator, OperatorArgs, Rights};
use crate::process::{Outcome, block_on, cargo, print_line, run_command, succeeds};
use crate::workspace;
use deviations::Deviations;
use schedulers::Scheduler;
use verdicts::{Verdict, Verdicts};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Cluster,
    Job,
    Service,
    Cronjob,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Cluster, Self::Job, Self::Service, Self::Cronjob];

    fn name(self) -> &'static str {
        match self {
            Self::Cluster => "RayCluster",
            Self::Job => "RayJob",
            Self::Service => "RayService",
            Self::Cronjob => "RayCronJob",
        }
    }
}

/// The API server to run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Server {
    /// etcd, kube-apiserver and kube-controller-manager.
    Real,
    /// `manta apiserver`.
    Embedded,
}

impl Server {
    fn start(self, options: Options) -> Result<ControlPlane> {
        match self {
            Self::Real => ControlPlane::start_with(options),
            Self::Embedded => ControlPlane::start_embedded(&operator::built_manta(Build::Debug)?, options),
        }
    }
}

/// Selects recorded cases.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CaseFilter {
    /// Only cases that use no other kinds
    #[arg(long, env = "KINDS", value_enum, value_delimiter = ',', default_values_t = Kind::ALL.to_vec())]
    kinds: Vec<Kind>,
    /// Only cases whose file name contains this
    #[arg(long, env = "ONLY", default_value = "")]
    only: String,
}

impl CaseFilter {
    /// Selects all cases.
    pub(crate) fn all() -> Self {
        Self { kinds: Kind::ALL.to_vec(), only: String::new() }
    }

    fn is_all(&self) -> bool {
        self.only.is_empty() && Kind::ALL.iter().all(|kind| self.kinds.contains(kind))
    }

    /// Returns the selected cases of a directory.
    pub(crate) fn select(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(|| format!("no directory {}", folder.display()))? {
            let file = entry?.path();
            let is_case = file.extension().is_some_and(|extension| extension == "json");
            if is_case && case_name(&file).contains(&self.only) && self.covers(&read_case(&file)?) {
                files.push(file);
            }
        }
        files.sort();
        if files.is_empty() {
            bail!("no case in {} is selected", folder.display());
        }
        Ok(files)
    }

    fn covers(&self, case: &Value) -> bool {
        let used = kinds_in(case);
        Kind::ALL.iter().all(|kind| self.kinds.contains(kind) || !used.contains(kind.name()))
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    operator: OperatorArgs,
    #[command(flatten)]
    filter: CaseFilter,
    /// Directory of recordings: cases, life or schedulers
    #[arg(long, env = "CASES", default_value = "cases")]
    cases: String,
    /// Number of concurrent cases
    #[arg(long, env = "JOBS", default_value_t = 7)]
    jobs: usize,
    /// API server to run on
    #[arg(long, env = "SERVER", value_enum, default_value_t = Server::Real)]
    server: Server,
    /// Give our operator all permissions instead of the chart's
    #[arg(long)]
    all_rights: bool,
    /// Print the differences as entries for the list of deviations
    #[arg(long)]
    as_deviations: bool,
}

/// Replays the cases of `make test`; returns None where they cannot be replayed.
pub(crate) fn run_default() -> Result<Option<Counts>> {
    run_folder("cases", Server::Real)
}

/// Replays the same cases on the embedded server.
pub(crate) fn run_default_embedded() -> Result<Option<Counts>> {
    run_folder("cases", Server::Embedded)
}

/// Replays the cases of batch schedulers.
pub(crate) fn run_schedulers() -> Result<Option<Counts>> {
    run_folder(schedulers::FOLDER, Server::Real)
}

/// Replays whole lives of RayJobs and RayServices with `xtask`, this program; returns None where they cannot be replayed.
pub(crate) fn run_lives(xtask: &Path) -> Result<Option<Counts>> {
    match workspace::recordings() {
        Some(folder) if has_python() && has_namespaces() => {
            run_in_world(&folder, xtask, ["parity", "--cases", LIFE].map(OsString::from)).map(Some)
        }
        _ => Ok(None),
    }
}

fn run_folder(cases: &str, server: Server) -> Result<Option<Counts>> {
    if workspace::recordings().is_none() || !has_python() {
        return Ok(None);
    }
    let args = Args {
        operator: OperatorArgs::ours(),
        filter: CaseFilter::all(),
        cases: cases.to_owned(),
        jobs: 7,
        server,
        all_rights: false,
        as_deviations: false,
    };
    run(&args).map(Some)
}

/// Replays the selected cases; a case passes if its differences are those listed.
pub(crate) fn run(args: &Args) -> Result<Counts> {
    let folder = workspace::recordings().context("no recordings in ../shared/parity")?;
    if args.cases == LIFE && std::env::var_os(INSIDE).is_none() {
        return run_in_world(&folder, &std::env::current_exe()?, std::env::args_os().skip(1));
    }
    let cases = args.filter.select(&folder.join(&args.cases))?;
    // Helm is only used with the real server so far.
    let by_chart = !args.all_rights && args.operator.is_ours() && args.server == Server::Real;
    let rights = if by_chart { Rights::Chart } else { Rights::All };
    let plane = args.server.start(Options { audit: true, rbac: by_chart, ..Options::default() })?;
    block_on(async {
        plane.install_ray_crds().await?;
        plane.install_gateway_crds().await?;
        plane.install_cert_manager_crds().await?;
        plane.install_scheduler_crds().await
    })?;
    let known = Deviations::read(&workspace::root().join("tests/parity/deviations.yaml"))?;
    let (mut verdicts, mut requests) = (Verdicts::default(), Vec::new());
    for (scheduler, cases) in by_scheduler(&args.cases, cases)? {
        let scheduler_name = scheduler.map(Scheduler::name).unwrap_or_default();
        let mut command = args.operator.prepare(&plane, Build::Debug, rights, scheduler_name)?;
        if args.cases == LIFE {
            command.env("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS", "90");
        }
        command.args(scheduler.map(Scheduler::flag));
        let parity = Parity { folder: &folder, kubeconfig: plane.kubeconfig_path(), scheduler };
        let (new_verdicts, new_requests) = replay_all(&plane, &command, &parity, &known, &cases, args.jobs)?;
        verdicts.merge(new_verdicts);
        requests.extend(new_requests);
    }
    if args.as_deviations {
        print_line(&deviations::as_entries(known.unexpected(&verdicts)));
    }
    let mut counts = report(&known, &verdicts);
    if rights == Rights::Chart {
        counts += check_permissions(args, &plane, &requests)?;
    }
    Ok(counts)
}

/// Checks that the chart's permissions sufficed and, after all cases, that none is unused; counts as one more case.
fn check_permissions(args: &Args, plane: &ControlPlane, requests: &[Request]) -> Result<Counts> {
    let all = args.cases == "cases" && args.filter.is_all();
    let granted = if all { Some(Chart::permissions(plane)?) } else { None };
    let unused = permissions::unused_on_purpose(&workspace::root().join("tests/parity/permissions.yaml"))?;
    let complaints = permissions::complaints(requests, granted.as_ref(), &unused);
    complaints.iter().for_each(|line| print_line(&format!("PERMISSIONS {line}")));
    let good = complaints.is_empty();
    if good {
        print_line(if all {
            "permissions: the chart's suffice, and none is unused"
        } else {
            "permissions: the chart's suffice"
        });
    }
    Ok(Counts { passed: good.into(), failed: (!good).into() })
}

/// Groups the cases by batch scheduler, because an operator process supports one.
fn by_scheduler(folder: &str, cases: Vec<PathBuf>) -> Result<Vec<(Option<Scheduler>, Vec<PathBuf>)>> {
    if folder != schedulers::FOLDER {
        return Ok(vec![(None, cases)]);
    }
    let groups = schedulers::group(cases)?;
    Ok(groups.into_iter().map(|(scheduler, cases)| (Some(scheduler), cases)).collect())
}

/// Replays cases against one operator, and unexpected ones again; returns the verdicts and the operator's requests.
fn replay_all(
    plane: &ControlPlane,
    command: &Command,
    parity: &Parity<'_>,
    known: &Deviations,
    cases: &[PathBuf],
    jobs: usize,
) -> Result<(Verdicts, Vec<Request>)> {
    let mut operator = Operator::start(plane, command, "rayclusters")?;
    let mut verdicts = parity.replay(cases, jobs)?;
    for jobs in [2, 1] {
        // On a busy machine a case may be compared before it has settled; fewer concurrent cases give it time.
        let again: BTreeSet<String> = known.unexpected(&verdicts).map(|verdict| verdict.case.clone()).collect();
        if again.is_empty() || operator.process.check().is_err() {
            break;
        }
        print_line(&format!("replaying {} unexpected cases again, {jobs} at a time", again.len()));
        let files: Vec<PathBuf> = cases.iter().filter(|file| again.contains(&case_name(file))).cloned().collect();
        verdicts.merge(parity.replay(&files, jobs)?);
    }
    operator.process.check()?;
    Ok((verdicts, operator.read()?.to_vec()))
}

fn report(known: &Deviations, verdicts: &Verdicts) -> Counts {
    let unexpected: Vec<&Verdict> = known.unexpected(verdicts).collect();
    for verdict in &unexpected {
        print_line(&format!("UNEXPECTED {}", verdict.case));
        known.explain(verdict).iter().for_each(|line| print_line(&format!("    {line}")));
    }
    let counts = Counts { passed: verdicts.len() - unexpected.len(), failed: unexpected.len() };
    let listed = verdicts.iter().filter(|verdict| !verdict.lines.is_empty()).count()
        - unexpected.iter().filter(|v| !v.lines.is_empty()).count();
    print_line(&summary(counts, listed));
    counts
}

/// Set for the run inside the network namespace.
const INSIDE: &str = "MANTA_PARITY_INSIDE";
/// The folder of whole lives.
const LIFE: &str = "life";

/// Runs `xtask`, this program, again inside a network namespace, where names and pod addresses lead to a fake Ray.
fn run_in_world(folder: &Path, xtask: &Path, args: impl IntoIterator<Item = OsString>) -> Result<Counts> {
    // Build and download outside: there is no network inside.
    if let Outcome::Failed(why) = run_command(cargo().args(["build", "--quiet", "--package", "manta"]))? {
        bail!("cannot build manta: {why}");
    }
    ControlPlane::prepare()?;
    manta_testkit::helm_command()?;
    let mut child = Command::new(folder.join("world"))
        .arg(xtask)
        .args(args)
        .env(INSIDE, "true")
        .env("CARGO_NET_OFFLINE", "true")
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start ../shared/parity/world")?;
    let mut counts = None;
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        counts = parse_summary(&line).or(counts);
        print_line(&line);
    }
    let status = child.wait()?;
    counts.with_context(|| format!("no verdict from inside ../shared/parity/world ({status}); it needs unshare and ip"))
}

/// Returns the last line of a run.
fn summary(counts: Counts, listed: usize) -> String {
    let total = counts.passed + counts.failed;
    format!("parity: {} of {total} cases as expected, {listed} of them with listed deviations", counts.passed)
}

/// Parses the counts in a `summary`.
fn parse_summary(line: &str) -> Option<Counts> {
    let mut words = line.strip_prefix("parity: ")?.split(' ');
    let passed = words.next()?.parse().ok()?;
    let total: usize = words.nth(1)?.parse().ok()?;
    Some(Counts { passed, failed: total.checked_sub(passed)? })
}

/// The program that replays and compares.
struct Parity<'a> {
    folder: &'a Path,
    kubeconfig: PathBuf,
    scheduler: Option<Scheduler>,
}

impl Parity<'_> {
    fn replay(&self, cases: &[PathBuf], jobs: usize) -> Result<Verdicts> {
        let mut child = Command::new("python3")
            .arg(self.folder.join("parity"))
            .args(["compare", "--show", "100000", "--jobs", &jobs.to_string(), "--kubeconfig"])
            .arg(&self.kubeconfig)
            .args(cases)
            .env("PYTHONUNBUFFERED", "1")
            .envs(self.scheduler.and_then(Scheduler::variable))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start python3")?;
        let mut verdicts = Verdicts::default();
        for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
            let line = line?;
            verdicts.push_line(&line);
            if !line.starts_with("    ") {
                print_line(&line);
            }
        }
        child.wait()?;
        if verdicts.len() != cases.len() {
            bail!("parity gave a verdict on {} of {} cases", verdicts.len(), cases.len());
        }
        Ok(verdicts)
    }
}

fn has_python() -> bool {
    Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Whether the tools are there that make a network namespace.
fn has_namespaces() -> bool {
    let answers = |program: &str, arg: &str| succeeds(Command::new(program).arg(arg));
    answers("unshare", "--version") && answers("ip", "-Version")
}

/// Reads a recorded case.
pub(crate) fn read_case(file: &Path) -> Result<Value> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", file.display()))
}

/// Returns the file name without its extension.
pub(crate) fn case_name(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the kinds of all objects that a case applies.
fn kinds_in(case: &Value) -> BTreeSet<&str> {
    let in_steps =
        case["steps"].as_array().into_iter().flatten().flat_map(|step| step["docs"].as_array().into_iter().flatten());
    case["docs"].as_array().into_iter().flatten().chain(in_steps).filter_map(|doc| doc["kind"].as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_round_trips() {
        for (passed, failed) in [(0, 1), (101, 0), (7, 3)] {
            let counts = Counts { passed, failed };
            assert_eq!(parse_summary(&summary(counts, 2)), Some(counts));
        }
        assert_eq!(parse_summary("equal  case-a.json: 3/3 objects"), None);
    }

    #[test]
    fn the_kinds_of_later_steps_count_too() {
        let case = serde_json::json!({
            "docs": [{"kind": "RayCluster"}, {"kind": "Secret"}],
            "steps": [{"do": "apply"}, {"do": "apply", "docs": [{"kind": "RayJob"}]}],
        });
        assert_eq!(kinds_in(&case), BTreeSet::from(["RayCluster", "RayJob", "Secret"]));
    }
}
