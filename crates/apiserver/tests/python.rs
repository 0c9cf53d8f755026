//! The official Python client: lists, watches, pages, patches, custom objects.

use std::process::{Command, Stdio};

use manta_apiserver::{Options, Server};

const PACKAGE: &str = "kubernetes==34.1.0";

#[test]
fn the_python_client_lists_watches_and_patches() {
    let python = match manta_testkit::python_with("kubernetes", &[PACKAGE]) {
        Ok(python) => python,
        // Without Python, or without PyPI, there is nothing to test.
        Err(error) => return skipped(&format!("{PACKAGE} cannot be had: {error:#}")),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let server = runtime.block_on(async {
        let server = Server::start(Options::default()).await.expect("the server starts");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = server.listen(listener).expect("it listens");
        std::fs::write(&kubeconfig, server.kubeconfig(&format!("https://{address}"))).expect("written");
        server
    });
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/client.py"))
        .arg(&kubeconfig)
        .stdin(Stdio::null())
        .output()
        .expect("Python runs");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "all well");
    runtime.block_on(server.stop());
}

#[allow(clippy::print_stdout)]
fn skipped(why: &str) {
    println!("skipped: {why}");
}
