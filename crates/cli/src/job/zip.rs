//! Writes zip archives in memory, the same bytes for the same files.

use miniz_oxide::deflate::compress_to_vec;

/// The fastest of the compression levels that compress.
const LEVEL: u8 = 4;
/// 1980-01-01, the first date of the format: the time of a file must not change the archive.
const DATE: u16 = 1 << 5 | 1;

/// An archive in the making.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    entries: u16,
}

impl Archive {
    /// Adds a file; `is_executable` is the only permission that is kept.
    pub(super) fn add(&mut self, name: &str, contents: &[u8], is_executable: bool) {
        let compressed = compress_to_vec(contents, LEVEL);
        let offset = self.bytes.len() as u32;
        let mut common = Vec::new();
        push16(&mut common, 20); // version that is needed
        push16(&mut common, 1 << 11); // the name is UTF-8
        push16(&mut common, 8); // deflate
        push16(&mut common, 0); // time
        push16(&mut common, DATE);
        push32(&mut common, crc32(contents));
        push32(&mut common, compressed.len() as u32);
        push32(&mut common, contents.len() as u32);
        push16(&mut common, name.len() as u16);
        push16(&mut common, 0); // extra field

        push32(&mut self.bytes, 0x0403_4b50);
        self.bytes.extend_from_slice(&common);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(&compressed);

        push32(&mut self.directory, 0x0201_4b50);
        push16(&mut self.directory, 3 << 8 | 20); // made on Unix
        self.directory.extend_from_slice(&common);
        push16(&mut self.directory, 0); // comment
        push16(&mut self.directory, 0); // disk
        push16(&mut self.directory, 0); // internal attributes
        let mode = if is_executable { 0o100_755 } else { 0o100_644 };
        push32(&mut self.directory, mode << 16);
        push32(&mut self.directory, offset);
        self.directory.extend_from_slice(name.as_bytes());
        self.entries += 1;
    }

    /// Returns how long the archive is so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.directory.len()
    }

    /// Returns how many files it has.
    pub(super) fn files(&self) -> usize {
        usize::from(self.entries)
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let (offset, length) = (self.bytes.len() as u32, self.directory.len() as u32);
        self.bytes.append(&mut self.directory);
        push32(&mut self.bytes, 0x0605_4b50);
        push32(&mut self.bytes, 0); // disks
        push16(&mut self.bytes, self.entries);
        push16(&mut self.bytes, self.entries);
        push32(&mut self.bytes, length);
        push32(&mut self.bytes, offset);
        push16(&mut self.bytes, 0); // comment
        self.bytes
    }
}

fn push16(bytes: &mut Vec<u8>, number: u16) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn push32(bytes: &mut Vec<u8>, number: u32) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let (mut value, mut bit) = (at as u32, 0);
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc: u32, byte| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn checksums_are_those_of_zip() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn python_reads_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.zip");
        let mut archive = Archive::default();
        archive.add("a.py", b"print(1)\n", false);
        archive.add("d/é.sh", &b"x".repeat(100_000), true);
        archive.add("empty", b"", false);
        let bytes = archive.finish();
        assert!(bytes.len() < 2_000, "it is compressed");
        std::fs::write(&file, bytes).unwrap();
        let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; \
                      print([(i.filename, i.file_size, oct(i.external_attr >> 16)) for i in z.infolist()])";
        let output = Command::new("python3").args(["-c", script]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let expect = "[('a.py', 9, '0o100644'), ('d/é.sh', 100000, '0o100755'), ('empty', 0, '0o100644')]\n";
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expect);
    }
}
