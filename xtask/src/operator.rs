//! Starting an operator, ours or another, and knowing when it watches.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use manta_testkit::audit::{AuditLog, Request};
use manta_testkit::{ControlPlane, Supervised, User};

use crate::chart::Chart;
use crate::process::{Outcome, cargo, passes};
use crate::workspace;

/// The gates with which the recordings were made: those of KubeRay, whose alpha features are off, and four of these on.
const FEATURE_GATES: &str = "AllAlpha=false,RayCronJob=true,RayClusterNetworkPolicy=true,\
    GCSFaultToleranceEmbeddedStorage=true,RayClusterMTLS=true";

/// How an operator is started.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct OperatorArgs {
    /// The operator's command line; `{kubeconfig}` stands for the file. Default: `manta operator` of this workspace.
    #[arg(long, env = "OPERATOR", value_name = "COMMAND")]
    operator: Option<String>,
}

/// What our own operator may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Everything.
    All,
    /// What the chart gives its service account, on a server that authorises by RBAC.
    Chart,
}

/// Which build of our own operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    Debug,
    Release,
}

impl OperatorArgs {
    /// Ours.
    pub(crate) const fn ours() -> Self {
        Self { operator: None }
    }

    pub(crate) const fn is_ours(&self) -> bool {
        self.operator.is_none()
    }

    /// The command, with our own operator built first if it is that one. The chart is told the batch scheduler, if any.
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
    let mut command = Command::new(built_manta(build)?);
    command.arg("operator").arg("--kubeconfig").arg(kubeconfig);
    command.args(arguments);
    // Several run side by side, and what they ask the server is counted: no ports, and no Lease to renew.
    command.args(["--metrics-addr=0", "--health-probe-bind-address=0", "--enable-leader-election=false"]);
    Ok(command)
}

/// Builds `manta`; where it is.
pub(crate) fn built_manta(build: Build) -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--package", "manta"]);
    let mut folder = workspace::target_folder()?;
    if build == Build::Release {
        cargo.arg("--release");
        folder = folder.with_file_name("release");
    }
    if let Outcome::Failed(why) = passes(&mut cargo)? {
        bail!("manta does not build: {why}");
    }
    Ok(folder.join("manta"))
}

/// Whether a request is about more than who leads, which goes on for ever.
pub(crate) fn is_work(request: &Request) -> bool {
    request.object_ref.resource != "leases"
}

/// A running operator with what it asks of the server.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) process: Supervised,
    log: AuditLog,
    /// Every request so far.
    pub(crate) requests: Vec<Request>,
}

impl Operator {
    /// Starts it and waits until it watches the given resource; the control plane must have an audit log.
    pub(crate) fn start(plane: &ControlPlane, command: &Command, resource: &str) -> Result<Self> {
        let mut log = AuditLog::open(&plane.audit_log_path())?;
        log.new_requests()?;
        let process = Supervised::start(plane.folder(), "operator", command)?;
        let mut operator = Self { process, log, requests: Vec::new() };
        let end = Instant::now() + Duration::from_secs(120);
        while !operator.read()?.iter().any(|request| request.verb == "watch" && request.object_ref.resource == resource)
        {
            operator.process.check()?;
            if Instant::now() > end {
                bail!(
                    "the operator does not watch {resource} after 120 s; its log ends:\n{}",
                    operator.process.log_tail(15)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(operator)
    }

    /// All requests so far, the newest included.
    pub(crate) fn read(&mut self) -> Result<&[Request]> {
        self.requests.extend(self.log.new_requests()?);
        Ok(&self.requests)
    }

    /// Waits until it has asked nothing for this long; gives up after `limit`.
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
                bail!("the operator still asks the server after {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
