//! What [`Catalog::resolve`](super::Catalog::resolve) asks about the disk.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{Installed, installed};

/// What decides whether an environment exists, and whether it is still the right one.
pub trait Disk {
    /// The environments of a package.
    fn installed(&self, package: &str) -> Vec<Installed>;
    /// A number that changes with the contents of a file, and with the folder that relative paths in it begin at; `None`
    /// when it cannot be read.
    fn fingerprint(&self, file: &Path) -> Option<u64>;
    /// A number that changes when a file is written; `None` when there is no such file.
    fn stamp(&self, file: &Path) -> Option<u64>;
    /// A number that changes when the code or the settings of a Python project are written; `None` when there is no
    /// `pyproject.toml`.
    fn project_stamp(&self, folder: &Path) -> Option<u64>;
    /// Whether an environment was made and is complete.
    fn is_complete(&self, environment: &Path) -> bool;
}

/// The disk of this machine, with environments in a folder.
pub struct MachineDisk<'a>(pub &'a Path);

impl Disk for MachineDisk<'_> {
    fn installed(&self, package: &str) -> Vec<Installed> {
        installed(self.0, package)
    }

    fn fingerprint(&self, file: &Path) -> Option<u64> {
        let bytes = std::fs::read(file).ok()?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        Some(hash(hash(START, folder.as_os_str().as_bytes()), &bytes))
    }

    fn stamp(&self, file: &Path) -> Option<u64> {
        Some(hash(START, written(file)?.as_bytes()))
    }

    fn project_stamp(&self, folder: &Path) -> Option<u64> {
        if !folder.join("pyproject.toml").is_file() {
            return None;
        }
        let mut files = project_files(folder);
        files.sort();
        Some(files.iter().filter_map(|file| written(file)).fold(START, |sum, text| hash(sum, text.as_bytes())))
    }

    fn is_complete(&self, environment: &Path) -> bool {
        super::is_complete(environment)
    }
}

/// Returns the Python files and the settings of a project, without what tools and runs leave in it.
fn project_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(inner) = folders.pop() {
        for entry in std::fs::read_dir(&inner).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            let is_build_output = inner == folder && (name == "build" || name == "dist");
            if kind.is_dir() {
                let is_hidden = name.as_bytes().starts_with(b".");
                if !is_hidden && !is_build_output && !path.join("pyvenv.cfg").exists() {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|end| end == "py" || end == "toml" || end == "cfg") {
                found.push(path);
            }
        }
    }
    found
}

/// Returns a text that changes when a file is written.
fn written(file: &Path) -> Option<String> {
    let meta = std::fs::metadata(file).ok()?;
    let changed = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
    Some(format!("{changed} {} {}", meta.len(), file.display()))
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

fn hash(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_others_when_their_text_or_their_folder_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let disk = MachineDisk(Path::new("/nowhere"));
        let fingerprint = |folder: &str, text: &str| {
            let file = dir.path().join(folder).join("requirements.txt");
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            disk.fingerprint(&file).unwrap()
        };
        let first = fingerprint("a", "./app\n");
        assert_eq!(fingerprint("a", "./app\n"), first, "written again");
        assert_ne!(fingerprint("a", "./app\nnumpy\n"), first);
        assert_ne!(fingerprint("b", "./app\n"), first, "./app is another project there");
        assert_eq!(disk.fingerprint(&dir.path().join("none")), None);
    }

    #[test]
    fn a_project_is_another_one_when_its_code_changes() {
        let dir = tempfile::tempdir().unwrap();
        let disk = MachineDisk(Path::new("/nowhere"));
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let app = dir.path().join("app");
        assert_eq!(disk.project_stamp(&app), None);
        write("app/pyproject.toml", "[project]");
        write("app/src/app/main.py", "1");
        let first = disk.project_stamp(&app).unwrap();
        for ignored in ["app/build/lib/main.py", "app/.git/x.py", "app/venv/pyvenv.cfg", "app/venv/y.py", "app/out.log"]
        {
            write(ignored, "");
            assert_eq!(disk.project_stamp(&app), Some(first), "{ignored}");
        }
        for counted in ["app/src/app/main.py", "app/src/app/build/new.py", "app/pyproject.toml"] {
            let before = disk.project_stamp(&app);
            write(counted, "longer than before");
            assert_ne!(disk.project_stamp(&app), before, "{counted}");
        }
        write("other/pyproject.toml", "[project]");
        write("third/pyproject.toml", "[project]");
        let stamp = |name: &str| disk.project_stamp(&dir.path().join(name));
        assert_ne!(stamp("other"), stamp("third"), "two projects never share an environment");
    }
}
