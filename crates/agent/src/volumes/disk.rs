//! Puts the volumes of a pod on disk.
//!
//! Containers can write to most of what is here, so nothing is opened by a path that goes through a volume: the agent
//! holds a descriptor of the volume's directory and resolves names beneath it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, fchown, fstat, renameat, unlinkat};

use super::{File, Volume};
use crate::runtime::beneath::{self, Owner};

/// Where volumes live and who owns them.
#[derive(Debug, Clone)]
pub struct VolumeDirs {
    /// Of this pod, removed with it.
    pub pod: PathBuf,
    /// Of all claims; each has a folder that lives as long as the claim.
    pub claims: PathBuf,
    /// The container's root, and the group that may use the volumes.
    pub owner: Owner,
    /// Whether the pod names a group for its volumes.
    pub has_group: bool,
}

/// Sets up one volume and returns its directory.
pub fn set_up(dirs: &VolumeDirs, name: &str, volume: &Volume) -> io::Result<PathBuf> {
    let own = dirs.pod.join("volumes").join(name);
    match volume {
        Volume::Empty => open_to_all(&own, dirs)?,
        Volume::Memory { limit } => {
            if !own.exists() {
                open_to_all(&own, dirs)?;
                let Owner { uid, gid } = dirs.owner;
                let size = limit.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
                let options = format!("mode=1777,uid={uid},gid={gid}{size}");
                let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
                mount(Some("manta"), &own, Some("tmpfs"), flags, Some(options.as_str()))?;
            }
        }
        Volume::Files(files) => {
            make_dir(&own, 0o755, dirs.owner)?;
            write_files(&own, files, dirs)?;
        }
        Volume::Host { path, kind } => {
            let path = PathBuf::from(path);
            match kind.as_str() {
                "DirectoryOrCreate" => fs::create_dir_all(&path)?,
                "FileOrCreate" => drop(fs::OpenOptions::new().create(true).append(true).open(&path)?),
                _ => {
                    fs::metadata(&path)?;
                }
            }
            return Ok(path);
        }
        Volume::Claim { folder, .. } => {
            let claim = dirs.claims.join(folder);
            open_to_all(&claim, dirs)?;
            return Ok(claim);
        }
    }
    Ok(own)
}

/// Checks a `subPath` and creates it where it is missing, as the kubelet does.
pub fn prepare_sub_path(volume: &Path, part: &Path, owner: Owner) -> io::Result<()> {
    let dir = beneath::open_dir(volume)?;
    match beneath::open(&dir, part, OFlags::PATH, Mode::empty()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mode = Mode::from_raw_mode(fstat(&dir)?.st_mode & 0o7777);
            beneath::create_dirs(&dir, part, mode, Some(owner)).map(drop)
        }
        other => other.map(drop),
    }
}

/// Brings the files up to date: new contents replace old ones in one step, dropped files are removed.
fn write_files(dir: &Path, files: &[File], dirs: &VolumeDirs) -> io::Result<()> {
    let dir = beneath::open_dir(dir)?;
    for file in files {
        let path = Path::new(&file.path);
        let mode = if dirs.has_group { file.mode | 0o040 } else { file.mode };
        if read(&dir, path).is_ok_and(|old| old == file.contents) {
            continue;
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = beneath::create_dirs(&dir, parent, Mode::from_raw_mode(0o755), Some(dirs.owner))?;
        let name = path.file_name().ok_or_else(|| io::Error::other(format!("{} names no file", path.display())))?;
        let fresh = Path::new(".manta-new");
        let _ = unlinkat(&parent, fresh, AtFlags::empty());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
        let mut out = fs::File::from(beneath::open(&parent, fresh, flags, Mode::from_raw_mode(mode))?);
        out.write_all(&file.contents)?;
        fchmod(&out, Mode::from_raw_mode(mode))?;
        let (uid, gid) = dirs.owner.ids();
        fchown(&out, uid, gid)?;
        renameat(&parent, fresh, &parent, name)?;
    }
    remove_others(&dir, files)
}

fn read(dir: &OwnedFd, path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    fs::File::from(beneath::open(dir, path, flags, Mode::empty())?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes what is at the top of a volume and belongs to none of its files.
fn remove_others(dir: &OwnedFd, files: &[File]) -> io::Result<()> {
    let kept: BTreeSet<&str> = files.iter().filter_map(|f| f.path.split('/').next()).collect();
    let listing = beneath::open(dir, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    for entry in Dir::new(listing)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_kept = name.to_str().is_ok_and(|name| name == "." || name == ".." || kept.contains(name));
        if !is_kept && entry.file_type() != FileType::Directory {
            unlinkat(dir, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Removes everything that a pod had on disk.
pub fn remove(dirs: &VolumeDirs) -> io::Result<()> {
    let volumes = dirs.pod.join("volumes");
    for entry in fs::read_dir(&volumes).into_iter().flatten().flatten() {
        // Only memory volumes are mounts; for the others this fails, which is fine.
        let _ = umount2(&entry.path(), MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    }
    match fs::remove_dir_all(&dirs.pod) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a directory of the agent that every user of the container may write to.
fn open_to_all(path: &Path, dirs: &VolumeDirs) -> io::Result<()> {
    make_dir(path, if dirs.has_group { 0o2777 } else { 0o777 }, dirs.owner)
}

/// Creates a directory for a container, or hands over one that the agent has made.
pub(crate) fn make_dir(path: &Path, mode: u32, owner: Owner) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    let is_new = match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    // What a container has done to its volume stays; a provisioned folder is still the agent's.
    let agent = rustix::process::geteuid().as_raw();
    let is_agents = fstat(&dir)?.st_uid == agent && owner.uid != agent;
    if is_new || is_agents { give(dir.as_fd(), mode, owner) } else { Ok(()) }
}

/// Writes a file of the agent that a container will see.
pub(crate) fn write_file(path: &Path, text: &str, mode: u32, owner: Owner) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = fs::File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(mode))?);
    file.write_all(text.as_bytes())?;
    give(file.as_fd(), mode, owner)
}

fn give(fd: std::os::fd::BorrowedFd<'_>, mode: u32, owner: Owner) -> io::Result<()> {
    let found = fstat(fd)?;
    if (found.st_uid, found.st_gid) != (owner.uid, owner.gid) {
        let (uid, gid) = owner.ids();
        fchown(fd, uid, gid)?;
    }
    if found.st_mode & 0o7777 != mode {
        fchmod(fd, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn file(path: &str, contents: &str) -> File {
        File { path: path.into(), contents: contents.into(), mode: 0o640 }
    }

    fn dirs(dir: &Path) -> VolumeDirs {
        let owner = Owner { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
        VolumeDirs { pod: dir.join("pod"), claims: dir.join("claims"), owner, has_group: false }
    }

    #[test]
    fn files_follow_their_source() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(dir.path());
        write_files(dir.path(), &[file("a", "1"), file("d/b", "2")], &dirs).unwrap();
        write_files(dir.path(), &[file("a", "3"), file("c", "4")], &dirs).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        assert_eq!((read("a"), read("c")), (Some("3".into()), Some("4".into())));
        let mode = fs::metadata(dir.path().join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        write_files(dir.path(), &[], &dirs).unwrap();
        assert_eq!(read("a"), None);
    }

    #[test]
    fn planted_links_are_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir_all(&volume).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("file"), "untouched").unwrap();
        symlink(outside.join("file"), volume.join("a")).unwrap();
        symlink(outside.join("file"), volume.join(".manta-new")).unwrap();
        symlink(&outside, volume.join("d")).unwrap();
        let dirs = dirs(dir.path());
        write_files(&volume, &[file("a", "1")], &dirs).unwrap();
        assert!(fs::symlink_metadata(volume.join("a")).unwrap().is_file());
        symlink(&outside, volume.join("d")).unwrap();
        assert!(write_files(&volume, &[file("d/file", "2")], &dirs).is_err());
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "untouched");
        assert!(prepare_sub_path(&volume, Path::new("d/x"), dirs.owner).is_err());
        assert!(prepare_sub_path(&volume, Path::new("../outside"), dirs.owner).is_err());
        assert!(!outside.join("x").exists());
        prepare_sub_path(&volume, Path::new("new/part"), dirs.owner).unwrap();
        assert!(volume.join("new/part").is_dir());
    }

    #[test]
    fn a_directory_replaced_by_a_link_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::create_dir_all(dir.path().join("pod/volumes")).unwrap();
        symlink(&outside, dir.path().join("pod/volumes/e")).unwrap();
        assert!(set_up(&dirs(dir.path()), "e", &Volume::Empty).is_err());
    }

    #[test]
    fn a_volume_keeps_the_permissions_that_a_container_gave_it() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(dir.path());
        let path = set_up(&dirs, "e", &Volume::Empty).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        set_up(&dirs, "e", &Volume::Empty).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn claims_outlive_the_pod() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = dirs(dir.path());
        let empty = set_up(&dirs, "e", &Volume::Empty).unwrap();
        let claim = set_up(&dirs, "c", &Volume::Claim { folder: "n-data-1".into(), read_only: false }).unwrap();
        fs::write(claim.join("x"), "data").unwrap();
        assert!(empty.is_dir());
        remove(&dirs).unwrap();
        remove(&dirs).unwrap();
        assert!(!dirs.pod.exists() && claim.join("x").exists());
    }
}
