//! The operator beside programs of other projects, on a real control plane. `make test-neighbours` runs these tests.

#![allow(clippy::unwrap_used)]

mod cert_manager;
#[allow(dead_code, reason = "not every test needs all of it")]
#[path = "../fake_ray/mod.rs"]
mod fake_ray;
#[allow(dead_code, reason = "not every test needs all of it")]
#[path = "../harness/mod.rs"]
mod harness;
mod prometheus;

use anyhow::Result;
use harness::Harness;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use manta_operator::args::Arguments;
use manta_operator::process::{self, ProcessError};
use manta_testkit::{ControlPlane, within};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The whole process of an operator, for the namespace of a harness.
struct Operator {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ProcessError>>,
}

impl Operator {
    /// Starts it with these flags beside the ones that every test needs.
    fn start(harness: &Harness, config: Config, flags: &[String]) -> Result<Self> {
        let namespace = &harness.namespace;
        let mut line = flags.to_vec();
        line.push(format!("--watch-namespace={namespace}"));
        line.push(format!("--leader-election-namespace={namespace}"));
        line.push("--health-probe-bind-address=0".to_owned());
        let webhooks = line.iter().any(|flag| flag.starts_with("--webhook-"));
        let env = |name: &str| (name == "ENABLE_WEBHOOKS" && webhooks).then(|| "true".to_owned());
        let arguments = Arguments::read(line, env, |_| Err(String::new()))?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(process::run(config, arguments.settings, arguments.process, stop.clone()));
        Ok(Self { stop, task })
    }

    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(within("the end of the operator", self.task).await???)
    }
}

/// Returns the administrator's configuration of the shared control plane.
async fn admin() -> Result<Config> {
    let file = Kubeconfig::read_from(ControlPlane::shared().kubeconfig_path())?;
    Ok(Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

/// Returns an address on loopback that was free a moment ago.
async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?)
}
