//! The per-user cache of downloaded and built tools, with locks that keep two processes from filling it at once.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the directory of the cache.
pub fn cache_folder() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set, so there is no cache directory")?.join("manta"))
}

/// Runs `work` while holding a lock on the directory, which is created if needed.
pub(crate) fn with_lock<T>(folder: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).with_context(|| format!("cannot lock {}", folder.display()))?;
    if lock.try_lock().is_err() {
        print_progress(&format!("waiting for another process that fills {}", folder.display()));
        lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    }
    work()
}

/// Prints to stderr past the test runner's capture, so that a wait of minutes is visible.
pub(crate) fn print_progress(line: &str) {
    let _ = writeln!(std::io::stderr(), "testkit: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn the_lock_admits_one_worker_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (working, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    with_lock(&folder.path().join("made"), || {
                        most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        working.fetch_sub(1, Ordering::SeqCst);
                        Ok(())
                    })
                    .unwrap();
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
    }
}
