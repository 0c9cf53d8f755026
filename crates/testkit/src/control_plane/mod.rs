//! A real etcd, kube-apiserver and kube-controller-manager on loopback, stopped when the value is dropped.
//!
//! There is no scheduler and no kubelet: pods stay as created unless a test or [`crate::Kubelet`] changes them. Tests
//! share one server ([`ControlPlane::shared`]), each in a namespace of its own. A test that runs an operator for all
//! namespaces, or needs other flags, starts its own server ([`ControlPlane::start`]).

mod binaries;
mod certificates;
mod crds;
mod daemons;
mod embedded;
mod ledger;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::Supervised;
use binaries::Binaries;
use daemons::Daemons;

pub(crate) use binaries::linker_flags;
pub use ledger::{LEDGER_VARIABLE, count_tests};

/// The environment variable with the directory of a control plane that all test processes of one run share.
pub const SHARED_VARIABLE: &str = "MANTA_TEST_CONTROL_PLANE";

/// The environment variable with the path of a `manta` whose embedded API server replaces the real control plane.
pub const SERVER_VARIABLE: &str = "MANTA_TEST_SERVER";

/// A user of the server; each has its own token and kubeconfig, so that the audit log tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Tests and kubectl; may do everything.
    Admin,
    /// The operator under test; with RBAC it may do only what it was granted.
    Operator,
    /// The fake kubelet.
    Kubelet,
    /// kube-controller-manager.
    Controllers,
}

impl User {
    const ALL: [Self; 4] = [Self::Admin, Self::Operator, Self::Kubelet, Self::Controllers];

    /// Returns the user name that the server sees.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Kubelet => "kubelet",
            Self::Controllers => "controllers",
        }
    }

    fn group(self) -> &'static str {
        match self {
            Self::Operator => "operators",
            _ => "system:masters",
        }
    }
}

/// Returns the path of the `kubectl` that tests use.
pub fn find_kubectl() -> Result<PathBuf> {
    Ok(Binaries::obtain()?.kubectl)
}

/// Returns the directory with the standard CRDs of Gateway API.
pub fn gateway_crds() -> Result<PathBuf> {
    crds::of_gateway_api()
}

/// Returns the directory with cert-manager's Helm chart. Its `Chart.template.yaml` is a `Chart.yaml` without the version.
pub fn cert_manager_chart() -> Result<PathBuf> {
    crds::chart_of_cert_manager()
}

/// Options of a control plane.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Authorize by RBAC instead of allowing everything.
    pub rbac: bool,
    /// Log the requests of [`User::Operator`] and of service accounts, to be read with [`crate::audit::AuditLog`].
    pub audit: bool,
    /// Store built-in types as JSON instead of protobuf, so that etcd's own watch can be read.
    pub json_storage: bool,
}

/// A running control plane, started by this process or by another.
#[derive(Debug)]
pub struct ControlPlane {
    folder: PathBuf,
    kubectl: PathBuf,
    runs: Runs,
}

/// Which server runs.
#[derive(Debug)]
enum Runs {
    Real(Box<Daemons>),
    Embedded(Supervised),
    /// A control plane of another process.
    Elsewhere,
}

impl ControlPlane {
    /// Starts a control plane with default options.
    pub fn start() -> Result<Self> {
        Self::start_with(Options::default())
    }

    /// Starts a control plane and waits until it is ready, about five seconds. `MANTA_TEST_SERVER` selects the embedded one.
    pub fn start_with(options: Options) -> Result<Self> {
        if let Some(manta) = std::env::var_os(SERVER_VARIABLE) {
            return Self::start_embedded(Path::new(&manta), options);
        }
        ledger::record_test();
        let binaries = Binaries::obtain()?;
        let folder = tempfile::Builder::new().prefix("manta-control-plane-").tempdir()?.keep();
        let started = daemons::start(&binaries, &folder, options);
        let daemons = started.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
        Ok(Self { folder, kubectl: binaries.kubectl, runs: Runs::Real(Box::new(daemons)) })
    }

    /// Starts the embedded API server of a `manta` binary.
    pub fn start_embedded(manta: &Path, options: Options) -> Result<Self> {
        let kubectl = Binaries::obtain()?.kubectl;
        let folder = tempfile::Builder::new().prefix("manta-embedded-").tempdir()?.keep();
        let started = embedded::start(manta, &folder, options);
        let daemon = started.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
        Ok(Self { folder, kubectl, runs: Runs::Embedded(daemon) })
    }

    /// Builds and downloads everything that control planes need, so that they start without a network later.
    pub fn prepare() -> Result<()> {
        Binaries::obtain()?;
        crds::of_gateway_api()?;
        crds::of_cert_manager()?;
        Ok(())
    }

    /// Returns the server that all tests of this process share, or of all processes if `MANTA_TEST_CONTROL_PLANE` is set.
    ///
    /// # Panics
    /// Panics if there is no server and none can be started.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        if std::env::var_os(SERVER_VARIABLE).is_none() {
            ledger::record_test();
        }
        SHARED.get_or_init(|| {
            let shared = std::env::var_os(SHARED_VARIABLE).filter(|_| std::env::var_os(SERVER_VARIABLE).is_none());
            let plane = match shared {
                Some(folder) => Self::attach(Path::new(&folder)),
                None => Self::start(),
            };
            plane.unwrap_or_else(|error| panic!("no control plane: {error:#}"))
        })
    }

    fn attach(folder: &Path) -> Result<Self> {
        let plane = Self { folder: folder.to_owned(), kubectl: Binaries::obtain()?.kubectl, runs: Runs::Elsewhere };
        let config = plane.kubeconfig_path();
        if !config.is_file() {
            bail!("{SHARED_VARIABLE}={}: no control plane runs there", folder.display());
        }
        Ok(plane)
    }

    /// Returns the directory with its kubeconfigs, certificates and logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.kubeconfig_path_for(User::Admin)
    }

    /// Returns the path of a user's kubeconfig.
    pub fn kubeconfig_path_for(&self, user: User) -> PathBuf {
        daemons::kubeconfig_path(&self.folder, user)
    }

    /// Writes a kubeconfig with the token of this service account as its only credential, for its namespace.
    pub fn kubeconfig_of_account(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let token = self.kubectl(&["create", "token", account, "--namespace", namespace, "--duration=24h"])?;
        let mut config = daemons::with_token(&Kubeconfig::read_from(self.kubeconfig_path())?, token.trim())?;
        for context in config.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
            context.namespace = Some(namespace.to_owned());
        }
        let path = self.folder.join(format!("{namespace}-{account}.kubeconfig"));
        fs::write(&path, serde_saphyr::to_string(&config)?)?;
        Ok(path)
    }

    /// Returns the path of the audit log, one JSON object per line; written with [`Options::audit`].
    pub fn audit_log_path(&self) -> PathBuf {
        self.folder.join(daemons::AUDIT_LOG)
    }

    /// Returns the administrator's client, bound to the current runtime.
    pub async fn client(&self) -> Result<Client> {
        self.client_for(User::Admin).await
    }

    /// Returns a user's client, bound to the current runtime.
    pub async fn client_for(&self, user: User) -> Result<Client> {
        client_from(&self.kubeconfig_path_for(user)).await
    }

    /// Creates a namespace with a unique name and returns the name.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let millis = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() % 10_000_000;
        let name = format!("{prefix}-{}-{millis}-{number}", std::process::id());
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::all(self.client().await?).create(&PostParams::default(), &namespace).await?;
        Ok(name)
    }

    /// Returns a `kubectl` command as the administrator, with the server's version.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        // A discovery cache of its own, because another server may have had the same address.
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig_path())
            .arg("--cache-dir")
            .arg(self.folder.join("kubectl-cache"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs `kubectl` and returns its stdout, or an error with its stderr.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self.kubectl_command().args(args).output().context("cannot start kubectl")?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Installs the CRDs in a YAML file or directory, waits until they are served, and returns their number.
    pub async fn install_crds(&self, path: &Path) -> Result<usize> {
        crds::install(self.client().await?, path).await
    }

    /// Installs the ray.io CRDs of this workspace.
    pub async fn install_ray_crds(&self) -> Result<usize> {
        self.install_crds(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds"))).await
    }

    /// Installs the standard CRDs of Gateway API.
    pub async fn install_gateway_crds(&self) -> Result<usize> {
        self.install_crds(&crds::of_gateway_api()?).await
    }

    /// Installs the CRDs of cert-manager.
    pub async fn install_cert_manager_crds(&self) -> Result<usize> {
        self.install_crds(&crds::of_cert_manager()?).await
    }

    /// Installs the CRDs of the batch schedulers, reduced to the fields that Ray clusters use.
    pub async fn install_scheduler_crds(&self) -> Result<usize> {
        self.install_crds(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/crds/schedulers"))).await
    }

    /// Returns an error if a daemon has exited.
    pub fn check(&mut self) -> Result<()> {
        match &mut self.runs {
            Runs::Real(daemons) => daemons.check(),
            Runs::Embedded(server) => server.check(),
            Runs::Elsewhere => Ok(()),
        }
    }

    /// Stops the API server alone.
    pub fn stop_apiserver(&mut self) -> Result<()> {
        self.own_daemons()?.stop_apiserver();
        Ok(())
    }

    /// Starts the API server again at the same address, and waits until it is ready.
    pub fn start_apiserver(&mut self) -> Result<()> {
        self.own_daemons()?.start_apiserver()
    }

    /// Stops etcd alone; its data stay.
    pub fn stop_etcd(&mut self) -> Result<()> {
        self.own_daemons()?.stop_etcd();
        Ok(())
    }

    /// Starts etcd again at the same address with its data, and waits until the API server is ready.
    pub fn start_etcd(&mut self) -> Result<()> {
        self.own_daemons()?.start_etcd()
    }

    /// Returns host and port of etcd, which speaks plain HTTP.
    pub fn etcd_address(&mut self) -> Result<String> {
        Ok(self.own_daemons()?.etcd_address())
    }

    /// Whether this is `manta apiserver`.
    pub fn is_embedded(&self) -> bool {
        matches!(self.runs, Runs::Embedded(_))
    }

    fn own_daemons(&mut self) -> Result<&mut Daemons> {
        match &mut self.runs {
            Runs::Real(daemons) => Ok(daemons),
            _ => bail!("only a real control plane that this process started has daemons to stop and start"),
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if !matches!(std::mem::replace(&mut self.runs, Runs::Elsewhere), Runs::Elsewhere) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

async fn client_from(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Runs a future on a thread and runtime of its own, so that it can be called inside and outside of a runtime.
fn block_on<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future));
        work.join().unwrap_or_else(|_| bail!("a testkit thread panicked"))
    })
}
