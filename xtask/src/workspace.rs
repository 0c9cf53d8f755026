//! Where things are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The workspace's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The recordings of KubeRay, which lie beside the workspace on some machines only.
pub(crate) fn recordings() -> Option<PathBuf> {
    let folder = root().parent()?.join("shared/parity");
    folder.join("parity").is_file().then_some(folder)
}

/// The folder that cargo put this program into, and will put `manta` into as well.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    Ok(program.parent().context("this program is in no folder")?.to_owned())
}
