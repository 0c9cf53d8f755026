//! The images that local mode can run: Ray's, and a few whose tools most machines have.

use anyhow::Context;
use manta_agent::images::{Catalog, Mapping, PackageRule, Resolution, installed};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Maps Ray images to a Python environment with that version of Ray.
pub(super) fn package_rule() -> PackageRule {
    let env = [
        ("HOME", "/home/ray"),
        // Ray must not send usage statistics.
        ("RAY_USAGE_STATS_ENABLED", "0"),
        ("PYTHONUNBUFFERED", "1"),
    ];
    PackageRule {
        repositories: ["ray", "ray-ml", "ray-llm"].map(str::to_owned).to_vec(),
        package: "ray".to_owned(),
        requirement: "ray[default,serve]=={version}".to_owned(),
        env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
    }
}

/// Maps images of common tools to the tools of the machine itself.
pub(super) fn default_mappings() -> Vec<Mapping> {
    let tools = |image: &str, entrypoint: &[&str]| Mapping {
        image: image.to_owned(),
        environment: None,
        entrypoint: entrypoint.iter().map(|s| (*s).to_owned()).collect(),
        env: BTreeMap::new(),
    };
    let shells = ["busybox", "alpine", "bash", "debian", "ubuntu", "curl", "python"];
    let mut all: Vec<Mapping> = shells.iter().map(|image| tools(image, &["/bin/sh"])).collect();
    all.push(tools("redis", &["redis-server", "--protected-mode", "no"]));
    all
}

/// The version that is installed when there is no Ray yet.
pub(crate) const RAY_VERSION: &str = "2.60.0";

/// Whether a Ray environment is installed.
pub(crate) enum Found {
    /// A description of the environment.
    Ready(String),
    Missing {
        requirement: String,
        path: PathBuf,
    },
}

/// Finds the environment that an image with this version of Ray would run in.
pub(crate) fn find_ray(catalog: &Catalog, version: &str) -> Found {
    match catalog.resolve(&format!("rayproject/ray:{version}"), |package| installed(&catalog.folder, package)) {
        Resolution::Make { requirement, path, .. } => Found::Missing { requirement, path },
        Resolution::Ready(environment) => {
            let path = environment.path.map(|p| p.display().to_string()).unwrap_or_default();
            Found::Ready(format!("{} in {path}", environment.id.trim_start_matches("manta://")))
        }
        Resolution::Unknown(why) => Found::Ready(why),
    }
}

/// Returns the directory that holds the environments.
pub(super) fn folder() -> anyhow::Result<PathBuf> {
    Ok(home_folder("XDG_CACHE_HOME", ".cache")?.join("manta/envs"))
}

/// Returns the user's directory that the variable names, or the default below the home directory.
pub(super) fn home_folder(variable: &str, default: &str) -> anyhow::Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute(variable)
        .or_else(|| absolute("HOME").map(|home| home.join(default)))
        .with_context(|| format!("neither {variable} nor HOME is set to an absolute path; set one of them"))
}
