//! The Job that removes a deleted cluster's state from Redis.
//!
//! It runs in a Pod like the head's, whose environment holds the address and the credentials of Redis.

use super::{owner, pod};
use crate::cluster_spec;
use crate::config::Config;
use crate::labels;
use crate::names::clip63;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::RayCluster;

/// Seconds after which Kubernetes fails the Job.
const DEADLINE_SECONDS: i64 = 300;

/// Returns the name of a cluster's cleanup Job.
pub fn redis_cleanup_job_name(cluster: &str) -> String {
    clip63(&format!("{cluster}-redis-cleanup"))
}

/// Returns the cleanup Job.
pub fn redis_cleanup_job(cluster: &RayCluster, config: &Config) -> Job {
    let mut pod = pod::head_pod_of_job(cluster, config);
    let pod_labels = pod.metadata.labels.get_or_insert_default();
    pod_labels.insert(labels::NODE_TYPE.to_owned(), labels::REDIS_CLEANUP.to_owned());
    let metadata = ObjectMeta {
        name: Some(redis_cleanup_job_name(cluster_spec::name(cluster))),
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
        set_cleanup_command(ray, config);
    }
    // No certificate contains the address of a Job's Pod, so it would wait forever.
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

/// Makes the Ray container clean up instead of starting Ray.
fn set_cleanup_command(ray: &mut Container, config: &Config) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{arg, cluster, env, env_names, head, valid};
    use serde_json::{Value, json};

    fn made(given: Value) -> (Job, Container) {
        let cluster = cluster(given);
        let job = redis_cleanup_job(&valid(&cluster), &Config::default());
        let pod = job.spec.as_ref().unwrap().template.spec.clone().unwrap();
        assert_eq!(pod.containers.len(), 1);
        assert_eq!(pod.restart_policy.as_deref(), Some("Never"));
        (job, pod.containers.into_iter().next().unwrap())
    }

    #[test]
    fn the_job_runs_in_a_pod_like_the_heads() {
        let given = json!({
            "spec": {
                "gcsFaultToleranceOptions": {"redisAddress": "redis:6379"},
                "enableInTreeAutoscaling": true,
                "tlsOptions": {"enabled": true},
            },
            "ray": {"resources": {"limits": {"cpu": "4", "memory": "8Gi"}}},
            "pod": {"initContainers": [{"name": "mine"}], "sidecars": [{"name": "users"}]},
        });
        let (job, ray) = made(given.clone());
        assert_eq!(job.metadata.name.as_deref(), Some("test-cluster-redis-cleanup"));
        let spec = job.spec.unwrap();
        assert_eq!((spec.backoff_limit, spec.active_deadline_seconds), (Some(0), Some(300)));
        let template = spec.template.metadata.unwrap();
        assert_eq!(job.metadata.labels, template.labels);
        assert_eq!(job.metadata.annotations, template.annotations);
        assert_eq!((template.name, template.generate_name.as_deref()), (None, Some("test-cluster-head-")));
        let labels = template.labels.unwrap();
        assert_eq!(labels[labels::NODE_TYPE], labels::REDIS_CLEANUP);
        assert_eq!(labels[labels::GROUP], labels::HEAD_GROUP);
        let annotations = json!({"ray.io/ft-enabled": "true", "ray.io/external-storage-namespace": "test-uid"});
        assert_eq!(json!(template.annotations), annotations);

        let pod = spec.template.spec.unwrap();
        let init = pod.init_containers.unwrap();
        assert_eq!(init.iter().map(|container| container.name.as_str()).collect::<Vec<_>>(), ["mine"]);
        let shared_memory = pod.volumes.unwrap().into_iter().find(|volume| volume.name == "shared-mem").unwrap();
        assert_eq!(json!(shared_memory.empty_dir), json!({"medium": "Memory", "sizeLimit": "8Gi"}));

        let head = head(&cluster(given), &Config::default());
        let of_head = crate::build::testing::ray(&head);
        let mut names = env_names(of_head);
        names.extend(["RAY_redis_db_connect_retries", "RAY_redis_db_connect_wait_milliseconds"]);
        assert_eq!(env_names(&ray), names);
        assert_eq!(env(&ray, "RAY_redis_db_connect_retries"), Some("120"));
        assert_eq!(env(&ray, "RAY_redis_db_connect_wait_milliseconds"), Some("500"));
        assert_eq!((&ray.liveness_probe, &ray.readiness_probe), (&None, &None));
        assert_eq!((&ray.ports, &ray.volume_mounts), (&of_head.ports, &of_head.volume_mounts));
        assert_eq!(json!(ray.resources), json!(pod::requirements("200m", "256Mi")));
    }

    #[test]
    fn the_script_passes_the_redis_username() {
        let (_, plain) = made(json!({"spec": {"gcsFaultToleranceOptions": {}}}));
        let named = json!({"redisUsername": {"value": "someone"}});
        let (_, named) = made(json!({"spec": {"gcsFaultToleranceOptions": named}}));
        let username = "port=parsed.port, username=os.getenv('REDIS_USERNAME', parsed.username), password=";
        assert_eq!(arg(&named).replace(username, "port=parsed.port, password="), arg(&plain));
        assert_ne!(arg(&named), arg(&plain));
    }

    #[test]
    fn long_names_keep_their_end() {
        let name = redis_cleanup_job_name(&"c".repeat(53));
        assert_eq!((name.len(), name.ends_with("ccc-redis-cleanup")), (63, true));
    }
}
