//! Golden files of the objects and fields of every scheduler, and tables of the sums behind them.

use super::demand::{Demand, Resources};
use super::*;
use crate::action::Action;
use crate::build::submitter::Submitter;
use crate::build::testing::{cluster as small_cluster, head, worker};
use crate::cluster::InFlight;
use crate::job::tests::fixture;
use proptest::strategy::Strategy;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const ALL: [(BatchScheduler, &str); 5] = [
    (BatchScheduler::Volcano, "volcano"),
    (BatchScheduler::Yunikorn, "yunikorn"),
    (BatchScheduler::Kai, "kai"),
    (BatchScheduler::SchedulerPlugins, "scheduler_plugins"),
    (BatchScheduler::KubernetesWorkloads, "workload_aware"),
];

/// Returns a strategy for any scheduler or none.
pub(crate) fn any_scheduler() -> impl Strategy<Value = Option<BatchScheduler>> {
    let all = ALL.map(|(scheduler, _)| Some(scheduler));
    proptest::sample::select(all.into_iter().chain([None]).collect::<Vec<_>>())
}

fn with(scheduler: BatchScheduler) -> Config {
    Config { batch_scheduler: Some(scheduler), ..Config::default() }
}

/// Returns metadata with everything that a scheduler reads from its owner.
fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "namespace": "test-ns",
        "uid": "test-uid",
        "labels": {
            "ray.io/gang-scheduling-enabled": "true",
            "ray.io/priority-class-name": "high",
            "volcano.sh/queue-name": "q1",
            "volcano.sh/network-topology-mode": "hard",
            "volcano.sh/network-topology-highest-tier-allowed": "2",
            "yunikorn.apache.org/app-id": "app1",
            "yunikorn.apache.org/queue": "root.q",
            "kai.scheduler/queue": "team-a",
        },
        "annotations": {"note": "copied to Volcano's PodGroup"},
    })
}

fn resources(cpu: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": "8", "memory": "1Gi"}}})
}

fn cluster(given: Value) -> RayCluster {
    let mut all = json!({
        "metadata": metadata("demo"),
        "ray": resources("2"),
        "workerRay": resources("500m"),
        "worker": {"replicas": 3, "minReplicas": 1, "maxReplicas": 5},
        "workerPod": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]},
    });
    for (key, value) in given.as_object().unwrap() {
        all[key] = value.clone();
    }
    small_cluster(all)
}

fn job() -> RayJob {
    let mut job = fixture::job("train");
    job.metadata = serde_json::from_value(metadata("train")).unwrap();
    job.spec.ray_cluster_spec = Some(cluster(json!({})).spec);
    job
}

fn seen(cluster: RayCluster) -> cluster::Observed {
    cluster::Observed {
        cluster: Arc::new(cluster),
        pods: Vec::new(),
        earlier_pods: Vec::new(),
        services: Vec::new(),
        cleanup_jobs: Vec::new(),
        related: Vec::new(),
        in_flight: InFlight::default(),
        seed: 0,
    }
}

/// Returns the parts of an object that a scheduler changes.
fn scheduler_parts(metadata: &ObjectMeta, spec: Option<&PodSpec>) -> Value {
    let is_ours = |key: &&String| !key.starts_with("ray.io/") && !key.starts_with("app.kubernetes.io/");
    let ours = |map: &Option<BTreeMap<String, String>>| -> Value {
        let kept = map.iter().flatten().filter(|(key, _)| is_ours(key) || key.as_str() == labels::PRIORITY_CLASS_NAME);
        json!(kept.collect::<BTreeMap<_, _>>())
    };
    json!({
        "annotations": ours(&metadata.annotations),
        "labels": ours(&metadata.labels),
        "schedulerName": spec.and_then(|spec| spec.scheduler_name.clone()),
        "schedulingGroup": spec.and_then(|spec| spec.scheduling_group.clone()),
    })
}

#[test]
fn objects_and_fields_of_every_scheduler() {
    for (scheduler, name) in ALL {
        let config = with(scheduler);
        let cluster = cluster(json!({}));
        let (head, worker) = (head(&cluster, &config), worker(&cluster, &config));
        let job = job();
        let submitter = Submitter {
            job: &job,
            mode: Mode::K8sJob,
            cluster: &cluster,
            job_id: "id",
            dashboard_url: "host:8265",
            config: &config,
        };
        let template = submitter.job().unwrap().spec.unwrap().template;
        let mut of_job = ObjectMeta::default();
        mark_cluster(&job, &config, &mut of_job);
        let gang = plan_cluster_gang(&seen(cluster), &config);
        let made: Vec<Value> = gang
            .steps
            .iter()
            .map(|step| match &step.action {
                Action::Create { body, .. } => body.value(),
                other => panic!("{other:?}"),
            })
            .collect();
        insta::assert_yaml_snapshot!(
            name,
            json!({
                "head": scheduler_parts(&head.metadata, head.spec.as_ref()),
                "worker": scheduler_parts(&worker.metadata, worker.spec.as_ref()),
                "submitter": scheduler_parts(template.metadata.as_ref().unwrap(), template.spec.as_ref()),
                "cluster of a RayJob": scheduler_parts(&of_job, None),
                "objects": made,
            })
        );
    }
}

#[test]
fn without_a_scheduler_nothing_is_added_or_created() {
    let config = Config::default();
    let cluster = cluster(json!({}));
    let pod = head(&cluster, &config);
    assert_eq!(pod.spec.as_ref().unwrap().scheduler_name, None);
    assert_eq!(scheduler_parts(&pod.metadata, None)["labels"], json!({}));
    assert_eq!(plan_cluster_gang(&seen(cluster), &config), GangPlan::default());
    let seen = job::Observed { job: job(), ..job::Observed::default() };
    assert_eq!(plan_job_gang(&seen, Mode::K8sJob, &config), GangPlan::default());
    assert_eq!(shrink_job_gang(&seen, &config), None);
}

#[test]
fn demand_follows_the_spec() {
    let check = |given: Value, desired: (i32, Value), minimum: (i32, Value)| {
        let spec = cluster(given.clone()).spec;
        let parts = |demand: Demand| (demand.members, demand.resources.to_json());
        assert_eq!(parts(Demand::desired(&spec)), desired, "desired of {given}");
        assert_eq!(parts(Demand::minimum(&spec)), minimum, "minimum of {given}");
    };
    let all = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    check(json!({}), (4, all("3500m", "4Gi")), (4, all("3500m", "4Gi")));
    let autoscaled = json!({"enableInTreeAutoscaling": true});
    check(json!({"spec": autoscaled}), (4, all("3500m", "4Gi")), (2, all("2500m", "2Gi")));
    let above = json!({"replicas": 9, "minReplicas": 1, "maxReplicas": 5});
    check(json!({"worker": above}), (6, all("4500m", "6Gi")), (6, all("4500m", "6Gi")));
    let hosts = json!({"replicas": 2, "minReplicas": 1, "maxReplicas": 5, "numOfHosts": 4});
    check(json!({"worker": hosts, "spec": autoscaled}), (9, all("6", "9Gi")), (5, all("4", "5Gi")));
    let suspended = json!({"replicas": 3, "minReplicas": 1, "maxReplicas": 5, "suspend": true});
    check(json!({"worker": suspended, "spec": autoscaled}), (1, all("2", "1Gi")), (1, all("2", "1Gi")));
    let none = json!({"replicas": 0, "minReplicas": 0, "maxReplicas": 5});
    check(json!({"worker": none}), (1, all("2", "1Gi")), (1, all("2", "1Gi")));
    let unset = json!({"minReplicas": 2, "maxReplicas": 5});
    check(json!({"worker": unset}), (3, all("3", "3Gi")), (3, all("3", "3Gi")));
}

#[test]
fn the_resources_of_a_pod_are_requests_or_else_limits_of_all_containers() {
    let pod: PodSpec = serde_json::from_value(json!({
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "7"}}}],
        "containers": [
            {"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", "nvidia.com/gpu": "2"}}},
            {"name": "b", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}},
            {"name": "c"},
        ],
    }))
    .unwrap();
    let expect = json!({"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"});
    assert_eq!(Resources::of_pod(Some(&pod)).to_json(), expect);
    assert_eq!(Resources::of_pod(None).to_json(), json!({}));
}

#[test]
fn a_pod_group_is_compared_by_amount() {
    let demand = Demand::desired(&cluster(json!({})).spec);
    let check = |spec: Value, expect: bool| assert_eq!(demand.is_met_by(&spec), expect, "{spec}");
    check(json!({"minMember": 4, "minResources": {"cpu": "3500m", "memory": "4Gi"}}), true);
    check(json!({"minMember": 4, "minResources": {"cpu": 3.5, "memory": 4_294_967_296_i64}}), true);
    check(json!({"minMember": 4, "minResources": {"cpu": "3500m", "memory": "4Gi", "nvidia.com/gpu": "1"}}), false);
    check(json!({"minMember": 4, "minResources": {"cpu": "3500m"}}), false);
    check(json!({"minMember": 5, "minResources": {"cpu": "3500m", "memory": "4Gi"}}), false);
    check(json!({}), false);
    assert!(Demand::default().is_met_by(&json!({"minResources": {}})));
}

#[test]
fn yunikorn_task_groups_follow_the_spec_and_the_annotation() {
    let groups = |cluster: &RayCluster| -> Option<String> {
        let pod = worker(cluster, &with(BatchScheduler::Yunikorn));
        pod.metadata.annotations.unwrap_or_default().get("yunikorn.apache.org/task-groups").cloned()
    };
    let mut cluster = cluster(json!({
        "workerPod": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"values": ["a&b"], "operator": "In", "key": "zone"}]},
        ]}}}},
        "worker": {"replicas": 3, "maxReplicas": 5, "numOfHosts": 2, "suspend": true},
    }));
    let expect = concat!(
        r#"[{"minResource":{"cpu":"2","memory":"1Gi"},"name":"headgroup","minMember":1},"#,
        r#"{"minResource":{"cpu":"500m","memory":"1Gi"},"affinity":{"nodeAffinity":"#,
        r#"{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":"#,
        r#"[{"matchExpressions":[{"key":"zone","operator":"In","values":["a\u0026b"]}]}]}}},"#,
        r#""name":"small","minMember":0}]"#,
    );
    assert_eq!(groups(&cluster).as_deref(), Some(expect));
    let annotations = cluster.metadata.annotations.as_mut().unwrap();
    annotations.insert("yunikorn.apache.org/task-groups".into(), "[]".into());
    assert_eq!(groups(&cluster).as_deref(), Some("[]"));
    cluster.metadata.labels.as_mut().unwrap().remove(labels::GANG_SCHEDULING);
    assert_eq!(groups(&cluster), None);
}

#[test]
fn a_submitter_on_a_selected_cluster_belongs_to_no_gang() {
    let mut job = job();
    job.spec.cluster_selector = Some([(labels::CLUSTER.to_owned(), "shared".to_owned())].into());
    for (scheduler, name) in ALL {
        let mut template = PodTemplateSpec::default();
        mark_submitter(&job, &with(scheduler), &mut template);
        let metadata = template.metadata.unwrap();
        assert_eq!(metadata.annotations, None, "{name}");
        let group = metadata.labels.unwrap_or_default().into_keys().find(|key| key.contains("pod-group"));
        assert_eq!(group, None, "{name}");
    }
}

#[test]
fn readers_are_found_by_object_name() {
    let check = |kind: Kind, name: &str, expect: &[(Kind, &str)]| {
        let expect: Vec<ObjectKey> = expect.iter().map(|(kind, name)| ObjectKey::new(*kind, "ns", name)).collect();
        assert_eq!(readers(kind, "ns", name), expect, "{kind:?} {name}");
    };
    let volcano = Kind::PodGroup(PodGroupApi::Volcano);
    check(volcano, "ray-a-pg", &[(Kind::RayCluster, "a"), (Kind::RayJob, "a")]);
    check(volcano, "podgroup-7", &[]);
    check(volcano, "ray-pg", &[]);
    check(Kind::PodGroup(PodGroupApi::SchedulerPlugins), "a", &[(Kind::RayCluster, "a")]);
    check(Kind::PodGroup(PodGroupApi::KubernetesWorkloads), "a-cluster", &[(Kind::RayCluster, "a")]);
    check(Kind::PodGroup(PodGroupApi::KubernetesWorkloads), "a", &[]);
    check(Kind::Workload, "a", &[(Kind::RayCluster, "a")]);
    check(Kind::Role, "a", &[]);
    assert_eq!(job_pod_group("a", &with(BatchScheduler::Volcano)), Some((volcano, "ray-a-pg".to_owned())));
    assert_eq!(job_pod_group("a", &with(BatchScheduler::Kai)), None);
}

#[test]
fn only_the_kinds_of_the_scheduler_are_watched() {
    let kinds = |scheduler: BatchScheduler, labels: &[(&str, &str)]| {
        let mut cluster = cluster(json!({}));
        cluster.metadata.labels = Some(labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
        cluster_kinds(&cluster, &with(scheduler)).len()
    };
    let gang = [(labels::GANG_SCHEDULING, "")];
    let of_job = [(labels::ORIGINATED_FROM_CRD, "RayJob")];
    for (scheduler, expect) in [
        (BatchScheduler::Volcano, [1, 1, 0]),
        (BatchScheduler::Yunikorn, [0, 0, 0]),
        (BatchScheduler::Kai, [0, 0, 0]),
        (BatchScheduler::SchedulerPlugins, [0, 1, 0]),
        (BatchScheduler::KubernetesWorkloads, [2, 2, 2]),
    ] {
        assert_eq!([&[][..], &gang[..], &of_job[..]].map(|labels| kinds(scheduler, labels)), expect, "{scheduler:?}");
    }
}
