//! Keys of labels, annotations and finalizers, and the values that have a meaning.

pub const CLUSTER: &str = "ray.io/cluster";
pub const NODE_TYPE: &str = "ray.io/node-type";
pub const GROUP: &str = "ray.io/group";
pub const IS_RAY_NODE: &str = "ray.io/is-ray-node";
pub const IDENTIFIER: &str = "ray.io/identifier";
pub const APP_NAME: &str = "app.kubernetes.io/name";
pub const CREATED_BY: &str = "app.kubernetes.io/created-by";
pub const COMPONENT: &str = "app.kubernetes.io/component";
pub const SERVE: &str = "ray.io/serve";
pub const HEADLESS_WORKER_SERVICE: &str = "ray.io/headless-worker-svc";
pub const ORIGINATED_FROM_CR_NAME: &str = "ray.io/originated-from-cr-name";
pub const ORIGINATED_FROM_CRD: &str = "ray.io/originated-from-crd";
pub const JOB_SUBMISSION_MODE: &str = "ray.io/job-submission-mode";
pub const REPLICA_INDEX: &str = "ray.io/worker-group-replica-index";
pub const REPLICA_NAME: &str = "ray.io/worker-group-replica-name";
pub const HOST_INDEX: &str = "ray.io/replica-host-index";
pub const CRONJOB_NAME: &str = "ray.io/cronjob-name";
pub const PRIORITY_CLASS_NAME: &str = "ray.io/priority-class-name";
pub const GANG_SCHEDULING: &str = "ray.io/gang-scheduling-enabled";
/// The queue of Kueue that admits an object by setting `suspend` to `false`.
pub const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Values of [`NODE_TYPE`].
pub const HEAD: &str = "head";
pub const WORKER: &str = "worker";
pub const REDIS_CLEANUP: &str = "redis-cleanup";
/// Value of [`GROUP`] on the head Pod.
pub const HEAD_GROUP: &str = "headgroup";
/// Value of [`APP_NAME`].
pub const KUBERAY: &str = "kuberay";
/// Value of [`CREATED_BY`].
pub const KUBERAY_OPERATOR: &str = "kuberay-operator";
/// The value of `spec.managedBy` for this operator.
pub const MANAGED_BY_SELF: &str = "ray.io/kuberay-operator";

/// Returns whether `spec.managedBy` leaves an object to this operator.
pub fn is_managed_by_self(managed_by: Option<&str>) -> bool {
    managed_by.is_none_or(|manager| manager == MANAGED_BY_SELF)
}

/// Annotations.
pub mod annotation {
    pub const FT_ENABLED: &str = "ray.io/ft-enabled";
    pub const EXTERNAL_STORAGE_NAMESPACE: &str = "ray.io/external-storage-namespace";
    pub const GCS_FT_DELETION_TIMEOUT: &str = "ray.io/gcs-ft-deletion-timeout";
    pub const OVERWRITE_CONTAINER_CMD: &str = "ray.io/overwrite-container-cmd";
    pub const ENABLE_SERVE_SERVICE: &str = "ray.io/enable-serve-service";
    pub const RECREATE_HASH: &str = "ray.io/upgrade-strategy-recreate-hash";
    pub const KUBERAY_VERSION: &str = "ray.io/kuberay-version";
    pub const SERVICE_HASH: &str = "ray.io/hash-without-replicas-and-workers-to-delete";
    pub const NUM_WORKER_GROUPS: &str = "ray.io/num-worker-groups";
    pub const DISABLE_HEAD_RESTART: &str = "ray.io/disable-provisioned-head-restart";
    pub const INITIALIZING_TIMEOUT: &str = "ray.io/initializing-timeout";
    /// How long an upgrade of a RayService may make no progress before it is rolled back; `0` waits forever.
    pub const UPGRADE_TIMEOUT: &str = "ray.io/upgrade-timeout";
    pub const CRONJOB_SCHEDULED: &str = "ray.io/cronjob-scheduled-timestamp";
    /// The time after which a RayCluster that its RayService no longer uses can be deleted.
    pub const DELETE_AFTER: &str = "ray.io/delete-after";
    /// The `proxy_location` of a RayService, on its RayClusters, where workers run no Serve proxy.
    pub const SERVE_PROXY_LOCATION: &str = "ray.io/serve-proxy-location";
    pub const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";
}

/// Finalizers.
pub mod finalizer {
    pub const REDIS_CLEANUP: &str = "ray.io/gcs-ft-redis-cleanup-finalizer";
    pub const RAY_JOB: &str = "ray.io/rayjob-finalizer";
    pub const RAY_SERVICE: &str = "ray.io/rayservice-finalizer";
}
