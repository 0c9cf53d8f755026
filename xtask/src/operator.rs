//! Starts an operator, ours or another, and waits until it watches.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use manta_testkit::audit::{AuditLog, Request};
use manta_testkit::{ControlPlane, Supervised, User};

use crate::chart::Chart;
use crate::process::{Outcome, cargo, run_command};
use crate::workspace;

/// The feature gates of the recordings: KubeRay's defaults, with four alpha features on.
const FEATURE_GATES: &str = "AllAlpha=false,RayCronJob=true,RayClusterNetworkPolicy=true,\
    GCSFaultToleranceEmbeddedStorage=true,RayClusterMTLS=true";

/// Selects the operator to run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OperatorArgs {
    /// Command line of the operator, with `{kubeconfig}` as placeholder [default: this workspace's `manta operator`]
    #[arg(long, env = "OPERATOR", value_name = "COMMAND")]
    operator: Option<String>,
}

/// The permissions of our own operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything.
    All,
    /// Those of the chart's service account, on a server with RBAC.
    Chart,
}

/// The build profile of our own operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    Debug,
    Release,
    /// Optimized, but linked in seconds instead of minutes.
    Sim,
}

impl Build {
    /// Returns the name of the profile's directory, and cargo's arguments for it.
    const fn profile(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Debug => ("debug", &[]),
            Self::Release => ("release", &["--release"]),
            Self::Sim => ("sim", &["--profile", "sim"]),
        }
    }
}

impl OperatorArgs {
    /// Selects our own operator.
    pub(crate) const fn ours() -> Self {
        Self { operator: None }
    }

    /// Selects the operator with this command line.
    pub(crate) const fn with_command(line: String) -> Self {
        Self { operator: Some(line) }
    }

    pub(crate) const fn is_ours(&self) -> bool {
        self.operator.is_none()
    }

    /// Returns the command; builds our own operator first. The chart is installed with the batch scheduler, if any.
    pub(crate) fn prepare(
        &self,
        plane: &ControlPlane,
        build: Build,
        rights: Rights,
        scheduler: &str,
    ) -> Result<Command> {
        let kubeconfig = plane.kubeconfig_path_for(User::Operator);
        let Some(line) = &self.operator else {
            let gates = format!("--feature-gates={FEATURE_GATES}");
            return match rights {
                Rights::All => our_command(&kubeconfig, &[gates], build),
                Rights::Chart => {
                    let chart = Chart::install(plane, FEATURE_GATES, scheduler)?;
                    our_command(&chart.kubeconfig, &chart.arguments, build)
                }
            };
        };
        let mut words = line.split_whitespace().map(|word| word.replace("{kubeconfig}", &kubeconfig.to_string_lossy()));
        let mut command = Command::new(words.next().context("the operator's command line is empty")?);
        command.args(words).env("KUBECONFIG", &kubeconfig);
        Ok(command)
    }
}

fn our_command(kubeconfig: &Path, arguments: &[String], build: Build) -> Result<Command> {
    let mut command = built_operator(build)?;
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(arguments);
    // Several operators run concurrently and their requests are counted: no ports, and no Lease to renew.
    command.args(["--metrics-addr=0", "--health-probe-bind-address=0", "--enable-leader-election=false"]);
    Ok(command)
}

/// Builds our operator and returns its command: the program of its own, as in the image. Debug builds are for tests, which
/// run all of `manta`.
pub(crate) fn built_operator(build: Build) -> Result<Command> {
    if build != Build::Debug {
        return Ok(Command::new(built("manta-operator", build)?));
    }
    let mut command = Command::new(built_manta(build)?);
    command.arg("operator");
    Ok(command)
}

/// Builds `manta` and returns its path.
pub(crate) fn built_manta(build: Build) -> Result<PathBuf> {
    built("manta", build)
}

fn built(program: &str, build: Build) -> Result<PathBuf> {
    let (folder, profile) = build.profile();
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--package", program]).args(profile);
    if let Outcome::Failed(why) = run_command(&mut cargo)? {
        bail!("cannot build {program}: {why}");
    }
    Ok(workspace::target_folder()?.with_file_name(folder).join(program))
}

/// Whether a request is not about the leader election Lease, which is renewed for ever.
pub(crate) fn is_work(request: &Request) -> bool {
    request.object_ref.resource != "leases"
}

/// A running operator and its requests to the server.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) process: Supervised,
    /// When the process was started.
    pub(crate) started: Instant,
    log: AuditLog,
    /// Every request so far.
    pub(crate) requests: Vec<Request>,
}

impl Operator {
    /// Starts the operator and waits until it watches the resource; the control plane needs an audit log.
    pub(crate) fn start(plane: &ControlPlane, command: &Command, resource: &str) -> Result<Self> {
        let mut log = AuditLog::open(&plane.audit_log_path())?;
        // Takes seconds on a server that has been used.
        log.new_requests()?;
        let started = Instant::now();
        let process = Supervised::start(plane.folder(), "operator", command)?;
        let mut operator = Self { process, started, log, requests: Vec::new() };
        let end = Instant::now() + Duration::from_secs(120);
        while !operator.read()?.iter().any(|request| request.verb == "watch" && request.object_ref.resource == resource)
        {
            operator.process.check()?;
            if Instant::now() > end {
                bail!(
                    "the operator does not watch {resource} after 120 s; the end of its log:\n{}",
                    operator.process.log_tail(15)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(operator)
    }

    /// Reads new requests and returns all of them.
    pub(crate) fn read(&mut self) -> Result<&[Request]> {
        self.requests.extend(self.log.new_requests()?);
        Ok(&self.requests)
    }

    /// Waits until it has sent no request for this long; fails after `limit`.
    pub(crate) fn wait_quiet(&mut self, quiet: Duration, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let (mut seen, mut since) = (usize::MAX, start);
        loop {
            let count = self.read()?.iter().filter(|request| is_work(request)).count();
            if count != seen {
                (seen, since) = (count, Instant::now());
            }
            self.process.check()?;
            if since.elapsed() >= quiet {
                return Ok(());
            }
            if start.elapsed() > limit {
                bail!("the operator still sends requests after {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
