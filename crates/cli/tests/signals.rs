//! What signals do to commands that wait for an API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn commands_end_while_they_connect() {
    for command in [&["connect", "a"][..], &["open", "a"], &["ray", "session", "a"], &["logs", "a"]] {
        for signal in [Signal::INT, Signal::TERM] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let server = format!("http://{}", listener.local_addr().unwrap());
            let mut manta = Command::new(env!("CARGO_BIN_EXE_manta"));
            manta.args(command).args(["--server", &server]).env("KUBECONFIG", "/nonexistent/kubeconfig");
            let mut child = manta.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // A server that never answers.
            let connection = listener.accept().unwrap();
            let pid = Pid::from_child(&child);
            kill_process(pid, signal).unwrap();
            let (ended, end) = mpsc::channel();
            std::thread::spawn(move || ended.send(child.wait()));
            let in_time = end.recv_timeout(Duration::from_secs(30));
            if in_time.is_err() {
                // Otherwise it would outlive this test.
                let _ = kill_process(pid, Signal::KILL);
            }
            drop(connection);
            assert!(in_time.is_ok(), "manta {command:?} goes on after {signal:?}");
        }
    }
}
