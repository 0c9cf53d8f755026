//! The release archive: the binary with man pages, completions, manifests and SBOM; beside it the packaged charts.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::binary::Binary;
use super::{VERSION, archive, sbom};
use crate::operator::{Build, built_manta};
use crate::workspace;

/// Directories of the repository that the archive contains.
const DIRECTORIES: [&str; 5] = ["deploy/crds", "deploy/policy", "deploy/grafana", "deploy/prometheus", "examples"];
/// Files of the repository that the archive contains.
const FILES: [&str; 3] = ["LICENSE", "README.md", "CHANGELOG.md"];
const CHARTS: [&str; 2] = ["manta-operator", "ray-cluster"];

/// Writes all files of a release to the directory and returns their paths.
pub(super) fn write(binary: &Binary, out: &Path) -> Result<Vec<PathBuf>> {
    let name = format!("manta-{VERSION}-{}", binary.platform());
    let staging = tempfile::tempdir().context("no temporary directory")?;
    let root = staging.path().join(&name);
    let sbom = serde_json::to_string_pretty(&sbom::of(binary)?)? + "\n";
    fill(binary, &root, &sbom)?;

    let tar = out.join(format!("{name}.tar"));
    archive::tar(staging.path(), &[&name], &tar)?;
    let sbom_file = out.join(format!("{name}.cdx.json"));
    fs::write(&sbom_file, sbom).with_context(|| format!("cannot write {}", sbom_file.display()))?;
    let mut files = vec![archive::gzip(&tar)?, sbom_file];
    for chart in CHARTS {
        files.push(package_chart(chart, out)?);
    }
    Ok(files)
}

fn fill(binary: &Binary, root: &Path, sbom: &str) -> Result<()> {
    put(&root.join("bin/manta"), &fs::read(&binary.path)?, 0o755)?;
    // The same program under other names: kubectl's plugin, and what kubectl asks to complete its command line.
    for link in ["kubectl-ray", "kubectl_complete-ray"] {
        std::os::unix::fs::symlink("manta", root.join("bin").join(link))
            .with_context(|| format!("cannot link {link}"))?;
    }
    put(&root.join("manta.cdx.json"), sbom.as_bytes(), 0o644)?;
    for file in FILES {
        put(&root.join(file), &read(&workspace::root().join(file))?, 0o644)?;
    }
    for directory in DIRECTORIES {
        copy_directory(&workspace::root().join(directory), &root.join(directory))?;
    }
    // A binary for another architecture cannot describe itself.
    let manta = if binary.runs_here()? { binary.path.clone() } else { built_manta(Build::Debug)? };
    archive::run(Command::new(&manta).args(["man", "--dir"]).arg(root.join("share/man/man1")))?;
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/manta"),
        ("zsh", "share/zsh/site-functions/_manta"),
        ("fish", "share/fish/vendor_completions.d/manta.fish"),
    ] {
        let script = archive::run(Command::new(&manta).args(["completion", shell]))?;
        put(&root.join(file), script.as_bytes(), 0o644)?;
    }
    Ok(())
}

/// Packages a chart with Helm, which checks it, and packs it again, because Helm writes the current time into archives.
fn package_chart(chart: &str, out: &Path) -> Result<PathBuf> {
    let staging = tempfile::tempdir().context("no temporary directory")?;
    let mut helm = manta_testkit::helm_command()?;
    helm.arg("package").arg(workspace::root().join("deploy/helm").join(chart)).arg("--destination").arg(staging.path());
    archive::run(&mut helm).with_context(|| format!("cannot package the chart {chart}"))?;
    let name = format!("{chart}-{VERSION}");
    let packed = staging.path().join(format!("{name}.tgz"));
    anyhow::ensure!(packed.is_file(), "the version in deploy/helm/{chart}/Chart.yaml is not {VERSION}");
    archive::run(Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(staging.path()))?;
    let tar = staging.path().join(format!("{name}.tar"));
    archive::tar(staging.path(), &[chart], &tar)?;
    let file = out.join(format!("{name}.tgz"));
    fs::copy(archive::gzip(&tar)?, &file).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file with its parent directories.
pub(super) fn put(path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).with_context(cannot)?;
    fs::write(path, contents).with_context(cannot)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(cannot)
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or(OsStr::new("")));
        if path.is_dir() {
            copy_directory(&path, &target)?;
        } else {
            put(&target, &read(&path)?, 0o644)?;
        }
    }
    Ok(())
}
