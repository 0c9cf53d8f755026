//! Local mode: API server, operator and node agent in one process.
//!
//! ```text
//!   kubectl ─▶ 127.0.0.1 ─┐
//!   pods ─▶ 10.96.0.1:443 ─┴▶ API server ◀─ in process ─ operator, agent ─▶ pods
//! ```

mod apply;
mod backend;
mod engine_image;
mod expose;
mod identity;
mod images;
mod install_bar;
mod internet;
mod job_output;
mod options;
mod progress;
mod review;
mod shared_network;
mod summary;

use crate::connect::Target;
use crate::output::{StatusLine, print_error, print_line, print_note};
use crate::signals::StopSignals;
use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use manta_agent::images::Catalog;
use manta_agent::network::loopback::{Access, Users};
use manta_agent::runtime::isolation::{Isolation, IsolationError, Spawners, enter_namespaces_or_share_host};
use manta_agent::runtime::{IsolatedProcess, Spawner, lock};
use manta_agent::shared_host::SharedHost;
use manta_agent::{Agent, clean_leftovers, network};
use manta_api::crd;
use manta_apiserver::Server;
use manta_operator::metrics::Telemetry;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use apply::{Manifest, apply_all, apply_text};
pub(crate) use expose::{Address, addresses, expose_dashboards};
pub(crate) use images::{Found, RAY_VERSION, find_ray};
pub(crate) use install_bar::show as show_installation;
pub(crate) use internet::{no_internet, not_downloadable};
pub(crate) use job_output::{keep as keep_job_output, kept as kept_job_output};
pub(crate) use options::{LocalArgs, Options, StateArgs};
pub(crate) use progress::{KINDS, describe_event, involved, is_warning, print_changes, ray_resource};
pub(crate) use summary::{Application, applications, summarise, summarise_pod};

/// The file in the state directory with the address of the page.
const PAGE: &str = "page";
/// How long to wait for a CRD to be served; generous, because the machine may be busy.
const CRD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the agent and the operator may take to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// A running local mode.
pub(crate) struct Local {
    pub(crate) client: Client,
    /// Opens ports and runs commands in the machine's own namespaces.
    pub(crate) machine: Spawner,
    pub(crate) state: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    /// Maps images to local environments.
    pub(crate) catalog: Catalog,
    /// Whether every pod has a network namespace of its own.
    pub(crate) has_pod_networks: bool,
    /// Who may use the ports of dashboards and Serve.
    access: Arc<Access>,
    /// What the operator reports, if it runs in this process.
    pub(crate) operator: Option<Telemetry>,
    /// Cancelled when the user asks to stop.
    pub(crate) stop: CancellationToken,
    server: Server,
    /// Agent and operator; `inner` stops them.
    tasks: JoinSet<()>,
    inner: CancellationToken,
}

/// Starts local mode, runs `main` with it, then stops everything.
pub(crate) fn run<F, R>(options: Options, main: F) -> anyhow::Result<ExitCode>
where
    F: FnOnce(Local) -> R,
    R: Future<Output = (Local, anyhow::Result<ExitCode>)>,
{
    // Taken outside of the PID namespace, so that the file holds the pid that `manta down` can signal.
    let (held, crashed) = lock::take(&options.state)?;
    options.internet.remember(&options.state)?;
    let leftovers = clean_leftovers(&options.state);
    let state = options.state.clone();
    let code = enter_namespaces_or_share_host(move |world, reduced| {
        let leftovers = leftovers.or_else(|| crashed.map(|pid| format!("an earlier run (process {pid}) was killed")));
        match in_world(world, reduced, options, leftovers, main) {
            Ok(code) => code,
            Err(error) => {
                print_error(&error);
                1
            }
        }
    })?;
    // The namespaces and all their processes are gone, so nothing holds on to the leftovers.
    clean_leftovers(&state);
    lock::release(&state, held);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Returns a client of the local mode that runs in a state directory.
pub(crate) async fn client_of(state: &std::path::Path) -> anyhow::Result<Client> {
    let kubeconfig = state.join("kubeconfig");
    let file = Kubeconfig::read_from(&kubeconfig)
        .with_context(|| format!("cannot read {}; local mode may still be starting", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Returns the process that runs local mode in a state directory, if any.
pub(crate) fn running_pid(state: &std::path::Path) -> anyhow::Result<Option<u32>> {
    let exists = state.join("lock").try_exists();
    if !exists.with_context(|| {
        format!("cannot use the state directory {}; choose one of your own with --state", state.display())
    })? {
        return Ok(None);
    }
    let owner = lock::owner(state)?;
    owner.map(|pid| pid.parse().context("the lock file holds no process id")).transpose()
}

fn in_world<F, R>(
    world: IsolatedProcess,
    reduced: Option<IsolationError>,
    options: Options,
    leftovers: Option<String>,
    main: F,
) -> anyhow::Result<i32>
where
    F: FnOnce(Local) -> R,
    R: Future<Output = (Local, anyhow::Result<ExitCode>)>,
{
    options.start_logging();
    // An interrupt may end an installation anywhere.
    let _progress = StatusLine::until_dropped();
    if let Some(leftovers) = leftovers {
        print_line(&leftovers);
    }
    match reduced {
        None => {
            network::prepare_node_network().context("cannot set up the pod network")?;
            network::use_own_resolver(&options.state).context("cannot set up the resolver")?;
        }
        // Not logged: commands that log errors only must show it too.
        Some(why) => print_note(&reduced_isolation(&why)),
    }
    manta_heap::keep_small();
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

/// Returns the warning that pods are not isolated from the machine, and why.
fn reduced_isolation(why: &IsolationError) -> String {
    format!(
        "warning: REDUCED ISOLATION: {why}. Until that is fixed, all pods share this machine's network and files: Ray \
         listens on all interfaces, only one Ray cluster can run at a time, and the autoscaler does not run"
    )
}

async fn start(world: IsolatedProcess, options: &Options) -> anyhow::Result<Local> {
    let has_pod_networks = world.isolation != Isolation::None;
    let Spawners { containers, host: machine, stop: outer } =
        world.connect().context("cannot connect to the namespaces' init process")?;
    let stop = CancellationToken::new();
    let inner = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(stop_on_signal(StopSignals::listen()?, outer, stop.clone(), inner.clone()));

    let done = inner.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = manta_heap::keep_releasing() => {}
            () = done.cancelled() => {}
        }
    });
    let access = Arc::new(port_access(&machine, options).await?);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listener = machine.listen(address).await.with_context(|| {
        format!(
            "port {} of this machine is in use: choose another with --port, or a free one with --port 0",
            options.port
        )
    })?;
    let reviewer = options.has_operator.then(|| options.operator_settings(has_pod_networks)).transpose()?;
    let server = Server::start(manta_apiserver::Options {
        data: options.data.clone(),
        reviewer: reviewer.map(|settings| review::reviewer(settings.config)),
        admit_service_accounts: true,
        rbac: true,
        volumes: Some(options.state.join("claims")),
        ..manta_apiserver::Options::default()
    })
    .await
    .context("cannot start the API server")?;
    let address = server.listen(listener).context("cannot serve the API")?;
    if has_pod_networks {
        let inside = TcpListener::bind((network::API_SERVER, 443)).context("cannot serve the API to pods")?;
        server.listen(inside).context("cannot serve the API to pods")?;
    }
    let kubeconfig = options.state.join("kubeconfig");
    write_private(&kubeconfig, &server.kubeconfig(&format!("https://{address}")))
        .with_context(|| format!("cannot write {}", kubeconfig.display()))?;

    let client = server.client();
    install_crds(&client).await.context("cannot install the Ray CRDs")?;
    identity::grant_roles(&client).await?;
    let shared_host = (!has_pod_networks).then_some(SharedHost { api: address, adapt: shared_network::adapt });
    let config = options.agent_config(server.identity().ca_pem.clone(), shared_host);
    if has_pod_networks {
        internet::unusable(&config.internet).iter().for_each(|why| tracing::warn!("{why}"));
    }
    let (agent_tx, agent_rx) = tokio::sync::oneshot::channel();
    let agent_client = server.client_as(identity::agent());
    let agent = Agent::run(config, agent_client, containers, machine.clone(), inner.clone(), |agent| {
        let _ = agent_tx.send(agent);
    });
    let stop_all = stop.clone();
    tasks.spawn(async move {
        if let Err(error) = agent.await {
            print_error(&anyhow::Error::new(error));
            stop_all.cancel();
        }
    });
    let agent = agent_rx.await.context("the node agent did not start")?;
    server.set_node(backend::node_backend(agent));

    if has_pod_networks && !options.internet.allowed {
        let client = client.clone();
        let done = inner.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = internet::warn(client) => {}
                () = done.cancelled() => {}
            }
        });
    }

    let mut operator = None;
    if options.has_operator {
        let mut settings = options.operator_settings(has_pod_networks)?;
        let operator_client = server.client_as(identity::operator());
        settings.config.platform = manta_operator::platform::detect(&operator_client)
            .await
            .context("cannot discover the APIs of the API server")?;
        let telemetry = Telemetry::default();
        operator = Some(telemetry.clone());
        tasks.spawn(manta_operator::run_with_telemetry(operator_client, settings, telemetry, inner.clone()));
    }
    Ok(Local {
        client,
        machine,
        state: options.state.clone(),
        kubeconfig,
        catalog: options.catalog.clone(),
        has_pod_networks,
        access,
        operator,
        stop,
        server,
        tasks,
        inner,
    })
}

/// Returns who may use the ports of dashboards and Serve; opens what is needed to know who connects.
async fn port_access(machine: &Spawner, options: &Options) -> anyhow::Result<Access> {
    let guard = options.guard.clone();
    let connections = match guard.users {
        Users::All => None,
        Users::Only(_) => Some(machine.connection_table().await.context(
            "cannot open the machine's table of TCP connections, which shows who uses a port; --allow-user all does \
             without it",
        )?),
    };
    Ok(Access { guard, connections })
}

impl Local {
    /// Returns the API server with the rights of the kubeconfig, at an address that this process reaches: with pod
    /// networks, it does not see the machine's own loopback.
    pub(crate) async fn target(&self) -> anyhow::Result<Target> {
        let kubeconfig = match self.has_pod_networks {
            true => Kubeconfig::from_yaml(&self.server.kubeconfig(&format!("https://{}", network::API_SERVER)))?,
            false => Kubeconfig::read_from(&self.kubeconfig)?,
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Target {
            namespace: config.default_namespace.clone(),
            context: Some("local mode".to_owned()),
            url: config.cluster_url.to_string(),
            client: Client::try_from(config).context("cannot use the kubeconfig of local mode")?,
        })
    }

    /// Returns who may use the ports of this machine, and under which names.
    pub(crate) fn port_access(&self) -> Arc<Access> {
        Arc::clone(&self.access)
    }

    /// Stops agent and operator, then the API server.
    async fn stop(mut self) {
        self.inner.cancel();
        let all_tasks = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all_tasks).await.is_err() {
            tracing::warn!(timeout = ?SHUTDOWN_TIMEOUT, "some tasks did not stop in time; exiting anyway");
        }
        self.server.stop().await;
    }
}

async fn install_crds(client: &Client) -> anyhow::Result<()> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::api::{Patch, PatchParams};
    use kube::runtime::wait::{await_condition, conditions};
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crd::with_descriptions() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        api.patch(&name, &PatchParams::apply("manta").force(), &Patch::Apply(&crd)).await?;
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(CRD_TIMEOUT, established)
            .await
            .with_context(|| format!("the CRD {name} was not established within {} s", CRD_TIMEOUT.as_secs()))??;
    }
    Ok(())
}

/// Starts a graceful stop on the first signal; the outer process kills everything on further ones.
async fn stop_on_signal(
    mut signals: StopSignals,
    mut outer: tokio::sync::mpsc::UnboundedReceiver<i32>,
    stop: CancellationToken,
    inner: CancellationToken,
) {
    tokio::select! {
        () = signals.recv() => {}
        _ = outer.recv() => {}
        () = inner.cancelled() => return,
    }
    stop.cancel();
}

/// Keeps the address of the page, with its secret, beside the kubeconfig, which gives the same rights.
pub(crate) fn remember_page(kubeconfig: &Path, url: &str) -> anyhow::Result<()> {
    let file = kubeconfig.with_file_name(PAGE);
    write_private(&file, url).with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the address of the page that the running local mode serves.
pub(crate) fn page_of_running() -> anyhow::Result<String> {
    let file = StateArgs::from_environment().kubeconfig_of_running()?.with_file_name(PAGE);
    std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}; local mode may still be starting", file.display()))
}

fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
