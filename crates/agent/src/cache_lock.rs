//! The lock of one entry of the cache, which several processes may want to make at the same time.
//!
//! A cache belongs to an account, but each `manta up` and `manta demo` of that account fills it. Whoever has taken the
//! lock must look again whether the entry exists.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How often to ask for a lock that another process holds.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A lock that is held until it is dropped; the kernel releases it when the process ends in any way.
#[derive(Debug)]
pub struct CacheLock {
    _file: File,
}

impl CacheLock {
    /// Waits for the lock of an entry; calls `waits` once if somebody else holds it.
    pub async fn take(entry: &Path, waits: impl FnOnce()) -> Result<Self, String> {
        let file = open(entry).map_err(|error| describe(entry, &error))?;
        let mut waits = Some(waits);
        // Not with a blocking call: its thread would keep the process from ending.
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(describe(entry, &error.into())),
            }
            if let Some(waits) = waits.take() {
                waits();
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Waits for the lock of an entry and blocks the thread; calls `waits` once if somebody else holds it.
    pub fn take_blocking(entry: &Path, waits: impl FnOnce()) -> Result<Self, String> {
        let take = || -> io::Result<File> {
            let file = open(entry)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {}
                other => return Ok(other.map(|()| file)?),
            }
            waits();
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
            Ok(file)
        };
        take().map(|file| Self { _file: file }).map_err(|error| describe(entry, &error))
    }
}

/// Opens the lock file beside an entry. It is never removed: another process may be waiting for it.
fn open(entry: &Path) -> io::Result<File> {
    if let Some(folder) = entry.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).truncate(false).write(true).open(lock_file(entry))
}

fn lock_file(entry: &Path) -> PathBuf {
    let mut name = entry.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

fn describe(entry: &Path, error: &io::Error) -> String {
    format!("cannot lock {}: {error}", lock_file(entry).display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_entry_is_made_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let entry = dir.path().join("envs/ray-1.0.0");
        let never = || panic!("nobody else holds it");
        let first = CacheLock::take(&entry, never).await.unwrap();
        let _other = CacheLock::take(&entry.with_file_name("ray-1.0.1"), never).await.unwrap();
        let (waits, waited) = tokio::sync::oneshot::channel();
        let second = CacheLock::take(&entry, || waits.send(()).unwrap());
        let release = async {
            waited.await.unwrap();
            drop(first);
        };
        let (second, ()) = tokio::join!(second, release);
        drop(second.unwrap());
        CacheLock::take_blocking(&entry, never).unwrap();
    }

    #[test]
    fn a_thread_that_waits_gets_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let entry = dir.path().join("image.tar");
        let first = CacheLock::take_blocking(&entry, || panic!("nobody else holds it")).unwrap();
        let mut first = Some(first);
        CacheLock::take_blocking(&entry, || drop(first.take())).unwrap();
        let why = CacheLock::take_blocking(Path::new("/proc/none/image.tar"), || ()).unwrap_err();
        assert!(why.starts_with("cannot lock /proc/none/image.tar.lock: "), "{why}");
    }
}
