//! Attacks from inside pods, each of which must fail: started by root, and started by an ordinary user.
//!
//! The agent runs with the embedded API server, as in local mode. `system` holds attacks by a process that already
//! runs in a container, `spec` those by whoever may create pods. Three guards are switched off at the end to show that
//! their attacks are real.

#![allow(clippy::print_stderr, reason = "the report of a test without a harness")]

#[path = "escape/node.rs"]
mod node;
#[path = "escape/spec.rs"]
mod spec;
#[path = "escape/system.rs"]
mod system;

use std::os::unix::process::CommandExt;
use std::process::Command;

use manta_agent::runtime::enter_namespaces;
use manta_testkit::Tally;

/// Set for the second run.
const AS_USER: &str = "MANTA_ESCAPE_AS_USER";
/// An account that every machine has and that owns nothing.
const NOBODY: u32 = 65534;

fn main() {
    let form = if nix::unistd::geteuid().is_root() { "root" } else { "user" };
    let mut passed = attack(form);
    if form == "root" && std::env::var_os(AS_USER).is_none() {
        // The same again as an ordinary user, which only another process can be.
        let program = std::env::current_exe().expect("the path of this program");
        let mut again = Command::new(program);
        again
            .uid(NOBODY)
            .gid(NOBODY)
            .current_dir("/")
            .env(AS_USER, "1")
            .env("HOME", "/nonexistent")
            .env_remove("TMPDIR");
        match again.status() {
            Ok(status) => passed &= status.success(),
            Err(error) => {
                let mut tally = Tally::default();
                tally.skip("user", &format!("cannot run the tests as user {NOBODY}: {error}"));
                passed &= tally.finish();
            }
        }
    }
    std::process::exit(i32::from(!passed));
}

/// Runs all attacks in new namespaces; returns whether every one failed to escape.
fn attack(form: &'static str) -> bool {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().to_path_buf();
    let ended = enter_namespaces(move |process| node::run(process, &path, form));
    manta_agent::clean_leftovers(&dir.path().join("state"));
    match ended {
        Ok(code) => code == 0,
        Err(error) => {
            let mut tally = Tally::default();
            tally.skip(form, &error.to_string());
            tally.finish()
        }
    }
}
