//! `manta crds`: prints the CRDs of the four kinds as YAML, or writes them to a directory.

use crate::output::write_stdout;
use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use manta_api::crd::{self, Versions};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints the CustomResourceDefinitions of RayCluster, RayJob, RayService and RayCronJob as YAML
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
    let crds = crd::all(versions);
    let documents = crds
        .iter()
        .map(|crd| Ok((crd.metadata.name.as_deref().unwrap_or_default(), yaml(crd)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    match args.dir {
        Some(dir) => write_files(&dir, &documents)?,
        None => write_stdout(|out| documents.iter().try_for_each(|(_, yaml)| write!(out, "---\n{yaml}")))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn yaml(crd: &CustomResourceDefinition) -> anyhow::Result<String> {
    // Long messages and patterns stay on one line each, so that grep finds them.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    Ok(serde_saphyr::to_string_with_options(crd, options)?)
}

fn write_files(dir: &Path, documents: &[(&str, String)]) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create the directory {}", dir.display()))?;
    for (name, yaml) in documents {
        let path = dir.join(format!("{name}.yaml"));
        fs::write(&path, yaml).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
