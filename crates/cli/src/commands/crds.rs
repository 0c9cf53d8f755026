//! `manta crds`: prints the CRDs of the four kinds as YAML, or writes them to a directory.

use crate::output::{to_yaml, write_manifests};
use manta_api::crd::{self, Versions};
use std::path::PathBuf;
use std::process::ExitCode;

/// Print the CustomResourceDefinitions of RayCluster, RayJob, RayService and RayCronJob as YAML
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also serve the deprecated ray.io/v1alpha1, for clusters that still use it
    ///
    /// These are too large for a client-side `kubectl apply`; use `kubectl apply --server-side`.
    #[arg(long)]
    with_v1alpha1: bool,

    /// Write one file per CRD to this directory instead of printing them
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let versions = if args.with_v1alpha1 { Versions::V1AndV1alpha1 } else { Versions::V1 };
    let documents = crd::all(versions)
        .iter()
        .map(|crd| Ok((crd.metadata.name.clone().unwrap_or_default(), to_yaml(crd)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    write_manifests(args.dir.as_deref(), &documents)?;
    Ok(ExitCode::SUCCESS)
}
