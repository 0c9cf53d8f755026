//! `make dist` and `make image` with the debug binaries that are already built.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns a debug binary beside the one of xtask, built if it is missing.
fn built(package: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name(package);
    if !path.is_file() {
        run(Command::new(env!("CARGO")).args(["build", "--quiet", "--package", package]));
    }
    path
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

fn xtask(task: &str, out: &Path) -> String {
    // Without symbols it packs in a fraction of the time.
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("manta");
    for package in ["manta", "manta-operator"] {
        run(Command::new("strip").arg("-o").arg(folder.path().join(package)).arg(built(package)));
    }
    run(Command::new(env!("CARGO_BIN_EXE_xtask")).args([task, "--binary"]).arg(binary).arg("--out").arg(out))
}

fn verify_checksums(out: &Path) {
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(out));
}

#[test]
fn the_archive_holds_everything_that_users_install() {
    let out = tempfile::tempdir().unwrap();
    xtask("dist", out.path());
    verify_checksums(out.path());
    let name = format!("manta-{VERSION}-linux-{}", std::env::consts::ARCH);
    run(Command::new("tar").arg("-xzf").arg(format!("{name}.tar.gz")).current_dir(out.path()));
    let root = out.path().join(&name);
    assert!(run(Command::new(root.join("bin/manta")).args(["version", "--client"])).contains(VERSION));
    for file in [
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "share/man/man1/manta.1",
        "share/man/man1/manta-up.1",
        "share/bash-completion/completions/manta",
        "share/zsh/site-functions/_manta",
        "share/fish/vendor_completions.d/manta.fish",
        "deploy/crds/rayclusters.ray.io.yaml",
        "deploy/policy/rayjobs.ray.io.yaml",
        "examples/raycluster.yaml",
    ] {
        assert!(root.join(file).metadata().is_ok_and(|metadata| metadata.len() > 0), "{file}");
    }
    let text = std::fs::read_to_string(root.join("manta.cdx.json")).unwrap();
    let sbom: Value = serde_json::from_str(&text).unwrap();
    let names: BTreeSet<&str> =
        sbom["components"].as_array().unwrap().iter().map(|component| component["name"].as_str().unwrap()).collect();
    assert!(names.contains("tokio") && names.contains("manta-logic"), "{names:?}");
    assert!(!names.contains("proptest") && !names.contains("manta-testkit"), "test dependencies are not shipped");
    for chart in ["manta-operator", "ray-cluster"] {
        let listed = run(Command::new("tar").arg("-tzf").arg(format!("{chart}-{VERSION}.tgz")).current_dir(out.path()));
        assert!(listed.contains(&format!("{chart}/values.yaml")), "{listed}");
        assert_eq!(listed.contains("/crds/rayclusters.ray.io.yaml"), chart == "manta-operator", "{listed}");
        let package = out.path().join(format!("{chart}-{VERSION}.tgz"));
        manta_testkit::helm(&["template", "release", package.to_str().unwrap()]).unwrap();
    }
}

#[test]
fn the_image_runs_as_its_user_with_a_read_only_root() {
    let out = tempfile::tempdir().unwrap();
    let printed = xtask("image", out.path());
    verify_checksums(out.path());
    for (place, reasons) in [
        ("in a bare root file system", &["may not create namespaces"][..]),
        ("in containerd", &["containerd needs root", "containerd and runc are not installed"]),
    ] {
        let ran = printed.contains(&format!("ran {place} as uid 65532 with a read-only root"));
        let skipped = reasons.iter().any(|reason| printed.contains(reason));
        assert!(ran || skipped, "{place}: {printed}");
    }
}

#[test]
fn charts_and_image_have_the_version_of_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    for chart in ["manta-operator", "ray-cluster"] {
        let text = read(&format!("deploy/helm/{chart}/Chart.yaml"));
        assert!(text.contains(&format!("\nversion: {VERSION}\n")), "{chart}: {text}");
    }
    assert!(read("deploy/helm/manta-operator/values.yaml").contains(&format!("\n  tag: {VERSION}\n")));
    assert!(read("CHANGELOG.md").contains(&format!("\n## {VERSION}")), "CHANGELOG.md has a section for {VERSION}");
}
