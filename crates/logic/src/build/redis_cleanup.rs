//! The Job that removes a deleted cluster's state from Redis.
//!
//! It runs in a Pod like the head's, with the same environment, which knows how Redis is reached.

use super::cluster_facts as facts;
use super::{owner, pod};
use crate::config::Config;
use crate::labels;
use crate::names::clip63;
use crate::validate::ValidCluster;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Seconds after which Kubernetes gives the Job up.
const DEADLINE_SECONDS: i64 = 300;

/// The name of a cluster's cleanup Job.
pub fn redis_cleanup_job_name(cluster: &str) -> String {
    clip63(&format!("{cluster}-redis-cleanup"))
}

/// The cleanup Job.
pub fn redis_cleanup_job(cluster: &ValidCluster<'_>, config: &Config) -> Job {
    let mut pod = pod::head_pod_of_job(cluster, config);
    let pod_labels = pod.metadata.labels.get_or_insert_default();
    pod_labels.insert(labels::NODE_TYPE.to_owned(), labels::REDIS_CLEANUP.to_owned());
    let metadata = ObjectMeta {
        name: Some(redis_cleanup_job_name(facts::name(cluster))),
        namespace: cluster.metadata.namespace.clone(),
        labels: pod.metadata.labels.clone(),
        annotations: pod.metadata.annotations.clone(),
        owner_references: Some(vec![owner::cluster_reference(cluster)]),
        ..ObjectMeta::default()
    };
    let mut spec = pod.spec.unwrap_or_default();
    spec.restart_policy = Some("Never".to_owned());
    spec.containers.truncate(1);
    if let Some(ray) = spec.containers.first_mut() {
        clean_up_instead(ray, config);
    }
    // A Pod of a Job is in no certificate, so it would wait for ever.
    if let Some(init) = &mut spec.init_containers {
        init.retain(|container| container.name != pod::WAIT_FOR_IP_SAN);
    }
    let job = JobSpec {
        backoff_limit: Some(0),
        active_deadline_seconds: Some(DEADLINE_SECONDS),
        template: PodTemplateSpec { metadata: Some(pod.metadata), spec: Some(spec) },
        ..JobSpec::default()
    };
    Job { metadata, spec: Some(job), status: None }
}

/// Has the Ray container clean up instead of starting Ray.
fn clean_up_instead(ray: &mut Container, config: &Config) {
    let script = script(pod::has_env(ray, "REDIS_USERNAME"));
    ray.command = Some(pod::shell(config));
    ray.args = Some(vec![script]);
    ray.liveness_probe = None;
    ray.readiness_probe = None;
    ray.resources = Some(pod::requirements("200m", "256Mi"));
    ray.env.get_or_insert_default().extend([
        pod::env_literal("RAY_redis_db_connect_retries", "120"),
        pod::env_literal("RAY_redis_db_connect_wait_milliseconds", "500"),
    ]);
}

fn script(has_username: bool) -> String {
    let username = if has_username { "username=os.getenv('REDIS_USERNAME', parsed.username), " } else { "" };
    format!(
        "echo \"To get more information about manually deleting the storage namespace in Redis and removing the \
         RayCluster's finalizer, please check \
         https://docs.ray.io/en/master/cluster/kubernetes/user-guides/kuberay-gcs-ft.html for more details.\" && \
         python -c \"from ray._private.gcs_utils import cleanup_redis_storage; from urllib.parse import urlparse; \
         import os; import sys; redis_address = os.getenv('RAY_REDIS_ADDRESS', '').split(',')[0]; \
         redis_address = redis_address if '://' in redis_address else 'redis://' + redis_address; \
         parsed = urlparse(redis_address); \
         sys.exit(1) if not cleanup_redis_storage(host=parsed.hostname, port=parsed.port, {username}\
         password=os.getenv('REDIS_PASSWORD', parsed.password or ''), use_ssl=parsed.scheme=='rediss', \
         storage_namespace=os.getenv('RAY_external_storage_namespace')) else None\""
    )
}
