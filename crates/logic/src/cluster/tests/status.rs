use super::world::{World, cluster};
use crate::labels::HEAD_GROUP;
use serde_json::json;

#[test]
fn the_cluster_is_ready_when_all_pods_are() {
    let mut world = cluster(2);
    world.settle();
    let head = world.pod_names(HEAD_GROUP).remove(0);
    world.change_pod(&head, |pod| {
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    });
    world.settle();
    assert_eq!(world.state(), "");
    assert!(world.cluster.status.as_ref().unwrap().state_transition_times.is_none());

    world.settle_ready();
    let status = world.cluster.status.as_ref().unwrap();
    assert_eq!(status.state.as_deref(), Some("ready"));
    assert_eq!(status.state_transition_times.as_ref().unwrap()["ready"], status.last_update_time.clone().unwrap());
    assert_eq!((status.ready_worker_replicas, status.available_worker_replicas), (Some(2), Some(2)));
}

#[test]
fn a_suspended_group_does_not_count() {
    let mut world = cluster(100);
    world.edit(|spec| {
        spec["workerGroupSpecs"][0]["minReplicas"] = json!(100);
        spec["workerGroupSpecs"][0]["maxReplicas"] = json!(100);
        spec["workerGroupSpecs"][0]["suspend"] = json!(true);
    });
    world.settle_ready();
    let status = world.cluster.status.as_ref().unwrap();
    assert_eq!(status.state.as_deref(), Some("ready"));
    assert_eq!(
        (status.desired_worker_replicas, status.min_worker_replicas, status.max_worker_replicas),
        (None, None, None)
    );
    assert_eq!(status.desired_cpu.as_ref().unwrap().0, "1");
}

#[test]
fn a_ready_cluster_stays_ready_through_failures() {
    let mut world = cluster(1);
    let failing =
        |step: &crate::action::Step| (step.failure_reason == Some("FailedCreateWorkerPod")).then(|| "no".to_owned());
    world.api.refuse = Box::new(failing);
    world.pass();
    world.pass();
    assert_eq!(world.state(), "");
    world.api.refuse = Box::new(|_| None);
    world.settle_ready();
    assert_eq!(world.state(), "ready");
    let since = world.cluster.status.as_ref().unwrap().state_transition_times.clone();
    world.api.refuse = Box::new(failing);
    world.advance(10);
    world.edit(|spec| spec["workerGroupSpecs"][0]["replicas"] = json!(3));
    world.pass();
    assert_eq!(world.state(), "ready");
    assert_eq!(world.cluster.status.as_ref().unwrap().state_transition_times, since);
}

#[test]
fn provisioned_stays_true() {
    let mut world = cluster(1);
    world.settle();
    assert_eq!(world.condition_status("RayClusterProvisioned"), "False");
    world.settle_ready();
    assert_eq!(world.condition_status("RayClusterProvisioned"), "True");
    for pod in world.pods() {
        world.change_pod(&pod.metadata.name, |pod| pod["status"]["conditions"][0]["status"] = json!("False"));
    }
    world.settle();
    assert_eq!(world.condition_status("RayClusterProvisioned"), "True");
    assert_eq!(world.condition_status("HeadPodReady"), "False");
}

#[test]
fn head_pod_ready_gives_the_reason() {
    let check = |message: &str, containers: serde_json::Value, expect: (&str, &str)| {
        let mut world = cluster(0);
        world.settle();
        let head = world.pod_names(HEAD_GROUP).remove(0);
        world.change_pod(&head, |pod| {
            pod["status"] = json!({
                "phase": "Pending", "containerStatuses": containers,
                "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": message}],
            });
        });
        world.settle();
        let condition = world.condition("HeadPodReady").unwrap();
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), expect);
    };
    let waiting = |name: &str, reason: &str, message: &str| json!({"name": name, "state": {"waiting": {"reason": reason, "message": message}}});
    check(
        "containers not ready",
        json!([waiting("ray", "ImagePullBackOff", "Back-off")]),
        ("ImagePullBackOff", "containers not ready; ray: Back-off"),
    );
    check(
        "containers not ready",
        json!([waiting("ray", "ImagePullBackOff", "Back-off"), waiting("other", "CrashLoopBackOff", "x")]),
        ("ImagePullBackOff", "containers not ready; ray: Back-off"),
    );
    check("containers not ready", json!([]), ("ContainersNotReady", "containers not ready"));
    check(
        "",
        json!([{"name": "my-image", "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "bash not found"}}}]),
        ("Error", "my-image: bash not found"),
    );
}

#[test]
fn an_unchanged_status_is_not_written() {
    let mut world = cluster(2);
    world.settle_ready();
    let writes = world.status_writes;
    world.advance(1000);
    world.settle();
    assert_eq!(world.status_writes, writes, "time alone changes nothing");
}

#[test]
fn endpoints_come_from_the_service() {
    let mut world = cluster(0);
    world.pass();
    let key = crate::action::ObjectKey::new(crate::action::Kind::Service, "ns", "demo-head-svc");
    for port in world.api.objects.get_mut(&key).unwrap()["spec"]["ports"].as_array_mut().unwrap() {
        port["targetPort"] = port["port"].clone(); // as the API server does
    }
    world.settle();
    let endpoints = world.cluster.status.as_ref().unwrap().endpoints.clone().unwrap();
    let ports: Vec<_> = endpoints.iter().map(|(name, port)| (name.as_str(), port.as_str())).collect();
    assert_eq!(
        ports,
        [("client", "10001"), ("dashboard", "8265"), ("gcs-server", "6379"), ("metrics", "8080"), ("serve", "8000")]
    );
}

fn blocked(world: &World) -> Option<(&str, &str)> {
    world.condition("RayClusterPodsBlocked").map(|condition| (condition.reason.as_str(), condition.message.as_str()))
}

#[test]
fn pods_that_cannot_start_are_explained_until_they_can() {
    let mut world = cluster(1);
    world.settle();
    assert_eq!(blocked(&world), None, "a Pod that is only new needs no explanation");
    let (head, worker) = (world.pod_names(HEAD_GROUP).remove(0), world.pod_names("small").remove(0));
    world.change_pod(&worker, |pod| {
        pod["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available:\n 3 Insufficient cpu."},
        ]});
    });
    world.change_pod(&head, |pod| {
        pod["status"] = json!({"phase": "Pending", "containerStatuses": [
            {"name": "ray-head", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}},
        ]});
    });
    world.settle();
    let expect = format!(
        "2 of 2 Pods cannot start: {head}: ImagePullBackOff: ray-head: Back-off pulling image; {worker}: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."
    );
    assert_eq!(blocked(&world), Some(("ImagePullBackOff", expect.as_str())));
    world.settle_ready();
    assert_eq!(blocked(&world), None);
}
