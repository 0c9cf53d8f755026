//! The official Python client: lists, watches, pages, patches, custom objects.

#[allow(dead_code, reason = "not every test needs all of it")]
mod served;

use std::process::{Command, Stdio};

use manta_apiserver::Options;
use served::Served;

const PACKAGE: &str = "kubernetes==34.1.0";

#[test]
fn the_python_client_lists_watches_and_patches() {
    let python = match manta_testkit::python_with("kubernetes", &[PACKAGE]) {
        Ok(python) => python,
        // Without Python, or without PyPI, there is nothing to test.
        Err(error) => return skipped(&format!("{PACKAGE} cannot be had: {error:#}")),
    };
    let served = Served::start(|_| Options::default());
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/client.py"))
        .arg(served.path("kubeconfig"))
        .stdin(Stdio::null())
        .output()
        .expect("Python runs");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "all well");
}

#[allow(clippy::print_stdout)]
fn skipped(why: &str) {
    println!("skipped: {why}");
}
