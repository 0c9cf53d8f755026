//! RayClusters with real Ray.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::jobs;
use crate::user::{User, head_only, is_ready, poll};

pub(crate) async fn kubectl_inspects_a_cluster_that_runs_a_job(user: &User) {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let cluster = format!("{examples}/raycluster.yaml");
    assert_eq!(kubectl(user, &["apply", "-f", &cluster]).await.trim(), "raycluster.ray.io/demo created");
    user.until_ready("demo").await;
    let head = user.head("demo").await.name_any();

    let log = kubectl(user, &["logs", &head]).await;
    assert!(log.contains("Ray runtime started"), "{log}");
    let nodes = kubectl(user, &["exec", &head, "--", "python", "-c", COUNT_NODES]).await;
    assert_eq!(nodes.trim(), "3");
    for worker in user.workers("demo").await {
        assert_confined(user, &worker.name_any()).await;
    }
    let response = through_a_forwarded_port(user, &head).await;
    assert!(response.contains("ray_version"), "{response}");

    user.apply_example("rayjob.yaml").await;
    jobs::succeeds(user, "hello").await;
}

/// Asserts the capabilities, the seccomp mode and `no_new_privs` of every process of a Ray worker.
async fn assert_confined(user: &User, pod: &str) {
    let script = "cat /proc/[0-9]*/status | grep -E '^(CapEff|CapBnd|Seccomp|NoNewPrivs):' | tr '\\t' ' ' | sort -u; \
                  grep -l raylet /proc/[0-9]*/comm | wc -l";
    let text = kubectl(user, &["exec", pod, "--", "sh", "-c", script]).await;
    let expect = "CapBnd: 00000000a80425fb\nCapEff: 00000000a80425fb\nNoNewPrivs: 1\nSeccomp: 2\n1\n";
    assert_eq!(text, expect, "{pod}");
}

const COUNT_NODES: &str = "import ray; ray.init(logging_level='error', log_to_driver=False); \
                           print(sum(n['Alive'] for n in ray.nodes()))";

/// Runs kubectl as this user and returns its stdout.
async fn kubectl(user: &User, args: &[&str]) -> String {
    let output = tokio::process::Command::from(kubectl_command(user)).args(args).output().await.expect("kubectl");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn kubectl_command(user: &User) -> Command {
    let mut command = Command::new(manta_testkit::find_kubectl().expect("kubectl"));
    command.arg("--kubeconfig").arg(&user.kubeconfig).args(["--namespace", &user.namespace]);
    command.arg("--cache-dir").arg(user.kubeconfig.with_file_name("kubectl-cache")).stdin(Stdio::null());
    command
}

/// Requests the dashboard's version through `kubectl port-forward`.
async fn through_a_forwarded_port(user: &User, pod: &str) -> String {
    let mut command = tokio::process::Command::from(kubectl_command(user));
    command.args(["port-forward", &format!("pod/{pod}"), ":8265"]).stdout(Stdio::piped()).kill_on_drop(true);
    let mut forward = command.spawn().expect("kubectl");
    let mut line = String::new();
    let mut lines = BufReader::new(forward.stdout.take().expect("its output"));
    lines.read_line(&mut line).await.expect("a line");
    let port = line.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    let port: u16 = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no port in {line:?}"));
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
    stream.write_all(b"GET /api/version HTTP/1.0\r\nHost: x\r\n\r\n").await.expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    forward.kill().await.expect("killed");
    response
}

pub(crate) async fn a_cluster_survives_head_loss_and_suspension(user: &User) {
    user.create("RayCluster", "brief", head_only()).await;
    user.until_ready("brief").await;
    user.lose_head("brief").await;
    user.until_ready("brief").await;

    user.patch("RayCluster", "brief", json!({"spec": {"suspend": true}})).await;
    user.until("RayCluster", "brief", |status| (status["state"] == "suspended").then_some(())).await;
    poll(|| async { user.pods_with("ray.io/cluster=brief").await.is_empty().then_some(()) }).await;
    user.patch("RayCluster", "brief", json!({"spec": {"suspend": false}})).await;
    user.until_ready("brief").await;
}

pub(crate) async fn token_authentication_is_enforced(user: &User) {
    user.apply_example("raycluster-auth.yaml").await;
    user.until_ready("closed").await;
    assert_eq!(user.python("closed", STATUS_WITHOUT_AND_WITH_TOKEN).await, "401 200");
    // The operator uses the token too.
    let job = json!({"submissionMode": "HTTPMode", "clusterSelector": {"ray.io/cluster": "closed"},
                     "entrypoint": "python -c \"print('inside')\""});
    user.create("RayJob", "guest", job).await;
    jobs::succeeds(user, "guest").await;
}

/// Lists the jobs without the token, then with it, and prints both status codes.
const STATUS_WITHOUT_AND_WITH_TOKEN: &str = "
import os, urllib.error, urllib.request
def ask(headers):
    try:
        request = urllib.request.Request('http://localhost:8265/api/jobs/', headers=headers)
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
print(ask({}), ask({'Authorization': 'Bearer ' + os.environ['RAY_AUTH_TOKEN']}))
";

pub(crate) async fn hosts_of_a_replica_are_replaced_together(user: &User) {
    user.apply_example("raycluster-multihost.yaml").await;
    user.until_ready("pairs").await;
    let first = user.workers("pairs").await;
    let label = |key: &str| -> BTreeSet<String> {
        first.iter().filter_map(|pod| pod.labels().get(&format!("ray.io/{key}")).cloned()).collect()
    };
    assert_eq!(label("replica-host-index"), BTreeSet::from(["0".to_owned(), "1".to_owned()]));
    assert_eq!(label("worker-group-replica-name").len(), 1, "both belong to one replica");

    user.pods().delete(&first[0].name_any(), &DeleteParams::default().grace_period(0)).await.expect("deleted");
    let before: BTreeSet<Option<String>> = first.iter().map(ResourceExt::uid).collect();
    poll(|| async {
        let now = user.workers("pairs").await;
        let all_new = now.iter().all(|pod| !before.contains(&pod.uid()) && is_ready(pod));
        (now.len() == 2 && all_new).then_some(())
    })
    .await;
    user.until_ready("pairs").await;
}
