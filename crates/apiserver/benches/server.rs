//! Speed and size of the API server, beside kube-apiserver with etcd.
//!
//! `cargo bench -p manta-apiserver --bench server` starts the server as a process of its own (so that its CPU
//! time and memory are its own) and prints one line per figure. The comparison needs the real binaries.

#![allow(clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use manta_apiserver::{Options, Server};

const CLIENTS: usize = 8;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).map(String::as_str) == Some("serve") {
        return serve(&args[2..]);
    }
    start_up();
    creations_and_memory();
    watch_latency();
    compare_cpu();
}

/// The server's side: `serve PORT-FILE [DATA]`, plain HTTP for anyone on loopback.
fn serve(args: &[String]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let options = Options { data: args.get(1).map(PathBuf::from), trust_everyone: true, ..Options::default() };
        let server = Server::start(options).await.expect("the server starts");
        let address = server.listen_plain(listener).expect("it listens");
        std::fs::write(&args[0], address.to_string()).expect("the port is told");
        std::future::pending::<()>().await;
    });
}

/// A server in a process of its own.
struct Served {
    child: Child,
    address: SocketAddr,
    started: Duration,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(durable: bool) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let port = folder.path().join("port");
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command.arg("serve").arg(&port).stdout(Stdio::null());
        if durable {
            command.arg(folder.path().join("data"));
        }
        let begun = Instant::now();
        let child = command.spawn().expect("the server runs");
        let address = loop {
            let text = std::fs::read_to_string(&port).unwrap_or_default();
            if let Ok(address) = text.parse() {
                break address;
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        let mut connection = Connection::open(address);
        assert_eq!(connection.send("GET", "/api/v1/namespaces/default", ""), 200);
        Served { child, address, started: begun.elapsed(), _folder: folder }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A keep-alive connection that costs the client as little as possible.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr) -> Connection {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Connection { stream, buffer: Vec::with_capacity(64 << 10) }
    }

    /// Sends one request, reads the whole answer, returns its status.
    fn send(&mut self, method: &str, path: &str, body: &str) -> u16 {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).expect("sent");
        self.buffer.clear();
        let mut piece = [0; 16 << 10];
        loop {
            let read = self.stream.read(&mut piece).expect("an answer");
            assert_ne!(read, 0, "the server hung up");
            self.buffer.extend_from_slice(&piece[..read]);
            let Some(end) = find(&self.buffer, b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&self.buffer[..end]).to_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            let length: usize = length.and_then(|text| text.parse().ok()).expect("a length");
            if self.buffer.len() >= end + 4 + length {
                return head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn pod(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"ray.io/cluster":"demo","ray.io/group":"workers","ray.io/node-type":"worker"}}}},"spec":{{"containers":[{{"name":"ray-worker","image":"rayproject/ray:2.9.0","command":["/bin/bash","-lc","--"],"args":["ulimit -n 65536; ray start --address=demo-head-svc:6379 --block"],"env":[{{"name":"RAY_IP","value":"demo-head-svc"}}],"resources":{{"limits":{{"cpu":"1","memory":"2Gi"}}}},"volumeMounts":[{{"name":"shm","mountPath":"/dev/shm"}}]}}],"volumes":[{{"name":"shm","emptyDir":{{"medium":"Memory","sizeLimit":"1Gi"}}}}]}}}}"#
    )
}

/// Creates pods from `CLIENTS` connections; returns the time it took.
fn create(address: SocketAddr, prefix: &str, count: usize) -> Duration {
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = Connection::open(address);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let code =
                        connection.send("POST", "/api/v1/namespaces/default/pods", &pod(&format!("{prefix}-{index}")));
                    assert_eq!(code, 201);
                }
            });
        }
    });
    begun.elapsed()
}

/// User and system time of a process so far, in seconds.
fn cpu_seconds(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or("");
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn resident_megabytes(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
    kilobytes / 1024.0
}

fn start_up() {
    let mut times: Vec<Duration> = (0..5).map(|_| Served::start(true).started).collect();
    times.sort();
    println!("start to a served request (median of 5)   {:8.1} ms    wanted: under 50", times[2].as_secs_f64() * 1e3);
    let idle = Served::start(true);
    std::thread::sleep(Duration::from_millis(500));
    println!("memory when idle                          {:8.1} MB    wanted: under 25", resident_megabytes(idle.pid()));
}

fn creations_and_memory() {
    let served = Served::start(true);
    create(served.address, "warm", 500);
    let before = cpu_seconds(served.pid());
    let count = 10_000;
    let took = create(served.address, "timed", count);
    let cpu = cpu_seconds(served.pid()) - before;
    println!(
        "pod creations, {CLIENTS} clients, storage on       {:8.0} /s    wanted: at least 5000",
        count as f64 / took.as_secs_f64()
    );
    println!("CPU per 1000 creations                    {:8.3} s", cpu * 1000.0 / count as f64);
    create(served.address, "more", 100_000 - count - 500);
    println!(
        "memory with 100,000 pods                  {:8.1} MB    wanted: under 400",
        resident_megabytes(served.pid())
    );
}

/// How long after a write its event arrives, with 1000 writes a second.
fn watch_latency() {
    let served = Served::start(false);
    create(served.address, "w", 1000);
    let (sender, arrivals) = std::sync::mpsc::channel::<(usize, Instant)>();
    let mut stream = TcpStream::connect(served.address).expect("a connection");
    stream
        .write_all(b"GET /api/v1/namespaces/default/pods?watch=1&resourceVersion=1&labelSelector=seq HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("sent");
    std::thread::spawn(move || {
        let (mut buffer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(read @ 1..) = stream.read(&mut piece) {
            let now = Instant::now();
            buffer.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&buffer).into_owned();
            let complete = text.rfind('\n').map_or(0, |end| end + 1);
            for part in text[..complete].split("\"seq\":\"").skip(1) {
                let number = part.split('"').next().and_then(|text| text.parse().ok());
                if number.is_none_or(|number| sender.send((number, now)).is_err()) {
                    return;
                }
            }
            buffer.drain(..complete);
        }
    });
    let total = 3000;
    let mut connection = Connection::open(served.address);
    let begun = Instant::now();
    let mut sent = Vec::with_capacity(total);
    for number in 0..total {
        let due = begun + Duration::from_millis(number as u64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        sent.push(Instant::now());
        let path = format!("/api/v1/namespaces/default/pods/w-{}", number % 1000);
        let body = format!(r#"{{"metadata":{{"labels":{{"seq":"{number}"}}}}}}"#);
        assert_eq!(connection.send("PATCH", &path, &body), 200);
    }
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    let mut delays = Vec::new();
    while delays.len() < total {
        let Ok((number, at)) = arrivals.recv_timeout(Duration::from_secs(2)) else { break };
        delays.push(at.saturating_duration_since(sent[number]));
    }
    delays.sort();
    let shown = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "watch event, 50th / 99th percentile       {:8.2} / {:.2} ms at {rate:.0} writes/s, {} of {total} seen    wanted: under 5",
        shown(0.5),
        shown(0.99),
        delays.len()
    );
}

/// CPU per 1000 creations through the same client, on both servers.
fn compare_cpu() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let plane = match manta_testkit::ControlPlane::start() {
        Ok(plane) => plane,
        Err(error) => return println!("no comparison with kube-apiserver: {error:#}"),
    };
    let real = runtime.block_on(plane.client()).expect("a client");
    let pids = processes_of(plane.folder());
    let names: Vec<&str> = pids.iter().map(|(_, name)| name.as_str()).collect();
    let total = || pids.iter().map(|(pid, _)| cpu_seconds(*pid)).sum::<f64>();
    runtime.block_on(create_with(&real, "warm", 200));
    let before = total();
    let begun = Instant::now();
    let count = 2000;
    runtime.block_on(create_with(&real, "timed", count));
    let theirs = (total() - before) * 1000.0 / count as f64;
    println!(
        "{:<40}  {:8.3} s per 1000 creations, {:.0} /s",
        names.join(" + "),
        theirs,
        count as f64 / begun.elapsed().as_secs_f64()
    );
    let served = Served::start(true);
    let config = kube::Config::new(format!("http://{}", served.address).parse().expect("an address"));
    let ours = kube::Client::try_from(config).expect("a client");
    runtime.block_on(create_with(&ours, "warm", 200));
    let before = cpu_seconds(served.pid());
    let begun = Instant::now();
    runtime.block_on(create_with(&ours, "timed", count));
    let used = (cpu_seconds(served.pid()) - before) * 1000.0 / count as f64;
    println!(
        "this server, same client                  {used:8.3} s per 1000 creations, {:.0} /s: {:.0} times less    wanted: at least 10",
        count as f64 / begun.elapsed().as_secs_f64(),
        theirs / used.max(1e-9)
    );
}

async fn create_with(client: &kube::Client, prefix: &str, count: usize) {
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client.clone());
    let next = std::sync::Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (pods, next, prefix) = (pods.clone(), next.clone(), prefix.to_owned());
            tokio::spawn(async move {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let pod = serde_json::from_str(&pod(&format!("{prefix}-{index}"))).expect("a pod");
                    pods.create(&kube::api::PostParams::default(), &pod).await.expect("created");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no panic");
    }
}

/// etcd and kube-apiserver that run in a folder: their pids and names.
fn processes_of(folder: &Path) -> Vec<(u32, String)> {
    let folder = folder.display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        let program = command.split('\0').next().unwrap_or("").rsplit('/').next().unwrap_or("").to_owned();
        if command.contains(&folder) && (program == "etcd" || program == "kube-apiserver") {
            found.push((pid, program));
        }
    }
    found
}
