//! A redis-server for the end-to-end tests: the machine's own, or installed from its package system.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::process::{Outcome, say};

const WITHOUT: &str = "the test that needs it is ignored; install it with the package system";

/// Makes sure there is one, where that is possible.
pub(crate) fn obtain() -> Result<Outcome> {
    if is_there() {
        return Ok(Outcome::Passed);
    }
    if !is_root() || !works("apt-get", &["--version"]) {
        return Ok(Outcome::Skipped(format!("no redis-server, and only root can install it: {WITHOUT}")));
    }
    say("installing redis-server with apt-get");
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", "redis-server"];
    // A machine that never asked for packages has no list of them yet.
    let installed = works("apt-get", &install) || (works("apt-get", &["update"]) && works("apt-get", &install));
    Ok(if installed && is_there() {
        Outcome::Passed
    } else {
        Outcome::Skipped(format!("apt-get cannot install redis-server: {WITHOUT}"))
    })
}

fn is_there() -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join("redis-server").exists())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    Path::new("/proc/self").metadata().is_ok_and(|meta| meta.uid() == 0)
}

/// Whether a command succeeds; what it prints is its own affair.
fn works(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    // Only the program is wanted, not the service that some packages start.
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
