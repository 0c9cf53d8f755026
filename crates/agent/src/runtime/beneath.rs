//! Resolves paths that a pod can influence without ever leaving the directory they belong to.
//!
//! A container can plant symbolic links in its volumes at any time, so a path is opened component by component by the
//! kernel (`openat2`), and callers go on with the file descriptor instead of the path.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fchmod, mkdirat, openat2};

/// User and group ids as seen by the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    pub(crate) fn ids(self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }
}

const STAY: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens a directory of the agent as the start of a resolution.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens `path` beneath `dir`; a symbolic link or `..` on the way is an error.
pub fn open(dir: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    openat2(dir, path, flags | OFlags::CLOEXEC, mode, STAY).map_err(|errno| match errno {
        rustix::io::Errno::LOOP => refuse(path, "passes a symbolic link"),
        rustix::io::Errno::XDEV => refuse(path, "leaves its directory"),
        other => other.into(),
    })
}

/// Creates the missing directories of `path` beneath `dir` and returns the last one.
pub fn create_dirs(dir: impl AsFd, path: &Path, mode: Mode, owner: Option<Owner>) -> io::Result<OwnedFd> {
    let mut at = open(dir, Path::new("."), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    for part in path.components() {
        let name = match part {
            Component::Normal(name) => Path::new(name),
            Component::CurDir => continue,
            _ => return Err(refuse(path, "leaves its directory")),
        };
        match mkdirat(&at, name, mode) {
            Ok(()) => {
                let made = open(&at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
                // The mode is given in full, whatever the umask is.
                fchmod(&made, mode)?;
                if let Some(owner) = owner {
                    let (uid, gid) = owner.ids();
                    chownat(&at, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
                }
                at = made;
            }
            Err(rustix::io::Errno::EXIST) => {
                at = open(&at, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(at)
}

fn refuse(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("the path {} {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_and_parent_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        symlink("..", root.join("a/up")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        let fd = open_dir(&root).unwrap();
        let mode = Mode::from_raw_mode(0o755);
        let check = |path: &str, expect: Option<&str>| {
            let made = create_dirs(&fd, Path::new(path), mode, None).map(drop).map_err(|e| e.to_string());
            match expect {
                None => assert_eq!(made, Ok(()), "{path}"),
                Some(why) => assert!(made.as_ref().is_err_and(|e| e.contains(why)), "{path}: {made:?}"),
            }
        };
        check("a/b/c", None);
        check("a/./b", None);
        check("../x", Some("leaves its directory"));
        check("/x", Some("leaves its directory"));
        check("a/up/x", Some("passes a symbolic link"));
        check("etc/x", Some("passes a symbolic link"));
        let read = |path: &str| open(&fd, Path::new(path), OFlags::RDONLY, Mode::empty()).map(drop);
        assert!(read("a/up/secret").unwrap_err().to_string().contains("passes a symbolic link"));
        assert!(read("etc/passwd").is_err() && read("../secret").is_err() && read("a/b").is_ok());
        assert!(!dir.path().join("x").exists());
    }
}
