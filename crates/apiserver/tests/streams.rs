//! kubectl and kube-rs talking into pods, with a node behind the server that only pretends.

#[allow(dead_code, reason = "not every test needs all of it")]
mod served;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use manta_apiserver::Options;
use manta_apiserver::node::{Duplex, NodeBackend, NodeError, PodUsage, Usage};
use serde_json::json;
use served::Served;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The port that nobody listens on.
const CLOSED: u16 = 81;

/// What a fake node measures.
type Measured = Arc<Mutex<Vec<PodUsage>>>;

/// Returns a node backend whose ports and commands echo their input.
fn fake_node(measured: &Measured) -> NodeBackend {
    let measured = Arc::clone(measured);
    NodeBackend {
        logs: Arc::new(|_, options| {
            let lines = [format!("{} says hello\n", options.container), "and goodbye\n".to_owned()];
            let shown = options.tail_lines.map_or(2, |lines| usize::try_from(lines).unwrap_or(2));
            let lines = lines.into_iter().skip(2_usize.saturating_sub(shown)).map(|line| Ok(Bytes::from(line)));
            async move { Ok(futures::stream::iter(lines.collect::<Vec<_>>()).boxed()) }.boxed()
        }),
        exec: Arc::new(|_, options, mut streams| {
            async move {
                let told = match options.command.as_slice() {
                    [] => "attached".to_owned(),
                    words => words.join(" "),
                };
                let _ = streams.stderr.send(Bytes::from(format!("{told} in {}\n", options.container))).await;
                while let Some(piece) = streams.stdin.recv().await {
                    if streams.stdout.send(piece).await.is_err() {
                        break;
                    }
                }
                Ok(options.command.last().and_then(|code| code.parse().ok()).unwrap_or(0))
            }
            .boxed()
        }),
        usage: Arc::new(move || {
            let measured = measured.lock().expect("no panic").clone();
            async move { measured }.boxed()
        }),
        dial: Arc::new(|_, port| {
            async move {
                if port == CLOSED {
                    return Err(NodeError::Internal("connection refused".to_owned()));
                }
                let (ours, mut theirs) = tokio::io::duplex(4096);
                tokio::spawn(async move {
                    let mut buffer = vec![0; 1000];
                    while let Ok(read @ 1..) = theirs.read(&mut buffer).await {
                        if theirs.write_all(&buffer[..read]).await.is_err() {
                            return;
                        }
                    }
                    // The client has closed its side; what follows shows that it still reads.
                    let _ = theirs.write_all(format!("goodbye from {port}").as_bytes()).await;
                });
                Ok(Box::new(ours) as Box<dyn Duplex>)
            }
            .boxed()
        }),
    }
}

struct Cluster(Served, Measured);

impl Cluster {
    /// Starts a server with the fake node and one pod, `p`.
    fn start() -> Cluster {
        let measured = Measured::default();
        let served = Served::start(|_| Options { node: Some(fake_node(&measured)), ..Options::default() });
        served.runtime.block_on(async {
            let pods = kube::Api::<Pod>::default_namespaced(served.client());
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            pods.create(&Default::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("created");
            let running = json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
                {"name": "c", "ready": true, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}}]}});
            pods.patch_status("p", &Default::default(), &kube::api::Patch::Merge(running)).await.expect("running");
        });
        Cluster(served, measured)
    }

    fn kubectl(&self, args: &[&str]) -> Command {
        self.0.kubectl(args.iter().copied())
    }

    /// Returns the same, as it was before 1.31: SPDY on the connection itself.
    fn older_kubectl(&self, args: &[&str]) -> Command {
        let mut kubectl = self.kubectl(args);
        kubectl.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false").env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false");
        kubectl
    }

    /// Runs kubectl with this input to its end: exit code, output, complaints.
    fn run(kubectl: &mut Command, input: &str) -> (i32, String, String) {
        let mut child = kubectl.spawn().expect("kubectl runs");
        child.stdin.take().expect("an input").write_all(input.as_bytes()).expect("kubectl reads");
        let output = child.wait_with_output().expect("kubectl ends");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }
}

/// A running `kubectl port-forward` and the ports it opened, in order.
struct Forward {
    child: Child,
    ports: Vec<u16>,
    /// Held open: kubectl prints every connection, and would die of a closed pipe.
    _output: BufReader<ChildStdout>,
}

impl Forward {
    fn start(mut command: Command, count: usize) -> Forward {
        let mut child = command.spawn().expect("kubectl runs");
        let mut output = BufReader::new(child.stdout.take().expect("an output"));
        let lines = output.by_ref().lines().map_while(Result::ok);
        // `Forwarding from 127.0.0.1:38421 -> 80`; the IPv6 line, where there is one, repeats the port.
        let ports =
            lines.filter_map(|line| line.strip_prefix("Forwarding from 127.0.0.1:")?.split(' ').next()?.parse().ok());
        let ports: Vec<u16> = ports.take(count).collect();
        assert_eq!(ports.len(), count, "kubectl port-forward opened too few ports");
        Forward { child, ports, _output: output }
    }

    /// Returns kubectl's standard error once it exits.
    fn complaints(mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().expect("complaints").read_to_string(&mut text).expect("text");
        text
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends and receives at the same time; what came back until the end.
fn exchange(port: u16, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let mut writer = stream.try_clone().expect("the same connection");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(sent).expect("sent");
            writer.shutdown(std::net::Shutdown::Write).expect("all said");
        });
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("an end");
        got
    })
}

#[test]
fn kubectl_forwards_ports() {
    let cluster = Cluster::start();
    let forward = Forward::start(cluster.kubectl(&["port-forward", "pod/p", ":80", ":443"]), 2);
    let mut big = vec![b'x'; 3 << 20];
    big.extend_from_slice(b"end");
    std::thread::scope(|scope| {
        for round in 0..6 {
            let (port, remote) = (forward.ports[round % 2], [80, 443][round % 2]);
            let big = &big;
            scope.spawn(move || {
                let sent = if round < 2 { big.as_slice() } else { b"hello" };
                let got = exchange(port, sent);
                let goodbye = format!("goodbye from {remote}");
                assert!(got.starts_with(sent) && got.ends_with(goodbye.as_bytes()), "round {round}: {}", got.len());
                assert_eq!(got.len(), sent.len() + goodbye.len(), "round {round}");
            });
        }
    });
}

#[test]
fn kubectl_reports_a_closed_port() {
    let cluster = Cluster::start();
    let forward = Forward::start(cluster.kubectl(&["port-forward", "pod/p", &format!(":{CLOSED}")]), 1);
    assert!(exchange(forward.ports[0], b"").is_empty());
    let complaints = forward.complaints();
    let expect = "error forwarding port 81 to pod default/p: connection refused";
    assert!(complaints.contains(expect), "{complaints}");
}

#[test]
fn older_clients_forward_ports_too() {
    let cluster = Cluster::start();
    let forward = Forward::start(cluster.older_kubectl(&["port-forward", "pod/p", ":80"]), 1);
    assert_eq!(exchange(forward.ports[0], b"hello"), b"hellogoodbye from 80");
}

#[test]
fn kube_rs_forwards_ports() {
    let cluster = Cluster::start();
    cluster.0.runtime.block_on(async {
        let file = kube::config::Kubeconfig::read_from(cluster.0.path("kubeconfig")).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.expect("a config");
        let pods = kube::Api::<Pod>::default_namespaced(kube::Client::try_from(config).expect("a client"));
        let mut forwarder = pods.portforward("p", &[80]).await.expect("it forwards");
        let mut stream = forwarder.take_stream(80).expect("a stream");
        stream.write_all(b"hello").await.expect("sent");
        let mut got = [0; 5];
        stream.read_exact(&mut got).await.expect("an echo");
        assert_eq!(&got, b"hello");
    });
}

#[test]
fn kubectl_runs_commands_and_reads_logs() {
    let cluster = Cluster::start();
    for (args, input, expect) in [
        ("exec p -i -- sh -c", "hello", (0, "hello", "sh -c in c")),
        ("exec p -c c -- exit 3", "", (3, "", "exit 3 in c")),
        ("exec p -c other -- true", "", (1, "", "container other is not valid for pod p")),
        ("attach p -i", "typed", (0, "typed", "attached in c")),
        ("logs p", "", (0, "c says hello\nand goodbye\n", "")),
        ("logs p --tail=1", "", (0, "and goodbye\n", "")),
        ("logs p -f -c c", "", (0, "c says hello\nand goodbye\n", "")),
        ("logs none", "", (1, "", "pods \"none\" not found")),
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        for (by, mut kubectl) in [("WebSocket", cluster.kubectl(&words)), ("SPDY", cluster.older_kubectl(&words))] {
            let (code, output, complaints) = Cluster::run(&mut kubectl, input);
            assert_eq!((code, output.as_str()), (expect.0, expect.1), "kubectl {args} by {by}: {complaints}");
            assert!(complaints.contains(expect.2), "kubectl {args} by {by}: {complaints}");
        }
    }
}

#[test]
fn large_input_is_echoed_completely() {
    let cluster = Cluster::start();
    let big = "0123456789abcdef".repeat(1 << 18);
    let words = ["exec", "p", "-i", "--", "cat"];
    for (by, mut kubectl) in [("WebSocket", cluster.kubectl(&words)), ("SPDY", cluster.older_kubectl(&words))] {
        kubectl.stdin(std::fs::File::open(input_file(&cluster, &big)).expect("opened"));
        let output = kubectl.output().expect("kubectl ends");
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "by {by}: {complaints}");
        assert!(
            output.stdout == big.as_bytes(),
            "by {by}: {} of {} bytes: {complaints}",
            output.stdout.len(),
            big.len()
        );
    }
}

/// Writes a file with this text to the cluster's directory.
fn input_file(cluster: &Cluster, text: &str) -> std::path::PathBuf {
    let path = cluster.0.path("input");
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn kubectl_top_shows_what_pods_use() {
    let cluster = Cluster::start();
    let uid = cluster.0.runtime.block_on(async {
        let pods = kube::Api::<Pod>::default_namespaced(cluster.0.client());
        pods.get("p").await.expect("the pod").metadata.uid.expect("a uid")
    });
    let used = Usage { cpu_nanos: 250_000_000, memory_bytes: 300 << 20 };
    let containers = vec![("c".to_owned(), used), ("d".to_owned(), Usage { cpu_nanos: 1_000_000, ..Usage::default() })];
    *cluster.1.lock().expect("no panic") = vec![PodUsage { uid, containers, window_seconds: 10 }];
    let (code, output, complaints) = Cluster::run(&mut cluster.kubectl(&["top", "pods", "--no-headers"]), "");
    let words: Vec<&str> = output.split_whitespace().collect();
    assert_eq!((code, words.as_slice()), (0, ["p", "251m", "300Mi"].as_slice()), "{complaints}");
    let (code, output, complaints) = Cluster::run(&mut cluster.kubectl(&["top", "pod", "p", "--containers"]), "");
    assert!(code == 0 && output.contains("250m"), "{output}{complaints}");
    let (code, _, complaints) = Cluster::run(&mut cluster.kubectl(&["top", "pod", "absent"]), "");
    assert!(code != 0 && complaints.contains("not found"), "{complaints}");
}
