//! Finds redis-server for the end-to-end tests, or installs it with apt-get.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::process::{Outcome, say};

const WITHOUT: &str = "the test that needs it is ignored; install it with the package manager";

/// Makes sure that redis-server is installed, where possible.
pub(crate) fn obtain() -> Result<Outcome> {
    if is_installed() {
        return Ok(Outcome::Passed);
    }
    if !is_root() || !succeeds("apt-get", &["--version"]) {
        return Ok(Outcome::Skipped(format!("no redis-server, and only root can install it: {WITHOUT}")));
    }
    say("installing redis-server with apt-get");
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", "redis-server"];
    // A fresh machine has no package lists yet.
    let installed =
        succeeds("apt-get", &install) || (succeeds("apt-get", &["update"]) && succeeds("apt-get", &install));
    Ok(if installed && is_installed() {
        Outcome::Passed
    } else {
        Outcome::Skipped(format!("apt-get cannot install redis-server: {WITHOUT}"))
    })
}

fn is_installed() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join("redis-server").exists())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    Path::new("/proc/self").metadata().is_ok_and(|meta| meta.uid() == 0)
}

/// Whether a command succeeds; its output is discarded.
fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    // Keeps the package from starting its service.
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
