//! Paths in and around the workspace.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Returns the directory of KubeRay's recordings, which exists beside the workspace on some machines only.
pub(crate) fn recordings() -> Option<PathBuf> {
    let folder = root().parent()?.join("shared/parity");
    folder.join("parity").is_file().then_some(folder)
}

/// Returns the directory of this program, into which cargo also builds `manta`.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(program.parent().context("this program's path has no parent directory")?.to_owned())
}
