//! The images that local mode can run: Ray's, and a few whose tools most machines have.

use super::engine_image;
use anyhow::Context;
use manta_agent::images::{Catalog, MachineDisk, Mapping, PackageRule, Recipe, Resolution};
use std::path::{Path, PathBuf};

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
        exact_hint: "use --exact-ray-version to install the version of each image".to_owned(),
    }
}

/// Ray lowers the priority of its workers below that of its own processes. In a control group they still get their share
/// of the machine; without one, everything else on the machine comes before them, and a worker takes a minute to start.
pub(super) fn env_without_cgroups() -> Vec<(String, String)> {
    vec![("RAY_worker_niceness".to_owned(), "0".to_owned())]
}

/// Maps images of common tools to the tools of the machine itself.
pub(super) fn default_mappings() -> Vec<Mapping> {
    let texts = |words: &[&str]| words.iter().map(|s| (*s).to_owned()).collect();
    let tools = |image: &str, entrypoint: &[&str], cmd: &[&str]| Mapping {
        image: image.to_owned(),
        entrypoint: texts(entrypoint),
        cmd: texts(cmd),
        ..Mapping::default()
    };
    // As in the images of these names: those of distributions have no entry point.
    let shells = ["busybox", "alpine", "bash", "debian", "ubuntu"];
    let mut all: Vec<Mapping> = shells.iter().map(|image| tools(image, &[], &["/bin/sh"])).collect();
    all.push(tools("python", &[], &["python3"]));
    all.push(tools("curl", &["curl"], &[]));
    all.push(tools("redis", &["redis-server", "--protected-mode", "no"], &[]));
    all
}

/// Reads `NAME=SOURCE`: a requirements file, a folder with a `pyproject.toml`, a Python environment, an archive, or an
/// image of podman or docker, which is saved as an archive.
pub(super) fn mapping(text: &str) -> anyhow::Result<Mapping> {
    let (image, source) =
        text.split_once('=').filter(|(image, source)| !image.is_empty() && !source.is_empty()).with_context(|| {
            format!(
                "--image {text}: use NAME=requirements.txt, NAME=FOLDER, NAME=ENVIRONMENT, NAME=ARCHIVE.tar, \
                 NAME=podman:IMAGE or NAME=docker:IMAGE"
            )
        })?;
    let path = match engine_image::parse(source) {
        Some((engine, image)) => {
            let archives = home_folder("XDG_CACHE_HOME", ".cache")?.join("manta/archives");
            engine_image::archive(Path::new(engine), image, &archives).with_context(|| format!("--image {text}"))?
        }
        None => std::path::absolute(source)?,
    };
    let mapping = Mapping { image: image.to_owned(), cmd: vec!["/bin/bash".to_owned()], ..Mapping::default() };
    match kind_of(&path) {
        Some(Source::OtherArchive) => anyhow::bail!(
            "--image {text}: archives of this format are not supported; use {}, as podman save and docker save write it",
            ARCHIVES.join(", ")
        ),
        // The archive brings its own command.
        Some(Source::Archive) => Ok(Mapping { archive: Some(path), cmd: Vec::new(), ..mapping }),
        Some(Source::Requirements) => Ok(Mapping { requirements: Some(path), ..mapping }),
        Some(Source::Project) => Ok(Mapping { project: Some(path), ..mapping }),
        Some(Source::Environment) => Ok(Mapping { environment: Some(path), ..mapping }),
        None => anyhow::bail!(
            "--image {text}: {} is not a requirements file, a directory with a pyproject.toml, a Python environment or an \
             archive; for an image of a container engine, use podman:IMAGE or docker:IMAGE",
            path.display()
        ),
    }
}

/// What an image can be made from.
enum Source {
    Archive,
    /// An archive that cannot be unpacked.
    OtherArchive,
    Requirements,
    Project,
    Environment,
}

/// How the names of archives end that can be unpacked: what Python's tarfile reads.
const ARCHIVES: [&str; 7] = [".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2"];

/// How the names of other archives end.
const OTHER_ARCHIVES: [&str; 9] =
    [".tar.zst", ".tzst", ".tar.lz4", ".tar.lzma", ".tar.lz", ".tar.Z", ".zip", ".7z", ".sif"];

fn kind_of(path: &Path) -> Option<Source> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let ends_with = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    if path.is_file() && ends_with(&ARCHIVES) {
        Some(Source::Archive)
    } else if path.is_file() && ends_with(&OTHER_ARCHIVES) {
        Some(Source::OtherArchive)
    } else if path.is_file() {
        Some(Source::Requirements)
    } else if path.join("pyvenv.cfg").is_file() {
        Some(Source::Environment)
    } else if path.join("pyproject.toml").is_file() {
        Some(Source::Project)
    } else {
        None
    }
}

/// The version that is installed when there is no Ray yet.
pub(crate) const RAY_VERSION: &str = "2.60.0";

/// Whether a Ray environment is installed.
pub(crate) enum Found {
    /// A description of the environment.
    Ready(String),
    Missing {
        recipe: Recipe,
        path: PathBuf,
    },
}

/// Finds the environment that an image with this version of Ray would run in.
pub(crate) fn find_ray(catalog: &Catalog, version: &str) -> Found {
    match catalog.resolve(&format!("rayproject/ray:{version}"), &MachineDisk(&catalog.folder)) {
        Resolution::Make { recipe, path, .. } => Found::Missing { recipe, path },
        Resolution::Ready(environment) => {
            let path = environment.path.map(|p| p.display().to_string()).unwrap_or_default();
            Found::Ready(format!("{} in {path}", environment.id.trim_start_matches("manta://")))
        }
        Resolution::Unpack { archive, .. } => Found::Ready(format!("the image in {}", archive.display())),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_mapped_to_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("requirements.txt"), "numpy").unwrap();
        for (name, file) in [("app", "pyproject.toml"), ("venv", "pyvenv.cfg")] {
            std::fs::create_dir(path(name)).unwrap();
            std::fs::write(path(name).join(file), "").unwrap();
        }
        for archive in ["image.tar", "image.tar.xz", "image.tar.bz2", "image.tar.zst"] {
            std::fs::write(path(archive), "").unwrap();
        }
        let read = |name: &str| mapping(&format!("corp.io/x={}", path(name).display()));
        assert_eq!(read("requirements.txt").unwrap().requirements, Some(path("requirements.txt")));
        assert_eq!(read("app").unwrap().project, Some(path("app")));
        for archive in ["image.tar", "image.tar.xz", "image.tar.bz2"] {
            assert_eq!(read(archive).unwrap().archive, Some(path(archive)));
        }
        assert!(read("image.tar.zst").unwrap_err().to_string().contains("archives of this format are not supported"));
        assert_eq!(read("venv").unwrap().environment, Some(path("venv")));
        assert!(read("none").unwrap_err().to_string().contains("is not a requirements file"));
        for wrong in ["x", "=y", "x="] {
            assert!(mapping(wrong).unwrap_err().to_string().contains("use NAME=requirements.txt"), "{wrong}");
        }
    }
}
