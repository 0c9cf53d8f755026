//! The flags of local mode.

use super::internet::{self, Choice, InternetArgs};
use super::{images, install_bar};
use anyhow::Context;
use manta_agent::gpus::{self, Gpus};
use manta_agent::images::{Catalog, Versions};
use manta_agent::mounts::{self, Mounts};
use manta_agent::network::loopback::{Guard, Users};
use manta_agent::pod::Backoff;
use manta_agent::shared_host::SharedHost;
use manta_logic::validate::warnings::describe_little_memory;
use manta_operator::args::Arguments;
use manta_quantity::Quantity;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Selects a local mode by its state directory.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StateArgs {
    /// Directory for all persistent state [default: ~/.local/state/manta]
    #[arg(long, value_name = "DIR", env = "MANTA_STATE")]
    state: Option<PathBuf>,
}

impl StateArgs {
    /// Returns the directory, which need not exist.
    pub(crate) fn folder(self) -> anyhow::Result<PathBuf> {
        match self.state {
            Some(path) => Ok(std::path::absolute(path)?),
            None => Ok(images::home_folder("XDG_STATE_HOME", ".local/state")?.join("manta")),
        }
    }

    /// Returns the directory that the environment names, or the default one.
    pub(crate) fn from_environment() -> Self {
        Self { state: std::env::var_os("MANTA_STATE").map(PathBuf::from) }
    }

    /// Returns the kubeconfig of the local mode that runs in the directory.
    pub(crate) fn kubeconfig_of_running(self) -> anyhow::Result<PathBuf> {
        let (folder, pid) = self.running()?;
        anyhow::ensure!(pid.is_some(), "local mode is not running in {}; start it with manta up", folder.display());
        Ok(folder.join("kubeconfig"))
    }

    /// Returns the directory and the process that runs local mode in it, if any.
    pub(crate) fn running(self) -> anyhow::Result<(PathBuf, Option<u32>)> {
        let folder = self.folder()?;
        let pid = super::running_pid(&folder)?;
        Ok((folder, pid))
    }
}

/// The flags that `manta up` and `manta demo` share.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LocalArgs {
    /// Python environment to use for every Ray image, instead of one per version
    #[arg(long, value_name = "DIR")]
    ray_env: Option<PathBuf>,
    /// Install exactly the Ray version of each image's tag, instead of using the newest one installed
    #[arg(long)]
    exact_ray_version: bool,
    /// What an image stands for: a requirements file, a directory with a pyproject.toml, a Python environment, an archive
    /// of the image, or podman:IMAGE or docker:IMAGE; may be repeated
    #[arg(long, value_name = "NAME=SOURCE")]
    image: Vec<String>,
    /// File that maps other images to Python environments or to this machine's own tools; reread while running
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// CPUs that the node offers to the scheduler; they are shared, not reserved [default: eight times the machine's]
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<String>,
    /// Memory that the node offers to the scheduler, such as 8Gi [default: the machine's memory]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// GPUs that the node offers to pods: all, none, or positions such as 0,1 (nvidia:0,amd:1 if there are both)
    #[arg(long, value_name = "WHICH", default_value = "all")]
    gpus: String,
    /// Directory of this machine to mount into every pod, as SOURCE:TARGET[:ro]; SOURCE alone lets manifests request
    /// directories below it with the annotation manta.local/mount; may be repeated
    #[arg(long, value_name = "SOURCE[:TARGET[:ro]]")]
    mount: Vec<String>,
    #[command(flatten)]
    internet: InternetArgs,
    /// Allow hostPath volumes
    #[arg(long)]
    allow_host_path: bool,
    /// Another account on this machine that may use the page and the ports of dashboards and Serve, by name or number;
    /// `all` for everybody; may be repeated
    #[arg(long, value_name = "USER")]
    allow_user: Vec<String>,
    /// Host name for the ports of dashboards and Serve, in addition to localhost; may be repeated
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Feature gates of the operator, as Name=true,Name=false
    #[arg(long, default_value = "", hide_default_value = true, value_name = "GATES")]
    feature_gates: String,
}

/// The settings of local mode.
pub(crate) struct Options {
    pub(crate) state: PathBuf,
    /// Where the API server persists its objects; without it they stay in memory.
    pub(crate) data: Option<PathBuf>,
    /// The API server's port on loopback.
    pub(crate) port: u16,
    pub(super) catalog: Catalog,
    cpu_milli: i64,
    memory_bytes: i64,
    gpus: Gpus,
    pub(super) internet: Choice,
    host_paths: bool,
    mounts: Mounts,
    pub(super) has_operator: bool,
    /// Who may use the ports of dashboards and Serve.
    pub(super) guard: Guard,
    feature_gates: String,
    log: &'static str,
}

impl LocalArgs {
    pub(crate) fn options(self, state: PathBuf, data: Option<PathBuf>, port: u16) -> anyhow::Result<Options> {
        let mapping_file = self.images.map(std::path::absolute).transpose()?;
        let catalog = Catalog {
            mappings: self.image.iter().map(|text| images::mapping(text)).collect::<anyhow::Result<_>>()?,
            mapping_file,
            fallbacks: images::default_mappings(),
            rules: vec![images::package_rule()],
            folder: images::folder()?,
            ..Catalog::default()
        };
        // Later mistakes in the file are reported by events, this one at once.
        catalog.current().map_err(anyhow::Error::msg)?;
        let versions = match self.ray_env {
            Some(path) => {
                anyhow::ensure!(
                    path.join("bin/ray").exists(),
                    "{} is not a Python environment with Ray: it has no bin/ray",
                    path.display()
                );
                Versions::Fixed(std::path::absolute(path)?)
            }
            None if self.exact_ray_version => Versions::Exact,
            None => Versions::Newest,
        };
        let amount = |text: &str, flag: &str, example: &str| {
            let parsed = Quantity::parse(text).ok().filter(Quantity::is_positive);
            parsed.with_context(|| format!("{flag} {text} is not a quantity; use a form like {example}"))
        };
        // Asked for here, because inside the namespaces everybody has other numbers.
        let users = Users::allowed(&self.allow_user, std::env::var("SUDO_UID").ok().as_deref());
        let guard = Guard {
            users: users.map_err(|why| anyhow::anyhow!("--allow-user: {why}"))?,
            hosts: self.allow_host.iter().map(|name| name.to_ascii_lowercase()).collect(),
        };
        let cores = i64::try_from(std::thread::available_parallelism().map_or(2, usize::from))?;
        let internet = self.internet.choice(&state, data.is_some())?;
        Ok(Options {
            state,
            internet,
            data,
            port,
            catalog: Catalog { versions, ..catalog },
            // CPU requests are only shares here, so a cluster may request more than the machine has.
            cpu_milli: match &self.cpus {
                Some(text) => amount(text, "--cpus", "4 or 500m")?.milli_value(),
                None => cores * 8000,
            },
            memory_bytes: match &self.memory {
                Some(text) => plausible_memory(text, &amount(text, "--memory", "8Gi or 512Mi")?)?,
                None => machine_memory(),
            },
            gpus: machine_gpus(&self.gpus)?,
            host_paths: self.allow_host_path,
            mounts: offered_mounts(&self.mount)?,
            has_operator: true,
            guard,
            feature_gates: self.feature_gates,
            log: "warn,manta_agent=info",
        })
    }
}

impl Options {
    /// Logs errors only, for a command that prints its own progress.
    pub(crate) fn quiet(mut self) -> Self {
        self.log = "error";
        self
    }

    /// Starts the API server and the node without the operator.
    pub(crate) fn without_operator(mut self) -> Self {
        self.has_operator = false;
        self
    }

    /// Describes the GPUs that pods can have, one text for each.
    pub(crate) fn gpus(&self) -> Vec<String> {
        self.gpus.offered.iter().map(ToString::to_string).collect()
    }

    pub(super) fn start_logging(&self) {
        use tracing_subscriber::EnvFilter;
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(self.log));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(|| crate::output::Log)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .compact()
            .init();
    }

    pub(super) fn agent_config(&self, cluster_ca: String, shared_host: Option<SharedHost>) -> manta_agent::Config {
        manta_agent::Config {
            node_name: "local".to_owned(),
            state: self.state.clone(),
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            gpus: self.gpus.clone(),
            catalog: self.catalog.clone(),
            progress: std::sync::Arc::new(install_bar::show),
            backoff: Backoff::LOCAL,
            eager_readiness: true,
            host_paths: self.host_paths,
            mounts: self.mounts.clone(),
            cluster_ca,
            api_backend: None,
            env_without_cgroups: images::env_without_cgroups(),
            internet: internet::settings(self.internet.allowed, shared_host.is_none()),
            shared_host,
        }
    }

    /// Returns the operator's settings; without DNS names for Services it reaches them through the API server.
    pub(super) fn operator_settings(&self, has_service_names: bool) -> anyhow::Result<manta_operator::Settings> {
        let flags = [
            format!("--feature-gates={}", self.feature_gates),
            format!("--use-kubernetes-proxy={}", !has_service_names),
        ];
        let no_file = |_: &std::path::Path| Err("local mode has no configuration file".to_owned());
        Ok(Arguments::read(flags, |name| std::env::var(name).ok(), no_file)?.settings)
    }
}

/// Reads the folders that the user shows or offers to pods.
fn offered_mounts(texts: &[String]) -> anyhow::Result<Mounts> {
    let base = std::env::current_dir().context("cannot find the current directory")?;
    let mut mounts = Mounts { base, ..Mounts::default() };
    for text in texts {
        let source = if text.contains(':') {
            let mount = mounts::parse(text, &mounts.base).map_err(|why| anyhow::anyhow!("--mount: {why}"))?;
            mounts.all.push(mount.clone());
            mount.source
        } else {
            mounts::absolute(std::path::Path::new(text), &mounts.base)
        };
        anyhow::ensure!(source.exists(), "--mount: {} does not exist", source.display());
        mounts.offered.push(source);
    }
    Ok(mounts)
}

/// Finds the machine's GPUs and applies the user's choice.
fn machine_gpus(choice: &str) -> anyhow::Result<Gpus> {
    let found = gpus::find(std::path::Path::new("/"), &std::env::var("LD_LIBRARY_PATH").unwrap_or_default());
    let offered = gpus::select(found.clone(), choice).map_err(|why| anyhow::anyhow!("--gpus: {why}"))?;
    Ok(Gpus { found, offered })
}

/// Returns the bytes of an amount of memory that a pod could run in.
fn plausible_memory(text: &str, amount: &Quantity) -> anyhow::Result<i64> {
    const LEAST: i64 = 64 << 20;
    let bytes = amount.value();
    anyhow::ensure!(bytes >= LEAST, "--memory {}", describe_little_memory(text, amount));
    Ok(bytes)
}

fn machine_memory() -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib: Option<i64> = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(4 << 20) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_without_a_unit_is_refused() {
        let check =
            |text: &str| plausible_memory(text, &Quantity::parse(text).unwrap()).map_err(|error| error.to_string());
        assert_eq!(check("8Gi"), Ok(8 << 30));
        assert_eq!(check("10"), Err("--memory 10 is 10 bytes; did you mean 10Gi?".to_owned()));
        assert_eq!(check("512m"), Err("--memory 512m is less than a byte; did you mean 512Mi?".to_owned()));
    }
}
