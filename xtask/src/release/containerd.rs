//! Runs an image archive in containerd: the machine's own, or Debian's packages unpacked into the cache.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use manta_testkit::Supervised;
use serde_json::Value;

use super::image::{UID, reference};
use super::{VERSION, archive};
use crate::process::{Outcome, is_root, print_line, succeeds};

/// Imports the image into a containerd of its own and runs it there with a read-only root.
pub(super) fn run(image: &Path) -> Result<Outcome> {
    let may_isolate = succeeds(Command::new("unshare").args(["--mount", "--pid", "--net", "--fork", "true"]));
    if !is_root() || !may_isolate {
        return Ok(Outcome::Skipped("containerd needs root, with the right to create namespaces".to_owned()));
    }
    let Some(path) = search_path() else {
        return Ok(Outcome::Skipped("containerd and runc are not installed".to_owned()));
    };
    let folder = tempfile::tempdir().context("no temporary directory")?;
    let socket = folder.path().join("containerd.sock");
    let config = folder.path().join("config.toml");
    fs::write(&config, "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n")?;
    // `env` looks the program up in the new path; `timeout` keeps a broken containerd from hanging us.
    let command = |launcher: &[&str]| {
        let mut command = Command::new(launcher[0]);
        command.args(&launcher[1..]).env("PATH", &path).arg("--address").arg(&socket);
        command
    };
    let ctr = || command(&["timeout", "120", "ctr"]);
    let mut daemon = command(&["env", "containerd"]);
    daemon.arg("--config").arg(&config).arg("--root").arg(folder.path().join("root"));
    let mut daemon =
        Supervised::start(folder.path(), "containerd", daemon.arg("--state").arg(folder.path().join("state")))?;
    let end = Instant::now() + Duration::from_secs(60);
    while !succeeds(ctr().arg("version")) {
        daemon.check()?;
        if Instant::now() > end {
            bail!("containerd does not respond; the end of its log:\n{}", daemon.log_tail(15));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // The native snapshotter copies files, so it works on every file system.
    archive::run(ctr().args(["images", "import", "--snapshotter=native"]).arg(image))?;
    let flags = ["--read-only", "--snapshotter=native", &reference()];
    archive::run(ctr().args(["containers", "create"]).args(flags).arg("inspected"))?;
    let info = archive::run(ctr().args(["containers", "info", "inspected"]))?;
    let spec = serde_json::from_str::<Value>(&info).context("ctr did not print JSON")?["Spec"].take();
    ensure!(spec["process"]["user"]["uid"] == UID, "containerd runs it as {}", spec["process"]["user"]);
    ensure!(spec["root"]["readonly"] == true, "the root is writable: {}", spec["root"]);
    let arguments = ["executed", "/manta", "version", "--client"];
    let output = archive::run(ctr().args(["run", "--rm"]).args(flags).args(arguments))?;
    daemon.terminate(Duration::from_secs(20))?;
    ensure!(output.contains(&format!("manta {VERSION}")), "{output}");
    Ok(Outcome::Passed)
}

/// Returns a search path with containerd and runc, or None if they are not available.
fn search_path() -> Option<OsString> {
    let own = std::env::var_os("PATH").unwrap_or_default();
    if has_programs(&own) {
        return Some(own);
    }
    let root = manta_testkit::cache_folder().ok()?.join("containerd");
    let folders = ["usr/bin", "usr/sbin"].map(|folder| root.join(folder));
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&own))).ok()?;
    if !has_programs(&path) {
        print_line("unpacking Debian's containerd into the cache, once per user");
        unpack_packages(&root).ok()?;
    }
    has_programs(&path).then_some(path)
}

fn has_programs(path: &OsString) -> bool {
    ["containerd", "ctr", "runc"]
        .iter()
        .all(|program| succeeds(Command::new("env").env("PATH", path).args([program, "--version"])))
}

/// Downloads and unpacks the packages; nothing is installed, and no service starts.
fn unpack_packages(root: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary directory")?;
    archive::run(
        Command::new("apt-get")
            .args(["-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=0", "download", "containerd", "runc"])
            .current_dir(folder.path()),
    )?;
    fs::create_dir_all(root)?;
    for entry in fs::read_dir(folder.path())? {
        let package: PathBuf = entry?.path();
        archive::run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root))?;
    }
    Ok(())
}
