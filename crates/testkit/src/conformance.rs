//! Kubernetes' own conformance suite and the program that its pods run, built from their Go module and cached.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache;
use crate::control_plane::linker_flags;
use crate::go::{self, Kind, Program};

/// The Go module that pins the suite.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e");
const GO_MOD: &str = include_str!("../e2e/go.mod");

/// The suite on disk.
#[derive(Debug, Clone)]
pub struct ConformanceSuite {
    /// Its version, that of Kubernetes.
    pub version: &'static str,
    /// `e2e.test`, which holds all specs.
    pub program: PathBuf,
    /// `agnhost`, which most pods of the specs run.
    pub agnhost: PathBuf,
    /// The sources of Kubernetes.
    pub sources: PathBuf,
}

impl ConformanceSuite {
    /// Returns the suite, which is built if it is missing.
    pub fn obtain() -> Result<Self> {
        let kubernetes = "k8s.io/kubernetes";
        let version = go::required_version(GO_MOD, kubernetes);
        let version = version.with_context(|| format!("e2e/go.mod does not require {kubernetes}"))?;
        let sources = go::module_sources(MODULE, kubernetes, version)?;
        let folder = cache::cache_folder()?.join("e2e").join(version);
        let linker_flags = linker_flags(version);
        let build = |name: &str, package: &str, kind: Kind| {
            let to = folder.join(name);
            let program = Program { module: MODULE, package, kind, flags: &["-ldflags", &linker_flags] };
            let what = format!("{name} {version}, some minutes, once per user,");
            if !to.is_file() {
                cache::with_lock(&folder, || if to.is_file() { Ok(()) } else { program.build(&to, &what) })?;
            }
            anyhow::Ok(to)
        };
        Ok(Self {
            version,
            agnhost: build("agnhost", "k8s.io/kubernetes/test/images/agnhost", Kind::Main)?,
            program: build("e2e.test", "k8s.io/kubernetes/test/e2e", Kind::Tests)?,
            sources,
        })
    }

    /// Returns the file that names the specs of the conformance profile.
    pub fn list(&self) -> PathBuf {
        self.sources.join("test/conformance/testdata/conformance.yaml")
    }

    /// Returns the folder with the certificate that agnhost serves TLS with.
    pub fn agnhost_certificate(&self) -> PathBuf {
        self.sources.join("test/images/agnhost/porter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_has_the_version_of_the_control_plane() {
        let of = |go_mod| go::required_version(go_mod, "k8s.io/kubernetes").unwrap();
        assert_eq!(of(GO_MOD), of(include_str!("../controlplane/go.mod")));
    }
}
