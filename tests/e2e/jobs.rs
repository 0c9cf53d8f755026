//! RayJobs with real Ray.

use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::user::{User, head_only, poll};

/// Waits until a job has finished and returns its status.
async fn wait_until_finished(user: &User, name: &str) -> Value {
    user.until("RayJob", name, |status| {
        let over = ["Complete", "Failed", "ValidationFailed"].iter().any(|s| status["jobDeploymentStatus"] == *s);
        over.then(|| status.clone())
    })
    .await
}

pub(crate) async fn succeeds(user: &User, name: &str) {
    let status = wait_until_finished(user, name).await;
    let ended = (&status["jobDeploymentStatus"], &status["jobStatus"]);
    assert_eq!(ended, (&json!("Complete"), &json!("SUCCEEDED")), "{status}");
}

pub(crate) async fn a_job_with_a_submitter_pod_succeeds(user: &User) {
    user.apply_example("rayjob-submitter.yaml").await;
    succeeds(user, "sum").await;
    let submitter = user.pods_with("job-name=sum").await.pop().expect("the submitter's pod").name_any();
    let log = user.pods().logs(&submitter, &kube::api::LogParams::default()).await.expect("a log");
    assert!(log.contains("sum: 6"), "{log}");
}

pub(crate) async fn a_job_with_a_sidecar_succeeds(user: &User) {
    user.apply_example("rayjob-sidecar.yaml").await;
    succeeds(user, "beside").await;
}

pub(crate) async fn an_interactive_job_succeeds(user: &User) {
    user.apply_example("rayjob-interactive.yaml").await;
    let cluster = user
        .until("RayJob", "by-hand", |status| {
            let waits = status["jobDeploymentStatus"] == "Waiting";
            status["rayClusterName"].as_str().filter(|_| waits).map(str::to_owned)
        })
        .await;
    let head = user.head(&cluster).await.name_any();
    let submit = "ray job submit --submission-id mine --no-wait -- python -c 'print(1)'";
    let ran = user.run_in(&head, "ray-head", &["bash", "-c", submit]).await;
    assert!(ran.ok, "{ran:?}");
    user.patch("RayJob", "by-hand", json!({"spec": {"jobId": "mine"}})).await;
    succeeds(user, "by-hand").await;
}

pub(crate) async fn a_failing_job_is_retried_and_reports_the_reason(user: &User) {
    user.apply_example("rayjob-retry.yaml").await;
    let first = user.until("RayJob", "stubborn", |s| s["rayClusterName"].as_str().map(str::to_owned)).await;
    let status = wait_until_finished(user, "stubborn").await;
    assert_eq!((&status["jobDeploymentStatus"], &status["jobStatus"]), (&json!("Failed"), &json!("FAILED")));
    assert_eq!(
        (&status["failed"], &status["succeeded"], &status["reason"]),
        (&json!(2), &json!(0), &json!("AppFailed"))
    );
    assert!(status["message"].as_str().is_some_and(|m| m.contains("exit code 3")), "{}", status["message"]);
    assert_ne!(status["rayClusterName"], first, "the second attempt had a cluster of its own");
}

pub(crate) async fn a_schedule_creates_jobs(user: &User) {
    user.apply_example("raycronjob.yaml").await;
    let jobs = user.ray("RayJob");
    let job = poll(|| async { jobs.list(&ListParams::default()).await.expect("jobs").items.pop() }).await;
    // One job is enough; the next minute would create another.
    user.patch("RayCronJob", "minutely", json!({"spec": {"suspend": true}})).await;
    succeeds(user, &job.name_any()).await;
}

/// The output is kept although the cluster, which asks for a token, goes with the job. It is printed, too.
pub(crate) async fn output_is_kept_of_jobs_without_a_submitter(user: &User) {
    let mut cluster = head_only();
    cluster["authOptions"] = json!({"mode": "token"});
    for (name, cluster) in [("open", head_only()), ("closed", cluster)] {
        let job = json!({
            "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster,
            "entrypoint": format!("echo said by {name}"),
        });
        user.create("RayJob", name, job).await;
        succeeds(user, name).await;
        let text = format!("said by {name}");
        let kept = poll(|| async {
            let printed = user.printed();
            printed.iter().find(|line| line.contains(&format!("/{name} ")) && line.contains("output ")).cloned()
        })
        .await;
        let file = kept.split_once("output kept in ").unwrap_or_else(|| panic!("{kept}")).1;
        let output = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(output.contains(&text), "{output}");
        let shown = user.printed();
        assert!(shown.iter().any(|line| line.contains(&format!("| {text}"))), "{}", shown.join("\n"));
    }
}
