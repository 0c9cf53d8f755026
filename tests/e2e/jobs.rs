//! RayJobs with real Ray.

use serde_json::{Value, json};

use crate::user::{User, cluster};

fn job(mode: &str, script: &str) -> Value {
    json!({
        "submissionMode": mode,
        "entrypoint": format!("python -c \"{script}\""),
        "shutdownAfterJobFinishes": true,
        "rayClusterSpec": cluster(0),
    })
}

/// The status of a job that is over.
async fn end(user: &User, name: &str) -> Value {
    user.until("RayJob", name, |status| {
        let over = ["Complete", "Failed", "ValidationFailed"].iter().any(|s| status["jobDeploymentStatus"] == *s);
        over.then(|| status.clone())
    })
    .await
}

pub(crate) async fn a_job_by_http_succeeds(user: &User) {
    user.create("RayJob", "http", job("HTTPMode", "import ray; ray.init(); print(ray.get(ray.put(1)))")).await;
    let status = end(user, "http").await;
    assert_eq!((&status["jobDeploymentStatus"], &status["jobStatus"]), (&json!("Complete"), &json!("SUCCEEDED")));
}

pub(crate) async fn a_job_by_a_submitter_pod_succeeds(user: &User) {
    user.create("RayJob", "pod", job("K8sJobMode", "print('from the pod')")).await;
    let status = end(user, "pod").await;
    assert_eq!((&status["jobDeploymentStatus"], &status["jobStatus"]), (&json!("Complete"), &json!("SUCCEEDED")));
}

pub(crate) async fn a_job_that_fails_says_so(user: &User) {
    user.create("RayJob", "bad", job("HTTPMode", "raise SystemExit(3)")).await;
    let status = end(user, "bad").await;
    assert_eq!((&status["jobDeploymentStatus"], &status["jobStatus"]), (&json!("Failed"), &json!("FAILED")));
    assert_eq!(status["reason"], "AppFailed");
    assert!(status["message"].as_str().is_some_and(|m| m.contains("exit code 3")), "{}", status["message"]);
}
