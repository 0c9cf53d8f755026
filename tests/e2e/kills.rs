//! `manta up` leaves nothing behind after SIGKILL, and the next start reports what it cleaned up.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use crate::up::{Up, folder, wait_for};

/// Few by default; `make kills` sets `MANTA_KILLS=100`.
fn rounds() -> usize {
    std::env::var("MANTA_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

pub(crate) fn sigkill_leaves_nothing_behind() {
    let mut folder = Arc::new(folder());
    let manifest = folder.path().join("pod.yaml");
    fs::write(&manifest, POD).expect("a manifest");
    let links = names_in(Path::new("/sys/class/net"));
    for round in 0..rounds() {
        let mut up = Up::start(Arc::clone(&folder), &["--in-memory", "-f", manifest.to_str().expect("a path")]);
        if round > 0 {
            up.until_printed("an earlier run");
        }
        // The moment of the kill varies.
        match round % 3 {
            0 => up.until_printed("Running 1/1"),
            1 => up.until_printed("applied"),
            _ => up.until_printed("local mode is up"),
        };
        let traces = Traces::of(up.pid(), folder.path());
        assert!(traces.processes.len() >= 3, "the processes are found: {traces:?}");
        folder = up.kill();
        // The kernel removes the namespaces at once, but not instantly.
        wait_for(|| traces.left().is_empty().then_some(()));
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        assert!(!mounts.contains(&*folder.path().to_string_lossy()), "no mount is left");
        assert_eq!(names_in(Path::new("/sys/class/net")).difference(&links).count(), 0, "no link is left");
        TcpListener::bind(("127.0.0.1", traces.port)).expect("the port is free");
    }
    let mut up = Up::start(Arc::clone(&folder), &["--in-memory"]);
    up.until_printed("local mode is up");
    let traces = Traces::of(up.pid(), folder.path());
    drop(up);
    wait_for(|| traces.left().is_empty().then_some(()));
    assert!(!folder.path().join("pods").exists(), "pod folders are gone");
    assert_eq!(manta_agent::clean_leftovers(folder.path()), None, "control groups are gone");
    println!("{} rounds, nothing left behind", rounds());
}

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: sleeper}
spec:
  containers:
  - {name: c, image: busybox, command: [sh, -c, "sleep 1000 & sleep 1000"]}
  volumes:
  - {name: m, emptyDir: {medium: Memory}}
"#;

/// The processes, namespaces and the port of a running local mode.
#[derive(Debug)]
pub(crate) struct Traces {
    /// Process ids with their start times, because ids are reused.
    processes: BTreeSet<(u32, String)>,
    /// Namespaces that are not this test's own.
    namespaces: BTreeSet<String>,
    port: u16,
}

impl Traces {
    pub(crate) fn of(root: u32, folder: &Path) -> Self {
        let (all, family) = (processes(), family(root));
        let own = namespaces(std::process::id());
        let kubeconfig = fs::read_to_string(folder.join("kubeconfig")).expect("a kubeconfig");
        let port = kubeconfig.split("https://127.0.0.1:").nth(1).expect("an address");
        let port = port.chars().take_while(char::is_ascii_digit).collect::<String>();
        Self {
            namespaces: family.iter().flat_map(|pid| namespaces(*pid)).filter(|n| !own.contains(n)).collect(),
            processes: family.iter().filter_map(|pid| Some((*pid, all.get(pid)?.start_time.clone()))).collect(),
            port: port.parse().expect("a port"),
        }
    }

    /// Returns what still exists.
    pub(crate) fn left(&self) -> Vec<String> {
        let all = processes();
        let alive =
            self.processes.iter().filter(|(pid, start_time)| all.get(pid).is_some_and(|p| p.start_time == *start_time));
        let held: BTreeSet<String> = all.keys().flat_map(|pid| namespaces(*pid)).collect();
        let alive = alive.map(|(pid, _)| format!("process {pid}"));
        let held = self.namespaces.intersection(&held).map(|n| format!("namespace {n}"));
        alive.chain(held).collect()
    }
}

/// Returns a process and all that it started.
pub(crate) fn family(root: u32) -> BTreeSet<u32> {
    let all = processes();
    let mut family = BTreeSet::from([root]);
    // Parents do not always have smaller ids, so repeat until nothing new is found.
    loop {
        let children = all.iter().filter(|(pid, p)| family.contains(&p.parent) && !family.contains(pid));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        if children.is_empty() {
            return family;
        }
        family.extend(children);
    }
}

struct Process {
    parent: u32,
    start_time: String,
}

fn processes() -> HashMap<u32, Process> {
    let ids = names_in(Path::new("/proc"));
    ids.iter().filter_map(|name| Some((name.parse().ok()?, process(name)?))).collect()
}

fn process(pid: &str) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything; the state follows.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    Some(Process { parent, start_time: (*fields.get(19)?).to_owned() })
}

fn namespaces(pid: u32) -> BTreeSet<String> {
    let links = ["net", "pid", "mnt", "ipc", "uts"].map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")));
    links.into_iter().filter_map(|link| link.ok()?.to_str().map(str::to_owned)).collect()
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).collect()
}
