//! Static checks: formatting, clippy, dependencies.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::process::{Outcome, Step, cargo, print_line, run_command, step};
use crate::workspace;

const DENY: &str = "cargo-deny";
const DENY_VERSION: &str = "0.20.2";

/// Runs all checks.
pub(crate) fn run() -> Vec<Step> {
    let mut steps = vec![
        step("formatting", || run_command(cargo().args(["fmt", "--all", "--check"]))),
        step("clippy", || {
            run_command(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
        }),
    ];
    steps.extend(deny());
    steps
}

/// Checks dependencies: bans, licences and sources, and advisories if their database is reachable.
pub(crate) fn deny() -> Vec<Step> {
    let program = match obtain_deny() {
        Ok(program) => program,
        Err(error) => return vec![step("dependencies", || Err(error))],
    };
    let command = || Command::new(&program);
    vec![
        step("dependencies", || {
            run_command(command().args(["--log-level", "error", "check", "bans", "licenses", "sources"]))
        }),
        step("advisories", || advisories(command())),
    ]
}

fn advisories(mut deny: Command) -> Result<Outcome> {
    let output = deny.args(["check", "advisories"]).current_dir(workspace::root()).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(Outcome::Passed);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("failed to fetch advisory database") {
        return Ok(Outcome::Skipped("the advisory database is not reachable".to_owned()));
    }
    print_line(&text);
    Ok(Outcome::Failed("see above".to_owned()))
}

/// Returns cargo-deny from the path, else from the cache, into which it is built once.
fn obtain_deny() -> Result<PathBuf> {
    if cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        // Called as `cargo-deny`, like the cached one, so that both take the same arguments.
        return Ok(DENY.into());
    }
    let folder = manta_testkit::cache_folder()?.join("tools").join(format!("{DENY}-{DENY_VERSION}"));
    let program = folder.join("bin").join(DENY);
    if !program.is_file() {
        print_line(&format!("── installing {DENY} {DENY_VERSION}, once per user"));
        // A debug build: it runs for a second, and builds in a fraction of the time.
        let status = cargo()
            .args(["install", "--quiet", "--debug", "--locked", "--no-default-features", "--root"])
            .arg(&folder)
            .arg(format!("{DENY}@{DENY_VERSION}"))
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env_remove("CARGO_TARGET_DIR")
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null())
            .status()
            .context("cannot start cargo")?;
        if !status.success() {
            anyhow::bail!("{DENY} {DENY_VERSION} could not be installed");
        }
    }
    Ok(program)
}
