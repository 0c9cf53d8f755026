//! Reads manifests from files, directories, standard input and URLs, for `manta lint` and `manta up`.

mod download;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The largest file that is read; no manifest comes close.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The name that messages show for standard input.
const STDIN: &str = "<stdin>";

/// Reads every manifest of the paths in order, and passes on its name and its contents or why it cannot be read.
pub(crate) fn read_each(paths: &[PathBuf], mut each: impl FnMut(&str, Result<Vec<u8>, String>)) {
    for path in paths {
        let name = path.display().to_string();
        if path == Path::new("-") {
            each(STDIN, read_limited(io::stdin().lock()));
        } else if name.starts_with("http://") || name.starts_with("https://") {
            each(&name, download::download(&name, MAX_BYTES));
        } else {
            match files_of(path) {
                Ok(files) => {
                    for file in files {
                        each(&file.display().to_string(), read_file(&file));
                    }
                }
                Err(why) => each(&name, Err(why)),
            }
        }
    }
}

/// Reads a regular file; a pipe or a device may never end.
fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let kind = fs::metadata(path).map_err(|error| error.to_string())?.file_type();
    if kind.is_fifo() {
        return Err("it is a pipe; use - and redirect the pipe to standard input".to_owned());
    }
    if !kind.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    read_limited(File::open(path).map_err(|error| error.to_string())?)
}

fn read_limited(source: impl Read) -> Result<Vec<u8>, String> {
    let mut contents = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut contents).map_err(|error| error.to_string())?;
    if contents.len() as u64 > MAX_BYTES {
        return Err(format!("it is longer than {} MiB", MAX_BYTES >> 20));
    }
    Ok(contents)
}

/// Returns the file itself, or the manifests in a directory and below it, sorted by name.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, String> {
    let is_folder = fs::metadata(path).map_err(|error| error.to_string())?.is_dir();
    if !is_folder {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // Symbolic links to directories are not followed, because they may form a cycle.
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(entry.path());
            } else if is_manifest(&entry.path()) {
                files.push(entry.path());
            }
        }
    }
    if files.is_empty() {
        return Err("the directory has no .yaml, .yml or .json file".to_owned());
    }
    files.sort();
    Ok(files)
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known))
}
