//! Maps container images to what their containers run in: a Python environment of this host, its own tools, or an
//! unpacked archive.
//!
//! There is no registry. A rule says that images of some repositories are a package at the version their tag names; a
//! mapping says what any other image stands for. What neither knows is an image that cannot be pulled, and the message
//! says how to map it. Mappings come from flags and from a file that is read again for every container, so that a change
//! takes effect while the node runs.

mod disk;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_saphyr::MessageFormatter as _;

pub use disk::{Disk, MachineDisk};

/// What a container runs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Shown as `imageID`.
    pub id: String,
    /// The root of the Python environment; the machine's own tools when absent.
    pub path: Option<PathBuf>,
    /// The unpacked image that replaces the machine's own files.
    pub root: Option<PathBuf>,
    /// Where programs start unless the container says so.
    pub cwd: Option<PathBuf>,
    /// The user and group unless the pod names some; root when nothing does.
    pub user: Option<(u32, u32)>,
    /// What runs unless the container has a command.
    pub entrypoint: Vec<String>,
    /// The arguments of the entry point unless the container has some.
    pub cmd: Vec<String>,
    pub env: Vec<(String, String)>,
    /// How the image was understood, for the log.
    pub note: Option<String>,
    /// What differs from the image, for the log and for an event.
    pub warning: Option<String>,
}

/// The resolution of one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    Ready(Environment),
    /// The environment has to be made first.
    Make {
        recipe: Recipe,
        path: PathBuf,
        then: Environment,
    },
    /// An archive has to be unpacked first.
    Unpack {
        archive: PathBuf,
        path: PathBuf,
        then: Environment,
    },
    /// `ErrImagePull`, with what to do about it.
    Unknown(String),
}

/// What is installed into an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipe {
    /// A requirement, such as `numpy==2.0.0`.
    Requirement(String),
    /// The lines of a requirements file.
    File(PathBuf),
    /// A folder with a `pyproject.toml`.
    Project(PathBuf),
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requirement(text) => f.write_str(text),
            Self::File(path) | Self::Project(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Images of these repositories are one package at the version in their tag.
#[derive(Debug, Clone, Default)]
pub struct PackageRule {
    /// Last parts of repository names, such as `ray` in `rayproject/ray:2.9.0`.
    pub repositories: Vec<String>,
    pub package: String,
    /// `{version}` stands for the version.
    pub requirement: String,
    pub env: Vec<(String, String)>,
    /// How to get exactly the version of the tag, for people who got another one.
    pub exact_hint: String,
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
    /// The version of Python, where the environment records it.
    pub python: Option<Version>,
    pub path: PathBuf,
}

/// One line of the mapping file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Mapping {
    /// The image, with `*` for any text; without a tag it matches every tag.
    pub image: String,
    /// A Python environment; the machine's own tools when absent.
    #[serde(default)]
    pub environment: Option<PathBuf>,
    /// A requirements file to make an environment from.
    #[serde(default)]
    pub requirements: Option<PathBuf>,
    /// A folder with a `pyproject.toml` to make an environment from.
    #[serde(default)]
    pub project: Option<PathBuf>,
    /// An archive of the image itself, as `docker save`, `podman save` and `buildah` write it.
    #[serde(default)]
    pub archive: Option<PathBuf>,
    #[serde(default)]
    pub entrypoint: Vec<String>,
    #[serde(default)]
    pub cmd: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The user of the image, where it is not root.
    #[serde(default)]
    pub user: Option<u32>,
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
    /// Come before those of the file.
    pub mappings: Vec<Mapping>,
    /// More mappings, read again for every container.
    pub mapping_file: Option<PathBuf>,
    /// Mappings that all others take precedence over.
    pub fallbacks: Vec<Mapping>,
    pub rules: Vec<PackageRule>,
    pub versions: Versions,
    /// Where environments are made, one folder `<package>-<version>` each.
    pub folder: PathBuf,
}

impl Catalog {
    /// Returns the catalog with the mappings that its file has now.
    pub fn current(&self) -> Result<Self, String> {
        let mut current = self.clone();
        if let Some(path) = &self.mapping_file {
            current.mappings.extend(read_mappings(path)?);
        }
        Ok(current)
    }

    /// Finds what an image stands for.
    pub fn resolve(&self, image: &str, disk: &dyn Disk) -> Resolution {
        if let Some(mapping) = self.mappings.iter().chain(&self.fallbacks).find(|m| matches(&m.image, image)) {
            return self.resolve_mapping(mapping, image, disk);
        }
        let (repository, tag) = split(image);
        let last = repository.rsplit('/').next().unwrap_or(repository);
        match self.rules.iter().find(|rule| rule.repositories.iter().any(|r| r == last)) {
            Some(rule) => self.resolve_package(rule, image, tag, disk.installed(&rule.package)),
            None => Resolution::Unknown(format!(
                "image \"{image}\" has no local environment: start manta up with --image {repository}=requirements.txt, \
                 or with an image mapping file (--images FILE).\n\
                 images:\n- image: {repository}\n  environment: /path/to/a/python/environment\n\
                 or leave out `environment` to run its command with this machine's own tools"
            )),
        }
    }

    fn resolve_mapping(&self, mapping: &Mapping, image: &str, disk: &dyn Disk) -> Resolution {
        let ready = |path: Option<PathBuf>| Environment {
            id: format!("manta://{}", path.as_ref().map_or("host".to_owned(), |p| p.display().to_string())),
            path,
            root: None,
            cwd: None,
            user: mapping.user.map(|user| (user, 0)),
            entrypoint: mapping.entrypoint.clone(),
            cmd: mapping.cmd.clone(),
            env: mapping.env.clone().into_iter().collect(),
            note: None,
            warning: None,
        };
        if let Some(archive) = &mapping.archive {
            return self.resolve_archive(archive, image, ready(None), disk);
        }
        let (recipe, file, fingerprint) = match (&mapping.requirements, &mapping.project) {
            (Some(file), _) => (Recipe::File(file.clone()), file, disk.fingerprint(file)),
            (None, Some(folder)) => (Recipe::Project(folder.clone()), folder, disk.project_stamp(folder)),
            (None, None) => return Resolution::Ready(ready(mapping.environment.clone())),
        };
        let Some(fingerprint) = fingerprint else {
            return Resolution::Unknown(format!(
                "image \"{image}\" is mapped to {}, which cannot be read",
                file.display()
            ));
        };
        // Another folder, or other contents, is another environment.
        let path = self.folder.join(format!("image-{fingerprint:016x}"));
        let then = ready(Some(path.clone()));
        if disk.is_complete(&path) { Resolution::Ready(then) } else { Resolution::Make { recipe, path, then } }
    }

    fn resolve_archive(&self, archive: &Path, image: &str, ready: Environment, disk: &dyn Disk) -> Resolution {
        let Some(stamp) = disk.stamp(archive) else {
            let shown = archive.display();
            return Resolution::Unknown(format!("image \"{image}\" is mapped to {shown}, which cannot be read"));
        };
        let path = self.folder.join(format!("archive-{stamp:016x}"));
        let then = Environment { id: format!("manta://{}", path.display()), root: Some(path.join("rootfs")), ..ready };
        let archive = archive.to_path_buf();
        if disk.is_complete(&path) { Resolution::Ready(then) } else { Resolution::Unpack { archive, path, then } }
    }

    fn resolve_package(&self, rule: &PackageRule, image: &str, tag: &str, installed: Vec<Installed>) -> Resolution {
        let wanted = Version::leading(tag);
        let ready = |path: PathBuf, version: Option<&Version>| Environment {
            id: match version {
                Some(version) => format!("manta://{}-{version}", rule.package),
                None => format!("manta://{}", path.display()),
            },
            path: Some(path),
            root: None,
            cwd: None,
            user: None,
            entrypoint: Vec::new(),
            cmd: vec!["/bin/bash".to_owned()],
            env: rule.env.clone(),
            note: None,
            warning: None,
        };
        if let Versions::Fixed(path) = &self.versions {
            let note = Some(format!("image {image} runs in {}", path.display()));
            return Resolution::Ready(Environment { note, ..ready(path.clone(), None) });
        }
        if let Some(found) = installed.iter().find(|i| Some(&i.version) == wanted.as_ref()) {
            let warning = python_differs(tag, found.python.as_ref()).map(|(wanted, has)| {
                format!("image {image} asks for Python {wanted} and runs on Python {has}: use --ray-env with an environment of that Python")
            });
            return Resolution::Ready(Environment { warning, ..ready(found.path.clone(), wanted.as_ref()) });
        }
        let newest = installed.into_iter().max_by(|a, b| a.version.cmp(&b.version));
        match (newest, wanted) {
            (Some(newest), wanted) if self.versions == Versions::Newest || wanted.is_none() => {
                let python = newest.python.as_ref().map(|v| format!(" on Python {}", v.minor())).unwrap_or_default();
                let runs =
                    format!("image {image} runs {} {}{python}, the newest one installed", rule.package, newest.version);
                let ready = ready(newest.path, Some(&newest.version));
                Resolution::Ready(match wanted {
                    Some(_) => Environment { warning: Some(format!("{runs}: {}", rule.exact_hint)), ..ready },
                    None => Environment { note: Some(runs), ..ready },
                })
            }
            (_, Some(version)) => {
                let path = self.folder.join(format!("{}-{version}", rule.package));
                let recipe = Recipe::Requirement(rule.requirement.replace("{version}", &version.to_string()));
                Resolution::Make { recipe, then: ready(path.clone(), Some(&version)), path }
            }
            (_, None) => Resolution::Unknown(format!(
                "image \"{image}\" names no version of {} and none is installed: use a tag such as {}:1.2.3",
                rule.package, rule.package
            )),
        }
    }
}

/// Reads a mapping file; relative paths in it begin at its folder.
pub fn read_mappings(file: &Path) -> Result<Vec<Mapping>, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
    let read: MappingFile = serde_saphyr::from_str(&text).map_err(|error| describe_mistake(file, &error))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let absolute = |path: Option<PathBuf>| path.map(|path| folder.join(path));
    Ok(read
        .images
        .into_iter()
        .map(|m| Mapping {
            environment: absolute(m.environment),
            requirements: absolute(m.requirements),
            project: absolute(m.project),
            archive: absolute(m.archive),
            ..m
        })
        .collect())
}

/// Says on one line what is wrong with a mapping file, and where.
fn describe_mistake(file: &Path, error: &serde_saphyr::Error) -> String {
    let error = error.without_snippet();
    let line = error.location().map(|place| format!(":{}", place.line())).unwrap_or_default();
    let what = serde_saphyr::UserMessageFormatter.format_message(error);
    format!("{}{line}: not a list of image mappings: {what}", file.display())
}

/// Returns the versions of Python that a tag such as `2.9.0-py310` names and that an environment has, if they differ.
fn python_differs(tag: &str, has: Option<&Version>) -> Option<(String, String)> {
    let digits = tag.split(['-', '.', '_']).find_map(|part| part.strip_prefix("py"))?;
    let (major, minor) = digits.split_at_checked(1)?;
    let wanted = format!("{major}.{}", minor.parse::<u64>().ok()?);
    let has = has?.minor();
    (wanted != has).then_some((wanted, has))
}

/// The environments of a package under `folder`, by the name of their folders.
pub fn installed(folder: &Path, package: &str) -> Vec<Installed> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let version_of = |name: &str| Version::parse(name.strip_prefix(package)?.strip_prefix('-')?);
    let mut found: Vec<Installed> = entries
        .flatten()
        .filter_map(|e| {
            let version = version_of(e.file_name().to_str()?)?;
            Some(Installed { version, python: python_version(&e.path()), path: e.path() })
        })
        // The marker is written last, so that half an installation does not count.
        .filter(|i| is_complete(&i.path))
        .collect();
    found.sort_by(|a, b| a.version.cmp(&b.version));
    found
}

/// The version of Python that an environment was made with.
fn python_version(environment: &Path) -> Option<Version> {
    let config = std::fs::read_to_string(environment.join("pyvenv.cfg")).ok()?;
    let value = |line: &str| {
        let (key, value) = line.split_once('=')?;
        matches!(key.trim(), "version" | "version_info").then(|| Version::leading(value.trim()))?
    };
    config.lines().find_map(value)
}

/// The file whose presence says that an environment is complete.
pub const COMPLETE: &str = "manta-complete";

/// Returns whether an environment, or an unpacked archive, is complete.
pub(crate) fn is_complete(environment: &Path) -> bool {
    environment.join(COMPLETE).exists()
}

/// A dotted version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u64>);

impl Version {
    pub fn parse(text: &str) -> Option<Self> {
        text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<_>>>().filter(|v| v.len() >= 2).map(Self)
    }

    /// Its first two numbers.
    fn minor(&self) -> String {
        self.0.iter().take(2).map(u64::to_string).collect::<Vec<_>>().join(".")
    }

    /// The version a tag begins with: `2.9.0` of `2.9.0-py310-gpu` or `2.9.0.abc123`.
    pub fn leading(tag: &str) -> Option<Self> {
        let parts: Vec<u64> = tag.split(['.', '-', '_']).map_while(|part| part.parse().ok()).take(3).collect();
        (parts.len() >= 2).then_some(Self(parts))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

    /// Environments by version and Python, and the files that can be read.
    struct FakeDisk(Vec<(&'static str, &'static str)>);

    impl Disk for FakeDisk {
        fn installed(&self, package: &str) -> Vec<Installed> {
            let one = |(version, python): &(&str, &str)| Installed {
                version: Version::parse(version).unwrap(),
                python: Version::parse(python),
                path: format!("/envs/{package}-{version}").into(),
            };
            self.0.iter().map(one).collect()
        }
        fn fingerprint(&self, file: &Path) -> Option<u64> {
            file.starts_with("/code").then_some(7)
        }
        fn stamp(&self, file: &Path) -> Option<u64> {
            self.fingerprint(file)
        }
        fn project_stamp(&self, folder: &Path) -> Option<u64> {
            self.fingerprint(folder)
        }
        fn is_complete(&self, environment: &Path) -> bool {
            environment == Path::new("/made/image-0000000000000007")
        }
    }

    fn catalog(versions: Versions) -> Catalog {
        let mapping = |image: &str| Mapping { image: image.into(), ..Mapping::default() };
        Catalog {
            mappings: vec![
                Mapping { environment: Some("/e".into()), ..mapping("corp.io/*/train") },
                Mapping { requirements: Some("/code/requirements.txt".into()), ..mapping("mine") },
                Mapping { project: Some("/code/app".into()), ..mapping("app") },
                Mapping { requirements: Some("/gone.txt".into()), ..mapping("gone") },
                Mapping { archive: Some("/code/image.tar".into()), ..mapping("whole") },
            ],
            mapping_file: None,
            fallbacks: vec![Mapping { entrypoint: vec!["redis-server".into()], ..mapping("redis") }, mapping("mine")],
            rules: vec![PackageRule {
                repositories: vec!["ray".into(), "ray-ml".into()],
                package: "ray".into(),
                requirement: "ray[default]=={version}".into(),
                env: vec![],
                exact_hint: "be exact".into(),
            }],
            versions,
            folder: "/envs".into(),
        }
    }

    fn shown(resolution: Resolution) -> String {
        match resolution {
            Resolution::Ready(e) => {
                let path = e.path.map_or("host".to_owned(), |p| p.display().to_string());
                let marks = [(e.note.is_some(), " (noted)"), (e.warning.is_some(), " (warned)")];
                marks.into_iter().filter(|(is_set, _)| *is_set).fold(path, |text, (_, mark)| text + mark)
            }
            Resolution::Make { recipe, path, .. } => format!("make {recipe} in {}", path.display()),
            Resolution::Unpack { archive, path, .. } => format!("unpack {} in {}", archive.display(), path.display()),
            Resolution::Unknown(why) => why.split(':').next().unwrap_or_default().to_owned(),
        }
    }

    fn check(versions: Versions, installed: &[&'static str], image: &str, expect: &str) {
        let disk = FakeDisk(installed.iter().map(|version| (*version, "3.11")).collect());
        assert_eq!(shown(catalog(versions).resolve(image, &disk)), expect, "{image}");
    }

    #[test]
    fn tags_choose_versions() {
        let both: &[&str] = &["2.9.3", "2.60.0"];
        check(Versions::Newest, both, "rayproject/ray:2.9.3", "/envs/ray-2.9.3");
        check(Versions::Newest, both, "rayproject/ray:2.9.3-py311-gpu", "/envs/ray-2.9.3");
        check(Versions::Newest, both, "localhost:5000/a/ray-ml:2.60.0.abc", "/envs/ray-2.60.0");
        check(Versions::Newest, both, "rayproject/ray:2.52.0", "/envs/ray-2.60.0 (warned)");
        check(Versions::Newest, both, "rayproject/ray:2.9.3-py310-gpu", "/envs/ray-2.9.3 (warned)");
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

    #[test]
    fn images_can_be_made_from_requirements_and_projects() {
        let make = "make /code/requirements.txt in /envs/image-0000000000000007";
        check(Versions::Newest, &[], "mine:1", make);
        check(Versions::Newest, &[], "app", "make /code/app in /envs/image-0000000000000007");
        check(Versions::Newest, &[], "whole", "unpack /code/image.tar in /envs/archive-0000000000000007");
        check(Versions::Newest, &[], "gone", "image \"gone\" is mapped to /gone.txt, which cannot be read");
        let made = Catalog { folder: "/made".into(), ..catalog(Versions::Newest) };
        assert_eq!(shown(made.resolve("mine:1", &FakeDisk(vec![]))), "/made/image-0000000000000007");
    }

    #[test]
    fn a_difference_from_the_image_names_the_way_to_exactness() {
        let warning =
            |image: &str| match catalog(Versions::Newest).resolve(image, &FakeDisk(vec![("2.60.0", "3.11.7")])) {
                Resolution::Ready(environment) => environment.warning.unwrap_or_default(),
                other => panic!("{other:?}"),
            };
        let expect = "image ray:2.46.0-py310-gpu runs ray 2.60.0 on Python 3.11, the newest one installed: be exact";
        assert_eq!(warning("ray:2.46.0-py310-gpu"), expect);
        let expect = "image ray:2.60.0-py310 asks for Python 3.10 and runs on Python 3.11: use --ray-env with an \
                      environment of that Python";
        assert_eq!(warning("ray:2.60.0-py310"), expect);
        assert_eq!(warning("ray:2.60.0-py311"), "");
    }

    #[test]
    fn the_mapping_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("images.yaml");
        let catalog = Catalog { mapping_file: Some(file.clone()), ..Catalog::default() };
        assert!(catalog.current().unwrap_err().contains("cannot read"));
        for (environment, expect) in [("/a", "/a".to_owned()), ("b", folder.path().join("b").display().to_string())] {
            std::fs::write(&file, format!("images:\n- image: x\n  environment: {environment}\n")).unwrap();
            assert_eq!(shown(catalog.current().unwrap().resolve("x", &FakeDisk(vec![]))), expect);
        }
    }

    #[test]
    fn a_mistake_in_the_mapping_file_is_one_line_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("images.yaml");
        let check = |text: &str, expect: &str| {
            std::fs::write(&file, text).unwrap();
            let why = read_mappings(&file).unwrap_err();
            assert!(why.starts_with(&format!("{}{expect}", file.display())), "{why}");
            assert_eq!(why.lines().count(), 1, "{why}");
        };
        let wrong = "not a list of image mappings";
        check(
            "images:\n- imag: x\n",
            &format!(":2: {wrong}: unknown field `imag`, expected one of image, environment"),
        );
        check("image: []\n", &format!(":1: {wrong}: unknown field `image`, expected one of images"));
        check("images: [\n", &format!(":1: {wrong}: "));
        check("images: 7\n", &format!(":1: {wrong}: "));
    }

    proptest::proptest! {
        #[test]
        fn no_image_panics(image in ".{0,30}", pattern in "[a*/:]{0,8}") {
            let _ = matches(&pattern, &image);
            let _ = catalog(Versions::Newest).resolve(&image, &FakeDisk(vec![]));
        }
    }
}
