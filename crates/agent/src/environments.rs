//! Python environments on disk: finding one for an image, and installing it when it is missing.

use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;

use crate::agent::Shared;
use crate::images::{self, Environment, Resolution};
use crate::runtime::{CommandJob, Spawner, Stdio};

/// Returns the environment of an image, installing it if it is missing; the error is a message for the user.
pub(crate) async fn provide(shared: &Shared, image: &str) -> Result<Environment, String> {
    let catalog = &shared.config.catalog;
    let look = || catalog.resolve(image, |package| images::installed(&catalog.folder, package));
    let environment = match look() {
        Resolution::Ready(environment) => environment,
        Resolution::Unknown(why) => return Err(why),
        Resolution::Make { .. } => {
            let _turn = shared.install_lock.lock().await;
            // Another container may have installed it while this one waited for the lock.
            match look() {
                Resolution::Ready(environment) => environment,
                Resolution::Unknown(why) => return Err(why),
                Resolution::Make { requirement, path, then } => {
                    shared.log_once(&format!("image {image}: installing {requirement} into {}", path.display()));
                    make(&shared.host, &requirement, &path, &|line| tracing::info!("{line}")).await?;
                    then
                }
            }
        }
    };
    if let Some(path) = environment.path.as_ref().filter(|p| !p.join("bin").is_dir()) {
        return Err(format!("image \"{image}\" is mapped to {}, which is not a Python environment", path.display()));
    }
    if let Some(note) = &environment.note {
        shared.log_once(note);
    }
    Ok(environment)
}

/// Creates an environment with one requirement; `progress` receives the installer's output.
pub async fn make(
    host: &Spawner,
    requirement: &str,
    path: &Path,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<(), String> {
    let done = make_steps(host, requirement, path, progress).await;
    if done.is_err() {
        // A partial environment must not be mistaken for a complete one.
        let _ = tokio::fs::remove_dir_all(path).await;
    }
    done
}

async fn make_steps(
    host: &Spawner,
    requirement: &str,
    path: &Path,
    progress: &(dyn Fn(&str) + Sync),
) -> Result<(), String> {
    if let Some(parent) = path.parent() {
        tokio::fs::create_dir_all(parent).await.map_err(|e| format!("cannot create {}: {e}", parent.display()))?;
    }
    let text = |p: PathBuf| p.display().to_string();
    let python = text(path.join("bin/python"));
    let venv = ["python3", "-m", "venv", "--clear"].map(str::to_owned).into_iter().chain([text(path.to_path_buf())]);
    run(host, venv.collect(), progress).await.map_err(|why| {
        format!("cannot make a Python environment (is python3 with its venv module installed?): {why}")
    })?;
    let pip = ["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"].map(str::to_owned);
    let install = std::iter::once(python).chain(pip).chain([requirement.to_owned()]);
    run(host, install.collect(), progress)
        .await
        .map_err(|why| format!("cannot install {requirement} (is the package registry reachable?): {why}"))?;
    tokio::fs::write(path.join(images::COMPLETE), requirement).await.map_err(|e| e.to_string())
}

async fn run(host: &Spawner, argv: Vec<String>, progress: &(dyn Fn(&str) + Sync)) -> Result<(), String> {
    let to_text = |e: std::io::Error| e.to_string();
    let (sender, receiver) = pipe::pipe().map_err(to_text)?;
    let stdio = Stdio::output_to(sender.into_blocking_fd().map_err(to_text)?).map_err(to_text)?;
    let job = CommandJob { argv, env: std::env::vars().collect(), cwd: "/".into() };
    let mut process = host.command(job, stdio).await.map_err(|e| e.to_string())?;
    let mut lines = BufReader::new(receiver).lines();
    let mut last = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        progress(&line);
        if !line.trim().is_empty() {
            last = line;
        }
    }
    match process.wait().await.code() {
        0 => Ok(()),
        code => Err(format!("exit code {code}: {last}")),
    }
}

/// Returns the folders of an environment: its own, and its base interpreter's.
pub(crate) fn folders(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_path_buf()];
    // Scripts refer to the real path of the folder, which may be behind a link.
    all.extend(std::fs::canonicalize(path).ok().filter(|real| real != path));
    let config = std::fs::read_to_string(path.join("pyvenv.cfg")).unwrap_or_default();
    let home = config.lines().find_map(|line| line.strip_prefix("home")?.trim_start().strip_prefix('='));
    let bins = home
        .map(|h| PathBuf::from(h.trim()))
        .into_iter()
        .chain(std::fs::canonicalize(path.join("bin/python3")).ok().and_then(|p| p.parent().map(Path::to_path_buf)));
    for bin in bins {
        // The standard library lies beside `bin`.
        let Some(prefix) = bin.parent().filter(|p| !p.starts_with("/usr") && *p != Path::new("/")) else { continue };
        if !all.iter().any(|known| prefix.starts_with(known)) {
            all.push(prefix.to_path_buf());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_includes_its_base_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let check = |home: &str, expect: &[&str]| {
            std::fs::write(dir.path().join("pyvenv.cfg"), format!("home = {home}\nversion = 3.11\n")).unwrap();
            let real = dir.path().canonicalize().unwrap();
            let more: Vec<String> = folders(&real)[1..].iter().map(|p| p.display().to_string()).collect();
            assert_eq!(more, expect);
        };
        check("/home/me/.pyenv/versions/3.11.7/bin", &["/home/me/.pyenv/versions/3.11.7"]);
        check("/usr/bin", &[]);
        check("/usr/local/bin", &[]);
    }
}
