//! Finds redis-server for the end-to-end tests, or installs it with apt-get.

use std::process::Command;

use anyhow::Result;

use crate::process::{Outcome, is_root, print_line, succeeds};

const WITHOUT: &str = "the test that needs it is ignored; install it with the package manager";

/// Makes sure that redis-server is installed, where possible.
pub(crate) fn obtain() -> Result<Outcome> {
    if is_installed() {
        return Ok(Outcome::Passed);
    }
    if !is_root() || !apt_get(&["--version"]) {
        return Ok(Outcome::Skipped(format!("no redis-server, and only root can install it: {WITHOUT}")));
    }
    print_line("installing redis-server with apt-get");
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", "redis-server"];
    // A fresh machine has no package lists yet.
    let installed = apt_get(&install) || (apt_get(&["update"]) && apt_get(&install));
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

fn apt_get(args: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    // The run level keeps the package from starting its service.
    succeeds(command.args(args).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1"))
}
