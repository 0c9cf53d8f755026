//! The reasons of events and of failures in a status, in one list. Most of them are KubeRay's.

// The spec, the metadata or the status of an object is invalid.
pub const INVALID_RAY_CLUSTER_METADATA: &str = "InvalidRayClusterMetadata";
pub const INVALID_RAY_CLUSTER_SPEC: &str = "InvalidRayClusterSpec";
pub const INVALID_RAY_CLUSTER_STATUS: &str = "InvalidRayClusterStatus";
pub const INVALID_RAY_CRON_JOB_SPEC: &str = "InvalidRayCronJobSpec";
pub const INVALID_RAY_JOB_METADATA: &str = "InvalidRayJobMetadata";
pub const INVALID_RAY_JOB_SPEC: &str = "InvalidRayJobSpec";
pub const INVALID_RAY_JOB_STATUS: &str = "InvalidRayJobStatus";
pub const INVALID_RAY_SERVICE_METADATA: &str = "InvalidRayServiceMetadata";
pub const INVALID_RAY_SERVICE_SPEC: &str = "InvalidRayServiceSpec";

// Pods.
pub const CREATED_HEAD_POD: &str = "CreatedHeadPod";
pub const CREATED_WORKER_POD: &str = "CreatedWorkerPod";
pub const DELETED_HEAD_POD: &str = "DeletedHeadPod";
pub const DELETED_POD: &str = "DeletedPod";
pub const DELETED_WORKER_POD: &str = "DeletedWorkerPod";
pub const FAILED_CREATE_HEAD_POD: &str = "FailedCreateHeadPod";
pub const FAILED_CREATE_WORKER_POD: &str = "FailedCreateWorkerPod";
pub const FAILED_DELETE_ALL_PODS: &str = "FailedDeleteAllPods";
pub const FAILED_DELETE_HEAD_POD: &str = "FailedDeleteHeadPod";
pub const FAILED_DELETE_WORKER_POD: &str = "FailedDeleteWorkerPod";
pub const FAILED_TO_CREATE_HEAD_POD: &str = "FailedToCreateHeadPod";
pub const FAILED_TO_CREATE_WORKER_POD: &str = "FailedToCreateWorkerPod";
pub const FAILED_TO_DELETE_HEAD_POD: &str = "FailedToDeleteHeadPod";
pub const FAILED_TO_DELETE_POD_COLLECTION: &str = "FailedToDeletePodCollection";
pub const FAILED_TO_DELETE_WORKER_POD: &str = "FailedToDeleteWorkerPod";
pub const FAILED_TO_DELETE_WORKER_POD_COLLECTION: &str = "FailedToDeleteWorkerPodCollection";
pub const FAILED_TO_UPDATE_HEAD_POD_SERVE_LABEL: &str = "FailedToUpdateHeadPodServeLabel";
pub const FORCE_DELETED_HEAD_POD: &str = "ForceDeletedHeadPod";
pub const ORPHANED_WORKER_GROUP_PODS_DETECTED: &str = "OrphanedWorkerGroupPodsDetected";
pub const UPDATED_HEAD_POD_SERVE_LABEL: &str = "UpdatedHeadPodServeLabel";

// RayClusters.
pub const CREATED_RAY_CLUSTER: &str = "CreatedRayCluster";
pub const CREATED_REDIS_CLEANUP_JOB: &str = "CreatedRedisCleanupJob";
pub const DELETED_RAY_CLUSTER: &str = "DeletedRayCluster";
pub const FAILED_TO_CREATE_RAY_CLUSTER: &str = "FailedToCreateRayCluster";
pub const FAILED_TO_CREATE_REDIS_CLEANUP_JOB: &str = "FailedToCreateRedisCleanupJob";
pub const FAILED_TO_DELETE_RAY_CLUSTER: &str = "FailedToDeleteRayCluster";
pub const FAILED_TO_UPDATE_RAY_CLUSTER: &str = "FailedToUpdateRayCluster";
pub const FORCE_DELETED_STUCK_CLUSTER: &str = "ForceDeletedStuckCluster";
pub const RAY_CLUSTER_NOT_FOUND: &str = "RayClusterNotFound";
pub const SKIPPED_REDIS_CLEANUP: &str = "SkippedRedisCleanup";
pub const UPDATED_RAY_CLUSTER: &str = "UpdatedRayCluster";

// RayJobs and RayCronJobs.
pub const CREATED_RAY_JOB_SUBMITTER: &str = "CreatedRayJobSubmitter";
pub const DELETED_RAY_JOB_SUBMITTER: &str = "DeletedRayJobSubmitter";
pub const FAILED_TO_CREATE_RAY_JOB: &str = "FailedToCreateRayJob";
pub const FAILED_TO_CREATE_RAY_JOB_SUBMITTER: &str = "FailedToCreateRayJobSubmitter";
pub const FAILED_TO_DELETE_RAY_JOB_SUBMITTER: &str = "FailedToDeleteRayJobSubmitter";
pub const MISSED_RUNS: &str = "MissedRuns";
pub const SUSPENDED_RAY_CRON_JOB: &str = "SuspendedRayCronJob";

// Serve and upgrades.
pub const FAILED_TO_UPDATE_SERVE_APPLICATIONS: &str = "FailedToUpdateServeApplications";
pub const FAILED_TO_UPDATE_TARGET_CAPACITY: &str = "FailedToUpdateTargetCapacity";
pub const RAY_SERVICE_INITIALIZING_TIMEOUT: &str = "RayServiceInitializingTimeout";
pub const ROLLBACK_IMPOSSIBLE: &str = "RollbackImpossible";
pub const UPDATED_SERVE_APPLICATIONS: &str = "UpdatedServeApplications";
pub const UPDATED_SERVE_TARGET_CAPACITY: &str = "UpdatedServeTargetCapacity";
pub const UPGRADE_GIVEN_UP: &str = "UpgradeGivenUp";

// Services, Gateways and routes.
pub const CREATED_GATEWAY: &str = "CreatedGateway";
pub const CREATED_HTTP_ROUTE: &str = "CreatedHTTPRoute";
pub const CREATED_INGRESS: &str = "CreatedIngress";
pub const CREATED_ROUTE: &str = "CreatedRoute";
pub const CREATED_SERVICE: &str = "CreatedService";
pub const DELETED_GATEWAY: &str = "DeletedGateway";
pub const DELETED_HTTP_ROUTE: &str = "DeletedHTTPRoute";
pub const DELETED_SERVICE: &str = "DeletedService";
pub const FAILED_TO_CREATE_GATEWAY: &str = "FailedToCreateGateway";
pub const FAILED_TO_CREATE_HTTP_ROUTE: &str = "FailedToCreateHTTPRoute";
pub const FAILED_TO_CREATE_INGRESS: &str = "FailedToCreateIngress";
pub const FAILED_TO_CREATE_ROUTE: &str = "FailedToCreateRoute";
pub const FAILED_TO_CREATE_SERVICE: &str = "FailedToCreateService";
pub const FAILED_TO_DELETE_GATEWAY: &str = "FailedToDeleteGateway";
pub const FAILED_TO_DELETE_HTTP_ROUTE: &str = "FailedToDeleteHTTPRoute";
pub const FAILED_TO_DELETE_SERVICE: &str = "FailedToDeleteService";
pub const FAILED_TO_UPDATE_GATEWAY: &str = "FailedToUpdateGateway";
pub const FAILED_TO_UPDATE_HTTP_ROUTE: &str = "FailedToUpdateHTTPRoute";
pub const FAILED_TO_UPDATE_INGRESS: &str = "FailedToUpdateIngress";
pub const FAILED_TO_UPDATE_SERVICE: &str = "FailedToUpdateService";
pub const UPDATED_GATEWAY: &str = "UpdatedGateway";
pub const UPDATED_HTTP_ROUTE: &str = "UpdatedHTTPRoute";
pub const UPDATED_INGRESS: &str = "UpdatedIngress";
pub const UPDATED_SERVICE: &str = "UpdatedService";

// Certificates and network policies.
pub const CREATED_NETWORK_POLICY: &str = "CreatedNetworkPolicy";
pub const DELETED_NETWORK_POLICY: &str = "DeletedNetworkPolicy";
pub const FAILED_TO_CREATE_NETWORK_POLICY: &str = "FailedToCreateNetworkPolicy";
pub const FAILED_TO_DELETE_NETWORK_POLICY: &str = "FailedToDeleteNetworkPolicy";
pub const FAILED_TO_UPDATE_NETWORK_POLICY: &str = "FailedToUpdateNetworkPolicy";
pub const MTLS_CERTIFICATE_EXPIRING_SOON: &str = "MTLSCertificateExpiringSoon";
pub const MTLS_CERTIFICATES_UPDATED: &str = "MTLSCertificatesUpdated";
pub const MTLS_CERTS_NOT_READY: &str = "MTLSCertsNotReady";
pub const MTLS_FAILED_TO_RECONCILE: &str = "MTLSFailedToReconcile";
pub const MTLS_PKI_READY: &str = "MTLSPKIReady";
pub const NETWORK_POLICY_NAME_COLLISION: &str = "NetworkPolicyNameCollision";
pub const UPDATED_NETWORK_POLICY: &str = "UpdatedNetworkPolicy";

// Accounts, roles and volumes.
pub const AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND: &str = "AutoscalerServiceAccountNotFound";
pub const CREATED_PVC: &str = "CreatedPVC";
pub const CREATED_ROLE: &str = "CreatedRole";
pub const CREATED_ROLE_BINDING: &str = "CreatedRoleBinding";
pub const CREATED_SERVICE_ACCOUNT: &str = "CreatedServiceAccount";
pub const FAILED_TO_CREATE_PVC: &str = "FailedToCreatePVC";
pub const FAILED_TO_CREATE_ROLE: &str = "FailedToCreateRole";
pub const FAILED_TO_CREATE_ROLE_BINDING: &str = "FailedToCreateRoleBinding";
pub const FAILED_TO_CREATE_SERVICE_ACCOUNT: &str = "FailedToCreateServiceAccount";

// Batch schedulers.
pub const BATCH_SCHEDULER_CLEANED_UP: &str = "BatchSchedulerCleanedUp";
pub const FAILED_TO_CLEANUP_BATCH_SCHEDULER: &str = "FailedToCleanupBatchScheduler";
pub const FAILED_TO_CREATE_POD_GROUP: &str = "FailedToCreatePodGroup";
pub const FAILED_TO_CREATE_WORKLOAD: &str = "FailedToCreateWorkload";

// What is left of an earlier object of the same name.
pub const DELETED_LEFTOVER: &str = "DeletedLeftover";
pub const FAILED_TO_DELETE_LEFTOVER: &str = "FailedToDeleteLeftover";
