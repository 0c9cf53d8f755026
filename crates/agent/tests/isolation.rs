//! Containers in the node's namespaces are isolated from the host and from each other, reach each other by
//! network, and leave nothing behind.

#![allow(clippy::print_stdout, reason = "the report of a test without a harness")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use k8s_openapi::api::core::v1::{Container, Pod};
use manta_agent::runtime::confinement::Confinement;
use manta_agent::runtime::isolation::Spawners;
use manta_agent::runtime::rootfs::{self, RootfsSpec};
use manta_agent::runtime::user_namespace::IdMap;
use manta_agent::runtime::{ContainerJob, ExecJob, IsolatedProcess, Process, Stdio, enter_namespaces};
use manta_agent::{network, security_context};
use manta_testkit::Tally;
use tokio::io::AsyncReadExt;

fn main() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().to_path_buf();
    let folder = path.display().to_string();
    let mut tally = Tally::default();
    let began = Instant::now();
    match enter_namespaces(move |process| run(process, &path)) {
        Ok(code) => {
            let left = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
            tally.record(
                "namespaces_isolate_containers_and_leave_nothing_behind",
                code == 0 && !left.contains(&folder),
                began.elapsed(),
            );
        }
        Err(error) => tally.skip("namespaces_isolate_containers_and_leave_nothing_behind", &error.to_string()),
    }
    drop(dir);
    std::process::exit(i32::from(!tally.finish()));
}

fn run(process: IsolatedProcess, dir: &Path) -> i32 {
    println!("isolation: {:?}", process.isolation);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
    runtime.block_on(async {
        let spawners = process.connect().expect("spawners");
        network::prepare_node_network().expect("network");
        apart(&spawners, dir).await;
        together(&spawners, dir).await;
        ports_of_the_machine(&spawners).await;
    });
    0
}

async fn apart(spawners: &Spawners, dir: &Path) {
    let (mut a, out) = start(
        spawners,
        dir,
        "a",
        "10.244.0.2",
        "hostname; echo $$; ls /tmp; touch /tmp/x; ls /tmp; echo $HOME; ls /proc | grep -c '^[0-9]*$'",
    )
    .await;
    let code = a.wait().await.code();
    assert_eq!(
        (code, &*read(out).await),
        (0, "pod-a\n1\nx\n/home/ray\n3\n"),
        "own name, PID 1, an empty /tmp, own processes"
    );
    let failed = start_result(spawners, dir, "b", "10.244.0.9", &["no-such-program"]).await;
    assert_eq!(failed.err().as_deref(), Some("exec: \"no-such-program\": executable file not found in $PATH"));
}

async fn together(spawners: &Spawners, dir: &Path) {
    let server = "exec python3 -m http.server 8000 --bind 0.0.0.0 --directory /etc";
    let (server, _out) = start(spawners, dir, "c", "10.244.0.3", server).await;
    let fetch = "until (exec 3<>/dev/tcp/10.244.0.3/8000) 2>/dev/null; do :; done; exec 3<>/dev/tcp/10.244.0.3/8000; \
                 printf 'GET /hosts-none HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3";
    let (mut client, out) = start(spawners, dir, "d", "10.244.0.4", fetch).await;
    assert_eq!(client.wait().await.code(), 0);
    let text = read(out).await;
    assert!(text.contains("404"), "pods reach each other: {text}");

    let stream = tokio::net::TcpStream::connect("10.244.0.3:8000").await;
    assert!(stream.is_ok(), "the node reaches pods");

    let (mut receive, stdio) = pipes();
    let job = ExecJob {
        argv: ["sh", "-c", "ls /proc/1/exe >/dev/null && hostname; exit 7"].map(str::to_owned).to_vec(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/".into(),
        target: Some(server.pid),
        cgroups: vec![],
        confinement: confinement(),
        tty: false,
    };
    let mut inside = spawners.containers.exec(job, stdio).await.expect("exec");
    assert_eq!(inside.wait().await.code(), 7);
    let mut text = String::new();
    receive.read_to_string(&mut text).await.expect("output");
    assert_eq!(text, "pod-c\n");

    let mut server = server;
    spawners.containers.kill(server.id, 9);
    assert_eq!(server.wait().await.code(), 137);
}

async fn ports_of_the_machine(spawners: &Spawners) {
    let address: SocketAddr = "127.0.0.1:0".parse().expect("address");
    let listener = spawners.host.listen(address).await.expect("a port of the machine");
    let here = tokio::net::TcpStream::connect(listener.local_addr().expect("address")).await;
    assert!(here.is_err(), "the host's loopback is not the node's");
}

async fn start(
    spawners: &Spawners,
    dir: &Path,
    name: &str,
    ip: &str,
    script: &str,
) -> (Process, tokio::net::unix::pipe::Receiver) {
    start_result(spawners, dir, name, ip, &["bash", "-c", script]).await.expect("a container")
}

async fn start_result(
    spawners: &Spawners,
    dir: &Path,
    name: &str,
    ip: &str,
    argv: &[&str],
) -> Result<(Process, tokio::net::unix::pipe::Receiver), String> {
    let pod =
        network::create_pod(ip.parse().expect("ip"), format!("pod-{name}"), Vec::new()).await.expect("namespaces");
    let root: PathBuf = dir.join(name);
    std::fs::create_dir_all(&root).expect("root");
    let owner = IdMap::detect().owner(0, 0);
    std::os::unix::fs::chown(&root, Some(owner.uid), Some(owner.gid)).expect("an owner");
    let wanted = RootfsSpec { dirs: vec!["/home/ray".into()], root: owner, user: owner, ..RootfsSpec::default() };
    let job = ContainerJob {
        argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        env: [("PATH", "/usr/bin:/bin"), ("HOME", "/home/ray")].map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
        cwd: "/home/ray".into(),
        root: Some(root),
        overlay: None,
        mounts: rootfs::plan(&wanted, &rootfs::look, &rootfs::list),
        cgroups: vec![],
        confinement: confinement(),
        tty: false,
    };
    let (out, stdio) = pipes();
    let process = spawners.containers.container(job, stdio, &pod.namespaces()).await.map_err(|e| e.to_string())?;
    Ok((process, out))
}

fn confinement() -> Confinement {
    let (pod, container) = (Pod::default(), Container::default());
    security_context::confinement(&pod, &container, (0, 0), IdMap::detect()).expect("the default")
}

fn pipes() -> (tokio::net::unix::pipe::Receiver, Stdio) {
    let (sender, receiver) = tokio::net::unix::pipe::pipe().expect("pipe");
    let stdio = Stdio::output_to(sender.into_blocking_fd().expect("fd")).expect("stdio");
    (receiver, stdio)
}

async fn read(mut out: tokio::net::unix::pipe::Receiver) -> String {
    let mut text = String::new();
    out.read_to_string(&mut text).await.expect("output");
    text
}
