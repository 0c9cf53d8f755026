//! Pods and the Internet: what a `runtime_env` downloads, with and without access.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::jobs;
use crate::up::folder;
use crate::user::{Machine, User, head_only, poll};

/// A small package of pure Python without dependencies.
const PACKAGE: &str = "emoji";

/// Returns why packages cannot be downloaded on this machine.
pub(crate) fn lacks() -> Option<String> {
    let target = tempfile::tempdir().expect("a folder");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "-d"]).arg(target.path()).arg(PACKAGE);
    let found = pip.output().is_ok_and(|output| output.status.success());
    (!found).then(|| format!("no package index offers {PACKAGE} to this machine"))
}

/// Ray installs the package for the job. Its output is kept although the cluster goes with the job.
pub(crate) async fn pip_in_a_runtime_env_works() {
    let folder = Arc::new(folder());
    let machine = Machine::run(Arc::clone(&folder), &["--in-memory", "--internet"]).await;
    let user = machine.user_of("default");
    let job = json!({
        "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true, "rayClusterSpec": head_only(),
        "runtimeEnvYAML": format!("pip: [{PACKAGE}]"),
        "entrypoint": format!("python -c \"import {PACKAGE}; print('imported', {PACKAGE}.__name__)\""),
    });
    user.create("RayJob", "downloads", job).await;
    jobs::succeeds(&user, "downloads").await;
    let outputs = folder.path().join("job-output");
    poll(|| async {
        let files = std::fs::read_dir(&outputs).ok()?.flatten();
        let mut texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        texts.any(|text| text.contains("imported emoji")).then_some(())
    })
    .await;
}

/// The event comes with the object, long before Ray could try.
pub(crate) async fn a_runtime_env_that_downloads_is_answered_at_once(user: &User) {
    let job = json!({"suspend": true, "rayClusterSpec": head_only(), "entrypoint": "true",
                     "shutdownAfterJobFinishes": true, "runtimeEnvYAML": format!("pip: [{PACKAGE}]")});
    user.create("RayJob", "downloads", job).await;
    is_told(user).await;
}

/// Waits for the event that says what to do.
async fn is_told(user: &User) {
    let events: Api<Event> = Api::namespaced(user.client.clone(), &user.namespace);
    let message = poll(|| async {
        let all = events.list(&ListParams::default()).await.expect("events").items;
        all.into_iter().find(|event| event.reason.as_deref() == Some("NoInternet"))?.message
    })
    .await;
    assert!(message.contains("runtime_env has pip") && message.contains("manta up --internet"), "{message}");
}

/// With its defaults, pip would try for minutes.
pub(crate) async fn a_job_that_cannot_download_fails_soon(user: &User) {
    /// Generous, because the machine may be busy.
    const LIMIT: Duration = Duration::from_secs(60);
    let job = json!({
        "submissionMode": "HTTPMode", "rayClusterSpec": head_only(), "entrypoint": "true",
        "shutdownAfterJobFinishes": true, "runtimeEnvYAML": format!("pip: [{PACKAGE}]"),
    });
    user.create("RayJob", "downloads", job).await;
    is_told(user).await;
    user.until("RayJob", "downloads", |status| status["jobStatus"].as_str().map(|_| ())).await;
    let submitted = Instant::now();
    let message = user
        .until("RayJob", "downloads", |status| {
            (status["jobStatus"] == "FAILED").then(|| status["message"].as_str().unwrap_or_default().to_owned())
        })
        .await;
    let took = submitted.elapsed();
    assert!(took < LIMIT && message.contains("runtime_env"), "{took:?}: {message}");
}
