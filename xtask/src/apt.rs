//! Finds programs on this machine, and installs Debian packages with apt-get.

use std::process::Command;

use crate::process::{is_root, print_line, succeeds};

/// Whether a program is in the path.
pub(crate) fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).exists())
}

/// Whether packages can be installed: only root can, and only where there is apt-get.
pub(crate) fn is_available() -> bool {
    is_root() && apt_get(&["--version"])
}

/// Installs a package and returns whether its program is there then.
pub(crate) fn install(program: &str, package: &str) -> bool {
    if !is_available() {
        return false;
    }
    print_line(&format!("installing {package} with apt-get"));
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", package];
    // A fresh machine has no package lists yet.
    (apt_get(&install) || (apt_get(&["update"]) && apt_get(&install))) && is_installed(program)
}

fn apt_get(args: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    // The run level keeps the package from starting its service.
    succeeds(command.args(args).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1"))
}
