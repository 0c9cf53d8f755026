//! The description of a Ray cluster that flags and `--file` share.

use anyhow::{Context, ensure};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

use super::{RAY_VERSION, check_quantities};

/// Labels, selectors and the like.
pub(in crate::commands) type Labels = BTreeMap<String, String>;

/// Where Google documents which TPUs exist.
const TPU_DOCS: &str =
    "See https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus#availability for supported values";

/// A Ray cluster in the words of `kubectl ray create cluster`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(in crate::commands) struct ClusterConfig {
    pub(in crate::commands) namespace: Option<String>,
    pub(in crate::commands) name: Option<String>,
    pub(in crate::commands) labels: Labels,
    pub(in crate::commands) annotations: Labels,
    pub(in crate::commands) ray_version: Option<String>,
    pub(in crate::commands) image: Option<String>,
    pub(in crate::commands) service_account: Option<String>,
    pub(in crate::commands) head: Head,
    pub(in crate::commands) worker_groups: Option<Vec<Group>>,
    pub(in crate::commands) autoscaler: Option<Autoscaler>,
    pub(in crate::commands) gke: Option<Gke>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(in crate::commands) struct Head {
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) cpu: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) gpu: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) memory: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) ephemeral_storage: Option<String>,
    pub(in crate::commands) ray_start_params: Labels,
    pub(in crate::commands) node_selectors: Labels,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(in crate::commands) struct Group {
    pub(in crate::commands) name: Option<String>,
    pub(in crate::commands) replicas: i32,
    pub(in crate::commands) num_of_hosts: Option<i32>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) cpu: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) gpu: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) tpu: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) memory: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) ephemeral_storage: Option<String>,
    pub(in crate::commands) ray_start_params: Labels,
    pub(in crate::commands) node_selectors: Labels,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::commands) struct Autoscaler {
    pub(in crate::commands) version: AutoscalerVersion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(in crate::commands) enum AutoscalerVersion {
    V1,
    V2,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::commands) struct Gke {
    pub(in crate::commands) gcsfuse: Option<Gcsfuse>,
}

/// A bucket that all Pods mount.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(in crate::commands) struct Gcsfuse {
    pub(in crate::commands) bucket_name: String,
    pub(in crate::commands) mount_path: String,
    #[serde(default)]
    pub(in crate::commands) mount_options: Option<String>,
    #[serde(default)]
    pub(in crate::commands) disable_metrics: Option<bool>,
    #[serde(default)]
    pub(in crate::commands) gcsfuse_metadata_prefetch_on_mount: Option<bool>,
    #[serde(default)]
    pub(in crate::commands) skip_csi_bucket_access_check: Option<bool>,
    #[serde(default)]
    pub(in crate::commands) resources: GcsfuseResources,
}

/// What the sidecar that mounts the bucket may use.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(in crate::commands) struct GcsfuseResources {
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) cpu: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) memory: Option<String>,
    #[serde(deserialize_with = "scalar")]
    pub(in crate::commands) ephemeral_storage: Option<String>,
}

/// Reads `2` and `"2"` alike.
fn scalar<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(input)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        other => Err(serde::de::Error::custom(format!("{other} is not a quantity"))),
    }
}

impl ClusterConfig {
    /// Parses a file; unknown keys are errors.
    pub(in crate::commands) fn parse(text: &str) -> anyhow::Result<Self> {
        let value: Value = serde_saphyr::from_str(text).context("it is not YAML")?;
        if value.is_null() {
            return Ok(Self::default());
        }
        Ok(serde_json::from_value(value)?)
    }

    /// Fills in what is not given.
    pub(in crate::commands) fn with_defaults(mut self) -> Self {
        let version = self.ray_version.get_or_insert_with(|| RAY_VERSION.to_owned());
        self.image.get_or_insert_with(|| format!("rayproject/ray:{version}"));
        self.head.cpu.get_or_insert_with(|| "2".to_owned());
        self.head.memory.get_or_insert_with(|| "4Gi".to_owned());
        let groups = self.worker_groups.get_or_insert_with(|| {
            let (cpu, memory) = (Some("2".to_owned()), Some("4Gi".to_owned()));
            vec![Group { replicas: 1, cpu, memory, ..Group::default() }]
        });
        for (number, group) in groups.iter_mut().enumerate() {
            let name = if number == 0 { "default-group".to_owned() } else { format!("default-group-{number}") };
            group.name.get_or_insert(name);
        }
        self
    }

    /// Checks quantities and TPUs.
    pub(in crate::commands) fn validate(&self) -> anyhow::Result<()> {
        let head = &self.head;
        check_quantities(&[
            ("head-cpu", head.cpu.as_deref()),
            ("head-gpu", head.gpu.as_deref()),
            ("head-memory", head.memory.as_deref()),
            ("head-ephemeral-storage", head.ephemeral_storage.as_deref()),
        ])?;
        self.worker_groups.iter().flatten().try_for_each(Group::validate)
    }
}

impl Group {
    fn validate(&self) -> anyhow::Result<()> {
        check_quantities(&[
            ("worker-cpu", self.cpu.as_deref()),
            ("worker-gpu", self.gpu.as_deref()),
            ("worker-tpu", self.tpu.as_deref()),
            ("worker-memory", self.memory.as_deref()),
            ("worker-ephemeral-storage", self.ephemeral_storage.as_deref()),
        ])?;
        ensure!(self.replicas >= 0, "worker-replicas cannot be negative");
        ensure!(self.num_of_hosts.is_none_or(|hosts| hosts >= 0), "num-of-hosts cannot be negative");
        check_tpu(self.tpu.as_deref(), self.num_of_hosts, &self.node_selectors)
    }
}

/// Checks what TPUs need: hosts, and selectors for their nodes.
pub(in crate::commands) fn check_tpu(tpu: Option<&str>, hosts: Option<i32>, selectors: &Labels) -> anyhow::Result<()> {
    let is_used = tpu.is_some_and(|tpu| manta_quantity::Quantity::parse_or_zero(tpu).is_positive());
    if !is_used {
        return Ok(());
    }
    ensure!(hosts != Some(0), "numOfHosts cannot be 0 when using TPU");
    for key in ["cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-tpu-topology"] {
        ensure!(selectors.contains_key(key), "{key} is not set in --worker-node-selectors. {TPU_DOCS}");
    }
    Ok(())
}
