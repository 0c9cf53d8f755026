//! Builds what a release consists of: a static archive, the kubectl plugin for krew, an SBOM, packaged charts and an
//! OCI image.
//!
//! ```text
//!   cargo build (static) ─▶ dist ─▶ archive, SBOM, charts, checksums ─▶ run in a bare root file system
//!                       └─▶ image ─▶ OCI archive ─▶ run in a bare root file system and in containerd
//! ```
//!
//! Archives are reproducible: sorted, without owners, and with the time of the commit.

mod archive;
mod bare_root;
mod binary;
mod containerd;
mod dist;
mod image;
mod krew;
mod sbom;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{Outcome, print_line};
use crate::workspace;
use binary::{Binary, Linkage};

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Target triple to build for [default: this machine's, with musl if that target and musl-gcc are installed]
    #[arg(long, env = "TARGET", value_name = "TRIPLE")]
    target: Option<String>,
    /// Package this binary, and `manta-operator` beside it, instead of building them
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where the archives will be downloaded from, for the manifest of krew
    #[arg(long, env = "DOWNLOAD_URL", value_name = "URL", default_value = "https://example.com")]
    download_url: String,
    /// Directory to write to
    #[arg(long, value_name = "DIR", default_value = "dist")]
    out: PathBuf,
}

impl Args {
    /// Returns the output directory, which is created if needed.
    fn out(&self) -> Result<PathBuf> {
        let out = workspace::root().join(&self.out);
        std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
        Ok(out)
    }

    fn binary(&self) -> Result<Binary> {
        match &self.binary {
            Some(path) => Binary::existing(path),
            None => Binary::build(self.target.as_deref()),
        }
    }
}

/// Writes the release archive, its SBOM, the packaged charts and their checksums.
pub(crate) fn dist(args: &Args) -> Result<()> {
    let (out, binary) = (args.out()?, args.binary()?);
    let mut files = dist::write(&binary, &out)?;
    files.extend(krew::write(&binary, &out, &args.download_url)?);
    archive::update_checksums(&out, &files)?;
    report(&files);
    if binary.linkage == Linkage::Static {
        check(&binary, &files[0], "in a bare root file system", bare_root::run_archive)?;
    }
    Ok(())
}

/// Writes the OCI image and runs it in a bare root file system, where this user may create one.
pub(crate) fn image(args: &Args) -> Result<()> {
    let (out, binary) = (args.out()?, args.binary()?);
    let image = image::write(&binary, &out)?;
    archive::update_checksums(&out, std::slice::from_ref(&image))?;
    report(std::slice::from_ref(&image));
    let checks = [
        (
            "in a bare root file system as uid 65532 with a read-only root",
            bare_root::run as fn(&Path) -> Result<Outcome>,
        ),
        ("in containerd as uid 65532 with a read-only root", containerd::run),
    ];
    for (place, run) in checks {
        check(&binary, &image, place, run)?;
    }
    Ok(())
}

/// Runs an artefact, if this machine can, and prints whether it did.
fn check(binary: &Binary, file: &Path, place: &str, run: fn(&Path) -> Result<Outcome>) -> Result<()> {
    if !binary.runs_here()? {
        print_line(&format!("not run {place}: it is for {}", binary.architecture));
        return Ok(());
    }
    let name = file.display();
    match run(file).with_context(|| format!("{name} does not run {place}"))? {
        Outcome::Skipped(why) => print_line(&format!("not run {place}: {why}")),
        Outcome::Failed(why) => anyhow::bail!("{name} does not run {place}: {why}"),
        Outcome::Passed => print_line(&format!("ran {place}")),
    }
    Ok(())
}

fn report(files: &[PathBuf]) {
    for file in files {
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        print_line(&format!("wrote {} ({:.1} MB)", file.display(), bytes as f64 / 1e6));
    }
}
