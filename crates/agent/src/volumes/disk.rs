//! Puts the volumes of a pod on disk.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::{File, Volume};

/// Where volumes live.
#[derive(Debug, Clone)]
pub struct VolumeDirs {
    /// Of this pod, removed with it.
    pub pod: PathBuf,
    /// Of its namespace's claims, kept.
    pub claims: PathBuf,
}

/// Makes one volume real and says where it is.
pub fn set_up(dirs: &VolumeDirs, name: &str, volume: &Volume) -> io::Result<PathBuf> {
    let own = dirs.pod.join("volumes").join(name);
    match volume {
        Volume::Empty => open_dir(&own)?,
        Volume::Memory { limit } => {
            if !own.exists() {
                open_dir(&own)?;
                let options = limit.map_or("mode=1777".to_owned(), |n| format!("mode=1777,size={n}"));
                let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
                mount(Some("manta"), &own, Some("tmpfs"), flags, Some(options.as_str()))?;
            }
        }
        Volume::Files(files) => {
            fs::create_dir_all(&own)?;
            write_files(&own, files)?;
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
        Volume::Claim { name, .. } => {
            let claim = dirs.claims.join(name);
            open_dir(&claim)?;
            return Ok(claim);
        }
    }
    Ok(own)
}

/// Brings the files up to date: new contents replace old ones in one step, dropped files go.
pub fn write_files(dir: &Path, files: &[File]) -> io::Result<()> {
    for file in files {
        let path = dir.join(&file.path);
        if fs::read(&path).is_ok_and(|old| old == file.contents) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let fresh = path.with_extension("manta-new");
        let _ = fs::remove_file(&fresh);
        let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(file.mode).open(&fresh)?;
        io::Write::write_all(&mut out, &file.contents)?;
        out.set_permissions(fs::Permissions::from_mode(file.mode))?;
        fs::rename(&fresh, &path)?;
    }
    for entry in fs::read_dir(dir)?.flatten() {
        let name = entry.file_name();
        let kept = |f: &File| f.path.split('/').next().is_some_and(|first| name.to_str() == Some(first));
        if !files.iter().any(kept) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Removes everything a pod had on disk.
pub fn remove(dirs: &VolumeDirs) -> io::Result<()> {
    let volumes = dirs.pod.join("volumes");
    for entry in fs::read_dir(&volumes).into_iter().flatten().flatten() {
        // Only memory volumes are mounts; for the others this fails, which is fine.
        let _ = umount2(&entry.path(), MntFlags::MNT_DETACH);
    }
    match fs::remove_dir_all(&dirs.pod) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, contents: &str) -> File {
        File { path: path.into(), contents: contents.into(), mode: 0o640 }
    }

    #[test]
    fn files_follow_their_source() {
        let dir = tempfile::tempdir().unwrap();
        write_files(dir.path(), &[file("a", "1"), file("d/b", "2")]).unwrap();
        write_files(dir.path(), &[file("a", "3"), file("c", "4")]).unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        assert_eq!((read("a"), read("c")), (Some("3".into()), Some("4".into())));
        let mode = fs::metadata(dir.path().join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        write_files(dir.path(), &[]).unwrap();
        assert_eq!(read("a"), None);
    }

    #[test]
    fn directories_and_claims_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = VolumeDirs { pod: dir.path().join("pod"), claims: dir.path().join("claims") };
        let empty = set_up(&dirs, "e", &Volume::Empty).unwrap();
        let claim = set_up(&dirs, "c", &Volume::Claim { name: "data".into(), read_only: false }).unwrap();
        fs::write(claim.join("x"), "kept").unwrap();
        assert!(empty.is_dir());
        remove(&dirs).unwrap();
        remove(&dirs).unwrap();
        assert!(!dirs.pod.exists() && claim.join("x").exists());
    }
}
