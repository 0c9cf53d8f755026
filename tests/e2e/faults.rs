//! What a machine can lack: one clear line each, with what to do.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::Arc;

use crate::up::{MANTA, Up, command, folder};

pub(crate) fn a_taken_port_is_named() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let state = folder.path().to_str().expect("a path");
    let output = Command::new(MANTA).args(["up", "--in-memory", "--state", state, "--port", &port]).output();
    let expect =
        format!("port {port} of this machine is taken: choose another with --port, or any free one with --port 0");
    assert_fails_with(&output.expect("manta"), &expect);
}

/// Without Python there can be no environment for an image of Ray.
pub(crate) fn a_machine_without_python_says_so() {
    let folder = Arc::new(folder());
    let manifest = folder.path().join("pod.yaml");
    std::fs::write(&manifest, pod("rayproject/ray:2.60.0", "1Mi")).expect("a manifest");
    let mut up = command(folder.path(), &["--in-memory", "-f", manifest.to_str().expect("a path")]);
    up.env("XDG_CACHE_HOME", folder.path().join("cache")).env("PATH", "/nowhere");
    let line = Up::spawn(up, folder).until_printed("ErrImagePull");
    assert!(line.contains("cannot make a Python environment (is python3 with its venv module installed?)"), "{line}");
}

/// A disk of its own, as small as can be, in a mount namespace of its own.
pub(crate) fn a_full_disk_is_named() {
    let folder = folder();
    let script = "mount -t tmpfs -o size=64k none \"$1\" && exec \"$0\" up --port 0 --state \"$1\"";
    let apart = ["--map-root-user", "--mount", "sh", "-c", script, MANTA];
    let output = Command::new("unshare").args(apart).arg(folder.path()).output();
    assert_fails_with(&output.expect("unshare"), "make room, or choose another --state folder");
}

pub(crate) fn pods_that_cannot_run_say_what_to_do() {
    for (image, memory, expect) in [
        ("corp.example/unknown:1", "1Mi", "image \"corp.example/unknown:1\" has no local environment: add it to"),
        ("busybox", "999Ti", "1 Insufficient memory. (declare more with --memory, or ask for less)"),
    ] {
        let folder = Arc::new(folder());
        let manifest = folder.path().join("pod.yaml");
        std::fs::write(&manifest, pod(image, memory)).expect("a manifest");
        let mut up = Up::start(folder, &["--in-memory", "-f", manifest.to_str().expect("a path")]);
        up.until_printed(expect);
    }
}

fn pod(image: &str, memory: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: [\
         {{name: c, image: '{image}', resources: {{requests: {{memory: {memory}}}}}}}]}}}}\n"
    )
}

fn assert_fails_with(output: &Output, expect: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("ERROR") || line.contains(expect)).collect();
    assert!(matches!(lines.as_slice(), [line] if line.contains(expect)), "one line with {expect:?} in:\n{said}");
}
