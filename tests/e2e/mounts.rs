//! Folders of the machine that the user shows to pods.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use crate::up::{Up, command, folder};

/// Pods that succeed only if they see what they should, and one that asks in vain.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: every}
spec:
  restartPolicy: Never
  containers:
  - name: c
    image: busybox
    command: [sh, -ec]
    args:
    - |
      grep -q hello /code/greeting
      echo seen > /code/reply
      grep -q fact /data/fact
      if echo lie > /data/fact; then exit 1; fi
      if [ -e /asked ]; then exit 1; fi
---
apiVersion: v1
kind: Pod
metadata: {name: asks, annotations: {manta.local/mount: "../offered/part:/asked:ro"}}
spec:
  restartPolicy: Never
  containers:
  - {name: c, image: busybox, command: [sh, -ec, "grep -q part /asked/name"]}
---
apiVersion: v1
kind: Pod
metadata: {name: curious, annotations: {manta.local/mount: "/etc:/asked"}}
spec:
  containers:
  - {name: c, image: busybox}
"#;

/// Relative paths begin where `manta up` was started.
pub(crate) fn pods_see_the_folders_that_are_mounted() {
    let dir = Arc::new(folder());
    let path = |name: &str| dir.path().join(name);
    write(&path("code/greeting"), "hello");
    write(&path("data/fact"), "fact");
    write(&path("offered/part/name"), "part");
    write(&path("pods.yaml"), PODS);
    // Started by root, containers write what everybody can write.
    fs::set_permissions(path("code"), fs::Permissions::from_mode(0o777)).expect("permissions");
    let mounts = ["--mount", ".:/code", "--mount", "../data:/data:ro", "--mount", "../offered"];
    let mut up = command(&path("state"), &mounts);
    up.args(["--in-memory", "-f", "../pods.yaml"]).current_dir(path("code"));
    let mut up = Up::spawn(up, Arc::clone(&dir));
    up.until_lines_printed(&[
        &["default/every ", "Succeeded 0/1"],
        &["default/asks ", "Succeeded 0/1"],
        &["default/curious ", "asks for /etc; allow it with manta up --mount /etc"],
    ]);
    assert_eq!(fs::read_to_string(path("code/reply")).expect("a reply"), "seen\n");
    assert_eq!(fs::read_to_string(path("data/fact")).expect("the fact"), "fact");
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("written");
}
