//! Local mode with its state on disk, killed and restarted.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::json;

use crate::jobs;
use crate::up::folder;
use crate::user::{Machine, head_only};

/// The cluster comes back, the finished job is still there, and the next one runs.
pub(crate) async fn objects_survive_a_restart() {
    let folder = Arc::new(folder());
    let machine = Machine::run(Arc::clone(&folder), &[]).await;
    let user = machine.user_of("default");
    user.create("RayCluster", "kept", head_only()).await;
    user.until_ready("kept").await;
    let job = json!({"submissionMode": "HTTPMode", "clusterSelector": {"ray.io/cluster": "kept"},
                     "entrypoint": "python -c \"print(1)\""});
    user.create("RayJob", "before", job.clone()).await;
    jobs::succeeds(&user, "before").await;
    let before = user.ray("RayJob").get("before").await.expect("the job");
    let cluster = user.ray("RayCluster").get("kept").await.expect("the cluster").uid();
    let folder = machine.kill();

    let machine = Machine::run(folder, &[]).await;
    let user = machine.user_of("default");
    assert_eq!(user.ray("RayCluster").get("kept").await.expect("the cluster").uid(), cluster);
    let after = user.ray("RayJob").get("before").await.expect("the job");
    assert_eq!((after.uid(), &after.data["status"]["jobId"]), (before.uid(), &before.data["status"]["jobId"]));
    jobs::succeeds(&user, "before").await;
    user.create("RayJob", "after", job).await;
    jobs::succeeds(&user, "after").await;
    user.until_ready("kept").await;
}
