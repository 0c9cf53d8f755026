//! RayClusters with real Ray.

use kube::ResourceExt;
use kube::api::{DeleteParams, LogParams, Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::user::{User, cluster, poll};

pub(crate) async fn a_cluster_becomes_ready_and_can_be_looked_into(user: &User) {
    user.create("RayCluster", "look", cluster(1)).await;
    user.until_ready("look").await;
    let head = user.head("look").await.name_any();
    let log = user.pods().logs(&head, &LogParams::default()).await.expect("a log");
    assert!(log.contains("Ray runtime started"), "{log}");
    let nodes = user.run_in(&head, &["python", "-c", COUNT_NODES]).await;
    assert_eq!(nodes.trim(), "2");

    let mut forward = user.pods().portforward(&head, &[8265]).await.expect("a forward");
    let mut stream = forward.take_stream(8265).expect("a stream");
    stream.write_all(b"GET /api/version HTTP/1.0\r\nHost: x\r\n\r\n").await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.contains("ray_version"), "{answer}");
}

const COUNT_NODES: &str = "import ray; ray.init(logging_level='error', log_to_driver=False); \
                           print(sum(n['Alive'] for n in ray.nodes()))";

pub(crate) async fn a_lost_head_comes_back(user: &User) {
    user.create("RayCluster", "lost", cluster(0)).await;
    user.until_ready("lost").await;
    let before = user.head("lost").await;
    user.pods().delete(&before.name_any(), &DeleteParams::default().grace_period(0)).await.expect("deleted");
    poll(|| async {
        let head = user.head("lost").await;
        let conditions = head.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let ready = conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True");
        (head.uid() != before.uid() && ready).then_some(())
    })
    .await;
    user.until_ready("lost").await;
}

pub(crate) async fn a_cluster_is_suspended_and_resumed(user: &User) {
    user.create("RayCluster", "pause", cluster(0)).await;
    user.until_ready("pause").await;
    suspend(user, true).await;
    user.until("RayCluster", "pause", |status| (status["state"] == "suspended").then_some(())).await;
    poll(|| async { user.pods_with("ray.io/cluster=pause").await.is_empty().then_some(()) }).await;
    suspend(user, false).await;
    user.until_ready("pause").await;
}

async fn suspend(user: &User, suspend: bool) {
    let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    user.ray("RayCluster").patch("pause", &PatchParams::default(), &patch).await.expect("patched");
}

pub(crate) async fn the_autoscaler_brings_workers(user: &User) {
    let mut spec = cluster(0);
    spec["enableInTreeAutoscaling"] = json!(true);
    spec["autoscalerOptions"] = json!({"idleTimeoutSeconds": 5, "version": "v2"});
    spec["headGroupSpec"]["rayStartParams"] = json!({"num-cpus": "0"});
    spec["headGroupSpec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    spec["workerGroupSpecs"][0]["template"]["spec"]["restartPolicy"] = json!("Never");
    user.create("RayCluster", "grow", spec).await;
    user.until_ready("grow").await;
    let head = user.head("grow").await.name_any();
    let work = "import ray; ray.init(logging_level='error', log_to_driver=False); \
                print(ray.get(ray.remote(lambda: 6 * 7).options(num_cpus=1).remote()))";
    let params = kube::api::AttachParams::default().container("ray-head").stderr(false);
    let mut attached = user.pods().exec(&head, vec!["python", "-c", work], &params).await.expect("exec");
    let mut text = String::new();
    attached.stdout().expect("stdout").read_to_string(&mut text).await.expect("output");
    assert_eq!(text.trim(), "42", "the task ran on a worker that was not there before");
    let workers = "ray.io/cluster=grow,ray.io/node-type=worker";
    poll(|| async { user.pods_with(workers).await.is_empty().then_some(()) }).await;
}
