//! Images from archives: unpacked once, in a container, and run as the root file system of others.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::agent::Shared;
use crate::cache_lock::CacheLock;
use crate::environments::{Progress, Stage};
use crate::images::{self, Environment};
use crate::runtime::confinement::{Confinement, DEFAULT_CAPABILITIES, Seccomp};
use crate::runtime::rootfs::{self, Bind, RootfsSpec};
use crate::runtime::{ContainerJob, Stdio};
use crate::volumes::disk;

/// The program that unpacks. Archives may come from anywhere, so it sees nothing but the archive and the target.
const UNPACK: &str = include_str!("unpack.py");
const TARGET: &str = "/image";

/// What an image says about running it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
struct ImageConfig {
    env: Vec<(String, String)>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    cwd: PathBuf,
    uid: u32,
    gid: u32,
}

/// Unpacks an archive into a folder, as `rootfs` and `config.json`, unless another process has done so.
pub(crate) async fn unpack(
    shared: &Shared,
    archive: &Path,
    path: &Path,
    progress: &(dyn Fn(&Progress) + Sync),
) -> Result<(), String> {
    if shared.config.shared_host.is_some() {
        return Err(format!("the image {} cannot run with reduced isolation", archive.display()));
    }
    let what = format!("unpacking {}", archive.display());
    let show = |stage| {
        let (what, into) = (what.clone(), path.to_path_buf());
        progress(&Progress { what, into, packages: 0, megabytes: 0, stage });
    };
    show(Stage::Downloading);
    let steps = async {
        let _lock = CacheLock::take(path, || show(Stage::Waiting)).await?;
        if images::is_complete(path) {
            return Ok(());
        }
        let done = unpack_steps(shared, archive, path).await;
        if done.is_err() {
            let _ = tokio::fs::remove_dir_all(path).await;
        }
        done
    };
    let done = steps.await;
    show(if done.is_ok() { Stage::Done } else { Stage::Failed });
    done.map_err(|why| format!("cannot unpack {}: {why}", archive.display()))
}

async fn unpack_steps(shared: &Shared, archive: &Path, path: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let _ = tokio::fs::remove_dir_all(path).await;
    let owner = shared.ids.owner(0, 0);
    let (target, root) = (path.join("rootfs"), shared.config.state.join("unpack"));
    std::fs::create_dir_all(path).map_err(text)?;
    disk::make_dir(&target, 0o755, owner).map_err(text)?;
    disk::make_dir(&root, 0o755, owner).map_err(text)?;
    let spec = RootfsSpec {
        binds: vec![Bind { source: target, sub_path: None, target: TARGET.into(), read_only: false }],
        root: owner,
        user: owner,
        ..RootfsSpec::default()
    };
    let job = ContainerJob {
        argv: ["python3", "-c", UNPACK, TARGET].map(str::to_owned).to_vec(),
        env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
        cwd: "/".into(),
        root: Some(root.clone()),
        overlay: None,
        mounts: rootfs::plan(&spec, &rootfs::look, &rootfs::list),
        confinement: Confinement {
            ids: shared.ids,
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            capabilities: DEFAULT_CAPABILITIES.bits(),
            seccomp: Seccomp::RuntimeDefault,
            max_processes: None,
        },
        cgroups: Vec::new(),
        tty: false,
    };
    let (stdout, mut out) = pipe::pipe().map_err(text)?;
    let (stderr, mut err) = pipe::pipe().map_err(text)?;
    let stdio = Stdio {
        stdin: std::fs::File::open(archive).map_err(text)?.into(),
        stdout: stdout.into_blocking_fd().map_err(text)?,
        stderr: stderr.into_blocking_fd().map_err(text)?,
    };
    let mut process = shared.containers.container(job, stdio, &[]).await.map_err(|e| e.to_string())?;
    let (mut config, mut complaints) = (String::new(), String::new());
    let read = tokio::try_join!(out.read_to_string(&mut config), err.read_to_string(&mut complaints));
    let code = process.wait().await.code();
    let _ = std::fs::remove_dir_all(&root);
    read.map_err(text)?;
    if code != 0 {
        return Err(complaints.lines().last().unwrap_or("no reason was given").to_owned());
    }
    std::fs::write(path.join("config.json"), config).map_err(text)?;
    std::fs::write(path.join(images::COMPLETE), archive.display().to_string()).map_err(text)
}

/// Adds what the image says about running it; what the mapping says takes precedence.
pub(crate) fn configure(environment: Environment, root: &Path) -> Result<Environment, String> {
    let file = root.with_file_name("config.json");
    let text = std::fs::read_to_string(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let config: ImageConfig =
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}; remove its folder", file.display()))?;
    Ok(merge(environment, config))
}

fn merge(own: Environment, image: ImageConfig) -> Environment {
    let (entrypoint, cmd) = if own.entrypoint.is_empty() && own.cmd.is_empty() {
        (image.entrypoint, image.cmd)
    } else {
        (own.entrypoint.clone(), own.cmd.clone())
    };
    let mut env = image.env;
    env.extend(own.env.clone());
    let user = own.user.or(Some((image.uid, image.gid)));
    Environment { entrypoint, cmd, env, cwd: Some(image.cwd), user, ..own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_takes_precedence_over_the_image() {
        let image = || ImageConfig {
            env: vec![("A".into(), "1".into())],
            cmd: vec!["sh".into()],
            cwd: "/app".into(),
            uid: 7,
            ..ImageConfig::default()
        };
        let got = merge(Environment::default(), image());
        assert_eq!(
            (got.cmd.as_slice(), got.user, got.cwd),
            (["sh".to_owned()].as_slice(), Some((7, 0)), Some("/app".into()))
        );
        let own = Environment {
            entrypoint: vec!["run".into()],
            env: vec![("A".into(), "2".into())],
            user: Some((1000, 0)),
            ..Environment::default()
        };
        let got = merge(own, image());
        assert_eq!((got.entrypoint.as_slice(), got.cmd.len()), (["run".to_owned()].as_slice(), 0));
        assert_eq!(got.env.last(), Some(&("A".to_owned(), "2".to_owned())));
        assert_eq!(got.user, Some((1000, 0)));
    }
}
