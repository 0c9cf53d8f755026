//! Helm, built once with Go and cached.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::go::{self, Kind, Program};

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/helm");
const GO_MOD: &str = include_str!("../helm/go.mod");
const HELM: Program<'_> =
    Program { module: MODULE, package: "helm.sh/helm/v3/cmd/helm", kind: Kind::Main, flags: &["-ldflags", "-s -w"] };

/// Returns a `helm` command that ignores the user's own settings.
pub fn helm_command() -> Result<Command> {
    let folder = cache::cache_folder()?.join("helm").join(pinned()?);
    let program = folder.join("helm");
    if !program.is_file() {
        cache::with_lock(&folder, || {
            if program.is_file() { Ok(()) } else { HELM.build(&program, "Helm, a few minutes, once per user,") }
        })?;
    }
    let mut command = Command::new(program);
    for name in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
        command.env(name, folder.join("home"));
    }
    command.env_remove("KUBECONFIG").stdin(Stdio::null());
    Ok(command)
}

/// Runs `helm` and returns its stdout, or an error with its stderr.
pub fn helm(args: &[&str]) -> Result<String> {
    let output = helm_command()?.args(args).output().context("cannot start helm")?;
    if !output.status.success() {
        bail!("helm {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn pinned() -> Result<&'static str> {
    go::required_version(GO_MOD, "helm.sh/helm/v3").context("helm/go.mod does not require Helm")
}
