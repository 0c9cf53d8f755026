//! Ray's autoscaler, both versions: tasks add workers, idle workers are removed.

use crate::user::{User, poll};

pub(crate) async fn v1_adds_and_removes_workers(user: &User) {
    grow_and_shrink(user, "raycluster-autoscaler-v1.yaml", "elastic-v1").await;
}

pub(crate) async fn v2_adds_and_removes_workers(user: &User) {
    grow_and_shrink(user, "raycluster-autoscaler.yaml", "elastic").await;
}

async fn grow_and_shrink(user: &User, example: &str, cluster: &str) {
    user.apply_example(example).await;
    user.until_ready(cluster).await;
    assert!(user.workers(cluster).await.is_empty(), "nothing has requested workers yet");
    let work = "import ray; ray.init(logging_level='error', log_to_driver=False); \
                print(ray.get(ray.remote(lambda: 6 * 7).options(num_cpus=1).remote()))";
    assert_eq!(user.python(cluster, work).await, "42", "the task ran on a new worker");
    poll(|| async { user.workers(cluster).await.is_empty().then_some(()) }).await;
}
