//! `manta crds` from the command line, and the generated files in the repository.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn manta(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
    command.args(args);
    command
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()))
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

#[test]
fn deployed_crds_are_current() {
    let fresh = tempfile::tempdir().unwrap();
    let status = manta(&["crds", "--dir", fresh.path().to_str().unwrap()]).status().unwrap();
    assert!(status.success());
    let expected = files(fresh.path());
    let deployed = files(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds"));
    assert_eq!(expected.len(), 4);
    for name in expected.keys().chain(deployed.keys()) {
        // Not assert_eq, which would print half a megabyte twice.
        assert!(
            expected.get(name) == deployed.get(name),
            "deploy/crds/{name} is out of date; run `cargo run -p manta -- crds --dir deploy/crds` \
             and remove files that it does not write"
        );
    }
}

#[test]
fn prints_a_stream_of_all_kinds() {
    let names = |args: &[&str]| -> Vec<String> {
        let output = manta(args).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        text.split("---\n")
            .filter(|document| !document.is_empty())
            .map(|document| {
                let crd: serde_json::Value = serde_saphyr::from_str(document).unwrap();
                let versions: Vec<_> =
                    crd["spec"]["versions"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
                format!("{} {}", crd["spec"]["names"]["kind"].as_str().unwrap(), versions.join("+"))
            })
            .collect()
    };
    assert_eq!(names(&["crds"]), ["RayCluster v1", "RayCronJob v1", "RayJob v1", "RayService v1"]);
    assert_eq!(
        names(&["crds", "--with-v1alpha1"]),
        ["RayCluster v1+v1alpha1", "RayCronJob v1", "RayJob v1+v1alpha1", "RayService v1+v1alpha1"]
    );
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = manta(&["crds"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 4]).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn usage_errors_exit_with_2_and_failures_with_1() {
    let check = |args: &[&str], code: i32, message: &str| {
        let output = manta(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    };
    check(&["nope"], 2, "unrecognized subcommand 'nope'");
    check(&["crds", "--nope"], 2, "unexpected argument '--nope'");
    check(&["crds", "--dir", "/dev/null/crds"], 1, "cannot create the directory /dev/null/crds: ");
}
