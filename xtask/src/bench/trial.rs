//! A trial: one operator, or the bare client, on a control plane of its own.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use manta_testkit::audit::Request;
use manta_testkit::{ControlPlane, Kubelet, Options, SERVER_VARIABLE, User};
use serde_json::json;
use tokio::runtime::Runtime;

use super::Settings;
use super::contender::Contender;
use super::floor::{Floor, Template};
use super::measured::{FLOOR, Measured};
use super::objects::NAMESPACE;
use super::{Scenario, Server};
use crate::operator::{Operator, Rights, built_manta, is_work};
use crate::process::print_line;
use crate::usage::{PrivatePeak, Usage, cpu_seconds_of, reset_peak};

/// The node of Pods that endpoints have to lead to.
const NODE: &str = "bench-node";
/// How often a wait looks whether the operator still runs.
const CHECK: Duration = Duration::from_secs(1);

/// A running operator on its control plane; what is further down is stopped later.
pub(super) struct Trial<'a> {
    subject: Subject,
    kubelet: Option<Kubelet>,
    pub(super) client: Client,
    plane: ControlPlane,
    runtime: Runtime,
    command: Command,
    pub(super) settings: &'a Settings,
    pub(super) name: String,
    server: Server,
    round: usize,
}

enum Subject {
    Operator(Operator),
    Floor(Floor),
    Stopped,
}

impl<'a> Trial<'a> {
    /// Starts an operator and a kubelet.
    pub(super) fn of_operator(
        settings: &'a Settings,
        contender: &Contender,
        server: Server,
        round: usize,
    ) -> Result<Self> {
        let mut trial = Self::begin(settings, contender, server, round)?;
        trial.start_operator()?;
        Ok(trial)
    }

    /// Starts the bare client and a kubelet. What it creates is copied from what an operator has created.
    pub(super) fn of_floor(settings: &'a Settings, from: &Contender, server: Server, round: usize) -> Result<Self> {
        let mut trial = Self::of_operator(settings, from, server, round)?;
        trial.name = FLOOR.to_owned();
        let client = trial.client.clone();
        let template = trial.block_on(Template::make(&client, settings.limit()))?;
        trial.stop_operator()?;
        let client = trial.runtime.block_on(trial.plane.client_for(User::Operator))?;
        let _runtime = trial.runtime.enter();
        trial.subject = Subject::Floor(Floor::start(client, template, &trial.plane)?);
        Ok(trial)
    }

    fn begin(settings: &'a Settings, contender: &Contender, server: Server, round: usize) -> Result<Self> {
        print_line(&format!("── {} on {server}", contender.name));
        let options = Options { audit: true, ..Options::default() };
        let plane = match server {
            Server::KubeApiserver => ControlPlane::start_with(options)?,
            Server::Embedded => {
                let given = std::env::var_os(SERVER_VARIABLE).map(PathBuf::from);
                let manta = given.map_or_else(|| built_manta(settings.profile.into()), Ok)?;
                ControlPlane::start_embedded(&manta, options)?
            }
        };
        let server = if plane.is_embedded() { Server::Embedded } else { server };
        let command = contender.operator.prepare(&plane, settings.profile.into(), Rights::All, "")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (client, kubelet) = runtime.block_on(async {
            plane.install_ray_crds().await?;
            let kubelet = Kubelet::start(plane.client_for(User::Kubelet).await?, None);
            anyhow::Ok((plane.client().await?, kubelet))
        })?;
        let name = contender.name.clone();
        let (subject, kubelet) = (Subject::Stopped, Some(kubelet));
        Ok(Self { subject, kubelet, client, plane, runtime, command, settings, name, server, round })
    }

    /// Runs a future beside the kubelet and the bare client, which it leaves running. Fails if the operator exits meanwhile.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(async {
            tokio::select! {
                done = future => done,
                exit = self.operator_exit() => Err(exit),
            }
        })
    }

    /// Waits until the operator exits by itself, and returns the end of its log. The bare client never does.
    async fn operator_exit(&self) -> anyhow::Error {
        let Subject::Operator(operator) = &self.subject else { return std::future::pending().await };
        while operator.process.is_running() {
            tokio::time::sleep(CHECK).await;
        }
        anyhow!("{} exited; the end of its log:\n{}", self.name, operator.process.log_tail(15))
    }

    /// Returns an empty record of this trial.
    pub(super) fn measured(&self, scenario: Scenario, size: usize) -> Measured {
        Measured::new(scenario, size, &self.server.to_string(), &self.name, self.round)
    }

    /// Starts the operator and waits until it watches. Returns when its process was started.
    pub(super) fn start_operator(&mut self) -> Result<Instant> {
        let operator = Operator::start(&self.plane, &self.command, "rayclusters")?;
        let started = operator.started;
        self.subject = Subject::Operator(operator);
        Ok(started)
    }

    /// Stops the operator; reports it when that fails.
    pub(super) fn stop_operator(&mut self) -> Result<()> {
        if let Subject::Operator(operator) = std::mem::replace(&mut self.subject, Subject::Stopped) {
            let status = operator.process.terminate(Duration::from_secs(30))?;
            if !status.success() {
                print_line(&format!("{} exited with {status} after SIGTERM", self.name));
            }
        }
        Ok(())
    }

    /// Lets the kubelet bind Pods to a node from now on, which the endpoint controllers require.
    pub(super) fn put_pods_on_a_node(&mut self) -> Result<()> {
        let client = self.block_on(async {
            let node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
            Api::<Node>::all(self.client.clone()).create(&PostParams::default(), &node).await?;
            self.plane.client_for(User::Kubelet).await
        })?;
        let _runtime = self.runtime.enter();
        self.kubelet = Some(Kubelet::start_on_node(client, NAMESPACE, NODE));
        Ok(())
    }

    /// Stops the kubelet: from now on, only the scenario changes Pods.
    pub(super) fn stop_kubelet(&mut self) {
        self.kubelet = None;
    }

    /// Returns the operator's use of CPU and memory; the bare client shares this process and has none of its own.
    pub(super) fn usage(&self) -> Result<Option<Usage>> {
        match &self.subject {
            Subject::Operator(operator) => Usage::of(operator.process.pid()).context("the operator exited").map(Some),
            Subject::Floor(_) | Subject::Stopped => Ok(None),
        }
    }

    /// Returns the operator's CPU time, without looking at its memory: that holds the process up.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        let Subject::Operator(operator) = &self.subject else { bail!("no operator runs") };
        cpu_seconds_of(operator.process.pid()).context("the operator exited")
    }

    /// Follows the operator's peak of memory from now on.
    pub(super) fn follow_peak(&self) -> Result<Option<PrivatePeak>> {
        match &self.subject {
            Subject::Operator(operator) => {
                reset_peak(operator.process.pid())?;
                Ok(Some(PrivatePeak::follow(operator.process.pid())))
            }
            Subject::Floor(_) | Subject::Stopped => Ok(None),
        }
    }

    /// Reads the requests since the operator was started.
    pub(super) fn requests(&mut self) -> Result<&[Request]> {
        match &mut self.subject {
            Subject::Operator(operator) => {
                operator.process.check()?;
                operator.read()
            }
            Subject::Floor(floor) => floor.requests(),
            Subject::Stopped => Ok(&[]),
        }
    }

    /// Waits until it has sent no request for a while.
    pub(super) fn settle(&mut self) -> Result<()> {
        let limit = self.settings.limit();
        let start = Instant::now();
        let (mut count, mut since) = (usize::MAX, start);
        while since.elapsed() < self.settings.quiet() {
            let now = self.requests()?.iter().filter(|request| is_work(request)).count();
            if now != count {
                (count, since) = (now, Instant::now());
            }
            if start.elapsed() > limit {
                bail!("{} still sends requests after {} s", self.name, limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// Returns the rest of the requests, from an index on.
pub(super) fn from(requests: &[Request], index: usize) -> &[Request] {
    requests.get(index..).unwrap_or_default()
}
