//! Local mode: API server, operator and node agent in one world, in one process.
//!
//! ```text
//!   kubectl ─▶ 127.0.0.1 ─┐
//!   pods ─▶ 10.96.0.1:443 ─┴▶ API server ◀─ in process ─ operator, agent ─▶ pods
//! ```

mod apply;
mod backend;
mod expose;
mod images;
mod narrate;
mod neighbours;
mod options;

use crate::output::say;
use anyhow::Context;
use kube::{Api, Client};
use manta_agent::images::Catalog;
use manta_agent::runtime::isolation::{Isolation, IsolationError, Spawners, enter_namespaces_or_share_host};
use manta_agent::runtime::{IsolatedProcess, Spawner, lock};
use manta_agent::shared_host::SharedHost;
use manta_agent::{Agent, clean_leftovers, network};
use manta_api::crd::{self, Versions};
use manta_apiserver::Server;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use apply::{apply_files, apply_text};
pub(crate) use expose::expose_dashboards;
pub(crate) use images::{Found, RAY_VERSION, find_ray};
pub(crate) use narrate::{KINDS, narrate, ray, summarise, summarise_pod};
pub(crate) use options::{LocalArgs, Options, StateArgs};

/// A running local mode.
pub(crate) struct Local {
    pub(crate) client: Client,
    /// Opens ports and runs commands on the machine itself.
    pub(crate) machine: Spawner,
    pub(crate) kubeconfig: PathBuf,
    /// Which images run in what.
    pub(crate) catalog: Catalog,
    /// Whether pods have networks of their own.
    pub(crate) is_apart: bool,
    /// Cancelled when the user wants it to end.
    pub(crate) stop: CancellationToken,
    server: Server,
    /// Agent and operator; they end with `inner`.
    tasks: JoinSet<()>,
    inner: CancellationToken,
}

/// Runs `main` with a local mode around it, then takes everything down again.
pub(crate) fn run<F, R>(options: Options, main: F) -> anyhow::Result<ExitCode>
where
    F: FnOnce(Local) -> R,
    R: Future<Output = (Local, anyhow::Result<ExitCode>)>,
{
    // Here, outside the world, so that the number in the file is the one that `manta down` can signal.
    let (held, before) = lock::take(&options.state)?;
    let found = clean_leftovers(&options.state);
    let state = options.state.clone();
    let code = enter_namespaces_or_share_host(move |world, reduced| {
        let told =
            || found.or_else(|| before.map(|pid| format!("an earlier run (process {pid}) did not end in order")));
        match in_world(world, reduced, options, told(), main) {
            Ok(code) => code,
            Err(error) => {
                tracing::error!("{error:#}");
                1
            }
        }
    })?;
    // The world is gone with all its processes, so nothing holds on to what it left.
    clean_leftovers(&state);
    lock::release(&state, held);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// The process that runs local mode in a state folder, if one does.
pub(crate) fn owner(state: &std::path::Path) -> anyhow::Result<Option<u32>> {
    if !state.join("lock").exists() {
        return Ok(None);
    }
    match lock::take(state) {
        Ok((held, before)) => {
            // It was free: leave what an owner may have left for the next start to report.
            let text = before.map(|pid| pid.to_string()).unwrap_or_default();
            std::fs::write(state.join("lock"), text)?;
            drop(held);
            Ok(None)
        }
        Err(lock::LockError::Held { pid, .. }) => Ok(Some(pid.parse().context("the lock file names no process")?)),
        Err(error) => Err(error.into()),
    }
}

fn in_world<F, R>(
    world: IsolatedProcess,
    reduced: Option<IsolationError>,
    options: Options,
    found: Option<String>,
    main: F,
) -> anyhow::Result<i32>
where
    F: FnOnce(Local) -> R,
    R: Future<Output = (Local, anyhow::Result<ExitCode>)>,
{
    options.start_logging();
    if let Some(found) = found {
        say(&found);
    }
    match reduced {
        None => {
            network::prepare_node_network().context("cannot set up the pod network")?;
            network::use_own_resolver(&options.state).context("cannot set up the resolver")?;
        }
        Some(why) => say_reduced(&why),
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let local = start(world, &options).await?;
        let (local, result) = main(local).await;
        local.stop().await;
        match result {
            Ok(code) => Ok(i32::from(code != ExitCode::SUCCESS)),
            Err(error) => Err(error),
        }
    })
}

/// The one line that must not be missed.
fn say_reduced(why: &IsolationError) {
    tracing::warn!(
        "REDUCED ISOLATION: {why}. Until then all pods share this machine's network and files: Ray listens on all \
         interfaces, one Ray cluster fits at a time, and there is no autoscaler"
    );
}

async fn start(world: IsolatedProcess, options: &Options) -> anyhow::Result<Local> {
    let is_apart = world.isolation != Isolation::None;
    let Spawners { containers, host: machine, stop: signals } = world.connect().context("cannot use the world")?;
    let stop = CancellationToken::new();
    let inner = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(stop_on_signal(signals, stop.clone(), inner.clone()));

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listener = machine.listen(address).await.with_context(|| {
        format!(
            "port {} of this machine is taken: choose another with --port, or any free one with --port 0",
            options.port
        )
    })?;
    let server = Server::start(manta_apiserver::Options {
        data: options.data.clone(),
        admit_service_accounts: true,
        volumes: Some(options.state.join("claims")),
        ..manta_apiserver::Options::default()
    })
    .await
    .context("cannot start the API server")?;
    let address = server.listen(listener).context("cannot serve the API")?;
    if is_apart {
        let inside = TcpListener::bind((network::API_SERVER, 443)).context("cannot serve the API to pods")?;
        server.listen(inside).context("cannot serve the API to pods")?;
    }
    let kubeconfig = options.state.join("kubeconfig");
    write_private(&kubeconfig, &server.kubeconfig(&format!("https://{address}")))
        .with_context(|| format!("cannot write {}", kubeconfig.display()))?;

    let client = server.client();
    install_crds(&client).await.context("cannot install the Ray CRDs")?;
    let shared_host = (!is_apart).then_some(SharedHost { api: address, adapt: neighbours::adapt });
    let config = options.agent_config(server.identity().ca_pem.clone(), shared_host);
    let (tell, told) = tokio::sync::oneshot::channel();
    let agent = Agent::run(config, client.clone(), containers, machine.clone(), inner.clone(), |agent| {
        let _ = tell.send(agent);
    });
    let over = stop.clone();
    tasks.spawn(async move {
        if let Err(error) = agent.await {
            tracing::error!("{:#}", anyhow::Error::new(error));
            over.cancel();
        }
    });
    let agent = told.await.context("the node agent did not start")?;
    server.set_node(backend::node_backend(agent));

    let mut settings = options.operator_settings(is_apart)?;
    settings.config.platform =
        manta_operator::platform::detect(&client).await.context("cannot ask the API server what it offers")?;
    tasks.spawn(manta_operator::run(client.clone(), settings, inner.clone()));
    Ok(Local { client, machine, kubeconfig, catalog: options.catalog.clone(), is_apart, stop, server, tasks, inner })
}

impl Local {
    /// Ends pods, operator and API server, in this order.
    async fn stop(mut self) {
        self.inner.cancel();
        let patience = Duration::from_secs(20);
        let ending = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, ending).await.is_err() {
            tracing::warn!("some parts did not end within {} s; they end with the process", patience.as_secs());
        }
        self.server.stop().await;
    }
}

/// A busy machine may be slow; a broken one must not wait for ever.
const PATIENCE: Duration = Duration::from_secs(60);

async fn install_crds(client: &Client) -> anyhow::Result<()> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::api::{Patch, PatchParams};
    use kube::runtime::wait::{await_condition, conditions};
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crd::all(Versions::V1) {
        let name = crd.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &PatchParams::apply("manta").force(), &Patch::Apply(&crd)).await?;
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established)
            .await
            .with_context(|| format!("the CRD {name} is not served"))??;
    }
    Ok(())
}

/// The first request to stop is polite to everything; the outer process counts and ends it by force.
async fn stop_on_signal(
    mut signals: tokio::sync::mpsc::UnboundedReceiver<i32>,
    stop: CancellationToken,
    inner: CancellationToken,
) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = signals.recv() => {}
        () = inner.cancelled() => return,
    }
    stop.cancel();
}

fn write_private(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
