//! `manta up` killed without warning leaves nothing, and the next start says what it cleaned.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use crate::user::{Up, wait_for};

type Test = (&'static str, fn());

pub(crate) const ALL: &[Test] = &[("kills::nothing_is_left_after_a_kill", nothing_is_left_after_a_kill)];

/// Quick by default; `MANTA_KILLS=100` for certainty.
fn rounds() -> usize {
    std::env::var("MANTA_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

fn nothing_is_left_after_a_kill() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let manifest = folder.path().join("pod.yaml");
    fs::write(&manifest, POD).expect("a manifest");
    let before = Seen::now();
    let mut folder = folder;
    for round in 0..rounds() {
        let mut up = Up::start(Arc::clone(&folder), &["--in-memory", "-f", manifest.to_str().expect("a path")]);
        // Now early, now late: the kill must not care.
        match round % 3 {
            0 => up.until_printed("Running 1/1"),
            1 => up.until_printed("applied"),
            _ => up.until_printed("local mode is up"),
        }
        assert!(up.pid() > 1);
        folder = up.kill();
        // The kernel takes the world down right away, but not in no time.
        wait_for(|| (Seen::now().beyond(&before) == Seen::default()).then_some(()));
    }
    let mut up = Up::start(Arc::clone(&folder), &["--in-memory"]);
    up.until_printed("local mode is up");
    drop(up);
    wait_for(|| (Seen::now().beyond(&before) == Seen::default()).then_some(()));
    assert!(!folder.path().join("pods").exists(), "pod folders are gone");
    let cgroups = fs::read_dir("/sys/fs/cgroup/memory").into_iter().flatten().flatten();
    let own = cgroups.filter(|e| e.file_name().to_string_lossy().starts_with("manta-")).count();
    assert_eq!(own, 0, "control groups are gone");
}

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: sleeper}
spec:
  containers:
  - {name: c, image: busybox, command: [sh, -c, "sleep 1000 & sleep 1000"]}
  volumes:
  - {name: m, emptyDir: {medium: Memory}}
"#;

/// Namespaces, mounts and links of this machine.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    namespaces: BTreeSet<String>,
    mounts: BTreeSet<String>,
    links: BTreeSet<String>,
}

impl Seen {
    fn now() -> Self {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let namespaces = processes
            .flat_map(|p| ["net", "pid", "mnt"].map(|kind| fs::read_link(p.path().join("ns").join(kind))))
            .filter_map(|link| link.ok()?.to_str().map(str::to_owned))
            .collect();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines().map(str::to_owned).collect();
        let links = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let links = links.filter_map(|e| e.file_name().into_string().ok()).collect();
        Self { namespaces, mounts, links }
    }

    /// What was not there before.
    fn beyond(&self, before: &Self) -> Self {
        let new = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect();
        Self {
            namespaces: new(&self.namespaces, &before.namespaces),
            mounts: new(&self.mounts, &before.mounts),
            links: new(&self.links, &before.links),
        }
    }
}
