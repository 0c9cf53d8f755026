//! A server that runs out of file descriptors waits for some to close; it neither spins nor stops serving.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use manta_apiserver::{Options, Server};

const CHILD: &str = "MANTA_OPEN_FILES_CHILD";

/// Not a test by itself: the server, which prints its port and runs until its input ends.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let server = Server::start(Options { trust_everyone: true, ..Options::default() }).await.expect("starts");
        let address = server.listen_plain(TcpListener::bind("127.0.0.1:0").expect("a port")).expect("listens");
        println!("\nport {}", address.port());
        let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
    });
}

/// Returns the CPU time of a process in seconds.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("running");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().expect("a number") / 100.0).sum()
}

fn healthz(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn running_out_of_file_descriptors_does_not_spin() {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" --exact child --nocapture"])
        .arg(program)
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let lines = output.by_ref().lines();
    let port = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("port ")?.parse::<u16>().ok());
    let port = port.expect("the child tells its port");
    let held: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("queued")).collect();
    let start = Instant::now();
    let before = cpu_seconds(child.id());
    let stuck = healthz_times_out(port);
    let used = cpu_seconds(child.id()) - before;
    assert!(stuck, "there are no descriptors left");
    assert!(used < 0.25 * start.elapsed().as_secs_f64(), "{used} s of CPU in {:?}", start.elapsed());
    drop(held);
    let start = Instant::now();
    while !healthz(port).is_ok_and(|text| text.contains("200 OK")) {
        assert!(start.elapsed() < Duration::from_secs(20), "the server does not recover");
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("ends").success());
}

/// Returns whether a request gets no response within some seconds.
fn healthz_times_out(port: u16) -> bool {
    healthz(port)
        .is_err_and(|error| matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut))
}
