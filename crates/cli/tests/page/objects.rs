//! Objects with statuses as the operator writes them, and Pods as kubelets do.

use crate::world::World;
use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Returns the time some minutes ago.
pub(crate) fn ago(minutes: i64) -> String {
    let time = Timestamp::now() - SignedDuration::from_mins(minutes);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn template(container: &str) -> Value {
    let resources = json!({"cpu": "2", "memory": "4Gi"});
    json!({"spec": {"containers": [{"name": container, "image": "rayproject/ray:2.60.0",
        "resources": {"requests": resources, "limits": resources}}]}})
}

/// Returns a worker group of a number of replicas.
pub(crate) fn group(name: &str, replicas: u32, hosts: u32) -> Value {
    json!({"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 8, "numOfHosts": hosts,
        "rayStartParams": {}, "template": template("ray-worker")})
}

pub(crate) fn cluster_spec(groups: &[Value]) -> Value {
    json!({"rayVersion": "2.60.0", "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
        "workerGroupSpecs": groups})
}

/// Returns the status of a cluster that works.
pub(crate) fn ready(ready: u32, desired: u32) -> Value {
    let condition = |name: &str, reason: &str, message: &str| json!({"type": name, "status": "True", "reason": reason, "message": message, "lastTransitionTime": ago(4)});
    json!({
        "state": "ready", "readyWorkerReplicas": ready, "desiredWorkerReplicas": desired,
        "availableWorkerReplicas": ready, "desiredCPU": (2 + 2 * desired).to_string(),
        "desiredMemory": format!("{}Gi", 4 + 4 * desired), "desiredGPU": "0",
        "head": {"serviceName": "head-svc", "podIP": "10.0.0.1"}, "stateTransitionTimes": {"ready": ago(4)},
        "conditions": [
            condition("HeadPodReady", "HeadPodRunningAndReady", ""),
            condition("RayClusterProvisioned", "AllPodRunningAndReadyFirstTime", "All Ray Pods are ready for the first time"),
        ],
    })
}

pub(crate) fn object(kind: &str, namespace: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "spec": spec, "status": status})
}

/// Returns the object with labels and an owner that say which object made it.
pub(crate) fn made_by(mut object: Value, owner: &DynamicObject) -> Value {
    let (kind, name) = (owner.types.as_ref().map(|types| types.kind.as_str()), owner.name_any());
    object["metadata"]["labels"] = json!({"ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": kind});
    owned_by(object, owner)
}

/// Returns the object with an owner.
fn owned_by(mut object: Value, owner: &DynamicObject) -> Value {
    let (kind, name, uid) = (owner.types.as_ref().map(|types| types.kind.as_str()), owner.name_any(), owner.uid());
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "ray.io/v1", "kind": kind, "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true}]);
    object
}

/// What a Pod is doing.
pub(crate) enum Is {
    Ready,
    Starting,
    Failing,
}

/// Returns a Pod of a cluster.
pub(crate) fn pod(name: &str, cluster: &str, role: &str, group: &str, is: &Is) -> Value {
    let (phase, ready, state) = match is {
        Is::Ready => ("Running", true, json!({"running": {"startedAt": ago(3)}})),
        Is::Starting => ("Pending", false, json!({"waiting": {"reason": "ContainerCreating"}})),
        Is::Failing => (
            "Pending",
            false,
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"ray:nope\""}}),
        ),
    };
    json!({
        "metadata": {"name": name, "labels": {"ray.io/cluster": cluster, "ray.io/node-type": role, "ray.io/group": group}},
        "spec": {"nodeName": "node-a", "containers": [{"name": format!("ray-{role}"), "image": "ray",
            "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}]},
        "status": {"phase": phase, "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "containerStatuses": [{"name": format!("ray-{role}"), "image": "ray", "imageID": "", "ready": ready,
                "restartCount": 0, "state": state}]},
    })
}

/// Returns a Pod that is one host of a replica.
pub(crate) fn host(mut pod: Value, replica: &str, index: u32) -> Value {
    pod["metadata"]["labels"]["ray.io/worker-group-replica-name"] = replica.into();
    pod["metadata"]["labels"]["ray.io/replica-host-index"] = index.to_string().into();
    pod
}

pub(crate) fn event(kind: &str, namespace: &str, name: &str, severity: &str, reason: &str, message: &str) -> Value {
    json!({"metadata": {"generateName": format!("{name}-")}, "type": severity, "reason": reason, "message": message,
        "involvedObject": {"kind": kind, "namespace": namespace, "name": name},
        "firstTimestamp": ago(2), "lastTimestamp": ago(1), "count": 1})
}

/// What Ray reports about a script that raised.
pub(crate) const TRACEBACK: &str = "\
Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):
epoch 1: loss 0.71
Traceback (most recent call last):
  File \"/home/ray/train.py\", line 42, in <module>
    main()
  File \"/home/ray/train.py\", line 31, in main
    batch = batch.to(\"cuda:7\")
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
";

pub(crate) fn job_spec() -> Value {
    json!({"entrypoint": "python train.py --epochs 90", "backoffLimit": 2, "rayClusterSpec": cluster_spec(&[group("workers", 2, 1)])})
}

pub(crate) fn failed_job() -> Value {
    json!({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed", "message": TRACEBACK,
        "jobId": "train-abc", "rayClusterName": "train-x1", "startTime": ago(30), "endTime": ago(12), "failed": 3,
        "succeeded": 0, "rayJobInfo": {"startTime": ago(27), "endTime": ago(13)}})
}

/// Creates a cluster with a group of single hosts, a group of replicas of four hosts, and a Pod that does not start.
pub(crate) async fn plant_cluster(world: &World, namespace: &str, name: &str) -> Result<()> {
    let mut gpu = group("gpu", 3, 1);
    gpu["scaleStrategy"] = json!({"workersToDelete": [format!("{name}-gpu-0")]});
    let mut spec = cluster_spec(&[group("cpu", 4, 1), gpu, group("tpu", 2, 4)]);
    spec["enableInTreeAutoscaling"] = true.into();
    world.create(object("RayCluster", namespace, name, &spec, &ready(9, 15))).await?;
    let head = pod(&format!("{name}-head"), name, "head", "headgroup", &Is::Ready);
    world.create_pod(namespace, head).await?;
    for index in 0..4 {
        let worker = pod(&format!("{name}-cpu-{index}"), name, "worker", "cpu", &Is::Ready);
        world.create_pod(namespace, worker).await?;
    }
    for (index, is) in [Is::Ready, Is::Failing].iter().enumerate() {
        let worker = pod(&format!("{name}-gpu-{index}"), name, "worker", "gpu", is);
        world.create_pod(namespace, worker).await?;
    }
    for (replica, index) in (0..2).flat_map(|replica| (0..4).map(move |index| (replica, index))) {
        let is = if replica == 0 { Is::Ready } else { Is::Starting };
        let worker = pod(&format!("{name}-tpu-{replica}-{index}"), name, "worker", "tpu", &is);
        world.create_pod(namespace, host(worker, &format!("tpu-{replica}"), index)).await?;
    }
    let created = event(
        "RayCluster",
        namespace,
        name,
        "Normal",
        "CreatedHeadPod",
        &format!("Created head Pod {namespace}/{name}-head"),
    );
    world.create_event(namespace, created).await?;
    let failed = event(
        "Pod",
        namespace,
        &format!("{name}-gpu-1"),
        "Warning",
        "Failed",
        "Failed to pull image \"ray:nope\": not found",
    );
    world.create_event(namespace, failed).await
}

/// Returns the status of a service in the middle of an upgrade, with a share of traffic on the new cluster.
pub(crate) fn upgrading(name: &str, share: u32) -> Value {
    let side = |cluster: &str, traffic: u32, status: &str, message: &str| {
        let model = match status {
            "RUNNING" => json!({"status": "HEALTHY"}),
            _ => json!({"status": "UPDATING", "message": "1 of 2 replicas run"}),
        };
        json!({"rayClusterName": format!("{name}-{cluster}"), "trafficRoutedPercent": traffic, "targetCapacity": 100,
            "rayClusterStatus": ready(2, 2),
            "applicationStatuses": {"chat": {"status": status, "message": message,
                "serveDeploymentStatuses": {"Router": {"status": "HEALTHY"}, "LLM": model}}}})
    };
    let condition = |name: &str, reason: &str| json!({"type": name, "status": "True", "reason": reason, "message": "", "lastTransitionTime": ago(2)});
    json!({"serviceStatus": "Running", "numServeEndpoints": 3,
        "conditions": [condition("Ready", "NonZeroServeEndpoints"), condition("UpgradeInProgress", "BothActivePendingClustersExist")],
        "activeServiceStatus": side("old", 100 - share, "RUNNING", ""),
        "pendingServiceStatus": side("new", share, "DEPLOYING", "Deploying app 'chat'")})
}

pub(crate) async fn plant_service(world: &World, namespace: &str, name: &str) -> Result<()> {
    let options = json!({"stepSizePercent": 10, "intervalSeconds": 10, "gatewayClassName": "x"});
    let spec = json!({"serveConfigV2": "applications: []", "rayClusterConfig": cluster_spec(&[group("llm", 2, 1)]),
        "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options}});
    let service = world.create(object("RayService", namespace, name, &spec, &upgrading(name, 30))).await?;
    for side in ["old", "new"] {
        let cluster = format!("{name}-{side}");
        let object = object("RayCluster", namespace, &cluster, &cluster_spec(&[group("llm", 2, 1)]), &ready(2, 2));
        world.create(made_by(object, &service)).await?;
        world.create_pod(namespace, pod(&format!("{cluster}-head"), &cluster, "head", "headgroup", &Is::Ready)).await?;
        for index in 0..2 {
            let is = if side == "old" || index == 0 { Is::Ready } else { Is::Starting };
            world.create_pod(namespace, pod(&format!("{cluster}-llm-{index}"), &cluster, "worker", "llm", &is)).await?;
        }
    }
    Ok(())
}

/// Creates a cron job that is due every ten minutes, with jobs for four of its runs; the latest two runs have none.
pub(crate) async fn plant_cron_job(world: &World, namespace: &str, name: &str) -> Result<()> {
    let ten_minutes = 600;
    let latest = Timestamp::now().as_second() / ten_minutes * ten_minutes;
    let run = |number: i64| Timestamp::from_second(latest - number * ten_minutes).unwrap().to_string();
    let spec = json!({"schedule": "*/10 * * * *", "timeZone": "Europe/Berlin", "jobTemplate": job_spec()});
    let status = json!({"lastScheduleTime": run(3)});
    let cron_job = world.create(object("RayCronJob", namespace, name, &spec, &status)).await?;
    for number in 3..7 {
        let failed = number == 5;
        let status = json!({"jobDeploymentStatus": if failed { "Failed" } else { "Complete" },
            "jobStatus": if failed { "FAILED" } else { "SUCCEEDED" }});
        let mut job = object("RayJob", namespace, &format!("{name}-{number}"), &job_spec(), &status);
        job["metadata"]["labels"] = json!({"ray.io/cronjob-name": name});
        job["metadata"]["annotations"] = json!({"ray.io/cronjob-scheduled-timestamp": run(number)});
        world.create(owned_by(job, &cron_job)).await?;
    }
    Ok(())
}
