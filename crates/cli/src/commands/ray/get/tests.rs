use super::*;

fn query(view: &'static View, all_namespaces: bool, output: Option<Format>) -> Query {
    Query { view, name: None, cluster: None, all_namespaces, output }
}

fn check(query: &Query, objects: Value, pods: Value, expect: &str) {
    let objects: Vec<DynamicObject> = serde_json::from_value(objects).unwrap();
    let pods: Vec<Pod> = serde_json::from_value(pods).unwrap();
    let rows = (query.view.rows)(query, &objects, &pods).unwrap();
    let cells = rows.rows.iter().map(|row| row.cells.clone()).collect();
    let style = Style { now: "2026-01-01T00:10:00Z".parse().unwrap(), colour: false, header: true };
    let text = Table { columns: rows.columns, rows: cells }.format(style);
    assert_eq!(text, expect);
}

fn cluster() -> Value {
    let container = json!({"name": "ray-worker", "image": "i", "resources":
        {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"google.com/tpu": "4"}}});
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "rayVersion": "2.52.0",
            "headGroupSpec": {"template": {}},
            "workerGroupSpecs": [
                {"groupName": "tpu", "replicas": 3, "minReplicas": 1, "maxReplicas": 5, "numOfHosts": 2,
                    "template": {"spec": {"containers": [container]}}},
                {"groupName": "cpu", "replicas": 1, "template": {}},
            ],
        },
        "status": {
            "desiredWorkerReplicas": 7, "availableWorkerReplicas": 2, "desiredCPU": "14", "desiredMemory": "28Gi",
            "state": "ready", "head": {"podName": "a-head", "podIP": "10.0.0.1"},
            "conditions": [
                {"type": "HeadPodReady", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "RayClusterProvisioned", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ],
        },
    })
}

fn worker(name: &str, group: &str, ready: &str) -> Value {
    let labels = json!({"ray.io/cluster": "a", "ray.io/group": group, "ray.io/node-type": "worker"});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "n", "labels": labels, "creationTimestamp": "2026-01-01T00:09:30Z"},
        "spec": {"containers": [
            {"name": "ray-worker", "resources": {"requests": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"}}},
            {"name": "sidecar", "resources": {"requests": {"cpu": "1"}}},
        ]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    })
}

#[test]
fn clusters_have_the_columns_of_the_plugin() {
    check(
        &query(&cluster::VIEW, false, None),
        json!([cluster()]),
        json!([]),
        "\
NAME   NAMESPACE   DESIRED WORKERS   AVAILABLE WORKERS   CPUS   GPUS   TPUS   MEMORY   CONDITION               STATUS   AGE
a      n           7                 2                   14     0      0      28Gi     RayClusterProvisioned   ready    10m
",
    );
    check(
        &query(&cluster::VIEW, false, None),
        json!([]),
        json!([]),
        "NAME   NAMESPACE   DESIRED WORKERS   AVAILABLE WORKERS   CPUS   GPUS   TPUS   MEMORY   CONDITION   STATUS   AGE\n",
    );
}

#[test]
fn worker_groups_count_all_hosts() {
    let pods = json!([worker("w1", "tpu", "True"), worker("w2", "tpu", "False"), worker("w3", "other", "True")]);
    check(
        &query(&workergroup::VIEW, true, None),
        json!([cluster()]),
        pods,
        "\
NAMESPACE   NAME   MIN   MAX          REPLICAS   CPUS   GPUS   TPUS   MEMORY   CLUSTER
n           tpu    1     5            1/6        12     0      24     24Gi     a
n           cpu    0     2147483647   0/1        0      0      0      0        a
",
    );
}

#[test]
fn nodes_show_the_requests_of_the_ray_container() {
    check(
        &query(&node::VIEW, false, None),
        json!([worker("w1", "tpu", "True")]),
        json!([]),
        "\
NAME   CPUS   GPUS   TPUS   MEMORY   CLUSTER   TYPE     WORKER GROUP   AGE
w1     2      1      0      4Gi      a         worker   tpu            30s
",
    );
}

#[test]
fn jobs_services_and_cronjobs_have_tables() {
    let metadata = json!({"name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": {}, "status": {
        "jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "rayClusterName": "a-x", "startTime": "2026-01-01T00:01:02Z"}});
    check(
        &query(&job::VIEW, false, None),
        json!([job]),
        json!([]),
        "\
NAME   NAMESPACE   JOB STATUS   DEPLOYMENT STATUS   RAY CLUSTER NAME   START TIME             END TIME   AGE
a      n           FAILED       Failed              a-x                2026-01-01T00:01:02Z              10m
",
    );
    let applications = json!({"x": {"status": "RUNNING"}, "y": {"status": "DEPLOYING"}});
    let service = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": metadata,
        "spec": {"rayClusterConfig": {"headGroupSpec": {"template": {}}}},
        "status": {"serviceStatus": "Running", "numServeEndpoints": 2,
            "activeServiceStatus": {"rayClusterName": "a-x", "applicationStatuses": applications}}});
    check(
        &query(&service::VIEW, false, Some(Format::Wide)),
        json!([service]),
        json!([]),
        "\
NAME   NAMESPACE   STATUS    NUM SERVE ENDPOINTS   APPLICATIONS   AGE   ACTIVE CLUSTER   PENDING CLUSTER
a      n           Running   2                     1/2            10m   a-x              \n",
    );
    let cronjob = json!({"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": metadata,
        "spec": {"schedule": "0 * * * *", "jobTemplate": {"entrypoint": "ls"}}});
    check(
        &query(&cronjob::VIEW, false, None),
        json!([cronjob]),
        json!([]),
        "\
NAME   NAMESPACE   SCHEDULE    SUSPEND   LAST SCHEDULE   AGE
a      n           0 * * * *   false                     10m
",
    );
}

#[test]
fn the_server_selects_what_it_can() {
    let mut by_name = query(&cluster::VIEW, false, None);
    by_name.name = Some("a".to_owned());
    assert_eq!(by_name.selection().field_selector.as_deref(), Some("metadata.name=a"));
    let mut of_cluster = query(&node::VIEW, false, None);
    of_cluster.cluster = Some("a".to_owned());
    assert_eq!(of_cluster.selection().label_selector.as_deref(), Some("ray.io/is-ray-node=yes,ray.io/cluster=a"));
    let mut group = query(&workergroup::VIEW, false, None);
    group.name = Some("g".to_owned());
    assert_eq!(group.selection().field_selector, None, "a group has another name than its cluster");
}
