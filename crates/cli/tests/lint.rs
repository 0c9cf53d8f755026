//! `manta lint` from the command line, and on every manifest of the parity recordings.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use manta_cli::lint::{Finding, Linter, Severity};
use serde_json::Value;

const GOOD: &str = "\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: demo}
spec:
  headGroupSpec:
    rayStartParams: {}
    template: {spec: {containers: [{name: head, image: rayproject/ray}]}}
";

fn lint(args: &[&str], stdin: &str) -> (i32, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_manta"))
        .arg("lint")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let Output { status, stdout, .. } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap())
}

#[test]
fn exit_codes_tell_clean_invalid_and_unreadable_input_apart() {
    assert_eq!(lint(&["-"], GOOD), (0, String::new()));
    let bad = GOOD.replace("rayStartParams", "rayStartParam");
    let (code, text) = lint(&["-"], &bad);
    assert_eq!(code, 1);
    assert!(text.starts_with("<stdin>:6: spec.headGroupSpec.rayStartParam: unknown field, did you mean"), "{text}");
    assert_eq!(lint(&["-"], "a: [").0, 2);
    let (code, text) = lint(&["/nowhere/at/all.yaml"], "");
    assert_eq!(
        (code, text.as_str()),
        (2, "/nowhere/at/all.yaml: cannot be read: No such file or directory (os error 2)\n")
    );
    assert_eq!(lint(&[], "").0, 2);
}

#[test]
fn directories_are_searched_and_json_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("good.yaml"), GOOD).unwrap();
    fs::write(folder.path().join("sub/bad.yml"), GOOD.replace("name: demo", "name: Demo")).unwrap();
    fs::write(folder.path().join("notes.txt"), "not: [a manifest").unwrap();
    let (code, text) = lint(&["-o", "json", folder.path().to_str().unwrap()], "");
    let findings: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!((code, findings.len()), (1, 1));
    assert_eq!(findings[0]["line"], 3);
    assert_eq!(findings[0]["path"], "metadata.name");
    assert_eq!(findings[0]["severity"], "error");
    assert!(findings[0]["file"].as_str().unwrap().ends_with("sub/bad.yml"));
}

#[test]
fn warnings_fail_only_a_strict_run() {
    let suspicious = GOOD.replace("rayStartParams: {}", "rayStartParams: {port: \"6379\", dashboard-port: \"6379\"}");
    let (code, text) = lint(&["-"], &suspicious);
    assert_eq!(code, 0);
    assert!(text.starts_with("<stdin>:6: warning: spec.headGroupSpec.rayStartParams."), "{text}");
    assert_eq!(lint(&["--strict", "-"], &suspicious).0, 1);
    assert_eq!(lint(&["--strict", "-"], GOOD), (0, String::new()));
}

#[test]
fn only_regular_files_and_directories_with_manifests_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    assert_eq!(
        lint(&[empty], ""),
        (2, format!("{empty}: cannot be read: the directory has no .yaml, .yml or .json file\n"))
    );
    let pipe = folder.path().join("pipe.yaml");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (path, why) in [(pipe.to_str().unwrap(), "it is a pipe"), ("/dev/zero", "it is not a regular file")] {
        let (code, text) = lint(&[path], "");
        assert_eq!(code, 2);
        assert!(text.contains(why), "{text}");
    }
    let (code, text) = lint(&["http://127.0.0.1:1/a.yaml"], "");
    assert!(code == 2 && text.contains("curl -fsSL http://127.0.0.1:1/a.yaml"), "{text}");
}

/// Every recorded manifest gets the recorded verdict: the operator's message, a rejection, or no finding.
#[test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
fn recorded_manifests_get_the_recorded_verdict() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity/cases");
    let mut linter = Linter::default();
    let (mut clean, mut refused) = (0, 0);
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&cases).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let findings = problems(&mut linter, &case["docs"]);
        let messages = findings.iter().map(|finding| finding.message.as_str()).collect::<Vec<_>>();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        match expected(&case) {
            Expected::Clean if messages.is_empty() => clean += 1,
            // Recorded without the webhook, which alone has this rule.
            Expected::Clean if messages == ["worker group names must be unique"] => refused += 1,
            Expected::Refused if !messages.is_empty() => refused += 1,
            Expected::Event(text) if messages.iter().any(|message| text.ends_with(message)) => refused += 1,
            expected => wrong.push(format!("{name}: {expected:?}, but {messages:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    println!("linted {} cases: {clean} clean, {refused} refused as recorded", clean + refused);
}

#[derive(Debug)]
enum Expected {
    Clean,
    Refused,
    Event(String),
}

fn expected(case: &Value) -> Expected {
    if case["expect"]["rejected"].is_array() {
        return Expected::Refused;
    }
    // Only events about the objects as created: later steps of a case may invalidate them.
    let events = case["expect"]["created"]["events"].as_array().into_iter().flatten();
    let mut invalid = events.filter_map(|event| {
        let (reason, text) = (event[2].as_str()?, event[3].as_str()?);
        // Recorded with a feature gate off that is on here by default.
        let by_gate = text.ends_with("RayClusterHistoryServer feature gate is not enabled");
        (event[1] == "Warning" && reason.starts_with("Invalid") && !by_gate).then(|| text.to_owned())
    });
    invalid.next().map_or(Expected::Clean, Expected::Event)
}

fn problems(linter: &mut Linter, docs: &Value) -> Vec<Finding> {
    let text: Vec<String> = docs.as_array().unwrap().iter().map(Value::to_string).collect();
    let findings = linter.lint("case", text.join("\n---\n").as_bytes());
    findings.into_iter().filter(|finding| finding.severity <= Severity::Error).collect()
}
