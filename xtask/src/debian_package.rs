//! Finds a program that tests use, or installs its Debian package.

use anyhow::Result;

use crate::apt;
use crate::process::Outcome;

const WITHOUT: &str = "the tests that need it are ignored; install it with the package manager";

/// Makes sure that the program of a package, which has the package's name, is installed, where possible.
pub(crate) fn obtain(package: &str) -> Result<Outcome> {
    if apt::is_installed(package) {
        return Ok(Outcome::Passed);
    }
    if !apt::is_available() {
        return Ok(Outcome::Skipped(format!("no {package}, and only root can install it: {WITHOUT}")));
    }
    Ok(if apt::install(package, package) {
        Outcome::Passed
    } else {
        Outcome::Skipped(format!("apt-get cannot install {package}: {WITHOUT}"))
    })
}
