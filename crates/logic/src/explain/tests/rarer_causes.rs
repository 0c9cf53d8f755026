//! Causes that are seen less often, in a table like that of the others.

use super::*;

pub(super) fn all() -> Vec<(Given, &'static str, &'static str)> {
    [scheduling(), images(), volumes(), ends(), jobs(), services(), clusters()].concat()
}

fn scheduling() -> Vec<(Given, &'static str, &'static str)> {
    let head = |message: &str| cluster().unscheduled("head", message);
    vec![
        (
            head("0/2 nodes are available: 2 node(s) had volume node affinity conflict."),
            "VolumeInOtherZone",
            "No node can take the head Pod head: 0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
        ),
        (
            head("0/2 nodes are available: 2 Insufficient google.com/tpu."),
            "NotEnoughTpus",
            "No node can take the head Pod head: 0/2 nodes are available: 2 Insufficient google.com/tpu.",
        ),
        (
            head("0/2 nodes are available: 2 Insufficient ephemeral-storage."),
            "NotEnoughDisk",
            "No node can take the head Pod head: 0/2 nodes are available: 2 Insufficient ephemeral-storage.",
        ),
        (
            head("0/2 nodes are available: 2 Insufficient corp.com/fpga."),
            "NotEnoughOfResource",
            "No node can take the head Pod head: 0/2 nodes are available: 2 Insufficient corp.com/fpga.",
        ),
        (
            head("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."),
            "AntiAffinity",
            "No node can take the head Pod head: 0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.",
        ),
        (
            head("0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints."),
            "TopologySpread",
            "No node can take the head Pod head: 0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints.",
        ),
        (
            head("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."),
            "HostPortTaken",
            "No node can take the head Pod head: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
        ),
        (
            head("0/1 nodes are available: 1 node(s) were unschedulable."),
            "NodesCordoned",
            "No node can take the head Pod head: 0/1 nodes are available: 1 node(s) were unschedulable.",
        ),
        (
            head("the scheduler has other plans"),
            "Unschedulable",
            "No node can take the head Pod head: the scheduler has other plans.",
        ),
    ]
}

fn images() -> Vec<(Given, &'static str, &'static str)> {
    let head = |reason: &str, message: &str| cluster().waiting("head", reason, message);
    vec![
        (
            head("ErrImagePull", "no match for platform in manifest: not found"),
            "ImageWrongPlatform",
            "The image corp/ray:1 of the head Pod head cannot be pulled: no match for platform in manifest: not found.",
        ),
        (
            head("ErrImagePull", "the Python environment /opt/env of the image is broken"),
            "LocalEnvironmentFailed",
            "The image corp/ray:1 of the head Pod head cannot be pulled: the Python environment /opt/env of the image is broken.",
        ),
        (
            head("ErrImagePull", "write /var/lib/containerd/x: no space left on device"),
            "NodeDiskFull",
            "The image corp/ray:1 of the head Pod head cannot be pulled: write /var/lib/containerd/x: no space left on device.",
        ),
        (
            head("ErrImagePull", "unexpected EOF"),
            "ImagePullFailed",
            "The image corp/ray:1 of the head Pod head cannot be pulled: unexpected EOF.",
        ),
        (
            head("CreateContainerError", "context deadline exceeded"),
            "ContainerNotCreated",
            "Container ray of the head Pod head cannot be created: context deadline exceeded.",
        ),
    ]
}

fn volumes() -> Vec<(Given, &'static str, &'static str)> {
    let mount =
        |message: &str| cluster().waiting("head", "ContainerCreating", "").event("Pod", "head", "FailedMount", message);
    vec![
        (
            mount("persistentvolumeclaim \"data\" not found"),
            "MountedClaimMissing",
            "A volume of the head Pod head cannot be mounted: persistentvolumeclaim \"data\" not found.",
        ),
        (
            mount("volume \"code\": /home/me is not allowed; start with --allow-host-path=/home/me"),
            "HostPathNotAllowed",
            "A volume of the head Pod head cannot be mounted: volume \"code\": /home/me is not allowed; start with --allow-host-path=/home/me.",
        ),
        (
            mount("mount.nfs: access denied by server while mounting nfs:/x"),
            "VolumeAccessDenied",
            "A volume of the head Pod head cannot be mounted: mount.nfs: access denied by server while mounting nfs:/x.",
        ),
        (
            mount("mount failed: exit status 32"),
            "VolumeNotMounted",
            "A volume of the head Pod head cannot be mounted: mount failed: exit status 32.",
        ),
    ]
}

fn ends() -> Vec<(Given, &'static str, &'static str)> {
    let head = |exit_code: i32| cluster().ended("head", json!({"reason": "Error", "exitCode": exit_code}));
    let failed = |reason: &str| {
        cluster().pod_with("head", json!({"nodeName": "n1"}), json!({"phase": "Failed", "reason": reason}))
    };
    let drained =
        json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": ""});
    let running = json!({"phase": "Running", "containerStatuses": [{"name": "ray", "state": {"running": {}}}]});
    vec![
        (
            head(126).head_log("/bin/sh: /start.sh: Permission denied"),
            "CommandNotExecutable",
            "The container ray of the head Pod head ended with exit code 126, for the second time: /bin/sh: /start.sh: Permission denied.",
        ),
        (
            head(134).head_log("Check failed: status.ok()"),
            "Aborted",
            "The container ray of the head Pod head ended with exit code 134, for the second time: Check failed: status.ok().",
        ),
        (
            head(143),
            "Terminated",
            "The container ray of the head Pod head ended with exit code 143, for the second time.",
        ),
        (
            cluster().ended("head", json!({"reason": "Completed", "exitCode": 0})),
            "ContainerExited",
            "The container ray of the head Pod head ended with exit code 0, for the second time.",
        ),
        (
            head(2).head_log("Error: Invalid value for '--num-cpus': 'many' is not a valid integer."),
            "InvalidRayStartParam",
            "The container ray of the head Pod head ended with exit code 2, for the second time: Error: Invalid value for '--num-cpus': 'many' is not a valid integer.",
        ),
        (
            cluster().ready_pod("head").ended("worker", json!({"reason": "Error", "exitCode": 1})).log(
                LogSource::Worker,
                "worker",
                "ray",
                "Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.",
            ),
            "HeadUnreachable",
            "The container ray of the worker Pod worker of group small ended with exit code 1, for the second time: Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.",
        ),
        (
            cluster().pod("head", running).event("Pod", "head", "Unhealthy", "Startup probe failed: no answer"),
            "StartupProbeFailed",
            "The head Pod head runs, but its startup probe fails: no answer.",
        ),
        (
            failed("DeadlineExceeded"),
            "PodDeadlineExceeded",
            "The head Pod head ran longer than its activeDeadlineSeconds.",
        ),
        (
            cluster().pod_with("head", json!({"nodeName": "n1"}), json!({"phase": "Failed", "conditions": [drained]})),
            "Drained",
            "The head Pod head was evicted from node n1, as in kubectl drain.",
        ),
    ]
}

fn jobs() -> Vec<(Given, &'static str, &'static str)> {
    let env = |error: &str| {
        failed_job("AppFailed", &format!("runtime_env setup failed: Failed to set up runtime environment.\n{error}\n"))
    };
    let demand = json!({"autoscaler": "Total Demands:\n {'GPU': 1.0}: 2+ pending tasks/actors\n"});
    let groups = json!([{"groupName": "gpu", "replicas": 1, "maxReplicas": 2}]);
    let queue = json!({"autoscaler": "Total Usage:\n 2.0/2.0 CPU\n\nTotal Demands:\n {'CPU': 1.0}: 500+ pending tasks/actors\n"});
    let no_clusters = |spec: Value, status: Value| {
        let job = json!({"metadata": meta("a"), "spec": spec, "status": status});
        given("RayJob").set("job", job).unreadable("get rayclusters")
    };
    vec![
        (
            job(json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"})).set("ray", queue),
            "JobRunning",
            "RayJob a is running; waiting for free resources: {'CPU': 1.0}: 500+ pending tasks/actors.",
        ),
        (
            no_clusters(json!({}), json!({"jobDeploymentStatus": "Running", "rayClusterName": "a-x"})),
            "Unreadable",
            "What RayJob a waits for cannot be determined, because its RayCluster cannot be read: get rayclusters: forbidden.",
        ),
        (
            no_clusters(
                json!({"clusterSelector": {"ray.io/cluster": "big"}}),
                json!({"jobDeploymentStatus": "Initializing"}),
            ),
            "Unreadable",
            "What RayJob a waits for cannot be determined, because its RayCluster cannot be read: get rayclusters: forbidden.",
        ),
        (
            env("Failed to install pip packages\nERROR: Invalid requirement: 'torch=='"),
            "PipFailed",
            "The runtime environment of RayJob a could not be set up: ERROR: Invalid requirement: 'torch=='.",
        ),
        (
            env("CondaValueError: no such file"),
            "RuntimeEnvFailed",
            "The runtime environment of RayJob a could not be set up: runtime_env setup failed: Failed to set up runtime environment.",
        ),
        (
            failed_job("JobDeploymentStatusTransitionGracePeriodExceeded", "the submitter has not finished in time"),
            "NeverFinished",
            "RayJob a ended at Ray, but its submitter did not, or the other way round: the submitter has not finished in time.",
        ),
        (
            job(json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}))
                .first_cluster("/spec/enableInTreeAutoscaling", json!(true))
                .first_cluster("/spec/workerGroupSpecs", groups)
                .set("ray", demand),
            "WaitsForAutoscaler",
            "Ray waits for workers of RayCluster a-x that the autoscaler adds, for {'GPU': 1.0}: 2+ pending tasks/actors.",
        ),
    ]
}

fn services() -> Vec<(Given, &'static str, &'static str)> {
    let serves = json!({
        "conditions": [{"type": "Ready", "status": "True", "reason": "NonZeroServeEndpoints", "message": "", "lastTransitionTime": NOW}],
        "numServeEndpoints": 2,
        "activeServiceStatus": {"rayClusterName": "a-x", "applicationStatuses": {"app": {"status": "RUNNING"}}},
    });
    vec![
        (
            application("DEPLOY_FAILED", "Deploying app 'app' failed: the configuration was replaced"),
            "DeployFailed",
            "Serve application app of RayService a cannot be deployed: Deploying app 'app' failed: the configuration was replaced.",
        ),
        (
            application("DEPLOYING", "Deployment 'Model' has 1 replicas that have taken more than 30s to initialize."),
            "ReplicasSlow",
            "Serve application app of RayService a is DEPLOYING: Deployment 'Model' has 1 replicas that have taken more than 30s to initialize.",
        ),
        (
            application("DEPLOYING", "Building the application"),
            "ApplicationDeploying",
            "Serve application app of RayService a is DEPLOYING: Building the application.",
        ),
        (
            application("NOT_STARTED", ""),
            "ApplicationNotRunning",
            "RayService a waits for Serve application app, which is NOT_STARTED.",
        ),
        (
            service(json!({"activeServiceStatus": {"rayClusterName": "a-x"}})),
            "ServeNotStarted",
            "RayService a waits for Serve to start its applications on the cluster.",
        ),
        (service(serves), "ServiceReady", "RayService a serves app on 2 Pods."),
    ]
}

fn clusters() -> Vec<(Given, &'static str, &'static str)> {
    let created = json!({"name": "a", "creationTimestamp": "2026-01-01T00:59:50Z", "generation": 1});
    vec![
        (
            given("RayCluster").push("clusters", json!({"metadata": created, "spec": {}})),
            "ClusterStarting",
            "RayCluster a has just been created and has no Pods yet.",
        ),
        (
            cluster().unreadable("list pods"),
            "Unreadable",
            "What RayCluster a waits for cannot be determined, because its Pods cannot be read: list pods: forbidden.",
        ),
        (
            given("RayCluster").cluster("a", json!({}), json!({"state": "ready"})).unreadable("list pods"),
            "ClusterReady",
            "RayCluster a is ready, with 0 of 0 workers.",
        ),
        (
            cluster().ready_pod("head"),
            "WorkersMissing",
            "RayCluster a has 0 of 1 worker Pods; the operator has to create the others.",
        ),
        (
            cluster().event(
                "RayCluster",
                "a",
                "FailedToCreateService",
                "Failed to create service ns/a-head-svc: services \"a-head-svc\" already exists",
            ),
            "NameTaken",
            "RayCluster a cannot create what it needs: services \"a-head-svc\" already exists.",
        ),
        (
            cluster().event(
                "RayCluster",
                "a",
                "FailedToCreateHeadPod",
                "Failed to create head Pod ns/a: etcdserver: timeout",
            ),
            "CreationFailed",
            "RayCluster a cannot create what it needs: etcdserver: timeout.",
        ),
    ]
}
