//! The root file system of a container, assembled from directories of the host.
//!
//! [`plan`] is pure: it lists which directories of the host appear where, read-only, and which are the container's
//! own. Mounting inside a read-only directory turns that directory into a real one whose entries are bound one by one.
//! No overlay is used, because an ordinary user may not have one over `/`. [`build`] carries the plan out.

mod build;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::beneath::Owner;
pub(super) use build::{build, enter};

/// One step of assembling a root file system; targets are absolute paths inside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountStep {
    Dir {
        target: PathBuf,
        mode: u32,
        owner: Owner,
    },
    Symlink {
        target: PathBuf,
        to: PathBuf,
    },
    /// Source and target are both directories, or both something else.
    Bind {
        source: PathBuf,
        /// A part of `source` that a pod names, resolved without following links.
        sub_path: Option<PathBuf>,
        target: PathBuf,
        read_only: bool,
    },
    Tmpfs {
        target: PathBuf,
        options: String,
    },
    Proc {
        target: PathBuf,
    },
    Pts {
        target: PathBuf,
    },
    Sys {
        target: PathBuf,
    },
    /// Hides a file or directory, if it is there.
    Mask {
        target: PathBuf,
    },
    /// Hides all entries of a directory but those named, if it is there.
    Reduce {
        target: PathBuf,
        keep: Vec<String>,
    },
    /// Makes what is there read-only, if it is there.
    Protect {
        target: PathBuf,
    },
    /// Makes the container's own directories read-only.
    ReadOnlyRoot,
}

/// An unpacked image, and where a container's changes to it go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    pub image: PathBuf,
    pub changes: PathBuf,
    /// An empty directory for the kernel's own use.
    pub work: PathBuf,
}

/// What the host has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Dir,
    File,
    Symlink(PathBuf),
}

/// How a container sees its resource limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupView {
    /// One directory that stands for the whole hierarchy.
    Unified(PathBuf),
    /// One directory per controller.
    Split(Vec<(String, PathBuf)>),
}

/// A file or directory to show inside the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    pub source: PathBuf,
    /// A part of `source` that the pod names.
    pub sub_path: Option<PathBuf>,
    pub target: PathBuf,
    pub read_only: bool,
}

/// What a container needs beyond the host's own tools.
#[derive(Debug, Clone, Default)]
pub struct RootfsSpec {
    /// Directories of the host shown read-only at the same path, such as a Python environment.
    pub same: Vec<PathBuf>,
    /// Volumes and generated files.
    pub binds: Vec<Bind>,
    pub cgroup: Option<CgroupView>,
    /// Directories of the container's user, such as its home.
    pub dirs: Vec<PathBuf>,
    /// Who root inside is outside.
    pub root: Owner,
    /// Who the container's user is outside.
    pub user: Owner,
    pub read_only_root: bool,
    /// The root begins as an image, without the host's tools.
    pub is_image: bool,
    /// Directories of the kernel of which only the entries named are shown.
    pub reduced: Vec<(PathBuf, Vec<String>)>,
}

/// Top-level directories of the host that hold its tools.
const TOOLS: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "etc", "nix", "gnu"];
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// What programs read in /etc. Accounts, passwords, keys and the configuration of the host's services stay outside.
const ETC: &[&str] = &[
    "ImageMagick-6",
    "OpenCL",
    "alternatives",
    "bash.bashrc",
    "bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "redhat-release",
    "rpc",
    "services",
    "ssl",
    "terminfo",
    "timezone",
    "vulkan",
];

/// Files and directories of the kernel that container runtimes hide, and those they make read-only.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/config.gz",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/fs/pstore",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/kernel/tracing",
];
const PROTECTED: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Whether a volume may be mounted at a path: not over the kernel's own file systems, and not as the root.
pub fn is_mountable(target: &Path) -> bool {
    let target = normal(target);
    target != Path::new("/") && !target.starts_with("/proc") && !target.starts_with("/sys")
}

/// Whether containers without an image see a path of the host at the same place.
pub fn is_shown(path: &Path) -> bool {
    let path = normal(path);
    let Ok(inner) = path.strip_prefix("/") else { return false };
    match inner.strip_prefix("etc") {
        Ok(entry) => entry.components().next().is_some() && is_needed_in_etc(entry),
        Err(_) => TOOLS.iter().any(|name| inner.starts_with(name)),
    }
}

/// Lists the steps; `look` returns what the host has at a path, `list` the entries of a directory.
pub fn plan(
    spec: &RootfsSpec,
    look: &dyn Fn(&Path) -> Option<Entry>,
    list: &dyn Fn(&Path) -> Vec<String>,
) -> Vec<MountStep> {
    let mut tree = Tree { look, list, nodes: BTreeMap::new(), root: spec.root };
    for name in TOOLS.iter().filter(|_| !spec.is_image) {
        let path = Path::new("/").join(name);
        if let Some(entry) = look(&path) {
            tree.mirror_entry(&path, &entry);
        }
    }
    tree.explode(Path::new("/etc"));
    tree.nodes.retain(|path, _| path.strip_prefix("/etc").map_or(true, is_needed_in_etc));
    // An environment may lie below /root, where other users than root must find it.
    for (path, mode) in [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755), ("/root", 0o711), ("/home", 0o755)] {
        tree.put(Path::new(path), Node::Dir { mode, owner: spec.root });
    }
    tree.put(Path::new("/var/run"), Node::Symlink("../run".into()));
    for dir in &spec.dirs {
        tree.put(&normal(dir), Node::Dir { mode: 0o755, owner: spec.user });
    }
    for path in &spec.same {
        tree.put(path, Node::Host { source: path.clone(), is_dir: true });
    }

    let mut late = Vec::new();
    let mut own_shm = true;
    for bind in &spec.binds {
        let target = normal(&bind.target);
        let (source, sub_path, read_only) = (bind.source.clone(), bind.sub_path.clone(), bind.read_only);
        if target.starts_with("/dev") {
            own_shm &= target != Path::new("/dev/shm");
            late.push(MountStep::Bind { source, sub_path, target, read_only });
            continue;
        }
        tree.put(&target, Node::Volume { source, sub_path, read_only });
    }

    let mut ops = tree.ops();
    ops.extend(devices(look, own_shm, spec.root));
    ops.push(MountStep::Proc { target: "/proc".into() });
    ops.push(MountStep::Sys { target: "/sys".into() });
    ops.extend(MASKED.iter().map(|path| MountStep::Mask { target: path.into() }));
    let reduced = spec.reduced.iter().cloned();
    ops.extend(reduced.map(|(target, keep)| MountStep::Reduce { target, keep }));
    ops.extend(PROTECTED.iter().map(|path| MountStep::Protect { target: path.into() }));
    match &spec.cgroup {
        None => {}
        Some(CgroupView::Unified(source)) => {
            ops.push(bind_read_only(source, "/sys/fs/cgroup".into()));
        }
        Some(CgroupView::Split(controllers)) => {
            ops.push(MountStep::Tmpfs { target: "/sys/fs/cgroup".into(), options: "mode=755,size=64k".into() });
            for (name, source) in controllers {
                ops.push(bind_read_only(source, Path::new("/sys/fs/cgroup").join(name)));
            }
            ops.push(MountStep::Protect { target: "/sys/fs/cgroup".into() });
        }
    }
    ops.extend(late);
    if spec.read_only_root {
        ops.push(MountStep::ReadOnlyRoot);
    }
    ops
}

fn bind_read_only(source: &Path, target: PathBuf) -> MountStep {
    MountStep::Bind { source: source.to_path_buf(), sub_path: None, target, read_only: true }
}

/// Whether an entry of /etc, relative to it, is shown to containers.
fn is_needed_in_etc(path: &Path) -> bool {
    path.components().next().is_none_or(|first| ETC.iter().any(|name| first.as_os_str() == *name))
}

fn devices(look: &dyn Fn(&Path) -> Option<Entry>, own_shm: bool, root: Owner) -> Vec<MountStep> {
    let ids = format!("uid={},gid={}", root.uid, root.gid);
    let mut ops = vec![MountStep::Tmpfs { target: "/dev".into(), options: format!("mode=755,size=1m,{ids}") }];
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        if look(&path).is_some() {
            ops.push(MountStep::Bind { source: path.clone(), sub_path: None, target: path, read_only: false });
        }
    }
    ops.push(MountStep::Pts { target: "/dev/pts".into() });
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        ops.push(MountStep::Symlink { target: Path::new("/dev").join(name), to: to.into() });
    }
    if own_shm {
        // What Docker and containerd give a container that asks for nothing.
        let options = format!("mode=1777,size={},{ids}", 64 << 20);
        ops.push(MountStep::Tmpfs { target: "/dev/shm".into(), options });
    }
    ops
}

#[derive(Debug, Clone)]
enum Node {
    Dir {
        mode: u32,
        owner: Owner,
    },
    Symlink(PathBuf),
    /// A directory or file of the host, read-only.
    Host {
        source: PathBuf,
        is_dir: bool,
    },
    /// A volume or a generated file; a container may have changed what is in it.
    Volume {
        source: PathBuf,
        sub_path: Option<PathBuf>,
        read_only: bool,
    },
}

struct Tree<'a> {
    look: &'a dyn Fn(&Path) -> Option<Entry>,
    list: &'a dyn Fn(&Path) -> Vec<String>,
    /// Sorted by path, so that parents come before their children.
    nodes: BTreeMap<PathBuf, Node>,
    root: Owner,
}

impl Tree<'_> {
    /// Sets the node at `path`, expanding read-only directories on the way.
    fn put(&mut self, path: &Path, node: Node) {
        let mut at = PathBuf::from("/");
        let parents: Vec<PathBuf> = path.ancestors().skip(1).map(Path::to_path_buf).collect();
        for parent in parents.into_iter().rev() {
            at.clone_from(&parent);
            match self.nodes.get(&at) {
                // Mount points inside a volume are made when the volume has been mounted.
                Some(Node::Volume { .. }) => break,
                Some(Node::Host { is_dir: true, .. }) => {
                    if self.exists_below(&at, path) {
                        break;
                    }
                    self.explode(&at);
                }
                Some(_) => {}
                None if at == Path::new("/") => {}
                None => {
                    self.nodes.insert(at.clone(), Node::Dir { mode: 0o755, owner: self.root });
                }
            }
        }
        let keep = matches!((&node, self.nodes.get(path)), (Node::Dir { .. }, Some(_)));
        if !keep {
            self.nodes.insert(path.to_path_buf(), node);
        }
    }

    /// Whether the bound directory at `at` already has the mount point `path`.
    fn exists_below(&self, at: &Path, path: &Path) -> bool {
        let Some(Node::Host { source, .. }) = self.nodes.get(at) else { return false };
        path.strip_prefix(at)
            .is_ok_and(|rest| matches!((self.look)(&source.join(rest)), Some(Entry::Dir | Entry::File)))
    }

    /// Turns a bound directory into a real one whose entries are bound.
    fn explode(&mut self, path: &Path) {
        let Some(Node::Host { source, is_dir: true }) = self.nodes.get(path).cloned() else { return };
        self.nodes.insert(path.to_path_buf(), Node::Dir { mode: 0o755, owner: self.root });
        for name in (self.list)(&source) {
            let (inner, target) = (source.join(&name), path.join(&name));
            let node = match (self.look)(&inner) {
                Some(Entry::Dir) => Node::Host { source: inner, is_dir: true },
                Some(Entry::File) => Node::Host { source: inner, is_dir: false },
                Some(Entry::Symlink(to)) => Node::Symlink(to),
                None => continue,
            };
            self.nodes.entry(target).or_insert(node);
        }
    }

    fn mirror_entry(&mut self, path: &Path, entry: &Entry) {
        let node = match entry {
            Entry::Dir => Node::Host { source: path.into(), is_dir: true },
            Entry::File => return,
            Entry::Symlink(to) => Node::Symlink(to.clone()),
        };
        self.nodes.insert(path.into(), node);
    }

    fn ops(self) -> Vec<MountStep> {
        self.nodes
            .into_iter()
            .map(|(target, node)| match node {
                Node::Dir { mode, owner } => MountStep::Dir { target, mode, owner },
                Node::Symlink(to) => MountStep::Symlink { target, to },
                Node::Host { source, .. } => bind_read_only(&source, target),
                Node::Volume { source, sub_path, read_only } => MountStep::Bind { source, sub_path, target, read_only },
            })
            .collect()
    }
}

/// Returns an absolute path without `.` and `..`, with `/var/run` replaced by `/run`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    match out.strip_prefix("/var/run") {
        Ok(rest) => Path::new("/run").join(rest),
        Err(_) => out,
    }
}

/// Returns what the host has at a path.
pub fn look(path: &Path) -> Option<Entry> {
    let meta = fs::symlink_metadata(path).ok()?;
    if meta.is_symlink() {
        return fs::read_link(path).ok().map(Entry::Symlink);
    }
    Some(if meta.is_dir() { Entry::Dir } else { Entry::File })
}

/// Returns the entries of a directory of the host.
pub fn list(path: &Path) -> Vec<String> {
    fs::read_dir(path).into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small host: directories end in `/`, links are `path -> to`.
    const MACHINE: &[&str] = &[
        "/usr/",
        "/usr/share/",
        "/usr/share/doc/",
        "/usr/bin/",
        "/bin -> usr/bin",
        "/etc/",
        "/etc/shadow",
        "/etc/ssl/",
        "/etc/resolv.conf -> ../run/resolv.conf",
        "/opt/",
        "/dev/null",
        "/home/me/.cache/env/",
    ];

    fn look_at(path: &Path) -> Option<Entry> {
        let path = path.to_str()?;
        MACHINE.iter().find_map(|line| match line.split_once(" -> ") {
            Some((link, to)) => (link == path).then(|| Entry::Symlink(to.into())),
            None if line.trim_end_matches('/') == path => {
                Some(if line.ends_with('/') { Entry::Dir } else { Entry::File })
            }
            None => None,
        })
    }

    fn list_of(path: &Path) -> Vec<String> {
        let prefix = format!("{}/", path.display());
        let names = MACHINE.iter().filter_map(|l| l.strip_prefix(&prefix)).filter(|l| !l.is_empty());
        let mut names: Vec<String> = names.map(|l| l.split(['/', ' ']).next().unwrap_or_default().to_owned()).collect();
        names.dedup();
        names
    }

    fn planned(spec: &RootfsSpec) -> Vec<String> {
        let short = |op: &MountStep| match op {
            MountStep::Dir { target, .. } => format!("dir {}", target.display()),
            MountStep::Symlink { target, .. } => format!("link {}", target.display()),
            MountStep::Bind { source, target, read_only, .. } => {
                format!("{} {} at {}", if *read_only { "ro" } else { "rw" }, source.display(), target.display())
            }
            MountStep::Tmpfs { target, .. } => format!("tmpfs {}", target.display()),
            MountStep::Proc { .. } => "proc".to_owned(),
            MountStep::Pts { .. } => "pts".to_owned(),
            MountStep::Sys { .. } => "sys".to_owned(),
            MountStep::Mask { target } => format!("mask {}", target.display()),
            MountStep::Protect { target } => format!("protect {}", target.display()),
            MountStep::Reduce { target, keep } => format!("only {keep:?} of {}", target.display()),
            MountStep::ReadOnlyRoot => "read-only root".to_owned(),
        };
        plan(spec, &look_at, &list_of).iter().map(short).collect()
    }

    fn bind(target: &str) -> Bind {
        Bind { source: "/v".into(), sub_path: None, target: target.into(), read_only: false }
    }

    /// Compares a plan with that of an empty spec.
    fn check(spec: RootfsSpec, more: &[&str], less: &[&str]) {
        let (plain, got) = (planned(&RootfsSpec::default()), planned(&spec));
        let added: Vec<&String> = got.iter().filter(|op| !plain.contains(op)).collect();
        let gone: Vec<&String> = plain.iter().filter(|op| !got.contains(op)).collect();
        assert_eq!(
            (added, gone),
            (
                more.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>().iter().collect(),
                less.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>().iter().collect()
            )
        );
    }

    #[test]
    fn only_the_hosts_tools_are_visible() {
        let ops = planned(&RootfsSpec::default());
        for expected in [
            "link /bin",
            "ro /usr at /usr",
            "dir /etc",
            "ro /etc/ssl at /etc/ssl",
            "proc",
            "tmpfs /dev/shm",
            "mask /proc/kcore",
        ] {
            assert!(ops.iter().any(|op| op == expected), "{expected} in {ops:#?}");
        }
        assert!(!ops.iter().any(|op| op.contains("/home/me/.cache") || op.contains("shadow")));
    }

    #[test]
    fn mount_points_are_found_or_created() {
        check(RootfsSpec { binds: vec![bind("/data")], ..RootfsSpec::default() }, &["rw /v at /data"], &[]);
        check(RootfsSpec { binds: vec![bind("/usr/share")], ..RootfsSpec::default() }, &["rw /v at /usr/share"], &[]);
        check(
            RootfsSpec { binds: vec![bind("/usr/share/new")], ..RootfsSpec::default() },
            &[
                "dir /usr",
                "ro /usr/bin at /usr/bin",
                "dir /usr/share",
                "ro /usr/share/doc at /usr/share/doc",
                "rw /v at /usr/share/new",
            ],
            &["ro /usr at /usr"],
        );
        check(
            RootfsSpec { binds: vec![bind("/etc/resolv.conf")], ..RootfsSpec::default() },
            &["rw /v at /etc/resolv.conf"],
            &[],
        );
        check(
            RootfsSpec { binds: vec![bind("/var/run/secrets/../secrets/x")], ..RootfsSpec::default() },
            &["dir /run/secrets", "rw /v at /run/secrets/x"],
            &[],
        );
        check(
            RootfsSpec { binds: vec![bind("/dev/shm")], ..RootfsSpec::default() },
            &["rw /v at /dev/shm"],
            &["tmpfs /dev/shm"],
        );
        check(
            RootfsSpec { same: vec!["/home/me/.cache/env".into()], ..RootfsSpec::default() },
            &["dir /home/me", "dir /home/me/.cache", "ro /home/me/.cache/env at /home/me/.cache/env"],
            &[],
        );
    }

    #[test]
    fn parents_come_before_their_children() {
        let spec = RootfsSpec { binds: vec![bind("/a/b/c"), bind("/a")], ..RootfsSpec::default() };
        let ops = planned(&spec);
        let at = |text: &str| ops.iter().position(|op| op == text);
        assert!(at("rw /v at /a") < at("rw /v at /a/b/c"));
    }
}
