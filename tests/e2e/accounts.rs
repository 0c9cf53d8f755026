//! Other accounts of the machine: the ports on loopback are not theirs.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use crate::up::{Up, folder, wait_for};

/// An account that every machine has and that owns nothing.
const NOBODY: u32 = 65534;

/// A cluster whose head is no Ray: it greets whoever connects to the port of Ray's client server.
const CLUSTER: &str = r#"
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: greeter, annotations: {ray.io/overwrite-container-cmd: "true"}}
spec:
  headGroupSpec:
    rayStartParams: {}
    template:
      spec:
        containers:
        - name: head
          image: python
          command: [python3, -c]
          args:
          - |
            import socketserver
            class Greeter(socketserver.BaseRequestHandler):
                def handle(self):
                    self.request.sendall(b"hello")
            socketserver.ThreadingTCPServer(("0.0.0.0", 10001), Greeter).serve_forever()
"#;

/// Returns what the test lacks on this machine.
pub(crate) fn lacks() -> Option<String> {
    (!is_root()).then(|| "only root can act as another account".to_owned())
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t0"))
}

pub(crate) fn other_accounts_reach_no_port_of_a_cluster() {
    for (args, expect_client, expect_dashboard) in
        [(&[][..], "", "HTTP/1.1 403 Forbidden"), (&["--allow-user", "65534"][..], "hello", "HTTP/1.1 502 Bad Gateway")]
    {
        let folder = Arc::new(folder());
        let manifest = folder.path().join("cluster.yaml");
        std::fs::write(&manifest, CLUSTER).expect("a manifest");
        let file = manifest.to_str().expect("a path");
        let mut up = Up::start(Arc::clone(&folder), &[&["--in-memory", "-f", file], args].concat());
        let port = |line: String| line.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port");
        let client = port(up.until_printed("client of RayCluster default/greeter: ray://127.0.0.1:"));
        let dashboard = port(up.until_printed("dashboard of RayCluster default/greeter: http://127.0.0.1:"));
        // Until the head listens, connections are closed.
        wait_for(|| (greeting(client) == "hello").then_some(()));
        assert_eq!(as_nobody(&format!("exec 3<>/dev/tcp/127.0.0.1/{client}; cat <&3")), expect_client, "{args:?}");
        let get = "GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n";
        let answer = as_nobody(&format!("exec 3<>/dev/tcp/127.0.0.1/{dashboard}; printf '{get}' >&3; cat <&3"));
        assert_eq!(answer.lines().next(), Some(expect_dashboard), "{args:?}");
    }
}

/// Returns what the server says to this account.
fn greeting(port: u16) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        // A connection that is reset says nothing.
        let _ = stream.read_to_string(&mut text);
    }
    text
}

/// Returns what a shell of another account prints.
fn as_nobody(script: &str) -> String {
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).uid(NOBODY).gid(NOBODY).current_dir("/");
    String::from_utf8(shell.output().expect("bash").stdout).expect("text")
}
