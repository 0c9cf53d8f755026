//! What is fetched or built once per user, and the locks that keep two processes from doing it at once.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folder that holds it.
pub fn cache_folder() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set: no place for a cache")?.join("manta"))
}

/// Does the work while no other process does work in the same folder, which is made if need be.
pub(crate) fn alone_in<T>(folder: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).with_context(|| format!("cannot lock {}", folder.display()))?;
    if lock.try_lock().is_err() {
        say(&format!("waiting for another process that fills {}", folder.display()));
        lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    }
    work()
}

/// Writes past the capture of the test runner: a wait of minutes must be seen while it lasts.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "testkit: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn only_one_works_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (working, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    alone_in(&folder.path().join("made"), || {
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
