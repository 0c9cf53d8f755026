//! An acknowledged write survives the death of the process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use manta_apiserver::store::{ObjectKey, Store, Write};

const CHILD: &str = "MANTA_DURABILITY_CHILD";

/// Not a test by itself: the process that is killed. It prints a name only once its object is safe.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = Store::open(directory.as_ref()).expect("the store opens");
    runtime.block_on(async {
        for index in 0_u64.. {
            let name = format!("pod-{index}");
            let value = serde_json::json!({"metadata": {"name": name}});
            let entry = store.commit(&"pods".into(), ObjectKey::new("n", &name), Write::Create(value)).expect("new");
            store.wait_visible(entry.revision).await.expect("written");
            #[allow(clippy::print_stdout)]
            {
                println!("safe {name}");
            }
        }
    });
}

#[test]
fn acknowledged_writes_survive_sigkill() {
    let directory = tempfile::tempdir().expect("a folder");
    let mut safe: Vec<String> = Vec::new();
    for round in 1..=3_usize {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, directory.path().join(round.to_string()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the child runs");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let names = lines.map_while(Result::ok).filter_map(|line| line.split("safe ").nth(1).map(str::to_owned));
        safe.clear();
        safe.extend(names.take(40 * round));
        child.kill().expect("SIGKILL");
        child.wait().expect("it ends");
        let store = Store::open(&directory.path().join(round.to_string())).expect("the store opens after a kill");
        for name in &safe {
            assert!(store.get("pods", &ObjectKey::new("n", name)).is_some(), "{name} was acknowledged and is lost");
        }
        assert!(safe.len() == 40 * round, "round {round} wrote too little");
    }
}
