//! The table of causes: how each shows, its reason, and the first line.

use super::*;

const TRACE: &str = "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n\
    Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\n";

pub(super) fn all() -> Vec<(Given, &'static str, &'static str)> {
    [objects(), creation(), scheduling(), starting(), ends(), nodes(), jobs(), services(), cron_jobs(), well()].concat()
}

fn objects() -> Vec<(Given, &'static str, &'static str)> {
    let no_status = given("RayCluster").push("clusters", json!({"metadata": meta("a"), "spec": {}}));
    let deleted = cluster()
        .first_cluster("/metadata/deletionTimestamp", json!("2026-01-01T00:55:00Z"))
        .first_cluster("/metadata/finalizers", json!(["ray.io/gcs-ft-redis-cleanup-finalizer"]));
    let cleanup = json!({"metadata": {"name": "a-redis-cleanup"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    let queued = |reserved: Value| {
        let labels = json!({"kueue.x-k8s.io/queue-name": "team"});
        cluster()
            .first_cluster("/spec/suspend", json!(true))
            .first_cluster("/metadata/labels", labels)
            .workload(reserved, json!([]))
    };
    let reserved = |status: &str, reason: &str, message: &str| json!([{"type": "QuotaReserved", "status": status, "reason": reason, "message": message}]);
    let evicted = json!([{"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted to accommodate a workload"}]);
    vec![
        (no_status, "NoOperator", "No operator has looked at RayCluster a in the 600 s since it was created."),
        (
            deleted.clone(),
            "BeingDeleted",
            "RayCluster a is being deleted and waits for ray.io/gcs-ft-redis-cleanup-finalizer.",
        ),
        (
            deleted.push("batchJobs", cleanup),
            "RedisCleanupFailed",
            "RayCluster a is being deleted and the Job a-redis-cleanup that cleans Redis up has failed.",
        ),
        (
            cluster().first_cluster("/spec/managedBy", json!("kueue.x-k8s.io/multikueue")),
            "ManagedByMultiKueue",
            "RayCluster a has managedBy kueue.x-k8s.io/multikueue, so the operator of this cluster leaves it alone.",
        ),
        (
            cluster().event(
                "RayCluster",
                "a",
                "InvalidRayClusterSpec",
                "The RayCluster spec is invalid ns/a: workerGroupSpecs[0].groupName cannot be empty",
            ),
            "InvalidSpec",
            "The operator refuses RayCluster a because it is invalid: The RayCluster spec is invalid ns/a: workerGroupSpecs[0].groupName cannot be empty.",
        ),
        (
            job(
                json!({"jobDeploymentStatus": "ValidationFailed", "message": "backoffLimit must be a positive integer"}),
            ),
            "InvalidSpec",
            "The operator refuses RayJob a because it is invalid: backoffLimit must be a positive integer.",
        ),
        (
            cluster().first_cluster("/spec/suspend", json!(true)),
            "Suspended",
            "RayCluster a is suspended: its spec.suspend is true.",
        ),
        (
            cluster()
                .first_cluster("/spec/workerGroupSpecs", json!([{"groupName": "gpu", "suspend": true}]))
                .ready_pod("head"),
            "WorkerGroupSuspended",
            "Worker group gpu of RayCluster a is suspended, so it has no Pods.",
        ),
        (
            queued(reserved(
                "False",
                "Pending",
                "couldn't assign flavors to pod set head: insufficient unused quota for cpu",
            )),
            "KueueQueued",
            "RayCluster a waits for quota in Kueue's queue team: couldn't assign flavors to pod set head: insufficient unused quota for cpu.",
        ),
        (
            queued(reserved("False", "Inadmissible", "LocalQueue team doesn't exist")),
            "KueueInadmissible",
            "Kueue cannot admit RayCluster a through queue team: LocalQueue team doesn't exist.",
        ),
        (
            queued(evicted),
            "KueuePreempted",
            "Kueue has preempted RayCluster a in favour of another workload of queue team: Preempted to accommodate a workload.",
        ),
        (
            cluster().workload(
                reserved("True", "QuotaReserved", ""),
                json!([{"name": "prov", "state": "Pending", "message": "scaling up"}]),
            ),
            "KueueAdmissionCheck",
            "RayCluster a has quota, but Kueue's admission check prov is Pending: scaling up.",
        ),
        (
            cluster().event("RayCluster", "a", "MTLSCertsNotReady", "Certificate ray-head is not ready"),
            "CertificatesNotReady",
            "RayCluster a waits for its TLS certificates: Certificate ray-head is not ready.",
        ),
        (
            cluster().first_cluster("/metadata/generation", json!(2)).ready_pod("head").ready_pod("worker"),
            "ChangeNotObserved",
            "The operator has not acted on the change of RayCluster a 600 s ago (generation 2).",
        ),
    ]
}

fn creation() -> Vec<(Given, &'static str, &'static str)> {
    let refused = |error: &str| {
        let message = format!("FailedCreateHeadPod\n{error}");
        let condition = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreateHeadPod", "message": message,
            "lastTransitionTime": NOW});
        cluster().first_cluster("/status/conditions", json!([condition]))
    };
    vec![
        (
            refused("pods \"a-head\" is forbidden: exceeded quota: team, requested: cpu=4, used: cpu=8, limited: cpu=10"),
            "QuotaExceeded",
            "The Pods of RayCluster a cannot be created: pods \"a-head\" is forbidden: exceeded quota: team, requested: cpu=4, used: cpu=8, limited: cpu=10.",
        ),
        (
            refused("pods \"a-head\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false"),
            "PodSecurityViolated",
            "The Pods of RayCluster a cannot be created: pods \"a-head\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false.",
        ),
        (
            refused("admission webhook \"rules.corp\" denied the request: no latest tags"),
            "DeniedByWebhook",
            "The Pods of RayCluster a cannot be created: admission webhook \"rules.corp\" denied the request: no latest tags.",
        ),
        (
            refused("Internal error occurred: failed calling webhook \"rules.corp\": connection refused"),
            "WebhookUnreachable",
            "The Pods of RayCluster a cannot be created: Internal error occurred: failed calling webhook \"rules.corp\": connection refused.",
        ),
        (
            refused("pods \"a\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'b' denied request: too large"),
            "DeniedByPolicy",
            "The Pods of RayCluster a cannot be created: pods \"a\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'b' denied request: too large.",
        ),
        (
            refused("pods \"a\" is forbidden: error looking up service account ns/ml: serviceaccount \"ml\" not found"),
            "ServiceAccountMissing",
            "The Pods of RayCluster a cannot be created: pods \"a\" is forbidden: error looking up service account ns/ml: serviceaccount \"ml\" not found.",
        ),
        (
            refused("pods \"a\" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi"),
            "LimitRangeViolated",
            "The Pods of RayCluster a cannot be created: pods \"a\" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi.",
        ),
        (
            refused("pods \"a\" is forbidden: no PriorityClass with name top was found"),
            "PriorityClassMissing",
            "The Pods of RayCluster a cannot be created: pods \"a\" is forbidden: no PriorityClass with name top was found.",
        ),
        (
            refused("Pod \"a\" is invalid: spec.containers[0].image: Required value"),
            "InvalidPod",
            "The Pods of RayCluster a cannot be created: Pod \"a\" is invalid: spec.containers[0].image: Required value.",
        ),
        (
            cluster().event("RayCluster", "a", "FailedToCreateService", "Failed to create service ns/a-head-svc: services is forbidden: User \"system:serviceaccount:ns:op\" cannot create resource \"services\""),
            "OperatorForbidden",
            "RayCluster a cannot create what it needs: services is forbidden: User \"system:serviceaccount:ns:op\" cannot create resource \"services\".",
        ),
        (
            cluster().event("RayCluster", "a", "FailedToCreateHeadPod", "Failed to create head Pod ns/a: namespaces \"ns\" is being terminated"),
            "NamespaceTerminating",
            "RayCluster a cannot create what it needs: namespaces \"ns\" is being terminated.",
        ),
    ]
}

fn scheduling() -> Vec<(Given, &'static str, &'static str)> {
    let head = |message: &str| cluster().unscheduled("head", message);
    let ignored = cluster().pod_with("head", json!({"schedulerName": "volcano"}), json!({"phase": "Pending"}));
    let gate = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": ""});
    vec![
        (
            cluster()
                .unscheduled("worker", "0/3 nodes are available: 3 Insufficient cpu.")
                .unscheduled("head", "0/3 nodes are available: 3 Insufficient cpu."),
            "NotEnoughCpu",
            "No node can take the head Pod head and one more: 0/3 nodes are available: 3 Insufficient cpu.",
        ),
        (
            head("0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available"),
            "NotEnoughMemory",
            "No node can take the head Pod head: 0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available.",
        ),
        (
            head("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."),
            "NotEnoughCpuAndMemory",
            "No node can take the head Pod head: 0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
        ),
        (
            cluster()
                .ready_pod("head")
                .unscheduled("worker", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
            "NotEnoughGpus",
            "No node can take the worker Pod worker of group small: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        ),
        (
            head("0/3 nodes are available: 3 node(s) had untolerated taint {team: b}."),
            "NodeTainted",
            "No node can take the head Pod head: 0/3 nodes are available: 3 node(s) had untolerated taint {team: b}.",
        ),
        (
            head("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."),
            "NoNodeMatches",
            "No node can take the head Pod head: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
        ),
        (
            head("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
            "ClaimUnbound",
            "No node can take the head Pod head: 0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        ),
        (
            head("0/3 nodes are available: persistentvolumeclaim \"data\" not found."),
            "ClaimMissing",
            "No node can take the head Pod head: 0/3 nodes are available: persistentvolumeclaim \"data\" not found.",
        ),
        (
            head("0/3 nodes are available: 3 Too many pods."),
            "TooManyPods",
            "No node can take the head Pod head: 0/3 nodes are available: 3 Too many pods.",
        ),
        (
            head("pod group is not ready, 1 Pending, 3 minAvailable"),
            "GangWaiting",
            "No node can take the head Pod head: pod group is not ready, 1 Pending, 3 minAvailable.",
        ),
        (
            cluster().pod("head", json!({"phase": "Pending", "conditions": [gate]})),
            "SchedulingGated",
            "The head Pod head has scheduling gates, which another controller has to remove.",
        ),
        (ignored, "NoScheduler", "No scheduler has looked at the head Pod head, which asks for volcano."),
    ]
}

fn starting() -> Vec<(Given, &'static str, &'static str)> {
    let head = |reason: &str, message: &str| cluster().waiting("head", reason, message);
    let creating = || head("ContainerCreating", "");
    vec![
        (
            head(
                "ErrImagePull",
                "rpc error: code = NotFound desc = failed to resolve reference: corp/ray:1: not found",
            ),
            "ImageNotFound",
            "The image corp/ray:1 of the head Pod head cannot be pulled: rpc error: code = NotFound desc = failed to resolve reference: corp/ray:1: not found.",
        ),
        (
            head("ImagePullBackOff", "Back-off pulling image \"corp/ray:1\"").event(
                "Pod",
                "head",
                "Failed",
                "Failed to pull image \"corp/ray:1\": 401 Unauthorized",
            ),
            "ImagePullDenied",
            "The image corp/ray:1 of the head Pod head cannot be pulled: Failed to pull image \"corp/ray:1\": 401 Unauthorized.",
        ),
        (
            head("ErrImagePull", "dial tcp: lookup corp: no such host"),
            "RegistryUnreachable",
            "The image corp/ray:1 of the head Pod head cannot be pulled: dial tcp: lookup corp: no such host.",
        ),
        (
            head("ErrImagePull", "toomanyrequests: You have reached your pull rate limit"),
            "RegistryRateLimited",
            "The image corp/ray:1 of the head Pod head cannot be pulled: toomanyrequests: You have reached your pull rate limit.",
        ),
        (
            head("ErrImagePull", "image \"corp/ray:1\" has no local environment: start manta up with --image"),
            "ImageUnknownLocally",
            "The image corp/ray:1 of the head Pod head cannot be pulled: image \"corp/ray:1\" has no local environment: start manta up with --image.",
        ),
        (
            head("InvalidImageName", "couldn't parse image name"),
            "InvalidImageName",
            "corp/ray:1 in the head Pod head is not a valid image name.",
        ),
        (
            head("ErrImageNeverPull", ""),
            "ImageNeverPulled",
            "The image corp/ray:1 of the head Pod head is not on the node, and imagePullPolicy is Never.",
        ),
        (
            head("CreateContainerConfigError", "secret \"token\" not found"),
            "SecretMissing",
            "Container ray of the head Pod head cannot be created: secret \"token\" not found.",
        ),
        (
            head("CreateContainerConfigError", "configmap \"settings\" not found"),
            "ConfigMapMissing",
            "Container ray of the head Pod head cannot be created: configmap \"settings\" not found.",
        ),
        (
            head("CreateContainerConfigError", "couldn't find key auth_token in Secret ns/token"),
            "KeyMissing",
            "Container ray of the head Pod head cannot be created: couldn't find key auth_token in Secret ns/token.",
        ),
        (
            head("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            "MustNotRunAsRoot",
            "Container ray of the head Pod head cannot be created: container has runAsNonRoot and image will run as root.",
        ),
        (
            head("RunContainerError", "exec: \"ray2\": executable file not found in $PATH"),
            "CommandCannotStart",
            "The command of container ray of the head Pod head cannot be started: exec: \"ray2\": executable file not found in $PATH.",
        ),
        (
            creating().event(
                "Pod",
                "head",
                "FailedMount",
                "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found",
            ),
            "MountedSecretMissing",
            "A volume of the head Pod head cannot be mounted: MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found.",
        ),
        (
            creating().event(
                "Pod",
                "head",
                "FailedMount",
                "MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found",
            ),
            "MountedConfigMapMissing",
            "A volume of the head Pod head cannot be mounted: MountVolume.SetUp failed for volume \"v\" : configmap \"c\" not found.",
        ),
        (
            creating().event("Pod", "head", "FailedAttachVolume", "Multi-Attach error for volume \"pvc-1\""),
            "VolumeInUse",
            "A volume of the head Pod head cannot be mounted: Multi-Attach error for volume \"pvc-1\".",
        ),
        (
            creating().event("Pod", "head", "FailedCreatePodSandBox", "plugin type=\"cni\" failed"),
            "SandboxFailed",
            "The node cannot set up the head Pod head: plugin type=\"cni\" failed.",
        ),
        (creating(), "PodStarting", "The head Pod head is starting (ContainerCreating), 600 s after it was created."),
        (cluster(), "HeadMissing", "RayCluster a has no head Pod; the operator has to create one."),
    ]
}

fn ends() -> Vec<(Given, &'static str, &'static str)> {
    let head = |exit_code: i32| cluster().ended("head", json!({"reason": "Error", "exitCode": exit_code}));
    let init = json!({"name": "download", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}});
    let waits = json!({"name": "wait-gcs-ready", "state": {"running": {"startedAt": "2026-01-01T00:50:00Z"}}});
    let autoscaler = json!({"name": "autoscaler", "lastState": {"terminated": {"exitCode": 1}}, "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
    let running = || {
        cluster()
            .pod("head", json!({"phase": "Running", "containerStatuses": [{"name": "ray", "state": {"running": {}}}]}))
    };
    vec![
        (
            cluster().ended("head", json!({"reason": "OOMKilled", "exitCode": 137})),
            "OutOfMemory",
            "The container ray of the head Pod head was killed because it needed more memory than its limit of 2Gi, for the second time.",
        ),
        (
            cluster().pod("head", json!({"phase": "Failed", "containerStatuses": [{"name": "ray", "state": {"terminated": {"reason": "StartError", "exitCode": 128, "message": "no such file"}}}]})),
            "CommandCannotStart",
            "The command of container ray of the head Pod head cannot be started: no such file.",
        ),
        (
            head(1).head_log("RuntimeError: Version mismatch: The cluster was started with: Ray: 2.9 Python: 3.9"),
            "RayVersionMismatch",
            "The container ray of the head Pod head ended with exit code 1, for the second time: RuntimeError: Version mismatch: The cluster was started with: Ray: 2.9 Python: 3.9.",
        ),
        (
            head(2).head_log("Usage: ray start [OPTIONS]\nError: No such option: --nope"),
            "UnknownRayStartParam",
            "The container ray of the head Pod head ended with exit code 2, for the second time: Error: No such option: --nope.",
        ),
        (
            head(1).head_log("Could not establish connection to Redis redis:6379: Connection refused"),
            "RedisUnreachable",
            "The container ray of the head Pod head ended with exit code 1, for the second time: Could not establish connection to Redis redis:6379: Connection refused.",
        ),
        (
            head(1).head_log("WRONGPASS invalid username-password pair"),
            "RedisPasswordWrong",
            "The container ray of the head Pod head ended with exit code 1, for the second time: WRONGPASS invalid username-password pair.",
        ),
        (
            head(1).head_log("OSError: [Errno 98] Address already in use"),
            "PortInUse",
            "The container ray of the head Pod head ended with exit code 1, for the second time: OSError: [Errno 98] Address already in use.",
        ),
        (
            head(1).head_log("OSError: [Errno 28] No space left on device"),
            "DiskFull",
            "The container ray of the head Pod head ended with exit code 1, for the second time: OSError: [Errno 28] No space left on device.",
        ),
        (
            head(127).head_log("bash: ray: command not found"),
            "CommandNotFound",
            "The container ray of the head Pod head ended with exit code 127, for the second time: bash: ray: command not found.",
        ),
        (head(137), "Killed", "The container ray of the head Pod head ended with exit code 137, for the second time."),
        (head(139), "SegmentationFault", "The container ray of the head Pod head ended with exit code 139, for the second time."),
        (
            head(1).head_log("Traceback (most recent call last):\n  x\nImportError: libcuda.so\n"),
            "ContainerCrashed",
            "The container ray of the head Pod head ended with exit code 1, for the second time: ImportError: libcuda.so.",
        ),
        (
            head(137)
                .event("Pod", "head", "Unhealthy", "Liveness probe failed: command timed out")
                .event("Pod", "head", "Killing", "Container ray failed liveness probe, will be restarted"),
            "LivenessProbeFailed",
            "The container ray of the head Pod head was killed because its liveness probe failed, for the second time: Liveness probe failed: command timed out.",
        ),
        (
            cluster().pod("head", json!({"phase": "Running", "containerStatuses": [{"name": "ray", "ready": true, "state": {"running": {}}}, autoscaler]})),
            "AutoscalerCrashed",
            "The container autoscaler of the head Pod head ended with exit code 1.",
        ),
        (
            cluster().pod("head", json!({"phase": "Pending", "initContainerStatuses": [init]})).log(LogSource::Head, "head", "download", "404"),
            "InitContainerFailed",
            "Init container download of the head Pod head failed with exit code 3: 404.",
        ),
        (
            cluster().ready_pod("head").pod("worker", json!({"phase": "Pending", "initContainerStatuses": [waits]})),
            "WaitsForHead",
            "The worker Pod worker of group small waits for the head, whose GCS does not answer.",
        ),
        (
            running().event("Pod", "head", "Unhealthy", "Readiness probe failed: success == unhealthy"),
            "ReadinessProbeFailed",
            "The head Pod head runs, but its readiness probe fails: success == unhealthy.",
        ),
    ]
}

fn nodes() -> Vec<(Given, &'static str, &'static str)> {
    let failed = |reason: &str, message: &str| {
        cluster().pod_with(
            "head",
            json!({"nodeName": "n1"}),
            json!({"phase": "Failed", "reason": reason, "message": message}),
        )
    };
    let disrupted = |reason: &str| {
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "because"});
        cluster().pod_with("worker", json!({"nodeName": "n1"}), json!({"phase": "Failed", "conditions": [condition]}))
    };
    let mut stuck = cluster().pod_with("head", json!({"nodeName": "n1"}), json!({"phase": "Running"}));
    stuck.0["pods"][0]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:50:00Z");
    vec![
        (
            failed("Evicted", "The node was low on resource: ephemeral-storage."),
            "Evicted",
            "The head Pod head was evicted by its node n1: The node was low on resource: ephemeral-storage.",
        ),
        (
            disrupted("PreemptionByScheduler"),
            "Preempted",
            "The worker Pod worker of group small was preempted by a Pod of higher priority: because.",
        ),
        (
            disrupted("DeletionByTaintManager"),
            "NodeLost",
            "The worker Pod worker of group small was lost with its node n1, which does not answer: because.",
        ),
        (
            failed("Terminated", "Pod was terminated in response to imminent node shutdown."),
            "NodeShutDown",
            "The head Pod head ended because its node n1 was shut down: Pod was terminated in response to imminent node shutdown.",
        ),
        (
            failed("OutOfcpu", "Node didn't have enough resource: cpu"),
            "RefusedByNode",
            "The node n1 refused the head Pod head (OutOfcpu): Node didn't have enough resource: cpu.",
        ),
        (stuck, "PodStuckTerminating", "The head Pod head is being deleted, but its node n1 does not confirm it."),
    ]
}

fn jobs() -> Vec<(Given, &'static str, &'static str)> {
    let app = |error: &str| failed_job("AppFailed", &format!("{TRACE}{error}\n"));
    let entry = |code: i32, output: &str| {
        failed_job(
            "AppFailed",
            &format!(
                "Job entrypoint command failed with exit code {code}, last available logs (truncated to 20,000 chars):\n{output}\n"
            ),
        )
    };
    let env = |error: &str| {
        failed_job("AppFailed", &format!("runtime_env setup failed: Failed to set up runtime environment.\n{error}\n"))
    };
    let demand = |autoscaling: bool, groups: Value, report: &str| {
        job(json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}))
            .first_cluster("/spec/enableInTreeAutoscaling", json!(autoscaling))
            .first_cluster("/spec/workerGroupSpecs", groups)
            .set(
                "ray",
                json!({"autoscaler": format!("Total Demands:\n {{'GPU': 1.0}}: 2+ pending tasks/actors\n{report}")}),
            )
    };
    let selected = given("RayJob").set(
        "job",
        json!({"metadata": meta("a"), "spec": {"clusterSelector": {"ray.io/cluster": "big"}}, "status": {"jobDeploymentStatus": "Initializing"}}),
    );
    let deadline = |spec: Value, reason: &str| {
        let status =
            json!({"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING", "reason": reason, "message": "passed"});
        job_with(spec, status)
    };
    vec![
        (
            app("ValueError: bad batch"),
            "ProgramRaised",
            "RayJob a failed because its program raised ValueError: bad batch.",
        ),
        (
            app("ModuleNotFoundError: No module named 'torch'"),
            "ModuleMissing",
            "RayJob a failed because its program imports a module that is not installed: ModuleNotFoundError: No module named 'torch'.",
        ),
        (
            entry(127, "/bin/sh: 1: pyton: not found"),
            "EntrypointNotFound",
            "RayJob a failed because its entrypoint names a command that does not exist: /bin/sh: 1: pyton: not found.",
        ),
        (
            entry(2, "python: can't open file '/home/ray/x.py': [Errno 2] No such file or directory"),
            "ScriptNotFound",
            "RayJob a failed because its entrypoint names a file that does not exist: python: can't open file '/home/ray/x.py': [Errno 2] No such file or directory.",
        ),
        (
            entry(127, "/bin/sh: 1: pyton: not found").log(LogSource::Driver, "", "id", "Running entrypoint for job id: pyton x.py"),
            "EntrypointNotFound",
            "RayJob a failed because its entrypoint names a command that does not exist: /bin/sh: 1: pyton: not found.",
        ),
        (
            entry(7, "giving up"),
            "EntrypointFailed",
            "RayJob a failed because its entrypoint ended with exit code 7: giving up.",
        ),
        (
            app("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
            "GpuOutOfMemory",
            "RayJob a failed because its GPU ran out of memory: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        ),
        (
            app("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
            "RayOutOfMemory",
            "RayJob a failed because Ray killed tasks on a node that ran out of memory.",
        ),
        (
            env("ERROR: Could not find a version that satisfies the requirement nope==9 (from versions: none)"),
            "PipPackageMissing",
            "The runtime environment of RayJob a could not be set up: ERROR: Could not find a version that satisfies the requirement nope==9 (from versions: none).",
        ),
        (
            env("WARNING: NewConnectionError\nERROR: No matching distribution found for emoji"),
            "PipUnreachable",
            "The runtime environment of RayJob a could not be set up: ERROR: No matching distribution found for emoji.",
        ),
        (
            env("Failed to download working_dir s3://bucket/x.zip"),
            "WorkingDirFailed",
            "The runtime environment of RayJob a could not be set up: runtime_env setup failed: Failed to set up runtime environment.",
        ),
        (
            job(json!({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"})),
            "JobStopped",
            "RayJob a was stopped by a request to Ray.",
        ),
        (
            failed_job("AppFailed", "Unexpected error occurred: The actor died unexpectedly before finishing this task."),
            "SupervisorDied",
            "The process that supervises RayJob a died, most often with its node: Unexpected error occurred: The actor died unexpectedly before finishing this task.",
        ),
        (
            failed_job("AppFailed", "Unexpected error occurred: The actor died unexpectedly.").ended("head", json!({"reason": "OOMKilled", "exitCode": 137})),
            "OutOfMemory",
            "The container ray of the head Pod head was killed because it needed more memory than its limit of 2Gi, for the second time.",
        ),
        (
            failed_job("AppFailed", "Job supervisor actor failed to start within 900.0 seconds."),
            "DriverNotScheduled",
            "Ray found no room for the driver of RayJob a: Job supervisor actor failed to start within 900.0 seconds.",
        ),
        (
            deadline(json!({"activeDeadlineSeconds": 60}), "DeadlineExceeded"),
            "DeadlineExceeded",
            "RayJob a ran longer than its activeDeadlineSeconds of 60.",
        ),
        (
            deadline(json!({"preRunningDeadlineSeconds": 60}), "PreRunningDeadlineExceeded"),
            "PreRunningDeadlineExceeded",
            "RayJob a did not start to run within its preRunningDeadlineSeconds of 60.",
        ),
        (
            deadline(json!({"preRunningDeadlineSeconds": 60}), "PreRunningDeadlineExceeded").waiting("head", "ErrImagePull", "manifest unknown"),
            "ImageNotFound",
            "The image corp/ray:1 of the head Pod head cannot be pulled: manifest unknown.",
        ),
        (
            failed_job("SubmissionFailed", "Job submission has failed. Reason: BackoffLimitExceeded. Message: Job has reached the specified backoff limit")
                .log(LogSource::Submitter, "a-1", "ray-job-submitter", "Traceback (most recent call last):\n  x\nConnectionError: Failed to connect to Ray"),
            "SubmissionFailed",
            "RayJob a could not be submitted to Ray: ConnectionError: Failed to connect to Ray.",
        ),
        (
            failed_job("SubmissionFailed", "Job with submission_id x already exists. Please use a different submission_id."),
            "JobIdTaken",
            "RayJob a was submitted with an id that Ray already has: Job with submission_id x already exists. Please use a different submission_id.",
        ),
        (
            failed_job("JobStatusCheckTimeoutExceeded", "Job status checks have been failing since then"),
            "DashboardUnreachable",
            "RayJob a failed because Ray's dashboard did not answer for too long: Job status checks have been failing since then.",
        ),
        (
            failed_job("AppFailed", "Ray head pod not found."),
            "JobFailed",
            "RayJob a failed (AppFailed): Ray head pod not found.",
        ),
        (
            selected,
            "SelectedClusterMissing",
            "RayJob a waits for a RayCluster that its clusterSelector ray.io/cluster=big names, and there is none.",
        ),
        (
            job_with(json!({"backoffLimit": 2}), json!({"jobDeploymentStatus": "Retrying", "failed": 1, "message": "Ray head pod not found."})),
            "JobRetrying",
            "RayJob a failed and is tried again on a new cluster: 1 of at most 3 attempts: Ray head pod not found.",
        ),
        (
            job(json!({"jobDeploymentStatus": "Waiting", "rayClusterName": "a-x"})),
            "WaitsForUser",
            "RayJob a is interactive: its cluster a-x is ready and waits for somebody to submit a job.",
        ),
        (
            job_with(json!({"suspend": true}), json!({"jobDeploymentStatus": "Suspended"})),
            "Suspended",
            "RayJob a is suspended: its spec.suspend is true.",
        ),
        (
            demand(false, json!([]), ""),
            "DemandUnmet",
            "Ray has no room on RayCluster a-x for {'GPU': 1.0}: 2+ pending tasks/actors, and the cluster does not autoscale.",
        ),
        (
            demand(true, json!([{"groupName": "gpu", "replicas": 2, "maxReplicas": 2}]), ""),
            "MaxReplicasReached",
            "Ray has no room on RayCluster a-x for {'GPU': 1.0}: 2+ pending tasks/actors, and its groups are at maxReplicas (gpu).",
        ),
        (
            demand(true, json!([{"groupName": "cpu", "replicas": 1, "maxReplicas": 2}]), "Error: No available node types can fulfill resource request"),
            "DemandInfeasible",
            "No worker group of RayCluster a-x offers what Ray needs for {'GPU': 1.0}: 2+ pending tasks/actors.",
        ),
        (
            given("RayJob").set("job", json!({"metadata": meta("a"), "status": {"jobDeploymentStatus": "Running", "rayClusterName": "gone"}})),
            "ClusterGone",
            "The RayCluster gone of RayJob a no longer exists.",
        ),
    ]
}

fn services() -> Vec<(Given, &'static str, &'static str)> {
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        let condition =
            json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW});
        service(json!({"conditions": [condition], "pendingServiceStatus": {"rayClusterName": "a-y"}}))
    };
    vec![
        (
            application(
                "DEPLOY_FAILED",
                "Deploying app 'app' failed:\nTraceback (most recent call last):\n  x\nModuleNotFoundError: No module named 'fruits'\n",
            ),
            "ImportPathWrong",
            "Serve application app of RayService a cannot be deployed: ModuleNotFoundError: No module named 'fruits'.",
        ),
        (
            application(
                "DEPLOY_FAILED",
                "Deploying app 'app' failed:\nTraceback (most recent call last):\n  import_attr\nAttributeError: module 'fruits' has no attribute 'app'\n",
            ),
            "ImportPathWrong",
            "Serve application app of RayService a cannot be deployed: AttributeError: module 'fruits' has no attribute 'app'.",
        ),
        (
            application("DEPLOY_FAILED", "Traceback (most recent call last):\n  __init__\nRuntimeError: no weights\n"),
            "DeploymentRaised",
            "Serve application app of RayService a cannot be deployed: RuntimeError: no weights.",
        ),
        (
            application(
                "DEPLOY_FAILED",
                "Runtime env setup for app 'app' failed: Failed to set up runtime environment",
            ),
            "ServeRuntimeEnvFailed",
            "Serve application app of RayService a cannot be deployed: Runtime env setup for app 'app' failed: Failed to set up runtime environment.",
        ),
        (
            application(
                "DEPLOYING",
                "Deployment 'Model' has 1 replicas that have taken more than 30s to be scheduled. Resources required: {\"GPU\": 1}",
            ),
            "ReplicasNotScheduled",
            "Serve application app of RayService a is DEPLOYING: Deployment 'Model' has 1 replicas that have taken more than 30s to be scheduled. Resources required: {\"GPU\": 1}.",
        ),
        (
            application("UNHEALTHY", "A replica failed to start: health check failed"),
            "DeploymentUnhealthy",
            "Serve application app of RayService a is UNHEALTHY: A replica failed to start: health check failed.",
        ),
        (
            service(json!({})).event(
                "RayService",
                "a",
                "FailedToUpdateServeApplications",
                "Failed to update serve applications: UpdateDeployments fail: 400 Bad Request import_path is required",
            ),
            "ServeConfigRefused",
            "Ray does not accept the serveConfigV2 of RayService a: Failed to update serve applications: UpdateDeployments fail: 400 Bad Request import_path is required.",
        ),
        (
            service(json!({
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "NonZeroServeEndpoints", "message": "", "lastTransitionTime": NOW},
                    {"type": "ApplicationsFailed", "status": "True", "reason": "ConfigRefused", "lastTransitionTime": NOW,
                        "message": "Ray refuses serveConfigV2: 400: num_replicas: Input should be a valid integer"},
                ],
                "numServeEndpoints": 1,
                "activeServiceStatus": {"rayClusterName": "a-x", "applicationStatuses": {"app": {"status": "RUNNING"}}},
            })),
            "ServeConfigRefused",
            "Ray does not accept the serveConfigV2 of RayService a, so what it accepted before goes on serving: 400: num_replicas: Input should be a valid integer.",
        ),
        (
            condition(
                "ApplicationsFailed",
                "True",
                "ConfigRefused",
                "Ray refuses serveConfigV2: 400: applications: Field required",
            ),
            "ServeConfigRefused",
            "Ray does not accept the serveConfigV2 of RayService a: 400: applications: Field required.",
        ),
        (
            condition("UpgradeInProgress", "False", "UpgradeGivenUp", "Pod x cannot start: ray: ErrImagePull"),
            "UpgradeGivenUp",
            "The upgrade of RayService a was given up, and the old cluster goes on serving: Pod x cannot start: ray: ErrImagePull.",
        ),
        (
            condition("UpgradeStalled", "True", "Stalled", "the Gateway or the HTTPRoute is not ready"),
            "UpgradeStalled",
            "The upgrade of RayService a makes no progress: the Gateway or the HTTPRoute is not ready.",
        ),
        (
            condition("UpgradeInProgress", "True", "BothActivePendingClustersExist", ""),
            "UpgradeWaiting",
            "RayService a is being upgraded and waits for the head of its new cluster a-y.",
        ),
        (
            condition("Ready", "False", "InitializingTimeout", "not within 1m"),
            "InitializingTimeout",
            "RayService a did not become ready in time, and its clusters were deleted: not within 1m.",
        ),
        (
            application("RUNNING", ""),
            "NoServeEndpoints",
            "The applications of RayService a run, but no Pod takes requests: no Serve proxy is ready.",
        ),
        (
            service(json!({})).set("service", json!({"metadata": meta("a"), "spec": {"suspend": true}, "status": {}})),
            "Suspended",
            "RayService a is suspended: its spec.suspend is true.",
        ),
    ]
}

fn cron_jobs() -> Vec<(Given, &'static str, &'static str)> {
    let hourly = json!({"schedule": "0 * * * *", "timeZone": "Etc/UTC"});
    let run = json!({"metadata": meta("a-1"), "status": {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED",
        "reason": "AppFailed", "message": format!("{TRACE}ValueError: x\n")}});
    vec![
        (
            cron_job(json!({"schedule": "0 * * * *", "suspend": true})),
            "CronJobSuspended",
            "RayCronJob a is suspended, so it creates no RayJobs.",
        ),
        (
            cron_job(json!({"schedule": "every hour"})).event(
                "RayCronJob",
                "a",
                "InvalidRayCronJobSpec",
                "expected exactly 5 fields, found 2: [every hour]",
            ),
            "InvalidSpec",
            "The operator refuses RayCronJob a because it is invalid: expected exactly 5 fields, found 2: [every hour].",
        ),
        (
            cron_job(hourly.clone()).event("RayCronJob", "a", "MissedRuns", "3 runs were missed"),
            "MissedRuns",
            "RayCronJob a has missed runs while no operator was running: 3 runs were missed.",
        ),
        (
            cron_job(hourly.clone()).event(
                "RayCronJob",
                "a",
                "FailedToCreateRayJob",
                "Failed to create RayJob ns/a-1: exceeded quota",
            ),
            "RunNotCreated",
            "RayCronJob a cannot create its RayJob: Failed to create RayJob ns/a-1: exceeded quota.",
        ),
        (
            cron_job(hourly.clone()).set("job", run),
            "ProgramRaised",
            "RayJob a-1 failed because its program raised ValueError: x.",
        ),
        (
            cron_job(hourly),
            "WaitsForSchedule",
            "RayCronJob a is healthy and will create its next RayJob at 2026-01-01 02:00:00Z (schedule 0 * * * *).",
        ),
    ]
}

fn well() -> Vec<(Given, &'static str, &'static str)> {
    let ready = || {
        cluster().first_cluster(
            "/status",
            json!({"state": "ready", "desiredWorkerReplicas": 1, "readyWorkerReplicas": 1, "observedGeneration": 1}),
        )
    };
    let restarted = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [
        {"name": "ray", "ready": true, "state": {"running": {}}, "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]});
    vec![
        (ready().ready_pod("head").ready_pod("worker"), "ClusterReady", "RayCluster a is ready, with 1 of 1 workers."),
        (
            ready().ready_pod("head").pod("worker", restarted),
            "OutOfMemory",
            "RayCluster a is ready again. The container ray of the worker Pod worker of group small was killed because it needed more memory than its node has.",
        ),
        (
            ready().ready_pod("head").ready_pod("worker").set("isDeleted", json!(true)),
            "Deleted",
            "RayCluster a was deleted while it was in use.",
        ),
        (
            job(json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})),
            "JobSucceeded",
            "RayJob a has succeeded.",
        ),
        (
            job(json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "startTime": "2026-01-01T00:59:00Z"})),
            "JobRunning",
            "RayJob a is running, 60 s after it was started.",
        ),
        (
            job(json!({"jobDeploymentStatus": "Initializing", "rayClusterName": "a-x"})).ready_pod("head"),
            "JobStarting",
            "RayJob a waits for its RayCluster a-x to become ready.",
        ),
    ]
}
