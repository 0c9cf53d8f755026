//! `kubectl ray create cluster`.

use super::config::{Autoscaler, AutoscalerVersion, ClusterConfig, Group, Head};
use super::{FIELD_MANAGER, build, key_values};
use crate::connect::{ConnectionArgs, parse_duration};
use crate::output::{print_line, to_yaml, write_stdout};
use crate::resource::{Kind, Reference};
use crate::wait::{self, Waited};
use anyhow::{Context, bail, ensure};
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Create a Ray cluster from flags or a short description in a file
#[derive(clap::Args, Default)]
pub(super) struct Args {
    /// Name of the cluster; with --file it may be there instead
    name: Option<String>,
    /// Labels of the cluster, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    labels: Vec<String>,
    /// Annotations of the cluster, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    annotations: Vec<String>,
    /// Version of Ray [default: 2.52.0]
    #[arg(long, value_name = "VERSION")]
    ray_version: Option<String>,
    /// Image [default: rayproject/ray with the version]
    #[arg(long)]
    image: Option<String>,
    /// CPUs of the head [default: 2]
    #[arg(long, value_name = "QUANTITY")]
    head_cpu: Option<String>,
    /// Memory of the head [default: 4Gi]
    #[arg(long, value_name = "QUANTITY")]
    head_memory: Option<String>,
    /// GPUs of the head [default: 0]
    #[arg(long, value_name = "QUANTITY")]
    head_gpu: Option<String>,
    /// Ephemeral storage of the head
    #[arg(long, value_name = "QUANTITY")]
    head_ephemeral_storage: Option<String>,
    /// Parameters of ray start on the head, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    head_ray_start_params: Vec<String>,
    /// Node selectors of the head, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    head_node_selectors: Vec<String>,
    /// Workers [default: 1]
    #[arg(long, value_name = "NUMBER")]
    worker_replicas: Option<i32>,
    /// Hosts of each worker replica [default: 1]
    #[arg(long, value_name = "NUMBER")]
    num_of_hosts: Option<i32>,
    /// CPUs of each worker [default: 2]
    #[arg(long, value_name = "QUANTITY")]
    worker_cpu: Option<String>,
    /// Memory of each worker [default: 4Gi]
    #[arg(long, value_name = "QUANTITY")]
    worker_memory: Option<String>,
    /// GPUs of each worker [default: 0]
    #[arg(long, value_name = "QUANTITY")]
    worker_gpu: Option<String>,
    /// TPUs of each worker [default: 0]
    #[arg(long, value_name = "QUANTITY")]
    worker_tpu: Option<String>,
    /// Ephemeral storage of each worker
    #[arg(long, value_name = "QUANTITY")]
    worker_ephemeral_storage: Option<String>,
    /// Parameters of ray start on the workers, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    worker_ray_start_params: Vec<String>,
    /// Node selectors of the workers, as key=value,…
    #[arg(long, value_name = "PAIRS", value_delimiter = ',')]
    worker_node_selectors: Vec<String>,
    /// Version of the autoscaler; without it there is none
    #[arg(long, value_name = "VERSION")]
    autoscaler: Option<AutoscalerVersion>,
    /// File that describes the cluster
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print the RayCluster instead of creating it
    #[arg(long)]
    dry_run: bool,
    /// Wait until the cluster is provisioned
    #[arg(long)]
    wait: bool,
    /// How long to wait, such as 5m
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    timeout: String,
}

pub(super) async fn run(connection: &ConnectionArgs, args: Args) -> anyhow::Result<ExitCode> {
    let timeout = parse_duration(&args.timeout)
        .with_context(|| format!("--timeout {} is not a valid duration, for example 5m", args.timeout))?;
    let config = args.config()?;
    config.validate()?;
    let name = config.name.clone().context("the cluster needs a name")?;
    let config = config.with_defaults();
    if let (Some(given), Some(namespace)) = (connection.given_namespace(), &config.namespace) {
        ensure!(
            given == namespace,
            "the namespace in the file, {namespace}, does not match --namespace {given}",
        );
    }
    if args.dry_run {
        let namespace = match (&config.namespace, connection.connect().await) {
            (Some(namespace), _) => namespace.clone(),
            (None, Ok(target)) => target.namespace,
            (None, Err(_)) => connection.given_namespace().unwrap_or("default").to_owned(),
        };
        let yaml = to_yaml(&build::cluster(&config, &name, &namespace))?;
        write_stdout(|out| out.write_all(yaml.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut target = connection.connect().await?;
    if let Some(namespace) = &config.namespace {
        target.namespace.clone_from(namespace);
    }
    let api = target.ray_api(Kind::Cluster);
    let existing = api.get_opt(&name).await.map_err(|error| target.failed("cannot look for the Ray cluster", error))?;
    ensure!(existing.is_none(), "the Ray cluster {name} in namespace {} already exists", target.namespace);
    let object: Value = build::cluster(&config, &name, &target.namespace);
    let params = PatchParams::apply(FIELD_MANAGER);
    let created = api.patch(&name, &params, &Patch::Apply(&object)).await;
    created.map_err(|error| target.failed(&format!("cannot create the Ray cluster {name}"), error))?;
    print_line(&format!("Created Ray cluster: {name}"));
    if !args.wait {
        return Ok(ExitCode::SUCCESS);
    }
    let reference = Reference { kind: Kind::Cluster, name: name.clone() };
    match wait::until(&target, &reference, Some(timeout), |cluster| Ok(is_provisioned(cluster).then_some(()))).await? {
        Waited::Done(()) => print_line(&format!("Ray cluster {name} is provisioned")),
        Waited::TimedOut => {
            bail!("timed out waiting for Ray cluster {name} in namespace {} to be provisioned", target.namespace)
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Returns the description from the flags or the file.
    fn config(&self) -> anyhow::Result<ClusterConfig> {
        let Some(file) = &self.file else { return self.config_from_flags() };
        let given = self.flags_beside_file();
        ensure!(given.is_empty(), "the following flags are incompatible with --file: [{}]", given.join(" "));
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut config =
            ClusterConfig::parse(&text).with_context(|| format!("{} describes no Ray cluster", file.display()))?;
        match (&self.name, &config.name) {
            (Some(given), Some(name)) if given != name => {
                bail!("the cluster name in the file, {name}, does not match the name {given} on the command line")
            }
            (Some(given), _) => config.name = Some(given.clone()),
            (None, _) => {}
        }
        Ok(config)
    }

    fn config_from_flags(&self) -> anyhow::Result<ClusterConfig> {
        let or = |value: &Option<String>, default: &str| Some(value.clone().unwrap_or_else(|| default.to_owned()));
        Ok(ClusterConfig {
            name: self.name.clone(),
            labels: key_values("--labels", &self.labels)?,
            annotations: key_values("--annotations", &self.annotations)?,
            ray_version: self.ray_version.clone(),
            image: self.image.clone(),
            head: Head {
                cpu: self.head_cpu.clone(),
                gpu: self.head_gpu.clone(),
                memory: self.head_memory.clone(),
                ephemeral_storage: self.head_ephemeral_storage.clone(),
                ray_start_params: key_values("--head-ray-start-params", &self.head_ray_start_params)?,
                node_selectors: key_values("--head-node-selectors", &self.head_node_selectors)?,
            },
            worker_groups: Some(vec![Group {
                name: None,
                replicas: self.worker_replicas.unwrap_or(1),
                num_of_hosts: Some(self.num_of_hosts.unwrap_or(1)),
                cpu: or(&self.worker_cpu, "2"),
                gpu: self.worker_gpu.clone(),
                tpu: self.worker_tpu.clone(),
                memory: or(&self.worker_memory, "4Gi"),
                ephemeral_storage: self.worker_ephemeral_storage.clone(),
                ray_start_params: key_values("--worker-ray-start-params", &self.worker_ray_start_params)?,
                node_selectors: key_values("--worker-node-selectors", &self.worker_node_selectors)?,
            }]),
            autoscaler: self.autoscaler.map(|version| Autoscaler { version }),
            ..ClusterConfig::default()
        })
    }

    /// Returns the given flags that a file replaces.
    fn flags_beside_file(&self) -> Vec<&'static str> {
        let flags = [
            ("labels", !self.labels.is_empty()),
            ("annotations", !self.annotations.is_empty()),
            ("ray-version", self.ray_version.is_some()),
            ("image", self.image.is_some()),
            ("head-cpu", self.head_cpu.is_some()),
            ("head-memory", self.head_memory.is_some()),
            ("head-gpu", self.head_gpu.is_some()),
            ("head-ephemeral-storage", self.head_ephemeral_storage.is_some()),
            ("head-ray-start-params", !self.head_ray_start_params.is_empty()),
            ("head-node-selectors", !self.head_node_selectors.is_empty()),
            ("worker-replicas", self.worker_replicas.is_some()),
            ("num-of-hosts", self.num_of_hosts.is_some()),
            ("worker-cpu", self.worker_cpu.is_some()),
            ("worker-memory", self.worker_memory.is_some()),
            ("worker-gpu", self.worker_gpu.is_some()),
            ("worker-tpu", self.worker_tpu.is_some()),
            ("worker-ephemeral-storage", self.worker_ephemeral_storage.is_some()),
            ("worker-ray-start-params", !self.worker_ray_start_params.is_empty()),
            ("worker-node-selectors", !self.worker_node_selectors.is_empty()),
            ("autoscaler", self.autoscaler.is_some()),
        ];
        flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
    }
}

/// Returns whether a cluster has been provisioned once.
pub(super) fn is_provisioned(cluster: &DynamicObject) -> bool {
    let status = &cluster.data["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let provisioned = conditions
        .into_iter()
        .any(|condition| condition["type"] == "RayClusterProvisioned" && condition["status"] == "True");
    provisioned || status["state"] == "ready"
}
