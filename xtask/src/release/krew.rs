//! The kubectl plugin for krew: an archive with the binary as `kubectl-ray`, and the manifest that installs it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::binary::Binary;
use super::dist::put;
use super::{VERSION, archive};
use crate::workspace;

/// The name of the plugin: `kubectl krew install ray`.
const PLUGIN: &str = "ray";

/// Writes the archive of a platform and the manifest of all archives in the directory.
pub(super) fn write(binary: &Binary, out: &Path, download_url: &str) -> Result<Vec<PathBuf>> {
    let staging = tempfile::tempdir().context("no temporary directory")?;
    put(&staging.path().join("kubectl-ray"), &fs::read(&binary.path)?, 0o755)?;
    // krew puts the plugin into PATH and nothing else; whoever wants completion links this file there.
    std::os::unix::fs::symlink("kubectl-ray", staging.path().join("kubectl_complete-ray"))
        .context("cannot make a link")?;
    put(&staging.path().join("LICENSE"), &fs::read(workspace::root().join("LICENSE"))?, 0o644)?;
    let tar = out.join(format!("{}.tar", archive_name("linux", go_name(&binary.architecture))));
    archive::tar(staging.path(), &["LICENSE", "kubectl-ray", "kubectl_complete-ray"], &tar)?;
    let packed = archive::gzip(&tar)?;

    let mut platforms = Vec::new();
    for architecture in ["amd64", "arm64"] {
        let name = format!("{}.tar.gz", archive_name("linux", architecture));
        // Archives of other architectures come from earlier runs.
        if out.join(&name).is_file() {
            platforms.push(platform(&name, architecture, download_url, &archive::sha256(&out.join(&name))?));
        }
    }
    let file = out.join(format!("{PLUGIN}.yaml"));
    let text = serde_saphyr::to_string(&manifest(&platforms))?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(vec![packed, file])
}

/// Returns the name of an archive, as KubeRay's releases have it.
fn archive_name(system: &str, architecture: &str) -> String {
    format!("kubectl-ray_v{VERSION}_{system}_{architecture}")
}

/// Returns Go's name of an architecture, which krew selects by.
fn go_name(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn platform(name: &str, architecture: &str, download_url: &str, sha256: &str) -> Value {
    json!({
        "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
        "uri": format!("{}/{name}", download_url.trim_end_matches('/')),
        "sha256": sha256,
        "bin": "kubectl-ray",
    })
}

fn manifest(platforms: &[Value]) -> Value {
    json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": format!("v{VERSION}"),
            "shortDescription": "Manage Ray clusters, jobs and services",
            "description": "Lists, creates, scales and deletes Ray clusters, submits jobs, forwards dashboards and downloads \
                logs, without Ray's own command.",
            "caveats": "Completion: ln -s ~/.krew/store/ray/*/kubectl_complete-ray into a directory of your PATH.",
            "platforms": platforms,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_the_archives_with_their_checksums() {
        let name = format!("{}.tar.gz", archive_name("linux", go_name("aarch64")));
        assert_eq!(name, format!("kubectl-ray_v{VERSION}_linux_arm64.tar.gz"));
        let made = manifest(&[platform(&name, "arm64", "https://host/v1/", "abc")]);
        let platform = &made["spec"]["platforms"][0];
        assert_eq!(platform["uri"], format!("https://host/v1/{name}"));
        assert_eq!((&platform["sha256"], &platform["bin"]), (&json!("abc"), &json!("kubectl-ray")));
        assert_eq!(made["metadata"]["name"], "ray");
    }

    #[test]
    fn an_archive_holds_the_plugin_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let binary = Binary::existing(&std::env::current_exe().unwrap()).unwrap();
        let files = write(&binary, folder.path(), "https://host").unwrap();
        let list = archive::run(std::process::Command::new("tar").arg("-tzf").arg(&files[0])).unwrap();
        assert_eq!(list, "LICENSE\nkubectl-ray\nkubectl_complete-ray\n");
        let text = fs::read_to_string(&files[1]).unwrap();
        assert!(text.contains(&archive::sha256(&files[0]).unwrap()), "{text}");
    }
}
