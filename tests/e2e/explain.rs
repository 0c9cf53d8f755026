//! `manta explain`, `manta history` and `manta logs` with real Ray: every cause is made, and the first line names it.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::up::MANTA;
use crate::user::{User, head_only, poll};

/// Runs a command in the user's namespace and returns its stdout, if it succeeds.
async fn manta(user: &User, args: &[&str]) -> Option<String> {
    let mut command = Command::new(MANTA);
    command.args(args).args(["-n", &user.namespace]).env("KUBECONFIG", &user.kubeconfig);
    let output = command.output().await.expect("manta");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until the first line of an explanation contains a text. Returns the whole.
pub(crate) async fn until_explained(user: &User, name: &str, expect: &str) -> String {
    let last = std::sync::Mutex::new(String::new());
    let explained = poll(|| async {
        let text = manta(user, &["explain", name]).await?;
        let first = text.lines().next().unwrap_or_default();
        let mut last = last.lock().expect("no panic");
        if *last != first {
            println!("{name}: {first}");
            first.clone_into(&mut last);
        }
        first.contains(expect).then_some(text)
    });
    explained.await
}

/// Returns the spec of a cluster whose head differs.
fn head_with(change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = head_only();
    change(&mut spec["headGroupSpec"]);
    spec
}

fn container_with(key: &str, value: Value) -> Value {
    head_with(|head| head["template"]["spec"]["containers"][0][key] = value)
}

/// Returns the spec of a job on the cluster `shared`.
fn job(entrypoint: &str) -> Value {
    json!({"submissionMode": "HTTPMode", "clusterSelector": {"ray.io/cluster": "shared"}, "entrypoint": entrypoint})
}

fn with(mut spec: Value, key: &str, value: Value) -> Value {
    spec[key] = value;
    spec
}

pub(crate) async fn the_first_line_names_the_cause(user: &User) {
    user.create("RayCluster", "shared", head_only()).await;
    let clusters = [
        ("image", container_with("image", json!("corp.example/unknown:1")), "has no local environment"),
        ("cpu", container_with("resources", json!({"requests": {"cpu": "900"}})), "1 Insufficient cpu"),
        ("memory", container_with("resources", json!({"requests": {"memory": "900Ti"}})), "1 Insufficient memory"),
        (
            "node",
            head_with(|head| head["template"]["spec"]["nodeSelector"] = json!({"zone": "a"})),
            "node affinity/selector",
        ),
        ("secret", container_with("envFrom", json!([{"secretRef": {"name": "absent"}}])), "not found"),
        (
            "mount",
            head_with(|head| {
                head["template"]["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "absent"}}])
            }),
            "A volume of the head Pod",
        ),
        ("option", head_with(|head| head["rayStartParams"] = json!({"nope": "1"})), "No such option"),
        (
            "oom",
            container_with("resources", json!({"requests": {"cpu": "100m"}, "limits": {"memory": "48Mi"}})),
            "needed more memory than its limit of 48Mi",
        ),
        ("suspended", with(head_only(), "suspend", json!(true)), "RayCluster suspended is suspended"),
    ];
    for (name, spec, _) in &clusters {
        user.create("RayCluster", name, spec.clone()).await;
    }
    user.create("RayJob", "selects", with(job("true"), "clusterSelector", json!({"ray.io/cluster": "absent"}))).await;
    for (name, _, expect) in &clusters {
        until_explained(user, &format!("cluster/{name}"), expect).await;
        user.delete("RayCluster", name).await;
    }
    until_explained(user, "job/selects", "its clusterSelector ray.io/cluster=absent names, and there is none").await;

    user.until_ready("shared").await;
    let raises = "python -c \"raise ValueError('bad batch')\"";
    let starves = "python -c \"import ray; ray.init(); ray.get(ray.remote(num_gpus=1)(lambda: 1).remote())\"";
    let jobs = [
        ("raises", job(raises), "its program raised ValueError: bad batch."),
        ("imports", job("python -c 'import nowhere'"), "ModuleNotFoundError: No module named 'nowhere'."),
        ("command", job("nowhere --now"), "names a command that does not exist"),
        ("script", job("python nowhere.py"), "names a file that does not exist"),
        ("code", job("sh -c 'echo giving up; exit 7'"), "ended with exit code 7: giving up."),
        ("deadline", with(job("sleep 600"), "activeDeadlineSeconds", json!(20)), "activeDeadlineSeconds of 20."),
        ("starves", job(starves), "Ray has no room on RayCluster shared for {"),
        ("stopped", job("sleep 600"), "was stopped by a request to Ray."),
    ];
    for (name, spec, _) in &jobs {
        user.create("RayJob", name, spec.clone()).await;
    }
    let is_running =
        |status: &Value| (status["jobStatus"] == "RUNNING").then(|| status["jobId"].as_str().map(str::to_owned));
    let id = user.until("RayJob", "stopped", is_running).await.expect("an id");
    manta(user, &["job", "stop", &id, "-c", "shared"]).await.expect("stopped");
    for (name, _, expect) in &jobs {
        let text = until_explained(user, &format!("job/{name}"), expect).await;
        assert!(text.contains("\nWhat to do: ") && text.contains("\nTimeline:\n"), "{text}");
    }
}

pub(crate) async fn a_failed_job_is_explained_after_its_end(user: &User) {
    let raises = "python -c \"import os; print('A is', os.environ['A']); raise ValueError('bad batch')\"";
    let spec = json!({
        "submissionMode": "HTTPMode", "entrypoint": raises, "shutdownAfterJobFinishes": true, "ttlSecondsAfterFinished": 0,
        "rayClusterSpec": container_with("env", json!([{"name": "A", "value": "marker-of-the-environment"}])),
    });
    user.create("RayJob", "train", spec).await;
    let cluster = user.until("RayJob", "train", |status| status["rayClusterName"].as_str().map(str::to_owned)).await;
    user.until("RayJob", "train", |status| (status["jobDeploymentStatus"] == "Failed").then_some(())).await;
    let clusters = user.ray("RayCluster");
    poll(|| async { clusters.get_opt(&cluster).await.expect("the API").is_none().then_some(()) }).await;

    let first_line = "RayJob train failed because its program raised ValueError: bad batch.";
    let alive = until_explained(user, "job/train", first_line).await;
    assert!(alive.contains("Traceback (most recent call last)"), "{alive}");
    user.delete("RayJob", "train").await;
    let gone = until_explained(user, "job/train", first_line).await;
    assert!(gone.contains("Traceback (most recent call last)") && gone.contains("the operator's record"), "{gone}");
    assert!(gone.contains("A is [redacted]") && !gone.contains("marker-of-the-environment"), "{gone}");
    let logs = manta(user, &["logs", "job/train"]).await.expect("a log");
    assert!(logs.contains("A is [redacted]") && logs.contains("ValueError: bad batch"), "{logs}");
    let history = manta(user, &["history"]).await.expect("a list");
    assert!(history.contains("rayjob/train") && history.contains(first_line), "{history}");
}
