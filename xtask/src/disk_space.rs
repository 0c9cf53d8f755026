//! Checks that the disks have space for what a run of all tests writes, before it starts.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use manta_testkit::cache_folder;

use crate::process::Outcome;
use crate::workspace;

/// What a run leaves in cargo's target folder: 7.4 GB were measured.
const TARGET: u64 = 10 * GB;
/// What building the Kubernetes binaries and the other tools, and installing Ray, takes once: 6.3 GB were measured.
const CACHE: u64 = 7 * GB;
/// What the first run has built in the cache.
const BUILT: &str = "controlplane";
/// What tests have in the temporary folder at a time; a control plane takes 0.15 GB.
const TEMPORARY: u64 = GB;
const GB: u64 = 1_000_000_000;

/// A folder that a run writes into.
struct Folder {
    path: PathBuf,
    /// The disk that it is on.
    disk: u64,
    /// What is free on that disk.
    free: u64,
    /// What a run adds to the folder.
    grows: u64,
}

/// Fails if a disk has too little space left.
pub(crate) fn check() -> Result<Outcome> {
    let target = workspace::target_folder()?;
    let target = target.parent().context("the target folder has no parent directory")?;
    let cache = cache_folder()?;
    let built = if cache.join(BUILT).exists() { CACHE } else { 0 };
    Ok(verdict(&[
        folder(target, TARGET, size(target))?,
        folder(&cache, CACHE, built)?,
        folder(&std::env::temp_dir(), TEMPORARY, 0)?,
    ]))
}

fn folder(path: &Path, whole: u64, held: u64) -> Result<Folder> {
    // A folder that does not exist yet will be on the disk of the nearest one that does.
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let context = || format!("cannot tell how much is free in {}", existing.display());
    let disk = rustix::fs::statvfs(existing).with_context(context)?;
    let id = existing.metadata().with_context(context)?.dev();
    // An earlier run may have left more than a first one writes, but rebuilds some of it.
    let grows = whole.saturating_sub(held).max(whole / 10);
    Ok(Folder { path: path.to_owned(), disk: id, free: disk.f_bavail * disk.f_frsize, grows })
}

/// Returns how much the files in a folder take on the disk.
fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        // Cargo links many of its outputs to a second name.
        Ok(metadata) => metadata.blocks() * 512 / metadata.nlink().max(1),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

fn verdict(folders: &[Folder]) -> Outcome {
    let mut disks: BTreeMap<u64, Vec<&Folder>> = BTreeMap::new();
    folders.iter().for_each(|folder| disks.entry(folder.disk).or_default().push(folder));
    let short = disks.values().filter_map(|folders| {
        let (free, needed) = (folders.first()?.free, folders.iter().map(|folder| folder.grows).sum::<u64>());
        let paths: Vec<String> = folders.iter().map(|folder| folder.path.display().to_string()).collect();
        let message = format!(
            "about {} are needed on the disk of {}, and {} are free",
            gigabytes(needed),
            paths.join(" and "),
            gigabytes(free)
        );
        (free < needed).then_some(message)
    });
    let short: Vec<String> = short.collect();
    if short.is_empty() {
        return Outcome::Passed;
    }
    Outcome::Failed(format!(
        "{}; make room, or choose other folders with CARGO_TARGET_DIR and TMPDIR",
        short.join("; ")
    ))
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / GB as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &str, disk: u64, free: u64, grows: u64) -> Folder {
        Folder { path: path.into(), disk, free: free * GB, grows: grows * GB }
    }

    #[test]
    fn folders_share_what_is_free_on_their_disk() {
        let check = |folders: &[Folder], expect: &str| match verdict(folders) {
            Outcome::Failed(why) => assert_eq!(why.split("; make room").next(), Some(expect)),
            other => assert_eq!((other, expect), (Outcome::Passed, "")),
        };
        check(&[folder("/t", 1, 22, 20), folder("/tmp", 1, 22, 2)], "");
        check(
            &[folder("/t", 1, 21, 20), folder("/tmp", 1, 21, 2)],
            "about 22.0 GB are needed on the disk of /t and /tmp, and 21.0 GB are free",
        );
        check(
            &[folder("/t", 1, 50, 20), folder("/tmp", 2, 1, 2)],
            "about 2.0 GB are needed on the disk of /tmp, and 1.0 GB are free",
        );
    }

    #[test]
    fn what_an_earlier_run_has_left_is_not_needed_again() {
        let here = std::env::temp_dir();
        let grows = |held: u64| super::folder(&here, 20 * GB, held).unwrap().grows / GB;
        assert_eq!((grows(0), grows(15 * GB), grows(30 * GB)), (20, 5, 2));
        super::folder(&here.join("not/there/yet"), GB, 0).unwrap();
    }

    #[test]
    fn links_to_a_file_count_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deps/a");
        std::fs::create_dir(folder.path().join("deps")).unwrap();
        std::fs::write(&file, vec![1; 1 << 20]).unwrap();
        let once = size(folder.path());
        std::fs::hard_link(&file, folder.path().join("a")).unwrap();
        assert_eq!(size(folder.path()) / 1000, once / 1000);
        assert!(once >= 1 << 20, "{once}");
    }
}
