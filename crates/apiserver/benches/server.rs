//! Speed and size of the API server, beside kube-apiserver with etcd.
//!
//! `make bench WHAT=apiserver` starts the server as a process of its own (so that its CPU time and memory are its
//! own) and prints one line per figure, then the same measurements on both servers side by side: the same kube-rs
//! client, over TLS. That part needs the real binaries.

#![allow(clippy::print_stdout)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
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
    compare();
}

/// The server's side: `serve PORT-FILE [DATA [KUBECONFIG]]`, plain HTTP for anyone on loopback, or TLS for those with
/// the kubeconfig.
fn serve(args: &[String]) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (data, kubeconfig) = (args.get(1).map(PathBuf::from), args.get(2));
        let options = Options { data, trust_everyone: kubeconfig.is_none(), ..Options::default() };
        let server = Server::start(options).await.expect("the server starts");
        let address = match kubeconfig {
            Some(_) => server.listen(listener).expect("it listens"),
            None => server.listen_plain(listener).expect("it listens"),
        };
        if let Some(file) = kubeconfig {
            std::fs::write(file, server.kubeconfig(&format!("https://{address}"))).expect("written");
        }
        std::fs::write(&args[0], address.to_string()).expect("the port is told");
        std::future::pending::<()>().await;
    });
}

/// A server in a process of its own.
struct Served {
    child: Child,
    address: SocketAddr,
    begun: Instant,
    started: Duration,
    folder: tempfile::TempDir,
}

impl Served {
    /// Plain HTTP, with storage or without.
    fn start(durable: bool) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let args: &[&Path] = if durable { &[&data] } else { &[] };
        let mut served = Served::spawn(folder, args);
        assert_eq!(Connection::open(served.address).send("GET", "/api/v1/namespaces/default", ""), 200);
        served.started = served.begun.elapsed();
        served
    }

    /// TLS with storage.
    fn start_tls() -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let (data, kubeconfig) = (folder.path().join("data"), folder.path().join("kubeconfig"));
        Served::spawn(folder, &[&data, &kubeconfig])
    }

    fn spawn(folder: tempfile::TempDir, args: &[&Path]) -> Served {
        let port = folder.path().join("port");
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command.arg("serve").arg(&port).args(args).stdout(Stdio::null());
        let begun = Instant::now();
        let child = command.spawn().expect("the server runs");
        let address = loop {
            let text = std::fs::read_to_string(&port).unwrap_or_default();
            if let Ok(address) = text.parse() {
                break address;
            }
            std::thread::sleep(Duration::from_micros(200));
        };
        Served { child, address, begun, started: begun.elapsed(), folder }
    }

    async fn client(&self) -> kube::Client {
        let file = kube::config::Kubeconfig::read_from(self.folder.path().join("kubeconfig")).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.expect("a config");
        kube::Client::try_from(config).expect("a client")
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
        .write_all(b"GET /api/v1/namespaces/default/pods?watch=1&labelSelector=seq HTTP/1.1\r\nHost: x\r\n\r\n")
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

/// What one server did.
struct Figures {
    start: Duration,
    idle: f64,
    rate: f64,
    cpu: f64,
    watch: [f64; 2],
    changes: f64,
    held: f64,
}

/// How many creations are timed, how many changes are watched, and with how many pods memory is measured.
const TIMED: usize = 2000;
const CHANGES: usize = 2000;
const HELD: usize = 10_000;

/// The same measurements on both servers.
fn compare() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let begun = Instant::now();
    let plane = match manta_testkit::ControlPlane::start() {
        Ok(plane) => plane,
        Err(error) => return println!("no comparison with kube-apiserver: {error:#}"),
    };
    let start = begun.elapsed();
    let pids: Vec<u32> = processes_of(plane.folder()).into_iter().map(|(pid, _)| pid).collect();
    let theirs = runtime.block_on(async { measure(plane.client().await.expect("a client"), &pids, start).await });
    drop(plane);
    let served = Served::start_tls();
    let ours = runtime.block_on(async { measure(served.client().await, &[served.pid()], served.started).await });
    println!("\n| side by side, same client over TLS | this server | kube-apiserver + etcd | ratio |");
    println!("| --- | --- | --- | --- |");
    let row = |what: &str, ours: f64, theirs: f64, unit: &str, better: f64| {
        println!("| {what} | {ours:.2} {unit} | {theirs:.2} {unit} | {better:.1} |");
    };
    let down = |ours: f64, theirs: f64| theirs / ours.max(1e-9);
    let (ms, their_ms) = (ours.start.as_secs_f64() * 1e3, theirs.start.as_secs_f64() * 1e3);
    row("start to a served request", ms, their_ms, "ms", down(ms, their_ms));
    row("memory idle", ours.idle, theirs.idle, "MB", down(ours.idle, theirs.idle));
    row("CPU per 1,000 creations (wanted: ratio 10)", ours.cpu, theirs.cpu, "s", down(ours.cpu, theirs.cpu));
    row("creations a second, 8 clients", ours.rate, theirs.rate, "/s", ours.rate / theirs.rate);
    row("watch event, median", ours.watch[0], theirs.watch[0], "ms", down(ours.watch[0], theirs.watch[0]));
    row("watch event, 99th percentile", ours.watch[1], theirs.watch[1], "ms", down(ours.watch[1], theirs.watch[1]));
    row("changes a second meanwhile", ours.changes, theirs.changes, "/s", ours.changes / theirs.changes);
    row(&format!("memory with {HELD} pods"), ours.held, theirs.held, "MB", down(ours.held, theirs.held));
}

async fn measure(client: kube::Client, pids: &[u32], start: Duration) -> Figures {
    let cpu = || pids.iter().map(|pid| cpu_seconds(*pid)).sum::<f64>();
    let memory = || pids.iter().map(|pid| resident_megabytes(*pid)).sum::<f64>();
    let idle = memory();
    create_with(&client, "warm", 200).await;
    let (before, begun) = (cpu(), Instant::now());
    create_with(&client, "timed", TIMED).await;
    let (used, took) = (cpu() - before, begun.elapsed());
    let (watch, changes) = watch_with(&client).await;
    create_with(&client, "held", HELD - TIMED - 200).await;
    Figures {
        start,
        idle,
        rate: TIMED as f64 / took.as_secs_f64(),
        cpu: used * 1000.0 / TIMED as f64,
        watch,
        changes,
        held: memory(),
    }
}

/// Median and 99th percentile in ms from the beginning of a write to its event, and how many changes a second there
/// were: `CLIENTS` writers that together aim at 1000.
async fn watch_with(client: &kube::Client) -> ([f64; 2], f64) {
    use futures::StreamExt;
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client.clone());
    let version = pods.list_metadata(&kube::api::ListParams::default().limit(1)).await.expect("a list");
    let version = version.metadata.resource_version.expect("a version");
    let options = kube::api::WatchParams::default().labels("seq");
    let mut events = pods.watch(&options, &version).await.expect("a watch").boxed();
    let sent: Arc<Vec<std::sync::OnceLock<Instant>>> = Arc::new((0..CHANGES).map(|_| Default::default()).collect());
    let begun = Instant::now();
    let writers: Vec<_> = (0..CLIENTS)
        .map(|writer| {
            let (pods, sent) = (pods.clone(), sent.clone());
            tokio::spawn(async move {
                for number in (writer..CHANGES).step_by(CLIENTS) {
                    let due = begun + Duration::from_millis(number as u64);
                    tokio::time::sleep_until(due.into()).await;
                    let patch = serde_json::json!({"metadata": {"labels": {"seq": number.to_string()}}});
                    let _ = sent[number].set(Instant::now());
                    let patch = kube::api::Patch::Merge(patch);
                    pods.patch(&format!("timed-{}", number % TIMED), &Default::default(), &patch)
                        .await
                        .expect("patched");
                }
            })
        })
        .collect();
    let mut delays = Vec::with_capacity(CHANGES);
    while delays.len() < CHANGES {
        let event = events.next().await.expect("the watch goes on").expect("an event");
        let (kube::core::WatchEvent::Added(pod) | kube::core::WatchEvent::Modified(pod)) = event else { continue };
        let number = pod.metadata.labels.and_then(|labels| labels.get("seq")?.parse::<usize>().ok()).expect("a number");
        delays.push(sent[number].get().expect("sent before").elapsed().as_secs_f64() * 1e3);
    }
    let rate = CHANGES as f64 / begun.elapsed().as_secs_f64();
    for writer in writers {
        writer.await.expect("no panic");
    }
    delays.sort_by(f64::total_cmp);
    ([0.5, 0.99].map(|share| delays[((CHANGES - 1) as f64 * share) as usize]), rate)
}

async fn create_with(client: &kube::Client, prefix: &str, count: usize) {
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client.clone());
    let next = Arc::new(AtomicUsize::new(0));
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
