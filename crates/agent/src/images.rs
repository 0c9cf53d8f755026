//! Maps container images to Python environments of this host.
//!
//! There is no registry and no unpacking. A rule says that images of some repositories are a
//! package at the version their tag names; a mapping names any other image. What neither knows is
//! an image that cannot be pulled, and the message says how to map it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// What a container runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Shown as `imageID`.
    pub id: String,
    /// The root of the Python environment; the machine's own tools when absent.
    pub path: Option<PathBuf>,
    pub entrypoint: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Logged once when the version differs from the one that was asked for.
    pub note: Option<String>,
}

/// The resolution of one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    Ready(Environment),
    /// The environment has to be made first.
    Make {
        requirement: String,
        path: PathBuf,
        then: Environment,
    },
    /// `ErrImagePull`, with what to do about it.
    Unknown(String),
}

/// Images of these repositories are one package at the version in their tag.
#[derive(Debug, Clone, Default)]
pub struct PackageRule {
    /// Last parts of repository names, such as `ray` in `rayproject/ray:2.9.0`.
    pub repositories: Vec<String>,
    pub package: String,
    /// `{version}` stands for the version.
    pub requirement: String,
    /// Where to look for the package's own metadata, to learn an environment's version.
    pub env: Vec<(String, String)>,
}

/// Which version to run when the one asked for is not installed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Versions {
    /// The newest installed one, with a log line.
    #[default]
    Newest,
    /// Make an environment with exactly the version of the tag.
    Exact,
    /// Always this environment.
    Fixed(PathBuf),
}

/// An environment found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub version: Version,
    pub path: PathBuf,
}

/// One line of the mapping file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Mapping {
    /// The image, with `*` for any text; without a tag it matches every tag.
    pub image: String,
    /// A Python environment; the machine's own tools when absent.
    #[serde(default)]
    pub environment: Option<PathBuf>,
    #[serde(default)]
    pub entrypoint: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// A mapping file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MappingFile {
    #[serde(default)]
    pub images: Vec<Mapping>,
}

/// Everything [`Catalog::resolve`] decides from.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    pub mappings: Vec<Mapping>,
    pub rules: Vec<PackageRule>,
    pub versions: Versions,
    /// Where environments are made, one folder `<package>-<version>` each.
    pub folder: PathBuf,
}

impl Catalog {
    /// Finds what an image stands for, given the environments on disk for a package.
    pub fn resolve(&self, image: &str, installed: impl Fn(&str) -> Vec<Installed>) -> Resolution {
        if let Some(mapping) = self.mappings.iter().find(|m| matches(&m.image, image)) {
            let shown = mapping.environment.as_ref().map_or("host".to_owned(), |p| p.display().to_string());
            return Resolution::Ready(Environment {
                id: format!("manta://{shown}"),
                path: mapping.environment.clone(),
                entrypoint: mapping.entrypoint.clone(),
                env: mapping.env.clone().into_iter().collect(),
                note: None,
            });
        }
        let (repository, tag) = split(image);
        let last = repository.rsplit('/').next().unwrap_or(repository);
        match self.rules.iter().find(|rule| rule.repositories.iter().any(|r| r == last)) {
            Some(rule) => self.resolve_package(rule, image, tag, installed(&rule.package)),
            None => Resolution::Unknown(format!(
                "image \"{image}\" has no local environment: add it to the image mapping file (--images FILE) as\n\
                 images:\n- image: {repository}\n  environment: /path/to/a/python/environment\n\
                 or leave out `environment` to run its command with this machine's own tools"
            )),
        }
    }

    fn resolve_package(&self, rule: &PackageRule, image: &str, tag: &str, installed: Vec<Installed>) -> Resolution {
        let wanted = Version::leading(tag);
        let ready = |path: PathBuf, version: Option<&Version>, note: Option<String>| Environment {
            id: match version {
                Some(version) => format!("manta://{}-{version}", rule.package),
                None => format!("manta://{}", path.display()),
            },
            path: Some(path),
            entrypoint: vec!["/bin/bash".to_owned()],
            env: rule.env.clone(),
            note,
        };
        if let Versions::Fixed(path) = &self.versions {
            return Resolution::Ready(ready(
                path.clone(),
                None,
                Some(format!("image {image} runs in {}", path.display())),
            ));
        }
        if let Some(found) = installed.iter().find(|i| Some(&i.version) == wanted.as_ref()) {
            return Resolution::Ready(ready(found.path.clone(), wanted.as_ref(), None));
        }
        let newest = installed.into_iter().max_by(|a, b| a.version.cmp(&b.version));
        match (newest, wanted) {
            (Some(newest), wanted) if self.versions == Versions::Newest || wanted.is_none() => {
                let note = format!("image {image} runs {} {}, the newest one installed", rule.package, newest.version);
                Resolution::Ready(ready(newest.path, Some(&newest.version), Some(note)))
            }
            (_, Some(version)) => {
                let path = self.folder.join(format!("{}-{version}", rule.package));
                let requirement = rule.requirement.replace("{version}", &version.to_string());
                Resolution::Make { requirement, then: ready(path.clone(), Some(&version), None), path }
            }
            (_, None) => Resolution::Unknown(format!(
                "image \"{image}\" names no version of {} and none is installed: use a tag such as {}:1.2.3",
                rule.package, rule.package
            )),
        }
    }
}

/// The environments of a package under `folder`, by the name of their folders.
pub fn installed(folder: &Path, package: &str) -> Vec<Installed> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let version_of = |name: &str| Version::parse(name.strip_prefix(package)?.strip_prefix('-')?);
    let mut found: Vec<Installed> = entries
        .flatten()
        .filter_map(|e| Some(Installed { version: version_of(e.file_name().to_str()?)?, path: e.path() }))
        // The marker is written last, so that half an installation does not count.
        .filter(|i| i.path.join(COMPLETE).exists())
        .collect();
    found.sort_by(|a, b| a.version.cmp(&b.version));
    found
}

/// The file whose presence says that an environment is complete.
pub const COMPLETE: &str = "manta-complete";

/// A dotted version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u64>);

impl Version {
    pub fn parse(text: &str) -> Option<Self> {
        text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<_>>>().filter(|v| v.len() >= 2).map(Self)
    }

    /// The version a tag begins with: `2.9.0` of `2.9.0-py310-gpu` or `2.9.0.abc123`.
    pub fn leading(tag: &str) -> Option<Self> {
        let parts: Vec<u64> = tag.split(['.', '-', '_']).map_while(|part| part.parse().ok()).take(3).collect();
        (parts.len() >= 2).then_some(Self(parts))
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

/// Repository and tag; a colon before the last slash belongs to a port.
fn split(image: &str) -> (&str, &str) {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (image, "latest"),
    }
}

fn matches(pattern: &str, image: &str) -> bool {
    let (repository, _) = split(image);
    let last = repository.rsplit('/').next().unwrap_or(repository);
    glob(pattern, image) || glob(pattern, repository) || (!pattern.contains('/') && glob(pattern, last))
}

fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(i, _)| i).chain([rest.len()]).any(|i| glob(after, &rest[i..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(versions: Versions) -> Catalog {
        Catalog {
            mappings: vec![
                Mapping {
                    image: "redis".into(),
                    environment: None,
                    entrypoint: vec!["redis-server".into()],
                    env: BTreeMap::new(),
                },
                Mapping {
                    image: "corp.io/*/train".into(),
                    environment: Some("/e".into()),
                    entrypoint: vec![],
                    env: BTreeMap::new(),
                },
            ],
            rules: vec![PackageRule {
                repositories: vec!["ray".into(), "ray-ml".into()],
                package: "ray".into(),
                requirement: "ray[default]=={version}".into(),
                env: vec![],
            }],
            versions,
            folder: "/envs".into(),
        }
    }

    /// In short: the path that runs, `make REQUIREMENT in PATH`, or the first words of the refusal.
    fn check(versions: Versions, installed: &[&str], image: &str, expect: &str) {
        let found = |_: &str| {
            let one =
                |v: &&str| Installed { version: Version::parse(v).unwrap(), path: format!("/envs/ray-{v}").into() };
            installed.iter().map(one).collect()
        };
        let got = match catalog(versions).resolve(image, found) {
            Resolution::Ready(e) => {
                let path = e.path.map_or("host".to_owned(), |p| p.display().to_string());
                format!("{path}{}", if e.note.is_some() { " (noted)" } else { "" })
            }
            Resolution::Make { requirement, path, .. } => format!("make {requirement} in {}", path.display()),
            Resolution::Unknown(why) => why.split(':').next().unwrap_or_default().to_owned() + ":",
        };
        assert_eq!(got.trim_end_matches(':'), expect.trim_end_matches(':'), "{image}");
    }

    #[test]
    fn tags_choose_versions() {
        let both: &[&str] = &["2.9.3", "2.60.0"];
        check(Versions::Newest, both, "rayproject/ray:2.9.3", "/envs/ray-2.9.3");
        check(Versions::Newest, both, "rayproject/ray:2.9.3-py310-gpu", "/envs/ray-2.9.3");
        check(Versions::Newest, both, "localhost:5000/a/ray-ml:2.60.0.abc", "/envs/ray-2.60.0");
        check(Versions::Newest, both, "rayproject/ray:2.52.0", "/envs/ray-2.60.0 (noted)");
        check(Versions::Newest, both, "rayproject/ray", "/envs/ray-2.60.0 (noted)");
        check(Versions::Newest, both, "rayproject/ray:nightly@sha256:00", "/envs/ray-2.60.0 (noted)");
        check(Versions::Newest, &[], "rayproject/ray:2.52.0", "make ray[default]==2.52.0 in /envs/ray-2.52.0");
        check(Versions::Exact, both, "rayproject/ray:2.52.0", "make ray[default]==2.52.0 in /envs/ray-2.52.0");
        check(Versions::Exact, both, "rayproject/ray:latest", "/envs/ray-2.60.0 (noted)");
        check(Versions::Fixed("/my".into()), both, "rayproject/ray:2.9.3", "/my (noted)");
        check(Versions::Newest, &[], "ray", "image \"ray\" names no version of ray and none is installed");
    }

    #[test]
    fn other_images_need_a_mapping() {
        check(Versions::Newest, &[], "redis:7", "host");
        check(Versions::Newest, &[], "docker.io/library/redis:7", "host");
        check(Versions::Newest, &[], "corp.io/team/train:1", "/e");
        check(Versions::Newest, &[], "corp.io/train:1", "image \"corp.io/train");
        check(Versions::Newest, &[], "x-ray:1", "image \"x-ray");
    }

    proptest::proptest! {
        #[test]
        fn no_image_panics(image in ".{0,30}", pattern in "[a*/:]{0,8}") {
            let _ = matches(&pattern, &image);
            let _ = catalog(Versions::Newest).resolve(&image, |_| vec![]);
        }
    }
}
