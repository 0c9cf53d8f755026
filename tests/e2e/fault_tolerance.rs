//! GCS fault tolerance: the state of a cluster survives the loss of its head.

use std::collections::BTreeSet;

use kube::ResourceExt;

use crate::user::{User, is_ready, poll};

pub(crate) async fn redis_keeps_a_cluster_through_head_loss(user: &User) {
    user.apply_example("raycluster-redis.yaml").await;
    survives_head_loss(user, "lasting").await;
    keys_go_with(user, "lasting", "").await;
}

/// Deletes a cluster and asserts that its keys in Redis are deleted; `options` are those of redis-cli.
pub(crate) async fn keys_go_with(user: &User, cluster: &str, options: &str) {
    let redis = user.pods_with("app=redis").await.pop().expect("the Redis pod").name_any();
    let keys = async || {
        let command = format!("REDISCLI_AUTH=$PASSWORD redis-cli {options} --scan");
        let ran = user.run_in(&redis, "redis", &["sh", "-c", &command]).await;
        assert!(ran.ok, "{ran:?}");
        ran.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = keys().await;
    assert!(before.iter().any(|key| key.starts_with("RAY")), "Ray's state is in Redis: {before:?}");
    user.delete("RayCluster", cluster).await;
    assert_eq!(keys().await, [] as [&str; 0], "the keys are deleted with the cluster");
}

pub(crate) async fn rocksdb_keeps_a_cluster_through_head_loss(user: &User) {
    user.apply_example("raycluster-rocksdb.yaml").await;
    survives_head_loss(user, "embedded").await;
}

/// Replaces the head and asserts that the workers and the state of an actor on them survive.
pub(crate) async fn survives_head_loss(user: &User, cluster: &str) {
    user.until_ready(cluster).await;
    assert_eq!(user.python(cluster, COUNT).await, "1");
    let before = workers(user, cluster).await;
    user.lose_head(cluster).await;
    let count = poll(|| async {
        let head = user.head(cluster).await.name_any();
        let ran = user.run_in(&head, "ray-head", &["python", "-c", COUNT]).await;
        ran.ok.then_some(ran.stdout)
    })
    .await;
    assert_eq!(count.trim(), "2", "the actor kept its state");
    assert_eq!(workers(user, cluster).await, before, "the same workers, not restarted");
    poll(|| async { is_ready(&user.head(cluster).await).then_some(()) }).await;
}

/// Returns the workers with their restart counts.
async fn workers(user: &User, cluster: &str) -> BTreeSet<(Option<String>, i32)> {
    let restarts = |pod: &k8s_openapi::api::core::v1::Pod| {
        let all = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
        all.map(|c| c.restart_count).sum()
    };
    user.workers(cluster).await.iter().map(|pod| (pod.uid(), restarts(pod))).collect()
}

/// Increments a detached actor, which fits only on a worker.
const COUNT: &str = "
import ray
ray.init(namespace='e2e', logging_level='error', log_to_driver=False)
@ray.remote(num_cpus=1)
class Counter:
    def __init__(self):
        self.asked = 0
    def ask(self):
        self.asked += 1
        return self.asked
counter = Counter.options(name='counter', lifetime='detached', get_if_exists=True).remote()
print(ray.get(counter.ask.remote(), timeout=120))
";
