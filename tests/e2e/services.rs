//! RayServices with real Ray.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{LogParams, PostParams};
use serde_json::{Value, json};

use crate::explain::until_explained;
use crate::up::MANTA;
use crate::user::{User, example, head_only, poll};

pub(crate) async fn an_upgrade_fails_no_request(user: &User) {
    user.apply_example("rayservice.yaml").await;
    let first = serving(user).await;
    start_load(user, LOAD).await;
    answered(user, "hello world").await;

    let config = example("rayservice.yaml")[1]["spec"]["serveConfigV2"].as_str().expect("a config").to_owned();
    let changed = config.replace("greeting: hello", "greeting: good morning");
    user.patch("RayService", "greeter", json!({"spec": {"serveConfigV2": changed}})).await;
    answered(user, "good morning world").await;
    assert_eq!(serving(user).await, first, "the same cluster, with another configuration");

    let upgrade = json!({"spec": {
        "rayClusterDeletionDelaySeconds": 3,
        "rayClusterConfig": {"headGroupSpec": {"rayStartParams": {"num-cpus": "2"}}},
        "serveConfigV2": config.replace("greeting: hello", "greeting: welcome"),
    }});
    user.patch("RayService", "greeter", upgrade).await;
    answered(user, "welcome world").await;
    let second = poll(|| async { Some(serving(user).await).filter(|name| *name != first) }).await;
    poll(|| async { user.ray("RayCluster").get_opt(&first).await.expect("the API").is_none().then_some(()) }).await;
    let before = requests(user).await;
    poll(|| async { (requests(user).await > before + 20).then_some(()) }).await;
    assert_eq!(serving(user).await, second);
    crate::terminal::a_session_reaches_serve(user, "greeter", "welcome world").await;
    let log = load(user).await;
    let failures: Vec<&str> = log.lines().filter(|line| line.starts_with("failed")).collect();
    assert_eq!(failures, [] as [&str; 0], "of {} requests", requests(user).await);
}

/// Python's error reaches the condition, and fits on a line of `manta status`.
pub(crate) async fn a_wrong_import_path_is_reported(user: &User) {
    let config = "applications: [{name: app, import_path: 'nowhere:app', route_prefix: /}]";
    user.create("RayService", "wrong", json!({"serveConfigV2": config, "rayClusterConfig": head_only()})).await;
    let message = user
        .until("RayService", "wrong", |status| {
            let conditions = status["conditions"].as_array()?;
            let failed = conditions.iter().find(|c| c["type"] == "ApplicationsFailed" && c["status"] == "True")?;
            failed["message"].as_str().map(str::to_owned)
        })
        .await;
    let error = "ModuleNotFoundError: No module named 'nowhere'";
    assert!(message.starts_with("app: ") && message.contains(error), "{message}");
    let state = user.kubeconfig.parent().expect("the state directory");
    let shown = tokio::process::Command::new(MANTA).args(["status", "--state"]).arg(state).output().await;
    let shown = String::from_utf8(shown.expect("manta status").stdout).expect("text");
    let line = shown.lines().find(|line| line.contains(&format!("{}/wrong ", user.namespace))).expect("its line");
    assert!(line.contains("app DEPLOY_FAILED") && line.contains(error), "{shown}");
    until_explained(user, "service/wrong", &format!("app of RayService wrong cannot be deployed: {error}")).await;
}

/// Waits until the service is ready and returns its active cluster.
async fn serving(user: &User) -> String {
    user.until("RayService", "greeter", |status| {
        let name = status["activeServiceStatus"]["rayClusterName"].as_str()?;
        (is_ready(status) && !name.is_empty()).then(|| name.to_owned())
    })
    .await
}

fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Starts a pod that runs a program which sends requests continuously, and prints the responses.
pub(crate) async fn start_load(user: &User, program: &str) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "load"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [
            {"name": "load", "image": "rayproject/ray:2.60.0", "command": ["python", "-c", program]},
        ]},
    }))
    .expect("a pod");
    user.pods().create(&PostParams::default(), &pod).await.expect("created");
}

/// Calls the service with a new connection each time.
pub(crate) const LOAD: &str = "
import time, urllib.request
number = 0
while True:
    number += 1
    try:
        answer = urllib.request.urlopen('http://greeter-serve-svc:8000/', timeout=60).read().decode()
        print(number, answer, flush=True)
    except Exception as error:
        print('failed', number, time.time(), repr(error), flush=True)
    time.sleep(0.05)
";

/// Returns the log of the load pod.
async fn load(user: &User) -> String {
    user.pods().logs("load", &LogParams::default()).await.unwrap_or_default()
}

async fn requests(user: &User) -> usize {
    load(user).await.lines().count()
}

async fn answered(user: &User, text: &str) {
    let last = LogParams { tail_lines: Some(1), ..LogParams::default() };
    poll(|| async { user.pods().logs("load", &last).await.ok()?.contains(text).then_some(()) }).await;
}
