//! Folders of this machine that the user shows to pods: to all of them, or to those that ask by an annotation.
//!
//! A pod can ask only for what lies in a folder that the user offers, and the part of it that the pod names is resolved
//! without following links.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use crate::runtime::rootfs::{self, Bind};

/// The annotation of a pod that asks for folders, as `SOURCE:TARGET[:ro]`, separated by commas.
pub const ANNOTATION: &str = "manta.local/mount";

/// The folders that the user offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mounts {
    /// Shown to every container.
    pub all: Vec<Mount>,
    /// What pods may ask for lies in one of these.
    pub offered: Vec<PathBuf>,
    /// Where relative paths begin.
    pub base: PathBuf,
}

/// One folder or file to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
}

/// Reads `SOURCE:TARGET[:ro]`; a relative source begins at `base`.
pub fn parse(text: &str, base: &Path) -> Result<Mount, String> {
    let wrong = |why: &str| format!("{text:?} {why}; use SOURCE:TARGET or SOURCE:TARGET:ro, such as .:/code:ro");
    let mut parts = text.split(':');
    let (source, target) = match (parts.next(), parts.next()) {
        (Some(source), Some(target)) if !source.is_empty() => (source, target),
        _ => return Err(wrong("has no target")),
    };
    let read_only = match (parts.next(), parts.next()) {
        (None, _) | (Some("rw"), None) => false,
        (Some("ro"), None) => true,
        _ => return Err(wrong("has an unknown option")),
    };
    let target = PathBuf::from(target);
    if !target.is_absolute() || !rootfs::is_mountable(&target) {
        return Err(wrong("has a target that is not an absolute path below / and outside /proc and /sys"));
    }
    Ok(Mount { source: absolute(Path::new(source), base), target, read_only })
}

/// Returns an absolute path without `.` and `..`.
pub fn absolute(path: &Path, base: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

impl Mounts {
    /// Returns what the containers of a pod see; the error names what it asks for in vain.
    pub fn of_pod(&self, pod: &Pod) -> Result<Vec<Bind>, String> {
        let mut binds: Vec<Bind> = self
            .all
            .iter()
            .map(|m| Bind {
                source: m.source.clone(),
                sub_path: None,
                target: m.target.clone(),
                read_only: m.read_only,
            })
            .collect();
        let asked = pod.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION));
        for text in asked.into_iter().flat_map(|text| text.split(',')).map(str::trim).filter(|text| !text.is_empty()) {
            let mount = parse(text, &self.base).map_err(|why| format!("annotation {ANNOTATION}: {why}"))?;
            binds.push(self.offer(mount)?);
        }
        Ok(binds)
    }

    fn offer(&self, mount: Mount) -> Result<Bind, String> {
        let Mount { source, target, read_only } = mount;
        let found = self.offered.iter().find_map(|folder| Some((folder, source.strip_prefix(folder).ok()?)));
        let Some((folder, inside)) = found else {
            let shown = source.display();
            return Err(format!("annotation {ANNOTATION} asks for {shown}; allow it with manta up --mount {shown}"));
        };
        let sub_path = Some(inside.to_path_buf()).filter(|path| !path.as_os_str().is_empty());
        Ok(Bind { source: folder.clone(), sub_path, target, read_only })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn mounts_are_read_as_container_tools_write_them() {
        let check = |text: &str, expect: Result<(&str, &str, bool), &str>| {
            let got = parse(text, Path::new("/home/me/app"));
            match (got, expect) {
                (Ok(got), Ok((source, target, read_only))) => {
                    assert_eq!(got, Mount { source: source.into(), target: target.into(), read_only });
                }
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        };
        check(".:/code", Ok(("/home/me/app", "/code", false)));
        check("../data:/data:ro", Ok(("/home/me/data", "/data", true)));
        check("/srv/./x:/x:rw", Ok(("/srv/x", "/x", false)));
        check("/srv", Err("has no target"));
        check(":/x", Err("has no target"));
        check(".:code", Err("not an absolute path"));
        check(".:/proc/x", Err("not an absolute path"));
        check(".:/", Err("not an absolute path"));
        check(".:/x:rx", Err("unknown option"));
    }

    #[test]
    fn pods_get_what_they_ask_for_if_it_is_offered() {
        let mounts = Mounts {
            all: vec![Mount { source: "/a".into(), target: "/code".into(), read_only: true }],
            offered: vec!["/home/me/app".into()],
            base: "/home/me/app".into(),
        };
        let check = |annotation: &str, expect: Result<&[&str], &str>| {
            let pod = json!({"metadata": {"annotations": {ANNOTATION: annotation}}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let shown = |bind: &Bind| {
                let inside = bind.sub_path.as_ref().map(|p| format!(" {}", p.display())).unwrap_or_default();
                format!("{}{inside} at {}", bind.source.display(), bind.target.display())
            };
            match (mounts.of_pod(&pod), expect) {
                (Ok(binds), Ok(more)) => {
                    let got: Vec<String> = binds.iter().skip(1).map(shown).collect();
                    assert_eq!(got, more);
                }
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (got, _) => panic!("{annotation}: {got:?}"),
            }
        };
        check("", Ok(&[]));
        check(".:/x, src:/y:ro", Ok(&["/home/me/app at /x", "/home/me/app src at /y"]));
        check("/etc:/x", Err("allow it with manta up --mount /etc"));
        check("../other:/x", Err("allow it with manta up --mount /home/me/other"));
        check("src", Err("annotation manta.local/mount: \"src\" has no target"));
    }
}
