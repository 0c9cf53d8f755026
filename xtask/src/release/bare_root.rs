//! Runs an image or a release archive, unpacked into a bare root file system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::image::UID;
use super::{VERSION, archive};
use crate::process::{Outcome, is_root, succeeds};

/// Mounts the root read-only with one writable volume, runs the command in it as the image's user, and prints the owner
/// of a file that the command wrote. `$1` is the root, `$2` how to change the user, the rest the command.
const SCRIPT: &str = r#"
set -e
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mount -t tmpfs -o mode=1777 none "$root/volume"
mount -o remount,bind,ro "$root"
chroot $user "$root" "$@"
chroot $user "$root" /manta crds --dir /volume/crds
stat -c 'owner %u' "$root/volume/crds"
if chroot $user "$root" /manta crds --dir /crds; then echo writable; fi
"#;

/// Unpacks the image and runs its entrypoint as its user, with a read-only root and nothing else in it.
pub(super) fn run(image: &Path) -> Result<Outcome> {
    let folder = tempfile::tempdir().context("no temporary directory")?;
    let (root, config) = unpack(image, folder.path())?;
    fs::create_dir(root.join("volume"))?;
    ensure!(config["config"]["User"] == format!("{UID}:{UID}"), "the image runs as {}", config["config"]["User"]);
    let entrypoint = config["config"]["Entrypoint"][0].as_str().context("the image has no entrypoint")?;

    let mut command = Command::new("timeout");
    command.args(["120", "unshare"]);
    let user = if is_root() {
        command.arg("--mount");
        format!("--userspec={UID}:{UID}")
    } else {
        // Without root, the user is mapped instead of changed.
        command.args(["--user", &format!("--map-user={UID}"), &format!("--map-group={UID}"), "--keep-caps", "--mount"]);
        String::new()
    };
    if !succeeds(Command::new("timeout").args(command.get_args()).arg("true")) {
        return Ok(Outcome::Skipped("this user may not create namespaces".to_owned()));
    }
    command.args(["sh", "-c", SCRIPT, "sandbox"]).arg(&root).arg(&user).args([entrypoint, "--help"]);
    let output = command.stdin(Stdio::null()).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{stdout}{stderr}");
    ensure!(stdout.contains("--batch-scheduler"), "the entrypoint is not the operator: {stdout}{stderr}");
    ensure!(stdout.contains(&format!("owner {UID}\n")), "another user ran it: {stdout}{stderr}");
    ensure!(stderr.contains("Read-only file system"), "the root is writable: {stdout}{stderr}");
    Ok(Outcome::Passed)
}

/// Unpacks a release archive into an empty directory and runs its binary with that directory as root.
pub(super) fn run_archive(file: &Path) -> Result<Outcome> {
    let root = tempfile::tempdir().context("no temporary directory")?;
    archive::run(Command::new("tar").args(["-xz", "--strip-components=1", "-f"]).arg(file).arg("-C").arg(root.path()))?;
    let mut command = Command::new("timeout");
    command.args(["120", "unshare", "--mount"]);
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    if !succeeds(Command::new("timeout").args(command.get_args()).arg("true")) {
        return Ok(Outcome::Skipped("this user may not create namespaces".to_owned()));
    }
    command.arg("chroot").arg(root.path()).args(["/bin/manta", "version", "--client"]);
    let output = archive::run(command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))?;
    ensure!(output.contains(&format!("manta {VERSION}")), "{output}");
    Ok(Outcome::Passed)
}

/// Verifies every digest of the archive, unpacks its layers, and returns the root and the image's configuration.
fn unpack(image: &Path, folder: &Path) -> Result<(PathBuf, Value)> {
    let (layout, root) = (folder.join("layout"), folder.join("root"));
    for directory in [&layout, &root] {
        fs::create_dir(directory)?;
    }
    archive::run(Command::new("tar").arg("-xf").arg(image).arg("-C").arg(&layout))?;
    let blob = |descriptor: &Value| -> Result<PathBuf> {
        let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        let digest = digest.with_context(|| format!("no digest in {descriptor}"))?;
        let path = layout.join("blobs/sha256").join(digest);
        ensure!(archive::sha256(&path)? == digest, "{} has another digest", path.display());
        ensure!(descriptor["size"] == path.metadata()?.len(), "{} has another size", path.display());
        Ok(path)
    };
    let read = |path: PathBuf| -> Result<Value> { Ok(serde_json::from_slice(&fs::read(path)?)?) };
    let index = read(layout.join("index.json"))?;
    let manifest = read(blob(&index["manifests"][0])?)?;
    let config = read(blob(&manifest["config"])?)?;
    let layers = manifest["layers"].as_array().context("no layers")?;
    ensure!(layers.len() == 1, "{} layers", layers.len());
    archive::run(Command::new("tar").arg("-xzf").arg(blob(&layers[0])?).arg("-C").arg(&root))?;
    Ok((root, config))
}
