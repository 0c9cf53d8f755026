//! The programs of this machine that the specs' pods run: those of Debian packages, installed where possible.

use crate::apt::{self, is_installed};
use crate::process::print_line;

/// Programs with the packages that bring them.
const TOOLS: [(&str, &str); 5] =
    [("curl", "curl"), ("dig", "bind9-dnsutils"), ("nc", "netcat-openbsd"), ("perl", "perl-base"), ("wget", "wget")];

/// Installs what is missing; says what could not be got, because the specs that need it fail.
pub(super) fn obtain() {
    for (program, package) in TOOLS {
        if !is_installed(program) && !apt::install(program, package) {
            print_line(&format!("no {program}: specs that need it fail; install the package {package}"));
        }
    }
}
