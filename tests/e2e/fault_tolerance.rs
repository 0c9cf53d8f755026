//! Clusters whose state outlives their head.

use std::collections::BTreeSet;

use kube::ResourceExt;

use crate::user::{User, is_ready, poll};

pub(crate) async fn a_cluster_outlives_its_head_by_redis(user: &User) {
    user.apply_example("raycluster-redis.yaml").await;
    outlives_its_head(user, "lasting").await;

    let redis = user.pods_with("app=redis").await.pop().expect("the Redis pod").name_any();
    let keys = async || {
        let command = "REDISCLI_AUTH=$PASSWORD redis-cli --scan";
        let ran = user.run_in(&redis, "redis", &["sh", "-c", command]).await;
        assert!(ran.ok, "{ran:?}");
        ran.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = keys().await;
    assert!(before.iter().any(|key| key.starts_with("RAY")), "Ray's state is in Redis: {before:?}");
    user.delete("RayCluster", "lasting").await;
    assert_eq!(keys().await, [] as [&str; 0], "the keys went with the cluster");
}

pub(crate) async fn a_cluster_outlives_its_head_by_rocksdb(user: &User) {
    user.apply_example("raycluster-rocksdb.yaml").await;
    outlives_its_head(user, "embedded").await;
}

/// The head goes and another comes; the workers stay, and so does what an actor on them knows.
async fn outlives_its_head(user: &User, cluster: &str) {
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
    assert_eq!(count.trim(), "2", "the actor remembers");
    assert_eq!(workers(user, cluster).await, before, "the same workers, not restarted");
    poll(|| async { is_ready(&user.head(cluster).await).then_some(()) }).await;
}

/// Which workers there are, and how often their containers were restarted.
async fn workers(user: &User, cluster: &str) -> BTreeSet<(Option<String>, i32)> {
    let restarts = |pod: &k8s_openapi::api::core::v1::Pod| {
        let all = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
        all.map(|c| c.restart_count).sum()
    };
    user.workers(cluster).await.iter().map(|pod| (pod.uid(), restarts(pod))).collect()
}

/// A detached actor counts how often it is asked. Only a worker has room for it.
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
