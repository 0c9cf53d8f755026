//! The other commands beside a running local mode.

use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use serde_json::Value;

use crate::kills::family;
use crate::up::{MANTA, Up, folder, wait_for};

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: first}, \
                   spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: ['true']}]}}";

const CLUSTER: &str = "{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: demo}, spec: {headGroupSpec: \
                       {rayStartParams: {}, template: {spec: {containers: [{name: head, image: busybox}]}}}}}";

fn manta(command: &str, folder: &std::path::Path, args: &[&str]) -> Command {
    let mut manta = Command::new(MANTA);
    manta.arg(command).args(args).env("MANTA_STATE", folder);
    manta
}

fn kubectl(folder: &std::path::Path, manifest: &std::path::Path) -> Output {
    let mut kubectl = Command::new(manta_testkit::find_kubectl().expect("kubectl"));
    kubectl.arg("--kubeconfig").arg(folder.join("kubeconfig")).arg("apply").arg("-f").arg(manifest);
    kubectl.stdin(Stdio::null()).output().expect("kubectl runs")
}

/// What `manta up -f` has applied belongs to `kubectl apply` afterwards, and what the operator would refuse is refused.
pub(crate) fn kubectl_applies_after_manta_up() {
    let folder = Arc::new(folder());
    let manifest = folder.path().join("cluster.yaml");
    let suspended = CLUSTER.replace("spec: {head", "spec: {suspend: true, head");
    std::fs::write(&manifest, &suspended).expect("a manifest");
    let mut up = Up::start(Arc::clone(&folder), &["--in-memory", "-f", manifest.to_str().expect("a path")]);
    up.until_printed("applied raycluster/demo");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for (manifest_text, expect) in
        [(suspended.clone(), "unchanged"), (suspended.replace("busybox", "alpine"), "configured")]
    {
        std::fs::write(&manifest, manifest_text).expect("a manifest");
        let applied = kubectl(folder.path(), &manifest);
        assert!(applied.status.success(), "{}", text(&applied.stderr));
        assert_eq!(text(&applied.stderr), "", "no warning");
        assert_eq!(text(&applied.stdout), format!("raycluster.ray.io/demo {expect}\n"));
    }
    let job = "{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: wrong}, spec: {entrypoint: 'true', \
               submissionMode: K8JobMode, rayClusterSpec: {headGroupSpec: {rayStartParams: {}, template: {spec: \
               {containers: [{name: head, image: busybox}]}}}}}}";
    std::fs::write(&manifest, job).expect("a manifest");
    let refused = kubectl(folder.path(), &manifest);
    let why = text(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("The RayJob spec is invalid: submissionMode \"K8JobMode\""),
        "{why}"
    );
}

/// Returns the objects of `manta status -o json` as `Kind name: state`.
fn objects(status: &Value) -> Vec<String> {
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let objects = status["objects"].as_array().into_iter().flatten();
    objects.map(|o| format!("{} {}: {}", text(o, "kind"), text(o, "name"), text(o, "state"))).collect()
}

/// `--watch` prints one document per change, and ends when local mode does.
pub(crate) fn status_follows_changes_until_local_mode_stops() {
    let folder = Arc::new(folder());
    let mut up = Up::start(Arc::clone(&folder), &["--in-memory"]);
    up.until_printed("local mode is up");
    let mut watch = manta("status", folder.path(), &["--watch", "-o", "json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("manta status");
    let output = watch.stdout.take().expect("its output");
    let mut seen =
        serde_json::Deserializer::from_reader(output).into_iter::<Value>().map(|status| status.expect("JSON"));
    let first = seen.next().expect("a document");
    assert_eq!((first["pid"].as_u64(), objects(&first)), (Some(u64::from(up.pid())), vec![]));

    let manifest = folder.path().join("pod.yaml");
    std::fs::write(&manifest, POD).expect("a manifest");
    let applied = manta("up", folder.path(), &["-f", manifest.to_str().expect("a path")]).output().expect("manta up");
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    assert!(seen.any(|status| objects(&status) == ["Pod first: Succeeded 0/1"]), "ended early");
    let once = manta("status", folder.path(), &[]).output().expect("manta status");
    assert!(String::from_utf8_lossy(&once.stdout).contains("Pod         default/first        Succeeded 0/1"));

    assert!(manta("down", folder.path(), &[]).status().expect("manta down").success());
    seen.for_each(drop);
    assert!(watch.wait().expect("its end").success());
    let stopped = manta("status", folder.path(), &["-o", "json"]).output().expect("manta status");
    assert_eq!((stopped.status.code(), &*stopped.stdout), (Some(1), &b"null\n"[..]));
}

/// What a start needs is given back: what stays is the operator, the agent and the API server with Ray's CRDs, one of
/// them in use.
pub(crate) fn local_mode_holds_little_memory_at_rest() {
    /// A debug build holds 19 MiB.
    const LIMIT_MIB: u64 = 30;
    let folder = Arc::new(folder());
    let manifest = folder.path().join("cluster.yaml");
    std::fs::write(&manifest, CLUSTER.replace("spec: {head", "spec: {suspend: true, head")).expect("a manifest");
    let mut up = Up::start(Arc::clone(&folder), &["--in-memory", "-f", manifest.to_str().expect("a path")]);
    up.until_printed("suspended");
    wait_for(|| (largest_process_mib(up.pid()) <= LIMIT_MIB).then_some(()));
}

/// Returns the memory that the largest process of a family does not share with files.
fn largest_process_mib(root: u32) -> u64 {
    let kib = |pid: u32| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    family(root).into_iter().filter_map(kib).max().expect("local mode runs") / 1024
}

/// Without its operator local mode leaves Ray's resources alone, and another operator can serve them.
pub(crate) fn another_operator_runs_instead() {
    let folder = Arc::new(folder());
    let manifest = folder.path().join("objects.yaml");
    std::fs::write(&manifest, format!("{CLUSTER}\n---\n{POD}\n")).expect("a manifest");
    let args = ["--in-memory", "--no-operator", "-f", manifest.to_str().expect("a path")];
    let mut up = Up::start(Arc::clone(&folder), &args);
    // The pod was applied after the cluster, and has been scheduled, run and reported since.
    up.until_printed("Succeeded 0/1");
    let status = || {
        let printed = manta("status", folder.path(), &["-o", "json"]).output().expect("manta status").stdout;
        objects(&serde_json::from_slice(&printed).expect("JSON"))
    };
    assert_eq!(status(), ["RayCluster demo: ", "Pod first: Succeeded 0/1"]);

    let kubeconfig = folder.path().join("kubeconfig");
    let mut other = Command::new(MANTA);
    other.args(["operator", "--metrics-addr=0", "--health-probe-bind-address=0", "--use-kubernetes-proxy"]);
    other.arg("--kubeconfig").arg(&kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
    let mut other = other.spawn().expect("manta operator");
    wait_for(|| status().iter().any(|object| object.starts_with("Pod demo-head")).then_some(()));
    other.kill().expect("killed");
    other.wait().expect("ended");
}
