//! Unpacks tar archives that come from a container, which may say anything.

use anyhow::{Context, bail, ensure};
use std::fs::File;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use tokio::io::{AsyncRead, AsyncReadExt};

const BLOCK: usize = 512;
/// The longest name or extended header.
const MAX_NAME: u64 = 64 * 1024;

/// Writes the regular files of an archive beneath a directory, and returns their number. Links, devices and names that
/// lead elsewhere are left out.
pub(crate) async fn unpack(archive: &mut (impl AsyncRead + Unpin), folder: &Path) -> anyhow::Result<usize> {
    let mut count = 0;
    let mut long_name: Option<String> = None;
    let mut header = [0; BLOCK];
    while read_block(archive, &mut header).await? {
        if header.iter().all(|byte| *byte == 0) {
            continue;
        }
        let entry = Entry::parse(&header)?;
        let name = long_name.take();
        match entry.kind {
            b'L' => long_name = Some(text(&read_small(archive, entry.size).await?)),
            b'x' => long_name = pax_path(&read_small(archive, entry.size).await?),
            b'0' | 0 | b'7' => {
                let name = name.unwrap_or(entry.name);
                let path = safe_path(folder, &name).filter(|_| !name.ends_with('/'));
                count += usize::from(path.is_some());
                copy(archive, entry.size, path.as_deref()).await.with_context(|| format!("cannot write {name}"))?;
            }
            _ => copy(archive, entry.size, None).await?,
        }
    }
    Ok(count)
}

struct Entry {
    name: String,
    size: u64,
    kind: u8,
}

impl Entry {
    fn parse(header: &[u8; BLOCK]) -> anyhow::Result<Self> {
        let sum: u64 = header
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) })
            .sum();
        ensure!(octal(&header[148..156]) == Some(sum), "this is not a tar archive");
        let (name, prefix) = (text(&header[..100]), text(&header[345..500]));
        let is_ustar = &header[257..263] == b"ustar\0";
        let name = if is_ustar && !prefix.is_empty() { format!("{prefix}/{name}") } else { name };
        Ok(Self { name, size: size(&header[124..136])?, kind: header[156] })
    }
}

/// Reads a size: octal digits, or a binary number where they do not suffice.
fn size(field: &[u8]) -> anyhow::Result<u64> {
    if field[0] & 0x80 != 0 {
        return Ok(field[4..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    }
    octal(field).context("an entry has no size")
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = text(field);
    u64::from_str_radix(digits.trim(), 8).ok()
}

/// Returns the text before the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Returns the path in an extended header, whose records are `LENGTH KEY=VALUE\n`.
fn pax_path(records: &[u8]) -> Option<String> {
    let records = String::from_utf8_lossy(records);
    records.lines().find_map(|line| line.split_once(' ')?.1.strip_prefix("path=").map(str::to_owned))
}

/// Returns where to write a name, if that is beneath the directory.
fn safe_path(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    let mut is_empty = true;
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => {
                path.push(part);
                is_empty = false;
            }
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (!is_empty).then_some(path)
}

/// Reads a block; returns false at the end.
async fn read_block(archive: &mut (impl AsyncRead + Unpin), block: &mut [u8; BLOCK]) -> anyhow::Result<bool> {
    let mut filled = 0;
    while filled < BLOCK {
        match archive.read(&mut block[filled..]).await? {
            0 if filled == 0 => return Ok(false),
            0 => bail!("the archive ends early"),
            read => filled += read,
        }
    }
    Ok(true)
}

async fn read_small(archive: &mut (impl AsyncRead + Unpin), size: u64) -> anyhow::Result<Vec<u8>> {
    ensure!(size <= MAX_NAME, "a name in the archive is too long");
    let mut bytes = vec![0; size.next_multiple_of(BLOCK as u64) as usize];
    archive.read_exact(&mut bytes).await.context("the archive ends early")?;
    bytes.truncate(size as usize);
    Ok(bytes)
}

/// Copies the contents of an entry to a file, or skips them.
async fn copy(archive: &mut (impl AsyncRead + Unpin), size: u64, path: Option<&Path>) -> anyhow::Result<()> {
    let mut file = match path {
        None => None,
        Some(path) => {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            Some(File::create(path)?)
        }
    };
    let mut block = [0; BLOCK];
    let mut left = size;
    while left > 0 {
        ensure!(read_block(archive, &mut block).await?, "the archive ends early");
        let part = left.min(BLOCK as u64);
        if let Some(file) = &mut file {
            file.write_all(&block[..part as usize])?;
        }
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn entry(name: &str, kind: u8, contents: &[u8]) -> Vec<u8> {
        let mut header = [0_u8; BLOCK];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", contents.len()).as_bytes());
        header[156] = kind;
        header[257..263].copy_from_slice(b"ustar\0");
        header[148..156].fill(b' ');
        let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(contents);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    #[tokio::test]
    async fn names_that_lead_elsewhere_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("logs");
        let mut archive = Vec::new();
        for name in ["../up", "/etc/x", "a/../../b", "./a/b"] {
            archive.extend(entry(name, b'0', b"text"));
        }
        archive.extend(entry("link", b'2', b""));
        archive.extend([0; 2 * BLOCK]);
        assert_eq!(unpack(&mut archive.as_slice(), &target).await.unwrap(), 1);
        assert_eq!(std::fs::read_to_string(target.join("a/b")).unwrap(), "text");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(std::fs::symlink_metadata(target.join("link")).is_err());
    }

    #[tokio::test]
    async fn broken_archives_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let cut = &entry("a", b'0', &[1; 2000])[..1500];
        let junk = [7_u8; 1024];
        for bytes in [cut, &junk[..], &[1; 3][..]] {
            assert!(unpack(&mut &*bytes, folder.path()).await.is_err(), "{} bytes", bytes.len());
        }
    }

    #[tokio::test]
    async fn archives_of_tar_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        let long = format!("{}/{}.log", "d".repeat(90), "f".repeat(120));
        std::fs::create_dir_all(source.join("d".repeat(90))).unwrap();
        std::fs::write(source.join(&long), vec![b'x'; 100_000]).unwrap();
        std::fs::write(source.join("short"), "").unwrap();
        for format in ["gnu", "pax"] {
            let mut tar = Command::new("tar");
            tar.arg(format!("--format={format}")).args(["-cf", "-", "-C"]).arg(&source).arg(".");
            let archive = tar.output().unwrap().stdout;
            let target = folder.path().join(format);
            assert_eq!(unpack(&mut archive.as_slice(), &target).await.unwrap(), 2, "{format}");
            assert_eq!(std::fs::metadata(target.join(&long)).unwrap().len(), 100_000, "{format}");
        }
    }
}
