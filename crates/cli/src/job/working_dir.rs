//! Packs a working directory for a Ray cluster.

use super::ignore::Patterns;
use super::zip::Archive;
use anyhow::{Context, ensure};
use sha1::{Digest, Sha1};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The largest package that is uploaded: more belongs into an image, or a bucket.
const MAX_BYTES: usize = 100 << 20;
/// The most files of an archive without zip64.
const MAX_FILES: usize = 65_000;
/// The files whose patterns are left out, as Ray does.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".rayignore"];

/// A working directory as one archive.
#[derive(Debug)]
pub(super) struct Package {
    /// Differs for different contents.
    pub(super) name: String,
    pub(super) contents: Vec<u8>,
}

/// Packs a directory without what its `.gitignore` and `.rayignore` and the patterns leave out, or takes a zip file as
/// it is.
pub(super) fn pack(path: &Path, excludes: &[String]) -> anyhow::Result<Package> {
    let kind = fs::metadata(path).with_context(|| format!("cannot read the working directory {}", path.display()))?;
    let contents = if kind.is_dir() {
        let mut patterns = Patterns::default();
        patterns.add("", &excludes.join("\n"));
        let mut archive = Archive::default();
        add_folder(&mut archive, path, "", &patterns, excludes)?;
        archive.finish()
    } else {
        ensure!(
            path.extension().is_some_and(|extension| extension == "zip"),
            "the working directory {} is neither a directory nor a zip file",
            path.display()
        );
        fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    check_size(path, contents.len())?;
    let hash: String = Sha1::digest(&contents).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(Package { name: format!("_ray_pkg_{hash}.zip"), contents })
}

fn add_folder(
    archive: &mut Archive,
    folder: &Path,
    prefix: &str,
    above: &Patterns,
    excludes: &[String],
) -> anyhow::Result<()> {
    let mut patterns = above.clone();
    for name in IGNORE_FILES {
        if let Ok(text) = fs::read_to_string(folder.join(name)) {
            patterns.add(prefix, &text);
        }
    }
    // Those of the command line decide last.
    patterns.add("", &excludes.join("\n"));
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_str().with_context(|| format!("the name of {} is not UTF-8", path.display()))?;
        // A link to a file is packed as that file; one that leads nowhere is left out, as are sockets and pipes.
        let Ok(kind) = fs::metadata(&path) else { continue };
        let is_link = entry.file_type()?.is_symlink();
        let full = format!("{prefix}{name}");
        if name == ".git" || patterns.is_ignored(&full, kind.is_dir()) {
            continue;
        }
        // A linked directory may form a cycle.
        if kind.is_dir() && !is_link {
            add_folder(archive, &path, &format!("{full}/"), &patterns, excludes)?;
        } else if kind.is_file() {
            check_size(folder, archive.len() + usize::try_from(kind.len()).unwrap_or(usize::MAX) / 1000)?;
            ensure!(
                archive.files() < MAX_FILES,
                "the working directory has more than {MAX_FILES} files; leave some out with a .rayignore"
            );
            let contents = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            archive.add(&full, &contents, kind.permissions().mode() & 0o100 != 0);
            check_size(folder, archive.len())?;
        }
    }
    Ok(())
}

fn check_size(path: &Path, bytes: usize) -> anyhow::Result<()> {
    ensure!(
        bytes <= MAX_BYTES,
        "the working directory {} is longer than {} MiB as a zip file; leave files out with a .rayignore, or upload it and give its URI",
        path.display(),
        MAX_BYTES >> 20
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    /// Returns the names in an archive, which precede their contents.
    fn holds(package: &Package, name: &str) -> bool {
        package.contents.windows(name.len()).any(|window| window == name.as_bytes())
    }

    #[test]
    fn ignored_files_stay_here() {
        let folder = folder(&[
            ("train.py", "x"),
            (".gitignore", "*.ckpt\n/secret\n"),
            ("secret/key", "k"),
            ("data/big.ckpt", "b"),
            ("data/.rayignore", "*.tmp"),
            ("data/y.tmp", "t"),
            ("data/keep.txt", "k"),
            (".git/config", "c"),
            ("notes/n.md", "n"),
        ]);
        std::os::unix::fs::symlink("..", folder.path().join("data/cycle")).unwrap();
        let package = pack(folder.path(), &["notes/".to_owned()]).unwrap();
        for name in ["train.py", "data/keep.txt", ".gitignore"] {
            assert!(holds(&package, name), "{name}");
        }
        for name in ["secret/key", "big.ckpt", "y.tmp", ".git/config", "n.md", "cycle"] {
            assert!(!holds(&package, name), "{name}");
        }
    }

    #[test]
    fn the_same_files_have_the_same_name() {
        let files = [("a.py", "1"), ("b/c.py", "2")];
        let name = |files: &[(&str, &str)]| pack(folder(files).path(), &[]).unwrap().name;
        assert_eq!(name(&files), name(&files));
        assert_ne!(name(&files), name(&[("a.py", "2")]));
        let expect = name(&files);
        assert!(expect.starts_with("_ray_pkg_") && expect.ends_with(".zip"), "{expect}");
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let folder = folder(&[("a.py", "1")]);
        let error = pack(&folder.path().join("a.py"), &[]).unwrap_err().to_string();
        assert!(error.ends_with("is neither a directory nor a zip file"), "{error}");
        assert!(pack(&folder.path().join("nowhere"), &[]).is_err());
    }
}
