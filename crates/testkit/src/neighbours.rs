//! Programs of other projects that Ray users run beside the operator, built from their Go modules and cached.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cache;
use crate::go::{self, Kind, Program};

/// A program of another project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Neighbour {
    /// cert-manager's controller, webhook and cainjector, one subcommand each.
    CertManager,
    Prometheus,
    Promtool,
    Traefik,
}

impl Neighbour {
    pub const ALL: [Self; 4] = [Self::CertManager, Self::Prometheus, Self::Promtool, Self::Traefik];

    /// Returns the name of its program.
    pub fn name(self) -> &'static str {
        match self {
            Self::CertManager => "cert-manager",
            Self::Prometheus => "prometheus",
            Self::Promtool => "promtool",
            Self::Traefik => "traefik",
        }
    }

    /// Returns the path of its program, which is built if it is missing.
    pub fn program(self) -> Result<PathBuf> {
        let folder = cache::cache_folder()?.join(self.name()).join(self.version()?);
        let program = folder.join(self.name());
        let build = || self.source().build(&program, &format!("{}, some minutes, once per user,", self.name()));
        if !program.is_file() {
            cache::with_lock(&folder, || if program.is_file() { Ok(()) } else { build() })?;
        }
        Ok(program)
    }

    fn source(self) -> Program<'static> {
        let (kind, flags): (_, &[&str]) = (Kind::Main, &["-ldflags", "-s -w"]);
        match self {
            Self::CertManager => {
                Program { module: concat!(env!("CARGO_MANIFEST_DIR"), "/cert-manager"), package: ".", kind, flags }
            }
            // The discovery of targets in clouds is most of the build, and the tests list their targets.
            Self::Prometheus => Program {
                module: concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus"),
                package: "github.com/prometheus/prometheus/cmd/prometheus",
                kind,
                flags: &["-tags", "remove_all_sd", "-ldflags", "-s -w"],
            },
            Self::Promtool => Program {
                module: concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus"),
                package: "github.com/prometheus/prometheus/cmd/promtool",
                kind,
                flags: &["-tags", "remove_all_sd", "-ldflags", "-s -w"],
            },
            Self::Traefik => Program {
                module: concat!(env!("CARGO_MANIFEST_DIR"), "/traefik"),
                package: "github.com/traefik/traefik/v3/cmd/traefik",
                kind,
                flags,
            },
        }
    }

    /// Returns the version that our go.mod requires.
    fn version(self) -> Result<&'static str> {
        let (module, go_mod) = match self {
            Self::CertManager => ("github.com/cert-manager/cert-manager", include_str!("../cert-manager/go.mod")),
            Self::Prometheus | Self::Promtool => {
                ("github.com/prometheus/prometheus", include_str!("../prometheus/go.mod"))
            }
            Self::Traefik => ("github.com/traefik/traefik/v3", include_str!("../traefik/go.mod")),
        };
        let required = go::required_version(go_mod, module);
        required.with_context(|| format!("the go.mod of {} does not require {module}", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_neighbour_is_pinned() {
        for neighbour in Neighbour::ALL {
            let version = neighbour.version().unwrap();
            assert!(version.starts_with('v'), "{}: {version}", neighbour.name());
        }
        let crds = include_str!("../crds/go.mod");
        let version = Neighbour::CertManager.version().unwrap();
        assert!(crds.contains(&format!("cert-manager {version}")), "cert-manager runs with the CRDs of its version");
    }
}
