//! What `manta up` checks before it starts anything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::process::{Command, Stdio};

const INVALID: &str = "\
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: demo
  annotations: {ray.io/ft-enabled: \"true\"}
spec:
  gcsFaultToleranceOptions: {}
  headGroupSpec:
    rayStartParams: {}
    template: {spec: {containers: [{name: head, image: rayproject/ray:2.53.0}]}}
";

fn up(args: &[&str], stdin: &str) -> (i32, String) {
    let state = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_manta"))
        .arg("up")
        .args(args)
        .env("MANTA_STATE", state.path().join("state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A child that has refused its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    assert!(!state.path().join("state").exists(), "nothing was started");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn invalid_manifests_are_refused_with_the_words_of_lint() {
    let (code, text) = up(&["-f", "-"], INVALID);
    assert_eq!(code, 1);
    assert!(
        text.starts_with("<stdin>:5: metadata.annotations[ray.io/ft-enabled]: ray.io/ft-enabled annotation and"),
        "{text}"
    );
    assert!(text.ends_with("error: nothing was applied, because the manifests above are invalid\n"), "{text}");
    let (code, text) = up(&["-f", "-"], "a: [");
    assert!(code == 2 && text.starts_with("<stdin>:1: not YAML: "), "{text}");
    let (code, text) = up(&["-f", "/nowhere.yaml"], "");
    assert!(code == 2 && text.starts_with("/nowhere.yaml: cannot be read: No such file"), "{text}");
}

/// As by `kubectl apply`; `kubectl create` accepts it.
#[test]
fn a_generated_name_is_refused_before_anything_starts() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a-}\n";
    let (code, text) = up(&["-f", "-"], text);
    assert_eq!(code, 1);
    assert!(text.starts_with("<stdin>:3: metadata.generateName: cannot use generateName here"), "{text}");
}

#[test]
fn manifests_without_an_object_are_refused() {
    for text in ["", "# only a comment\n", "---\n---\n", "{apiVersion: v1, kind: List, items: []}\n"] {
        let expect = "error: nothing to apply: no objects found in <stdin>\n".to_owned();
        assert_eq!(up(&["-f", "-"], text), (1, expect), "{text:?}");
    }
}

#[test]
fn a_mistake_in_the_image_mappings_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("images.yaml");
    std::fs::write(&file, "images:\n- imag: x\n").unwrap();
    let (code, text) = up(&["--images", file.to_str().unwrap()], "");
    assert_eq!((code, text.lines().count()), (1, 1), "{text}");
    let expect = format!("error: {}:2: not a list of image mappings: unknown field `imag`", file.display());
    assert!(text.starts_with(&expect), "{text}");
}

#[test]
fn the_demo_needs_the_operator() {
    let output = Command::new(env!("CARGO_BIN_EXE_manta")).args(["demo", "--no-operator"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn memory_without_a_unit_is_refused() {
    let (code, text) = up(&["--memory", "10"], "");
    assert_eq!(code, 1);
    assert_eq!(text, "error: --memory 10 is 10 bytes; did you mean 10Gi?\n");
}

#[test]
fn quantities_come_with_an_example_of_their_own() {
    let check = |flag: &str, text: &str, example: &str| {
        let expect = format!("error: {flag} {text} is not a quantity; use a form like {example}\n");
        assert_eq!(up(&[flag, text], ""), (1, expect));
    };
    check("--memory", "10GB", "8Gi or 512Mi");
    check("--cpus", "two", "4 or 500m");
}

/// Root may enter every folder, so the folder here is below something that is none.
#[test]
fn a_state_folder_that_cannot_be_used_comes_with_a_remedy() {
    for command in ["up", "status", "down"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_manta")).args([command, "--state", "/dev/null/state"]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}: {text}");
        assert!(text.contains("/dev/null/state") && text.contains("of your own with --state"), "{command}: {text}");
    }
}
