//! Problems of the machine: each is reported in one clear line, with what to do.

use std::net::TcpListener;
use std::process::{Command, Output};
use std::sync::Arc;

use crate::up::{MANTA, Up, command, folder};

pub(crate) fn a_port_in_use_is_reported() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let state = folder.path().to_str().expect("a path");
    let output = Command::new(MANTA).args(["up", "--in-memory", "--state", state, "--port", &port]).output();
    let expect =
        format!("port {port} of this machine is in use: choose another with --port, or a free one with --port 0");
    assert_fails_with(&output.expect("manta"), &expect);
}

/// Without Python, no environment can be created for a Ray image.
pub(crate) fn missing_python_is_reported() {
    let folder = Arc::new(folder());
    let manifest = folder.path().join("pod.yaml");
    std::fs::write(&manifest, pod("rayproject/ray:2.60.0", "1Mi")).expect("a manifest");
    let mut up = command(folder.path(), &["--in-memory", "-f", manifest.to_str().expect("a path")]);
    up.env("XDG_CACHE_HOME", folder.path().join("cache")).env("PATH", "/nowhere");
    let line = Up::spawn(up, folder).until_printed("ErrImagePull");
    assert!(line.contains("cannot create a Python environment (is python3 with its venv module installed?)"), "{line}");
}

/// The demo says why, as `manta explain` does, instead of waiting for what cannot come.
pub(crate) fn a_demo_that_cannot_go_on_is_explained() {
    let folder = folder();
    let ray = folder.path().join("env/bin/ray");
    std::fs::create_dir_all(ray.parent().expect("a folder")).expect("a folder");
    std::fs::write(&ray, "#!/bin/sh\necho out of luck\nexit 3\n").expect("written");
    std::fs::set_permissions(&ray, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let output = Command::new(MANTA).arg("demo").arg("--ray-env").arg(folder.path().join("env")).output();
    let output = output.expect("manta demo");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && printed.contains("  out of luck\n"), "{printed}");
    let first = printed.lines().skip_while(|line| !line.is_empty()).nth(1).unwrap_or_default();
    assert!(first.contains("head Pod demo-head-") && first.contains("exit code 3"), "{printed}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("keeps failing"), "{output:?}");
}

/// Uses a tiny tmpfs in a mount namespace of its own.
pub(crate) fn a_full_disk_is_reported() {
    let folder = folder();
    let script = "mount -t tmpfs -o size=64k none \"$1\" && exec \"$0\" up --port 0 --state \"$1\"";
    let apart = ["--map-root-user", "--mount", "sh", "-c", script, MANTA];
    let output = Command::new("unshare").args(apart).arg(folder.path()).output();
    assert_fails_with(&output.expect("unshare"), "free some space, or choose another --state directory");
}

pub(crate) fn pods_that_cannot_run_report_the_remedy() {
    for (image, memory, expect) in [
        (
            "corp.example/unknown:1",
            "1Mi",
            "image \"corp.example/unknown:1\" has no local environment: start manta up with --image",
        ),
        ("busybox", "999Ti", "1 Insufficient memory. (declare more with --memory, or request less)"),
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{stderr}");
    let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("ERROR") || line.contains(expect)).collect();
    assert!(matches!(lines.as_slice(), [line] if line.contains(expect)), "one line with {expect:?} in:\n{stderr}");
}
