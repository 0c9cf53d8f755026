//! The container image as an OCI archive, written without a container engine.
//!
//! One layer with `/manager` (the operator, under the name that KubeRay's image has), `/manta` and CA certificates. It runs
//! as an unprivileged user and has no shell.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::binary::{Binary, Linkage};
use super::dist::put;
use super::{VERSION, archive};

/// The user and group that the image runs as.
pub(super) const UID: u32 = 65532;

const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Writes the archive to the directory and returns its path.
pub(super) fn write(binary: &Binary, out: &Path) -> Result<PathBuf> {
    let staging = tempfile::tempdir().context("no temporary directory")?;
    let root = staging.path().join("root");
    fill(binary, &root)?;
    let layout = staging.path().join("layout");
    let blobs = Blobs(layout.join("blobs/sha256"));
    fs::create_dir_all(&blobs.0)?;

    let tar = staging.path().join("layer.tar");
    let entries: Vec<String> = entries(&root)?;
    archive::tar(&root, &entries.iter().map(String::as_str).collect::<Vec<_>>(), &tar)?;
    let diff_id = archive::sha256(&tar)?;
    let layer = blobs.add_file(&archive::gzip(&tar)?, "application/vnd.oci.image.layer.v1.tar+gzip")?;
    let architecture = oci_architecture(&binary.architecture);
    let config = blobs.add_json(&config(architecture, &diff_id), "application/vnd.oci.image.config.v1+json")?;
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer]});
    let mut manifest = blobs.add_json(&manifest, media_type)?;
    manifest["platform"] = json!({"os": "linux", "architecture": architecture});
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": VERSION,
        "io.containerd.image.name": reference(),
    });
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [manifest],
    });
    put(&layout.join("index.json"), index.to_string().as_bytes(), 0o644)?;
    put(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)?;

    let file = out.join(format!("manta-{VERSION}-image-{}.tar", binary.platform()));
    archive::tar(&layout, &["blobs", "index.json", "oci-layout"], &file)?;
    Ok(file)
}

/// Returns the name that the image has in containerd.
pub(super) fn reference() -> String {
    format!("localhost/manta:{VERSION}")
}

/// Writes the files of the layer.
fn fill(binary: &Binary, root: &Path) -> Result<()> {
    let programs = [("manta", &binary.path), ("manager", &binary.operator())];
    for (name, path) in programs {
        let contents = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        put(&root.join(name), &contents, 0o755)?;
    }
    put(&root.join("etc/passwd"), format!("nonroot:x:{UID}:{UID}:nonroot:/:/sbin/nologin\n").as_bytes(), 0o644)?;
    put(&root.join("etc/group"), format!("nonroot:x:{UID}:\n").as_bytes(), 0o644)?;
    let certificates =
        fs::read(CERTIFICATES).with_context(|| format!("{CERTIFICATES} is missing; install ca-certificates"))?;
    put(&root.join(CERTIFICATES.trim_start_matches('/')), &certificates, 0o644)?;
    if binary.linkage == Linkage::Dynamic {
        for (_, path) in programs {
            for library in libraries(path)? {
                put(&root.join(library.trim_start_matches('/')), &fs::read(&library)?, 0o755)?;
            }
        }
    }
    Ok(())
}

/// Returns the shared libraries that a dynamic binary needs, the loader included.
fn libraries(binary: &Path) -> Result<Vec<String>> {
    let output = archive::run(Command::new("ldd").arg(binary))?;
    let paths = output.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(str::to_owned).collect())
}

/// Returns the names in a directory, sorted.
fn entries(root: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(root)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

fn config(architecture: &str, diff_id: &str) -> Value {
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{UID}:{UID}"),
            "Entrypoint": ["/manager"],
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": "manta",
                "org.opencontainers.image.version": VERSION,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{diff_id}")]},
        "history": [{"created_by": "make image"}],
    })
}

/// Returns Go's name of an architecture, which OCI uses.
fn oci_architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The content-addressed files of an image.
struct Blobs(PathBuf);

impl Blobs {
    /// Adds a file and returns its descriptor.
    fn add_file(&self, file: &Path, media_type: &str) -> Result<Value> {
        let digest = archive::sha256(file)?;
        let size = file.metadata()?.len();
        fs::copy(file, self.0.join(&digest)).context("cannot write a blob")?;
        Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size}))
    }

    fn add_json(&self, value: &Value, media_type: &str) -> Result<Value> {
        let file = tempfile::NamedTempFile::new().context("no temporary file")?;
        fs::write(file.path(), value.to_string())?;
        self.add_file(file.path(), media_type)
    }
}
