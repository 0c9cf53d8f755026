//! Images of a container engine on this machine, saved as archives for local mode to unpack.

use crate::output::print_line;
use anyhow::{Context, ensure};
use manta_agent::cache_lock::CacheLock;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The engines whose images can be saved; both have the same commands for it.
const ENGINES: [&str; 2] = ["podman", "docker"];

/// Returns the engine and the image of a source such as `podman:localhost/train:1`.
pub(super) fn parse(source: &str) -> Option<(&str, &str)> {
    source.split_once(':').filter(|(engine, image)| ENGINES.contains(engine) && !image.is_empty())
}

/// Returns the archive of an image; saves it unless it was saved before. `program` is the engine's command.
pub(super) fn archive(program: &Path, image: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    ensure!(!image.starts_with('-'), "{image:?} is not the name of an image");
    let engine = program.display();
    let inspected = run(program, &["image", "inspect", "--format", "{{.Id}}", image].map(OsStr::new))?;
    let id = inspected.trim().trim_start_matches("sha256:");
    ensure!(
        !id.is_empty() && id.chars().all(|c| c.is_ascii_hexdigit()),
        "{engine} image inspect printed no image id but {id:?}"
    );
    let archive = folder.join(format!("{id}.tar"));
    if archive.exists() {
        return Ok(archive);
    }
    let waits = || print_line(&format!("waiting for another process to save {engine} image {image}"));
    let _lock = CacheLock::take_blocking(&archive, waits).map_err(anyhow::Error::msg)?;
    // Whoever had the lock has saved it, unless that failed.
    if !archive.exists() {
        print_line(&format!("saving {engine} image {image} to {}", archive.display()));
        // Renamed when complete, so that an interrupt leaves no half archive behind.
        let partial = archive.with_extension("partial");
        let _ = fs::remove_file(&partial);
        run(program, &["save".as_ref(), "--output".as_ref(), partial.as_os_str(), image.as_ref()])?;
        fs::rename(&partial, &archive).with_context(|| format!("cannot write {}", archive.display()))?;
    }
    Ok(archive)
}

fn run(program: &Path, args: &[&OsStr]) -> anyhow::Result<String> {
    let output = Command::new(program).args(args).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {}: {}", program.display(), args[0].display(), why.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn sources_name_an_engine_and_an_image() {
        assert_eq!(parse("podman:localhost/train:1"), Some(("podman", "localhost/train:1")));
        assert_eq!(parse("docker:train"), Some(("docker", "train")));
        for other in ["docker:", "docker", "./docker", "nerdctl:x", "train.tar"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_image_is_saved_once() {
        let folder = tempfile::tempdir().unwrap();
        let engine = folder.path().join("podman");
        // Counts its calls of `save` in the archive itself.
        let script = "#!/bin/sh\ncase \"$1 $2\" in\n\
                      'image inspect') [ \"$5\" = train ] && echo sha256:12ab || { echo \"$5: no such image\" >&2; exit 125; } ;;\n\
                      'save --output') echo saved >> \"$0.calls\"; cp \"$0.calls\" \"$3\" ;;\nesac\n";
        fs::write(&engine, script).unwrap();
        fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).unwrap();
        let archives = folder.path().join("archives");
        for _ in 0..2 {
            let archive = archive(&engine, "train", &archives).unwrap();
            assert_eq!(archive, archives.join("12ab.tar"));
            assert_eq!(fs::read_to_string(archive).unwrap(), "saved\n");
        }
        // Two at the same time save it once, too.
        fs::remove_file(archives.join("12ab.tar")).unwrap();
        fs::remove_file(engine.with_extension("calls")).unwrap();
        let two = std::thread::scope(|scope| {
            let save = || archive(&engine, "train", &archives).unwrap();
            let (first, second) = (scope.spawn(save), scope.spawn(save));
            [first.join().unwrap(), second.join().unwrap()]
        });
        for archive in two {
            assert_eq!(fs::read_to_string(archive).unwrap(), "saved\n");
        }
        let failed = |program: &Path, image: &str| archive(program, image, &archives).unwrap_err().to_string();
        assert!(failed(&engine, "none").ends_with("podman image: none: no such image"));
        assert!(failed(&engine, "--all").contains("is not the name of an image"));
        assert!(failed(&folder.path().join("docker"), "train").starts_with("cannot run "));
    }
}
