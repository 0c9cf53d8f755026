//! One agent per state folder, and what an earlier one left behind.

use std::fs;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Held as long as the process lives; the kernel lets go of it even after kill -9.
#[derive(Debug)]
pub struct Lock {
    _file: fs::File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{folder} is in use by process {pid}; stop it with `manta down`, or choose another --state folder")]
    Held { folder: String, pid: String },
    #[error("only {free} MiB are free in {folder}: make room, or choose another --state folder")]
    Full { folder: String, free: u64 },
    #[error("cannot use the state folder {folder}")]
    Folder {
        folder: String,
        #[source]
        cause: io::Error,
    },
}

/// What objects, logs and the files of pods need at the very least.
const LEAST_FREE_MIB: u64 = 64;

/// How long the remains of a killed owner are waited for.
const DYING: Duration = Duration::from_secs(10);

fn is_alive(pid: &str) -> bool {
    pid.is_empty() || Path::new("/proc").join(pid).exists()
}

fn free_mib(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok((disk.f_bavail * disk.f_frsize) >> 20)
}

/// Takes the lock of a state folder, or says who has it.
pub fn take(folder: &Path) -> Result<(Lock, Option<u32>), LockError> {
    let name = || folder.display().to_string();
    let failed = |cause| LockError::Folder { folder: name(), cause };
    fs::create_dir_all(folder).map_err(failed)?;
    let free = free_mib(folder).map_err(failed)?;
    if free < LEAST_FREE_MIB {
        return Err(LockError::Full { folder: name(), free });
    }
    let path = folder.join("lock");
    let mut file =
        fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).map_err(failed)?;
    let mut before = String::new();
    file.read_to_string(&mut before).map_err(failed)?;
    let end = Instant::now() + DYING;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            // A killed owner's children hold on for a moment, until the kernel has taken them down too.
            Err(rustix::io::Errno::WOULDBLOCK) if !is_alive(before.trim()) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LockError::Held { folder: name(), pid: before.trim().to_owned() });
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
    let write = |file: &mut fs::File| -> io::Result<()> {
        file.rewind()?;
        file.set_len(0)?;
        write!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(failed)?;
    Ok((Lock { _file: file }, before.trim().parse().ok()))
}

/// Marks an orderly end, so that the next start has nothing to report.
pub fn release(folder: &Path, lock: Lock) {
    let _ = fs::write(folder.join("lock"), "");
    drop(lock);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_children_of_a_dead_owner_are_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, _) = take(dir.path()).unwrap();
        // No process has this number.
        fs::write(dir.path().join("lock"), u32::MAX.to_string()).unwrap();
        let child = std::thread::spawn(move || {
            std::thread::yield_now();
            drop(lock);
        });
        assert_eq!(take(dir.path()).unwrap().1, Some(u32::MAX));
        child.join().unwrap();
    }

    #[test]
    fn a_folder_has_one_owner() {
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
