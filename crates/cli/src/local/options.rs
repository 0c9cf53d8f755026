//! The flags of local mode, read once.

use super::images;
use anyhow::Context;
use manta_agent::images::{Catalog, MappingFile, Versions};
use manta_agent::pod::Backoff;
use manta_agent::quantity::Amount;
use manta_agent::shared_host::SharedHost;
use manta_operator::args::Arguments;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Which local mode is meant.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct StateArgs {
    /// Folder for everything that is kept [default: ~/.local/state/manta]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

impl StateArgs {
    /// The folder, whether or not it is there.
    pub(crate) fn folder(self) -> anyhow::Result<PathBuf> {
        match self.state {
            Some(path) => Ok(std::path::absolute(path)?),
            None => Ok(images::home_folder("XDG_STATE_HOME", ".local/state")?.join("manta")),
        }
    }
}

/// What `manta up` and `manta demo` have in common.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LocalArgs {
    /// Python environment that runs every Ray image, instead of one per version
    #[arg(long, value_name = "FOLDER")]
    ray_env: Option<PathBuf>,
    /// Make an environment for exactly the version of each image's tag, instead of using the newest one installed
    #[arg(long)]
    exact_ray_version: bool,
    /// File that maps other images to Python environments or to this machine's own tools
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// CPUs the node offers to the scheduler; they are shared, not reserved [default: eight times the machine's]
    #[arg(long, value_name = "NUMBER")]
    cpus: Option<String>,
    /// Memory the node offers, such as 8Gi [default: all of the machine's]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Let pods mount directories of this machine
    #[arg(long)]
    allow_host_path: bool,
    /// Feature gates of the operator, as Name=true,Name=false
    #[arg(long, default_value = "", value_name = "GATES")]
    feature_gates: String,
}

/// Everything local mode needs to know.
pub(crate) struct Options {
    pub(crate) state: PathBuf,
    /// Where the API server keeps its objects; in memory without.
    pub(crate) data: Option<PathBuf>,
    /// The API server's port on loopback.
    pub(crate) port: u16,
    pub(super) catalog: Catalog,
    cpu_milli: i64,
    memory_bytes: i64,
    host_paths: bool,
    feature_gates: String,
    log: &'static str,
}

impl LocalArgs {
    pub(crate) fn options(self, state: PathBuf, data: Option<PathBuf>, port: u16) -> anyhow::Result<Options> {
        let mut mappings = images::default_mappings();
        if let Some(path) = &self.images {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let file: MappingFile = serde_saphyr::from_str(&text)
                .with_context(|| format!("{} is not a list of image mappings", path.display()))?;
            // The user's own come first and so win.
            mappings.splice(0..0, file.images);
        }
        let versions = match self.ray_env {
            Some(path) => {
                anyhow::ensure!(
                    path.join("bin/ray").exists(),
                    "{} is no environment with Ray: it has no bin/ray",
                    path.display()
                );
                Versions::Fixed(std::path::absolute(path)?)
            }
            None if self.exact_ray_version => Versions::Exact,
            None => Versions::Newest,
        };
        let amount = |text: &str, flag: &str| {
            let parsed = Amount::parse(text).filter(|a| *a > Amount::ZERO);
            parsed.with_context(|| format!("{flag} {text} is not an amount; write it like 4 or 8Gi"))
        };
        let cores = i64::try_from(std::thread::available_parallelism().map_or(2, usize::from))?;
        Ok(Options {
            state,
            data,
            port,
            catalog: Catalog { mappings, rules: vec![images::package_rule()], versions, folder: images::folder()? },
            // CPU is only a share here, so a cluster may declare more than the machine has.
            cpu_milli: match &self.cpus {
                Some(text) => amount(text, "--cpus")?.milli(),
                None => cores * 8000,
            },
            memory_bytes: match &self.memory {
                Some(text) => amount(text, "--memory")?.ceil(),
                None => machine_memory(),
            },
            host_paths: self.allow_host_path,
            feature_gates: self.feature_gates,
            log: "warn,manta_agent=info",
        })
    }
}

impl Options {
    /// Only errors, for a command that shows progress in its own way.
    pub(crate) fn quiet(mut self) -> Self {
        self.log = "error";
        self
    }

    pub(super) fn start_logging(&self) {
        use tracing_subscriber::EnvFilter;
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(self.log));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
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
            catalog: self.catalog.clone(),
            backoff: Backoff::LOCAL,
            eager_readiness: true,
            host_paths: self.host_paths,
            cluster_ca,
            api_backend: None,
            shared_host,
        }
    }

    /// Without names for Services the operator reaches them through the API server.
    pub(super) fn operator_settings(&self, names: bool) -> anyhow::Result<manta_operator::Settings> {
        let flags = [format!("--feature-gates={}", self.feature_gates), format!("--use-kubernetes-proxy={}", !names)];
        let no_file = |_: &std::path::Path| Err("local mode has no configuration file".to_owned());
        Ok(Arguments::read(flags, |name| std::env::var(name).ok(), no_file)?.settings)
    }
}

fn machine_memory() -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let kib: Option<i64> = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(4 << 20) * 1024
}
