//! Finds or builds etcd, kube-apiserver, kube-controller-manager and kubectl.
//!
//! They come from `KUBEBUILDER_ASSETS`, else from `PATH`, else from the cache, into which Go builds them once. All four
//! come from one source, so that their versions match.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::cache::{self, print_progress};
use crate::go::{self, Kind, Program};

const NAMES: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];

/// The oldest supported minor version of Kubernetes 1.
const OLDEST_MINOR: u32 = 34;

/// The Go module that pins the versions to build.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/controlplane");
const GO_MOD: &str = include_str!("../../controlplane/go.mod");

/// The paths of the four programs.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    pub(crate) etcd: PathBuf,
    pub(crate) apiserver: PathBuf,
    pub(crate) controller_manager: PathBuf,
    pub(crate) kubectl: PathBuf,
}

impl Binaries {
    /// Finds the programs, or builds them.
    pub(crate) fn obtain() -> Result<Self> {
        if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
            match Self::found_by(|name| Some(assets.join(name)).filter(|path| path.is_file())) {
                Some(found) => return Ok(found),
                None => print_progress(&format!(
                    "KUBEBUILDER_ASSETS={} lacks one of {}: ignored",
                    assets.display(),
                    NAMES.join(", ")
                )),
            }
        }
        if let Some(found) = Self::found_by(in_path).filter(|found| is_new_enough(&found.apiserver)) {
            return Ok(found);
        }
        Self::from_cache()
    }

    fn found_by(find: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let [etcd, apiserver, controller_manager, kubectl] = NAMES.map(find);
        Some(Self { etcd: etcd?, apiserver: apiserver?, controller_manager: controller_manager?, kubectl: kubectl? })
    }

    fn from_cache() -> Result<Self> {
        let version = pinned("k8s.io/kubernetes")?;
        let folder = cache::cache_folder()?.join("controlplane").join(version);
        let built = || Self::found_by(|name| Some(folder.join(name)).filter(|path| path.is_file()));
        if let Some(found) = built() {
            return Ok(found);
        }
        cache::with_lock(&folder, || {
            for (index, name) in NAMES.iter().enumerate() {
                if !folder.join(name).is_file() {
                    build(name, version, &folder, &format!("({}/{})", index + 1, NAMES.len()))?;
                }
            }
            Ok(())
        })?;
        built().context("the control plane was built, but a program is missing")
    }
}

/// Returns the version of a module in our go.mod.
fn pinned(module: &str) -> Result<&'static str> {
    go::required_version(GO_MOD, module).with_context(|| format!("controlplane/go.mod does not require {module}"))
}

fn in_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn is_new_enough(apiserver: &Path) -> bool {
    let Ok(output) = Command::new(apiserver).arg("--version").stdin(Stdio::null()).output() else { return false };
    minor_version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|minor| minor >= OLDEST_MINOR)
}

/// Returns 34 for `Kubernetes v1.34.4`.
fn minor_version(text: &str) -> Option<u32> {
    text.split_once("v1.")?.1.split('.').next()?.trim().parse().ok()
}

fn build(name: &str, version: &str, folder: &Path, progress: &str) -> Result<()> {
    let package = match name {
        "etcd" => "go.etcd.io/etcd/server/v3".to_owned(),
        _ => format!("k8s.io/kubernetes/cmd/{name}"),
    };
    let flags = ["-ldflags", &linker_flags(version)];
    let program = Program { module: MODULE, package: &package, kind: Kind::Main, flags: &flags };
    let what = format!("{name} {version} {progress}, about 5 minutes for all, once per user,");
    program.build(&folder.join(name), &what)
}

/// Returns the linker flags that set the version; without them it is v0.0.0, which changes the API versions served.
pub(crate) fn linker_flags(version: &str) -> String {
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or("1"), parts.next().unwrap_or("0"));
    ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"]
        .iter()
        .map(|package| {
            format!(" -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
        })
        .fold("-s -w".to_owned(), |flags, more| flags + &more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_go_mod() {
        assert!(
            minor_version(&format!("Kubernetes {}", pinned("k8s.io/kubernetes").unwrap())).unwrap() >= OLDEST_MINOR
        );
        assert!(pinned("go.etcd.io/etcd/server/v3").unwrap().starts_with("v3."));
        assert!(pinned("example.org/absent").is_err());
    }

    #[test]
    fn the_minor_version_is_parsed_from_the_version_output() {
        for (text, expect) in [
            ("Kubernetes v1.34.4\n", Some(34)),
            ("Kubernetes v1.35.0-rc.1+x\n", Some(35)),
            ("etcd Version: 3.6\n", None),
            ("", None),
        ] {
            assert_eq!(minor_version(text), expect, "{text}");
        }
    }

    #[test]
    fn linker_flags_set_the_version() {
        let flags = linker_flags("v1.34.4");
        assert!(flags.starts_with("-s -w ") && flags.contains("base/version.gitVersion=v1.34.4 "), "{flags}");
        assert!(flags.contains("base/version.gitMinor=34"), "{flags}");
    }
}
