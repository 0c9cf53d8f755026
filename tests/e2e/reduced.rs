//! Local mode on a machine that does not allow namespaces.

use std::process::Command;
use std::sync::Arc;

use crate::up::{MANTA, Up, folder};
use crate::user::{example, head_only};
use serde_json::json;

/// Runs the program in a network namespace in which no further ones can be created: it finds no namespaces to use, and
/// its ports conflict with nobody's.
const SCRIPT: &str = "ip link set lo up && echo 0 > /proc/sys/user/max_net_namespaces && \
                      exec \"$0\" up --in-memory --port 0 --state \"$1\" -f \"$1/cluster.json\" -f \"$1/job.json\" 2>&1";

/// Returns what the test itself lacks on this machine.
pub(crate) fn lacks() -> Option<String> {
    let works = Command::new("unshare").args(["--map-root-user", "--net", "ip", "link", "set", "lo", "up"]).output();
    (!works.is_ok_and(|output| output.status.success()))
        .then(|| "no unshare, or no ip, or no right to use them".to_owned())
}

pub(crate) fn ray_runs_with_reduced_isolation() {
    let folder = Arc::new(folder());
    let mut spec = head_only();
    spec["workerGroupSpecs"] = example("raycluster.yaml")[0]["spec"]["workerGroupSpecs"].clone();
    spec["workerGroupSpecs"][0]["replicas"] = json!(1);
    let object =
        |kind: &str, spec| json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "one"}, "spec": spec});
    let job = json!({"submissionMode": "HTTPMode", "clusterSelector": {"ray.io/cluster": "one"}, "entrypoint": COUNT});
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("a manifest");
    write("cluster.json", object("RayCluster", spec).to_string());
    write("job.json", object("RayJob", job).to_string());

    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", SCRIPT, MANTA]).arg(folder.path());
    let mut up = Up::spawn(command, Arc::clone(&folder));
    up.until_printed("REDUCED ISOLATION");
    up.until_printed("ready, 1/1 workers ready");
    let end = up.until_any_printed(&["Complete, ", "Failed, "], std::time::Duration::from_secs(300));
    assert!(end.contains("Complete, SUCCEEDED"), "{end}");
    let traces = crate::kills::Traces::of(up.pid(), folder.path());
    up.kill();
    crate::up::wait_for(|| traces.left().is_empty().then_some(()));
    // Usually the next start does this.
    manta_agent::clean_leftovers(folder.path());
}

/// A cluster, a job and a service, one after the other.
pub(crate) fn the_demo_runs_with_reduced_isolation() {
    let script = "ip link set lo up && echo 0 > /proc/sys/user/max_net_namespaces && exec \"$0\" demo";
    let output = Command::new("unshare").args(["--map-root-user", "--net", "sh", "-c", script, MANTA]).output();
    let output = output.expect("unshare");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("-> 200 \"hello manta\""), "{printed}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("REDUCED ISOLATION"), "{output:?}");
}

/// Fails unless both nodes are there.
const COUNT: &str = "python -c \"import ray; ray.init(); assert len(ray.nodes()) == 2\"";
