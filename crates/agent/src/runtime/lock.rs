//! The lock of a state folder, which at most one agent uses at a time.

use std::fs;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

/// A lock held as long as the process lives; the kernel releases it even after SIGKILL.
#[derive(Debug)]
pub struct Lock {
    _file: fs::File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{folder} is in use by process {pid}; stop it with `manta down`, or choose another --state directory")]
    Held { folder: String, pid: String },
    #[error("only {free} MiB are free in {folder}: free some space, or choose another --state directory")]
    Full { folder: String, free: u64 },
    #[error("cannot use the state directory {folder}")]
    Folder {
        folder: String,
        #[source]
        cause: io::Error,
    },
}

/// The least free space that objects, logs and the files of pods need.
const LEAST_FREE_MIB: u64 = 64;

/// How long to wait for the children of a killed owner to exit.
const DYING: Duration = Duration::from_secs(10);

/// Whether a process holds the lock, and not only has it or had it for a moment: an owner writes its id after it took the
/// lock, and removes it before it releases the lock.
fn is_owned(pid: &str) -> bool {
    !pid.is_empty() && Path::new("/proc").join(pid).exists()
}

fn read_pid(file: &mut fs::File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn free_mib(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok((disk.f_bavail * disk.f_frsize) >> 20)
}

/// Acquires the lock of a state folder; returns the process id that an unclean exit left in it.
pub fn take(folder: &Path) -> Result<(Lock, Option<u32>), LockError> {
    take_if_free(folder, LEAST_FREE_MIB)
}

/// Does the same, unless fewer MiB are free than `least`.
fn take_if_free(folder: &Path, least: u64) -> Result<(Lock, Option<u32>), LockError> {
    let name = || folder.display().to_string();
    let failed = |cause| LockError::Folder { folder: name(), cause };
    let acquired = acquire(folder);
    // Whoever runs there already matters more than the space, which in turn explains why the lock cannot be created.
    let is_held = matches!(acquired, Err(LockError::Held { .. }));
    if !is_held
        && let Ok(free) = free_mib(folder)
        && free < least
    {
        return Err(LockError::Full { folder: name(), free });
    }
    let (mut file, before) = acquired?;
    let write = |file: &mut fs::File| -> io::Result<()> {
        file.rewind()?;
        file.set_len(0)?;
        write!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(failed)?;
    Ok((Lock { _file: file }, before.parse().ok()))
}

/// Returns the process that holds the lock of a state folder, if any; writes nothing, because the disk may be full.
pub fn owner(folder: &Path) -> Result<Option<String>, LockError> {
    match acquire(folder) {
        Ok(_) => Ok(None),
        Err(LockError::Held { pid, .. }) => Ok(Some(pid)),
        Err(error) => Err(error),
    }
}

/// Locks the file of a state folder; returns it with the process id that is in it.
fn acquire(folder: &Path) -> Result<(fs::File, String), LockError> {
    let name = || folder.display().to_string();
    let failed = |cause| LockError::Folder { folder: name(), cause };
    make_private(folder).map_err(failed)?;
    let path = folder.join("lock");
    let mut file =
        fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).map_err(failed)?;
    let end = Instant::now() + DYING;
    loop {
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let pid = read_pid(&mut file).map_err(failed)?;
        match locked {
            Ok(()) => return Ok((file, pid)),
            // The children of a killed owner hold the lock until the kernel has killed them too.
            Err(rustix::io::Errno::WOULDBLOCK) if !is_owned(&pid) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(LockError::Held { folder: name(), pid }),
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// Creates a folder with mode 0700, or narrows one that is empty or was used before; a link, another user's folder and a
/// shared folder are errors.
pub fn make_private(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Checked on the descriptor: in a shared folder like /tmp another user could replace the path.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::ACCESS => io::Error::other("this account has no access to it; choose another"),
        _ => io::Error::other("it is a symbolic link or not a directory; remove it or choose another"),
    })?;
    let meta = rustix::fs::fstat(&found)?;
    if meta.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("it belongs to user {}; remove it or choose another", meta.st_uid)));
    }
    if meta.st_mode & 0o077 == 0 {
        return Ok(());
    }
    // A folder that holds other things, such as /tmp, must not be closed to those who use it.
    if !is_ours(folder) {
        let mode = meta.st_mode & 0o777;
        let why =
            format!("others can enter it (mode {mode:o}) and it holds other files; choose another, or chmod 700 it");
        return Err(io::Error::other(why));
    }
    Ok(rustix::fs::fchmod(&found, Mode::from_raw_mode(0o700))?)
}

/// Whether a folder is empty or was a state folder before.
fn is_ours(folder: &Path) -> bool {
    let is_file = |name: &str| fs::symlink_metadata(folder.join(name)).is_ok_and(|meta| meta.is_file());
    let is_empty = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    is_empty || (is_file("lock") && is_file("kubeconfig"))
}

/// Releases the lock after a clean exit.
pub fn release(folder: &Path, lock: Lock) {
    let _ = fs::write(folder.join("lock"), "");
    drop(lock);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_held_by_children_of_a_dead_owner_is_awaited() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, _) = take(dir.path()).unwrap();
        // No process has this id.
        fs::write(dir.path().join("lock"), u32::MAX.to_string()).unwrap();
        let child = std::thread::spawn(move || {
            std::thread::yield_now();
            drop(lock);
        });
        assert_eq!(take(dir.path()).unwrap().1, Some(u32::MAX));
        child.join().unwrap();
    }

    /// As `manta down` sees it at the end of `manta up`.
    #[test]
    fn a_lock_that_is_being_released_is_awaited() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, _) = take(dir.path()).unwrap();
        // The first half of a release.
        fs::write(dir.path().join("lock"), "").unwrap();
        let owner = std::thread::spawn(move || {
            std::thread::yield_now();
            drop(lock);
        });
        assert_eq!(take(dir.path()).unwrap().1, None);
        owner.join().unwrap();
    }

    #[test]
    fn state_folders_are_private_and_never_taken_over() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/state");
        make_private(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        make_private(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(folder.join("lock"), "").unwrap();
        fs::write(folder.join("kubeconfig"), "").unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        make_private(&folder).unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::write(shared.join("file"), "").unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(make_private(&shared).unwrap_err().to_string().contains("holds other files"));
        assert_eq!(fs::metadata(&shared).unwrap().permissions().mode() & 0o7777, 0o1777);
        symlink(&folder, dir.path().join("link")).unwrap();
        assert!(make_private(&dir.path().join("link")).is_err());
        if nix::unistd::geteuid().is_root() {
            nix::unistd::chown(&folder, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
            let why = take(&folder).unwrap_err();
            let cause = std::error::Error::source(&why).unwrap().to_string();
            assert!(cause.contains("belongs to user 65534"), "{cause}");
        }
    }

    #[test]
    fn a_full_disk_does_not_hide_the_owner() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(take_if_free(dir.path(), u64::MAX), Err(LockError::Full { .. })));
        assert_eq!(owner(dir.path()).unwrap(), None);
        let (lock, _) = take(dir.path()).unwrap();
        assert!(matches!(take_if_free(dir.path(), u64::MAX), Err(LockError::Held { .. })));
        assert_eq!(owner(dir.path()).unwrap(), Some(std::process::id().to_string()));
        drop(lock);
        assert_eq!(owner(dir.path()).unwrap(), None);
        assert_eq!(take(dir.path()).unwrap().1, Some(std::process::id()), "asking changes nothing");
    }

    #[test]
    fn a_state_folder_has_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, before) = take(dir.path()).unwrap();
        assert_eq!(before, None);
        assert!(take(dir.path()).unwrap_err().to_string().contains(&std::process::id().to_string()));
        drop(lock);
        let (lock, before) = take(dir.path()).unwrap();
        assert_eq!(before, Some(std::process::id()), "the first owner ended without a word");
        release(dir.path(), lock);
        assert_eq!(take(dir.path()).unwrap().1, None);
    }
}
