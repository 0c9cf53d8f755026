//! Python environments with packages from PyPI, created once and cached.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache;

/// Returns the interpreter of an environment with exactly these packages (`name==version`) and their dependencies.
pub fn python_with(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = cache::cache_folder()?.join("python").join(name);
    let interpreter = folder.join("env/bin/python3");
    let done = folder.join("packages");
    let wanted = packages.join("\n");
    let is_complete = || std::fs::read_to_string(&done).is_ok_and(|installed| installed == wanted);
    if !is_complete() {
        cache::with_lock(&folder, || {
            if is_complete() {
                return Ok(());
            }
            cache::print_progress(&format!("installing {} from PyPI, once per user", packages.join(", ")));
            run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder.join("env")))?;
            run(Command::new(&interpreter)
                .args(["-m", "pip", "install", "--quiet", "--only-binary=:all:"])
                .args(packages))?;
            std::fs::write(&done, &wanted).with_context(|| format!("cannot write {}", done.display()))
        })?;
    }
    Ok(interpreter)
}

fn run(command: &mut Command) -> Result<()> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
