//! Carries out the steps of a plan, in a mount namespace that the agent still owns.
//!
//! Every path inside the new root is resolved within it by the kernel, and mounts are attached to the file
//! descriptor found: a link that a container left in a volume cannot lead the agent out of the root.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, chownat, fstat, mkdirat, openat, openat2};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::super::beneath::{self, Owner};
use super::super::container::named;
use super::{MountStep, Overlay};

/// Assembles the root file system at `root`.
pub(in crate::runtime) fn build(
    root: &Path,
    overlay: Option<&Overlay>,
    owner: Owner,
    steps: &[MountStep],
) -> io::Result<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    match overlay {
        None => mount(Some(root), root, none, MsFlags::MS_BIND, none)?,
        Some(overlay) => {
            let options = overlay_options(overlay);
            let mounted = mount(Some("overlay"), root, Some("overlay"), MsFlags::empty(), Some(options.as_os_str()));
            mounted.map_err(|e| named("cannot mount the image", &overlay.image, &e))?;
        }
    }
    let builder = Builder { root: beneath::open_dir(root)?, owner };
    set_attributes(builder.root.as_fd(), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV, Depth::One)?;
    for step in steps {
        builder.apply(step).map_err(|e| io::Error::other(format!("cannot set up the file system: {step:?}: {e}")))?;
    }
    Ok(())
}

/// Returns the options of an overlay, with the characters escaped that separate them.
fn overlay_options(overlay: &Overlay) -> OsString {
    let mut options = OsString::from("userxattr");
    for (name, path) in [("lowerdir", &overlay.image), ("upperdir", &overlay.changes), ("workdir", &overlay.work)] {
        options.push(format!(",{name}="));
        for byte in path.as_os_str().as_bytes() {
            if b"\\,:".contains(byte) {
                options.push("\\");
            }
            options.push(OsStr::from_bytes(std::slice::from_ref(byte)));
        }
    }
    options
}

/// Makes `root` the root of this process and detaches the old one.
pub(in crate::runtime) fn enter(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root).map_err(|e| named("cannot enter", root, &e))?;
    rustix::process::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    std::env::set_current_dir("/")
}

struct Builder {
    root: OwnedFd,
    /// Who owns the directories made on the way to a mount point.
    owner: Owner,
}

impl Builder {
    fn apply(&self, step: &MountStep) -> io::Result<()> {
        let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        match step {
            MountStep::Dir { target, mode, owner } => self.make_dir(target, *mode, *owner),
            MountStep::Symlink { target, to } => {
                let (parent, name) = self.parent(target)?;
                match rustix::fs::symlinkat(to, parent, name) {
                    Err(rustix::io::Errno::EXIST) => Ok(()),
                    other => Ok(other?),
                }
            }
            MountStep::Bind { source, sub_path, target, read_only } => {
                self.bind(source, sub_path.as_deref(), target, *read_only)
            }
            MountStep::Tmpfs { target, options } => self.mount("tmpfs", target, safe, Some(options)),
            MountStep::Proc { target } => self.mount("proc", target, safe | MsFlags::MS_NOEXEC, None),
            MountStep::Pts { target } => {
                let options = "newinstance,ptmxmode=0666,mode=0620".to_owned();
                self.mount("devpts", target, MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC, Some(&options))
            }
            MountStep::Sys { target } => {
                // Where the host hides parts of its own /sys, only that view of it can be had.
                let flags = safe | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
                self.mount("sysfs", target, flags, None).or_else(|_| self.bind(Path::new("/sys"), None, target, true))
            }
            MountStep::Mask { target } => self.mask(target),
            MountStep::Reduce { target, keep } => self.reduce(target, keep),
            MountStep::Protect { target } => match self.open(target)? {
                Some(fd) => {
                    let tree = clone_tree(fd.as_fd())?;
                    set_attributes(tree.as_fd(), libc::MOUNT_ATTR_RDONLY, Depth::All)?;
                    attach(&tree, &fd)
                }
                None => Ok(()),
            },
            MountStep::ReadOnlyRoot => set_attributes(self.root.as_fd(), libc::MOUNT_ATTR_RDONLY, Depth::One),
        }
    }

    fn bind(&self, source: &Path, sub_path: Option<&Path>, target: &Path, read_only: bool) -> io::Result<()> {
        let source = match sub_path {
            None => rustix::fs::open(source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
            Some(part) => beneath::open(beneath::open_dir(source)?, part, OFlags::PATH, Mode::empty())?,
        };
        let kind = FileType::from_raw_mode(fstat(&source)?.st_mode);
        let target = self.mount_point(target, kind == FileType::Directory)?;
        let tree = clone_tree(source.as_fd())?;
        let mut attributes = libc::MOUNT_ATTR_NOSUID;
        if kind != FileType::CharacterDevice {
            attributes |= libc::MOUNT_ATTR_NODEV;
        }
        if read_only {
            attributes |= libc::MOUNT_ATTR_RDONLY;
        }
        // Before it is attached, so that it is never seen writable.
        set_attributes(tree.as_fd(), attributes, Depth::All)?;
        attach(&tree, &target)
    }

    fn mount(&self, kind: &str, target: &Path, flags: MsFlags, options: Option<&String>) -> io::Result<()> {
        let target = self.mount_point(target, true)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", target.as_raw_fd()));
        Ok(mount(Some(kind), &path, Some(kind), flags, options.map(String::as_str))?)
    }

    /// Covers a file with /dev/null and a directory with an empty one.
    fn mask(&self, target: &Path) -> io::Result<()> {
        let Some(fd) = self.open(target)? else { return Ok(()) };
        if FileType::from_raw_mode(fstat(&fd)?.st_mode) == FileType::Directory {
            let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            return self.mount("tmpfs", target, flags, Some(&"size=0k,mode=000".to_owned()));
        }
        let null = rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        attach(&clone_tree(null.as_fd())?, &fd)
    }

    /// Covers a directory with one that has only the entries named.
    fn reduce(&self, target: &Path, keep: &[String]) -> io::Result<()> {
        if self.open(target)?.is_none() {
            return Ok(());
        }
        let mut kept = Vec::new();
        for name in keep {
            if let Some(entry) = self.open(&target.join(name))? {
                kept.push((name, clone_tree(entry.as_fd())?));
            }
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        self.mount("tmpfs", target, flags, Some(&"size=64k,mode=755".to_owned()))?;
        for (name, tree) in kept {
            let is_dir = FileType::from_raw_mode(fstat(&tree)?.st_mode) == FileType::Directory;
            attach(&tree, &self.mount_point(&target.join(name), is_dir)?)?;
        }
        match self.open(target)? {
            Some(cover) => set_attributes(cover.as_fd(), libc::MOUNT_ATTR_RDONLY, Depth::One),
            None => Ok(()),
        }
    }

    /// Opens what is at a path of the new root; links lead only to other places in it.
    fn open(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        let inside = path.strip_prefix("/").unwrap_or(path);
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.root, inside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(fd) => Ok(Some(fd)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Opens the directory that holds a path, making it if it is missing.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or_else(|| io::Error::other("the root itself cannot be replaced"))?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let found = match self.open(parent)? {
            Some(found) => found,
            None => {
                self.make_dir(parent, 0o755, self.owner)?;
                self.open(parent)?.ok_or_else(|| io::Error::other("a directory vanished"))?
            }
        };
        Ok((found, name))
    }

    fn make_dir(&self, path: &Path, mode: u32, owner: Owner) -> io::Result<()> {
        if self.open(path)?.is_some() {
            return Ok(());
        }
        let (parent, name) = self.parent(path)?;
        mkdirat(&parent, name, Mode::from_raw_mode(mode))?;
        let made = beneath::open(&parent, Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        rustix::fs::fchmod(&made, Mode::from_raw_mode(mode))?;
        let (uid, gid) = owner.ids();
        Ok(chownat(&parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn mount_point(&self, path: &Path, is_dir: bool) -> io::Result<OwnedFd> {
        if let Some(found) = self.open(path)? {
            return Ok(found);
        }
        if is_dir {
            self.make_dir(path, 0o755, self.owner)?;
        } else {
            let (parent, name) = self.parent(path)?;
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&parent, name, flags, Mode::from_raw_mode(0o644))?;
        }
        self.open(path)?.ok_or_else(|| io::Error::other("the mount point is a dangling link"))
    }
}

fn clone_tree(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(fd, "", flags)?)
}

fn attach(tree: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, "", target, "", flags)?)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    One,
    All,
}

/// Adds attributes to a mount, keeping those it has; an ordinary remount would have to repeat the flags that a user
/// namespace has locked.
fn set_attributes(fd: BorrowedFd<'_>, attributes: u64, depth: Depth) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let recursive = if depth == Depth::All { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a constant that ends in a zero byte, and the structure outlives the call, which only reads it.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
