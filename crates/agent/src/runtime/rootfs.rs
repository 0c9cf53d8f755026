//! The file system of a container, put together from the machine's own directories.
//!
//! [`plan`] is pure: it says which directories of the machine appear where, read-only, and which
//! are the container's own. A mount that needs a place inside a read-only directory makes that
//! directory a mirror: a real directory whose entries are bound one by one. No overlay is used,
//! because an ordinary user may not have one over `/`. [`build`] and [`enter`] carry it out.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde::{Deserialize, Serialize};

use super::container::named;

/// One step of putting a file system together; targets are absolute inside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountStep {
    Dir {
        target: PathBuf,
        mode: u32,
    },
    Symlink {
        target: PathBuf,
        to: PathBuf,
    },
    /// Source and target are both directories, or both something else.
    Bind {
        source: PathBuf,
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
}

/// What the machine has at a path.
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
    pub target: PathBuf,
    pub read_only: bool,
    pub is_dir: bool,
}

/// What a container needs beyond the machine's own tools.
#[derive(Debug, Clone, Default)]
pub struct RootfsSpec {
    /// Directories of the machine shown read-only at the same path, such as a Python environment.
    pub same: Vec<PathBuf>,
    /// Volumes and generated files.
    pub binds: Vec<Bind>,
    pub shm_bytes: Option<i64>,
    pub cgroup: Option<CgroupView>,
    pub dirs: Vec<PathBuf>,
}

/// Top-level directories of the machine that hold its tools.
const TOOLS: &[&str] = &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "etc", "nix", "gnu"];
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Lists the steps; `look` tells what the machine has at a path, `list` what a directory holds.
pub fn plan(
    wanted: &RootfsSpec,
    look: &dyn Fn(&Path) -> Option<Entry>,
    list: &dyn Fn(&Path) -> Vec<String>,
) -> Vec<MountStep> {
    let mut tree = Tree { look, list, nodes: BTreeMap::new() };
    for name in TOOLS {
        let path = Path::new("/").join(name);
        if let Some(entry) = look(&path) {
            tree.mirror_entry(&path, &entry);
        }
    }
    tree.explode(Path::new("/etc"));
    for (path, mode) in [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/run", 0o755), ("/root", 0o700), ("/home", 0o755)] {
        tree.put(Path::new(path), Node::Dir { mode });
    }
    tree.put(Path::new("/var/run"), Node::Symlink("../run".into()));
    for dir in &wanted.dirs {
        tree.put(dir, Node::Dir { mode: 0o755 });
    }
    for path in &wanted.same {
        tree.put(path, Node::Bind { source: path.clone(), read_only: true, is_dir: true });
    }

    let mut late = Vec::new();
    let mut shm = Some(wanted.shm_bytes);
    for bind in &wanted.binds {
        let target = normal(&bind.target);
        if target.starts_with("/dev") || target.starts_with("/sys") || target.starts_with("/proc") {
            if target == Path::new("/dev/shm") {
                shm = None;
            }
            let source = bind.source.clone();
            late.push(MountStep::Bind { source, target, read_only: bind.read_only });
            continue;
        }
        let node = Node::Bind { source: bind.source.clone(), read_only: bind.read_only, is_dir: bind.is_dir };
        tree.put(&target, node);
    }

    let mut ops = tree.ops();
    ops.extend(devices(look, shm));
    ops.push(MountStep::Proc { target: "/proc".into() });
    ops.push(MountStep::Bind { source: "/sys".into(), target: "/sys".into(), read_only: true });
    match &wanted.cgroup {
        None => {}
        Some(CgroupView::Unified(source)) => {
            ops.push(MountStep::Bind { source: source.clone(), target: "/sys/fs/cgroup".into(), read_only: true });
        }
        Some(CgroupView::Split(controllers)) => {
            ops.push(MountStep::Tmpfs { target: "/sys/fs/cgroup".into(), options: "mode=755,size=64k".into() });
            for (name, source) in controllers {
                let target = Path::new("/sys/fs/cgroup").join(name);
                ops.push(MountStep::Bind { source: source.clone(), target, read_only: true });
            }
        }
    }
    ops.extend(late);
    ops
}

fn devices(look: &dyn Fn(&Path) -> Option<Entry>, shm: Option<Option<i64>>) -> Vec<MountStep> {
    let mut ops = vec![MountStep::Tmpfs { target: "/dev".into(), options: "mode=755,size=1m".into() }];
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        if look(&path).is_some() {
            ops.push(MountStep::Bind { source: path.clone(), target: path, read_only: false });
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
    if let Some(bytes) = shm {
        // What Docker and containerd give a container that asks for nothing.
        let options = format!("mode=1777,size={}", bytes.unwrap_or(64 << 20));
        ops.push(MountStep::Tmpfs { target: "/dev/shm".into(), options });
    }
    ops
}

#[derive(Debug, Clone)]
enum Node {
    Dir { mode: u32 },
    Symlink(PathBuf),
    Bind { source: PathBuf, read_only: bool, is_dir: bool },
}

struct Tree<'a> {
    look: &'a dyn Fn(&Path) -> Option<Entry>,
    list: &'a dyn Fn(&Path) -> Vec<String>,
    /// Sorted by path, so parents come before what is inside them.
    nodes: BTreeMap<PathBuf, Node>,
}

impl Tree<'_> {
    /// Sets what is at `path`, opening up read-only directories on the way.
    fn put(&mut self, path: &Path, node: Node) {
        let mut at = PathBuf::from("/");
        let parents: Vec<PathBuf> = path.ancestors().skip(1).map(Path::to_path_buf).collect();
        for parent in parents.into_iter().rev() {
            at.clone_from(&parent);
            match self.nodes.get(&at) {
                Some(Node::Bind { is_dir: true, .. }) => {
                    if self.exists_below(&at, path) {
                        break;
                    }
                    self.explode(&at);
                }
                Some(_) => {}
                None if at == Path::new("/") => {}
                None => {
                    self.nodes.insert(at.clone(), Node::Dir { mode: 0o755 });
                }
            }
        }
        let keep = matches!((&node, self.nodes.get(path)), (Node::Dir { .. }, Some(_)));
        if !keep {
            self.nodes.insert(path.to_path_buf(), node);
        }
    }

    /// Whether the bound directory at `at` already has the place `path` to mount on.
    fn exists_below(&self, at: &Path, path: &Path) -> bool {
        let Some(Node::Bind { source, .. }) = self.nodes.get(at) else { return false };
        path.strip_prefix(at)
            .is_ok_and(|rest| matches!((self.look)(&source.join(rest)), Some(Entry::Dir | Entry::File)))
    }

    /// Turns a bound directory into a real one whose entries are bound.
    fn explode(&mut self, path: &Path) {
        let Some(Node::Bind { source, read_only, is_dir: true }) = self.nodes.get(path).cloned() else { return };
        self.nodes.insert(path.to_path_buf(), Node::Dir { mode: 0o755 });
        for name in (self.list)(&source) {
            let (inner, target) = (source.join(&name), path.join(&name));
            let node = match (self.look)(&inner) {
                Some(Entry::Dir) => Node::Bind { source: inner, read_only, is_dir: true },
                Some(Entry::File) => Node::Bind { source: inner, read_only, is_dir: false },
                Some(Entry::Symlink(to)) => Node::Symlink(to),
                None => continue,
            };
            self.nodes.entry(target).or_insert(node);
        }
    }

    fn mirror_entry(&mut self, path: &Path, entry: &Entry) {
        let node = match entry {
            Entry::Dir => Node::Bind { source: path.into(), read_only: true, is_dir: true },
            Entry::File => return,
            Entry::Symlink(to) => Node::Symlink(to.clone()),
        };
        self.nodes.insert(path.into(), node);
    }

    fn ops(self) -> Vec<MountStep> {
        self.nodes
            .into_iter()
            .map(|(target, node)| match node {
                Node::Dir { mode } => MountStep::Dir { target, mode },
                Node::Symlink(to) => MountStep::Symlink { target, to },
                Node::Bind { source, read_only, .. } => MountStep::Bind { source, target, read_only },
            })
            .collect()
    }
}

/// An absolute path without `.` and `..`, `/var/run` being `/run`.
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

/// Carries out the steps below `root`, in a mount namespace of our own.
pub(super) fn build(root: &Path, ops: &[MountStep]) -> io::Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some(root), root, none, MsFlags::MS_BIND, none)?;
    for op in ops {
        apply(root, op).map_err(|e| io::Error::other(format!("cannot set up the file system: {op:?}: {e}")))?;
    }
    Ok(())
}

fn apply(root: &Path, op: &MountStep) -> io::Result<()> {
    let none: Option<&str> = None;
    let inside = |target: &Path| root.join(target.strip_prefix("/").unwrap_or(target));
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    match op {
        MountStep::Dir { target, mode } => {
            let path = inside(target);
            if !path.is_dir() {
                fs::DirBuilder::new().recursive(true).create(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
            }
        }
        MountStep::Symlink { target, to } => {
            let path = inside(target);
            match std::os::unix::fs::symlink(to, &path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        MountStep::Bind { source, target, read_only } => {
            let path = inside(target);
            create_mount_point(&path, fs::metadata(source)?.is_dir())?;
            mount(Some(source.as_path()), &path, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)?;
            if *read_only {
                set_read_only(&path)?;
            }
        }
        MountStep::Tmpfs { target, options } => {
            let path = inside(target);
            create_mount_point(&path, true)?;
            mount(Some("tmpfs"), &path, Some("tmpfs"), safe, Some(options.as_str()))?;
        }
        MountStep::Proc { target } => {
            let path = inside(target);
            create_mount_point(&path, true)?;
            mount(Some("proc"), &path, Some("proc"), safe | MsFlags::MS_NOEXEC, none)?;
        }
        MountStep::Pts { target } => {
            let path = inside(target);
            create_mount_point(&path, true)?;
            let options = Some("newinstance,ptmxmode=0666,mode=0620");
            mount(Some("devpts"), &path, Some("devpts"), MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, options)?;
        }
    }
    Ok(())
}

fn create_mount_point(path: &Path, is_dir: bool) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    if is_dir {
        return fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path).map(drop)
}

/// Makes a mount and everything below it read-only, keeping its other flags; an ordinary remount
/// would have to repeat the flags that a user namespace has locked.
fn set_read_only(path: &Path) -> io::Result<()> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).map_err(io::Error::other)?;
    let attributes =
        nix::libc::mount_attr { attr_set: nix::libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path ends in a zero byte and the structure outlives the call, which only reads it.
    let rc = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_mount_setattr,
            nix::libc::AT_FDCWD,
            path.as_ptr(),
            nix::libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<nix::libc::mount_attr>(),
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes `root` the root of this process and forgets the old one.
pub(super) fn enter(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root).map_err(|e| named("cannot enter", root, &e))?;
    rustix::process::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    std::env::set_current_dir("/")
}

/// What this machine has at a path.
pub fn look(path: &Path) -> Option<Entry> {
    let meta = fs::symlink_metadata(path).ok()?;
    if meta.is_symlink() {
        return fs::read_link(path).ok().map(Entry::Symlink);
    }
    Some(if meta.is_dir() { Entry::Dir } else { Entry::File })
}

/// What a directory of this machine holds.
pub fn list(path: &Path) -> Vec<String> {
    fs::read_dir(path).into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small machine: directories end in `/`, links are `path -> to`.
    const MACHINE: &[&str] = &[
        "/usr/",
        "/usr/share/",
        "/usr/share/doc/",
        "/usr/bin/",
        "/bin -> usr/bin",
        "/etc/",
        "/etc/passwd",
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

    fn planned(wanted: &RootfsSpec) -> Vec<String> {
        let short = |op: &MountStep| match op {
            MountStep::Dir { target, .. } => format!("dir {}", target.display()),
            MountStep::Symlink { target, .. } => format!("link {}", target.display()),
            MountStep::Bind { source, target, read_only } => {
                format!("{} {} at {}", if *read_only { "ro" } else { "rw" }, source.display(), target.display())
            }
            MountStep::Tmpfs { target, .. } => format!("tmpfs {}", target.display()),
            MountStep::Proc { .. } => "proc".to_owned(),
            MountStep::Pts { .. } => "pts".to_owned(),
        };
        plan(wanted, &look_at, &list_of).iter().map(short).collect()
    }

    fn bind(target: &str, is_dir: bool) -> Bind {
        Bind { source: "/v".into(), target: target.into(), read_only: false, is_dir }
    }

    /// What is planned beyond a container that wants nothing.
    fn check(wanted: RootfsSpec, more: &[&str], less: &[&str]) {
        let (plain, got) = (planned(&RootfsSpec::default()), planned(&wanted));
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
    fn the_machines_tools_are_there_and_nothing_else() {
        let ops = planned(&RootfsSpec::default());
        for expected in
            ["link /bin", "ro /usr at /usr", "dir /etc", "ro /etc/passwd at /etc/passwd", "proc", "tmpfs /dev/shm"]
        {
            assert!(ops.iter().any(|op| op == expected), "{expected} in {ops:#?}");
        }
        assert!(!ops.iter().any(|op| op.contains("/home/me/.cache")));
    }

    #[test]
    fn mounts_find_a_place_or_make_one() {
        check(RootfsSpec { binds: vec![bind("/data", true)], ..RootfsSpec::default() }, &["rw /v at /data"], &[]);
        check(
            RootfsSpec { binds: vec![bind("/usr/share", true)], ..RootfsSpec::default() },
            &["rw /v at /usr/share"],
            &[],
        );
        check(
            RootfsSpec { binds: vec![bind("/usr/share/new", true)], ..RootfsSpec::default() },
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
            RootfsSpec { binds: vec![bind("/etc/resolv.conf", false)], ..RootfsSpec::default() },
            &["rw /v at /etc/resolv.conf"],
            &["link /etc/resolv.conf"],
        );
        check(
            RootfsSpec { binds: vec![bind("/var/run/secrets/../secrets/x", true)], ..RootfsSpec::default() },
            &["dir /run/secrets", "rw /v at /run/secrets/x"],
            &[],
        );
        check(
            RootfsSpec { binds: vec![bind("/dev/shm", true)], ..RootfsSpec::default() },
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
        let wanted = RootfsSpec { binds: vec![bind("/a/b/c", true), bind("/a", true)], ..RootfsSpec::default() };
        let ops = planned(&wanted);
        let at = |text: &str| ops.iter().position(|op| op == text);
        assert!(at("rw /v at /a") < at("rw /v at /a/b/c"));
    }
}
