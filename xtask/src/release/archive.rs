//! Reproducible archives and checksums, with the system's tar, gzip and sha256sum.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::display;
use crate::workspace;

/// The checksums of all release files, in the format of sha256sum.
const CHECKSUMS: &str = "SHA256SUMS";

/// Packs entries of a directory into a tar file, sorted, owned by root, and with one time for all files.
pub(super) fn tar(directory: &Path, entries: &[&str], file: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX", "--format=ustar"]);
    command.arg(format!("--mtime=@{}", timestamp())).arg("--file").arg(file).arg("--create");
    run(command.arg("--directory").arg(directory).args(entries)).map(drop)
}

/// Compresses a file with gzip, without its name and time, and returns the path of the result.
pub(super) fn gzip(file: &Path) -> Result<PathBuf> {
    run(Command::new("gzip").args(["--no-name", "--force"]).arg(file))?;
    let mut path = file.as_os_str().to_owned();
    path.push(".gz");
    Ok(path.into())
}

/// Returns the SHA-256 of a file in hexadecimal.
pub(super) fn sha256(file: &Path) -> Result<String> {
    let output = run(Command::new("sha256sum").arg(file))?;
    let digest = output.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    anyhow::ensure!(digest.len() == 64, "sha256sum printed {output:?}");
    Ok(digest.to_owned())
}

/// Adds these files to the list of checksums beside them, and replaces older entries.
pub(super) fn update_checksums(out: &Path, files: &[PathBuf]) -> Result<()> {
    let list = out.join(CHECKSUMS);
    let old = std::fs::read_to_string(&list).unwrap_or_default();
    let mut new = Vec::new();
    for file in files {
        let name = file.file_name().context("a file without a name")?.to_string_lossy().into_owned();
        new.push((name, sha256(file)?));
    }
    std::fs::write(&list, merge_checksums(&old, new)).with_context(|| format!("cannot write {}", list.display()))
}

fn merge_checksums(old: &str, new: Vec<(String, String)>) -> String {
    let old = old.lines().filter_map(|line| line.split_once("  ")).map(|(sum, name)| (name.to_owned(), sum.to_owned()));
    let all: std::collections::BTreeMap<String, String> = old.chain(new).collect();
    all.into_iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect()
}

/// Runs a command and returns its stdout.
pub(super) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", display(command)))?;
    if !output.status.success() {
        bail!("{}: {}: {}", display(command), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the time of all files: `SOURCE_DATE_EPOCH`, else the time of the last commit.
fn timestamp() -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let commit = || run(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(workspace::root()));
    let time = given.or_else(|| commit().ok()).unwrap_or_default();
    time.trim().parse::<u64>().map_or_else(|_| "0".to_owned(), |seconds| seconds.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_checksums_replace_old_ones() {
        let entry = |name: &str, sum: &str| (name.to_owned(), sum.to_owned());
        let merged = merge_checksums("1  b\n2  c\n", vec![entry("a", "3"), entry("c", "4")]);
        assert_eq!(merged, "3  a\n1  b\n4  c\n");
    }

    #[test]
    fn archives_are_reproducible() {
        let folder = tempfile::tempdir().unwrap();
        let digest = |name: &str| {
            let source = folder.path().join(name);
            std::fs::create_dir(&source).unwrap();
            std::fs::write(source.join("b"), "2").unwrap();
            std::fs::write(source.join("a"), "1").unwrap();
            let file = folder.path().join(format!("{name}.tar"));
            tar(&source, &["b", "a"], &file).unwrap();
            sha256(&gzip(&file).unwrap()).unwrap()
        };
        assert_eq!(digest("one"), digest("two"));
    }
}
