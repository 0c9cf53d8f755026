//! A real etcd, kube-apiserver and kube-controller-manager on loopback, for as long as a value lives.
//!
//! No scheduler and no kubelet: pods stay as they are created unless a test or [`crate::Kubelet`] says otherwise.
//! Tests share one server ([`ControlPlane::shared`]), each in a namespace of its own; a test that needs a server of its
//! own, because it installs an operator for all namespaces or other flags, starts one ([`ControlPlane::start`]).

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

pub use ledger::{LEDGER_VARIABLE, count_tests};

/// Names the folder of a running control plane that all test processes of one run use.
pub const SHARED_VARIABLE: &str = "MANTA_TEST_CONTROL_PLANE";

/// Names a `manta` whose embedded API server takes the place of the real control plane.
pub const SERVER_VARIABLE: &str = "MANTA_TEST_SERVER";

/// Who talks to the server; each has a token and a kubeconfig of its own, so that the audit log can tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// May do everything; tests and kubectl.
    Admin,
    /// The operator under test; in no group, so that with RBAC it may do only what it was granted.
    Operator,
    /// Plays the kubelet.
    Kubelet,
    /// kube-controller-manager.
    Controllers,
}

impl User {
    const ALL: [Self; 4] = [Self::Admin, Self::Operator, Self::Kubelet, Self::Controllers];

    /// The user name that the server sees.
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

/// The `kubectl` that tests use, also without a control plane of ours.
pub fn find_kubectl() -> Result<PathBuf> {
    Ok(Binaries::obtain()?.kubectl)
}

/// What differs between control planes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Authorise by RBAC instead of allowing everything.
    pub rbac: bool,
    /// Log the requests of [`User::Operator`] and of service accounts, to be read with [`crate::audit::AuditLog`].
    pub audit: bool,
}

/// A running control plane, or one that another process runs for us.
#[derive(Debug)]
pub struct ControlPlane {
    folder: PathBuf,
    kubectl: PathBuf,
    runs: Runs,
}

/// What runs for us.
#[derive(Debug)]
enum Runs {
    Real(Box<Daemons>),
    Embedded(Supervised),
    /// Another process runs it.
    Elsewhere,
}

impl ControlPlane {
    /// Starts one with default options.
    pub fn start() -> Result<Self> {
        Self::start_with(Options::default())
    }

    /// Starts one and waits until it serves; about five seconds. `MANTA_TEST_SERVER` makes it an embedded one.
    pub fn start_with(options: Options) -> Result<Self> {
        if let Some(manta) = std::env::var_os(SERVER_VARIABLE) {
            return Self::start_embedded(Path::new(&manta), options);
        }
        ledger::note_test();
        let binaries = Binaries::obtain()?;
        let folder = tempfile::Builder::new().prefix("manta-control-plane-").tempdir()?.keep();
        let started = daemons::start(&binaries, &folder, options);
        let daemons = started.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
        Ok(Self { folder, kubectl: binaries.kubectl, runs: Runs::Real(Box::new(daemons)) })
    }

    /// Starts the API server that a `manta` has in it; it does all that the real control plane does here.
    pub fn start_embedded(manta: &Path, options: Options) -> Result<Self> {
        let kubectl = Binaries::obtain()?.kubectl;
        let folder = tempfile::Builder::new().prefix("manta-embedded-").tempdir()?.keep();
        let started = embedded::start(manta, &folder, options);
        let daemon = started.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
        Ok(Self { folder, kubectl, runs: Runs::Embedded(daemon) })
    }

    /// Builds and fetches all that control planes need, so that they start without a network later.
    pub fn prepare() -> Result<()> {
        Binaries::obtain()?;
        crds::of_gateway_api()?;
        crds::of_cert_manager()?;
        Ok(())
    }

    /// The server that all tests of this process share, or of all processes where `MANTA_TEST_CONTROL_PLANE` names one.
    ///
    /// # Panics
    /// When there is none and none can be started: no test can go on then.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        if std::env::var_os(SERVER_VARIABLE).is_none() {
            ledger::note_test();
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

    /// The folder with its kubeconfigs, certificates and logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.kubeconfig_path_for(User::Admin)
    }

    /// A user's kubeconfig.
    pub fn kubeconfig_path_for(&self, user: User) -> PathBuf {
        daemons::kubeconfig_path(&self.folder, user)
    }

    /// Writes a kubeconfig that has nothing but the token of this service account, and is at home in its namespace.
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

    /// The audit log, one JSON object a line; written when started with [`Options::audit`].
    pub fn audit_log_path(&self) -> PathBuf {
        self.folder.join(daemons::AUDIT_LOG)
    }

    /// The administrator's client, for the runtime that this is called in.
    pub async fn client(&self) -> Result<Client> {
        self.client_for(User::Admin).await
    }

    /// A user's client, for the runtime that this is called in.
    pub async fn client_for(&self, user: User) -> Result<Client> {
        client_from(&self.kubeconfig_path_for(user)).await
    }

    /// Makes a namespace that no other test has, and gives its name.
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

    /// A `kubectl` command as the administrator, of the server's version.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        // A cache of its own: CRDs of another server must not be taken for this one's.
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig_path())
            .arg("--cache-dir")
            .arg(self.folder.join("kubectl-cache"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs `kubectl`; what it printed, or an error with what it complained of.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let output = self.kubectl_command().args(args).output().context("cannot start kubectl")?;
        if !output.status.success() {
            bail!("kubectl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Installs the CRDs in a file or folder of YAML files and waits until they are served; how many there were.
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

    /// Installs the CRDs of the batch schedulers, as far as Ray clusters use them.
    pub async fn install_scheduler_crds(&self) -> Result<usize> {
        self.install_crds(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/crds/schedulers"))).await
    }

    /// An error if a daemon has ended.
    pub fn check(&mut self) -> Result<()> {
        match &mut self.runs {
            Runs::Real(daemons) => daemons.check(),
            Runs::Embedded(server) => server.check(),
            Runs::Elsewhere => Ok(()),
        }
    }

    /// Ends the API server, and nothing else.
    pub fn stop_apiserver(&mut self) -> Result<()> {
        self.own_daemons()?.stop_apiserver();
        Ok(())
    }

    /// Starts the API server again, at the same address, and waits until it serves.
    pub fn start_apiserver(&mut self) -> Result<()> {
        self.own_daemons()?.start_apiserver()
    }

    /// Whether this is `manta apiserver`, by itself.
    pub fn is_embedded(&self) -> bool {
        matches!(self.runs, Runs::Embedded(_))
    }

    fn own_daemons(&mut self) -> Result<&mut Daemons> {
        match &mut self.runs {
            Runs::Real(daemons) => Ok(daemons),
            _ => bail!("only a real control plane of one's own has an API server that can be stopped alone"),
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

/// Runs a future to its end on a thread of its own, so that blocking callers need not know whether a runtime is near.
fn block_on<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future));
        work.join().unwrap_or_else(|_| bail!("a thread of the test kit panicked"))
    })
}
