//! The `manta up` that the specs run against, with an image mapping for the images that they use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use manta_testkit::{ConformanceSuite, Supervised};

use crate::operator::{Build, built_manta};
use crate::process::succeeds;

/// The images of the specs: agnhost is at `/agnhost`, as in its image, and the others are this machine's own tools.
///
/// The shell of busybox is bash, because Debian's drops variables whose names no shell could set.
const IMAGES: &str = r#"images:
- image: registry.k8s.io/e2e-test-images/agnhost
  entrypoint: [/agnhost]
  cmd: [pause]
  env: {CERT_FILE: /localhost.crt, KEY_FILE: /localhost.key}
- image: registry.k8s.io/pause
  entrypoint: [/agnhost, pause]
- image: registry.k8s.io/e2e-test-images/busybox
  environment: busybox
  cmd: [sh]
- image: registry.k8s.io/e2e-test-images/nginx
  cmd: [/agnhost, netexec, --http-port=80, --udp-port=-1]
- image: registry.k8s.io/e2e-test-images/httpd
  cmd: [/agnhost, netexec, --http-port=80, --udp-port=-1]
- image: registry.k8s.io/e2e-test-images/jessie-dnsutils
  cmd: [sh]
- image: registry.k8s.io/e2e-test-images/perl
  cmd: [perl]
- image: registry.k8s.io/e2e-test-images/nautilus
  cmd: [python3, -m, http.server, "80", --directory, /sites/nautilus]
- image: registry.k8s.io/e2e-test-images/kitten
  cmd: [python3, -m, http.server, "80", --directory, /sites/kitten]
"#;

/// Images that serve a file with their own name.
const SITES: [&str; 2] = ["nautilus", "kitten"];

/// A running local mode.
pub(super) struct Node {
    folder: tempfile::TempDir,
    _process: Supervised,
}

impl Node {
    /// Starts local mode and waits until its node is ready.
    pub(super) fn start(
        suite: &ConformanceSuite,
        kubectl: &Path,
        program: Option<&Path>,
        build: Build,
    ) -> Result<Self> {
        let program = match program {
            Some(program) => program.to_owned(),
            None => built_manta(build)?,
        };
        let program = program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?;
        let folder = tempfile::tempdir()?;
        let images = folder.path().join("images.yaml");
        std::fs::write(&images, IMAGES).with_context(|| format!("cannot write {}", images.display()))?;
        let shells = folder.path().join("busybox/bin");
        std::fs::create_dir_all(&shells)?;
        std::os::unix::fs::symlink("/bin/bash", shells.join("sh"))?;
        let sites = folder.path().join("sites");
        for name in SITES {
            std::fs::create_dir_all(sites.join(name))?;
            std::fs::write(sites.join(name).join("data.json"), format!("{{\"image\": \"{name}.jpg\"}}\n"))?;
        }
        let mut command = Command::new(program);
        command
            .args(["up", "--in-memory", "--port=0", "--no-operator", "--no-internet", "--allow-host-path", "--state"])
            .arg(folder.path().join("state"))
            .arg("--images")
            .arg(images)
            .env("RUST_LOG", "warn");
        // As in the image of agnhost, which has its program twice.
        let certificate = suite.agnhost_certificate();
        for (source, target) in [
            (&suite.agnhost, "/agnhost"),
            (&suite.agnhost, "/agnhost-2"),
            (&certificate.join("localhost.crt"), "/localhost.crt"),
            (&certificate.join("localhost.key"), "/localhost.key"),
            (&sites, "/sites"),
        ] {
            command.arg("--mount").arg(format!("{}:{target}:ro", source.display()));
        }
        let mut process = Supervised::start(folder.path(), "manta", &command)?;
        let kubeconfig = folder.path().join("state/kubeconfig");
        let mut is_ready = Command::new(kubectl);
        is_ready
            .args(["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=1s", "--kubeconfig"])
            .arg(&kubeconfig);
        let end = Instant::now() + Duration::from_secs(120);
        while !succeeds(&mut is_ready) {
            process.check()?;
            if Instant::now() > end {
                bail!("local mode has no ready node after 120 s; the end of its log:\n{}", process.log_tail(15));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(Self { folder, _process: process })
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("state/kubeconfig")
    }
}
