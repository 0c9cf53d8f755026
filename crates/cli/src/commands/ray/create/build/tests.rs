use super::*;

fn parsed(text: &str) -> ClusterConfig {
    ClusterConfig::parse(text).unwrap().with_defaults()
}

#[test]
fn an_empty_description_is_a_small_cluster() {
    let got = cluster(&parsed(""), "a", "n");
    let resources = json!({"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}});
    let ports = json!([
        {"containerPort": 6379, "name": "gcs-server"},
        {"containerPort": 8265, "name": "dashboard"},
        {"containerPort": 10001, "name": "client"},
    ]);
    let image = "rayproject/ray:2.52.0";
    let head = json!({"name": "ray-head", "image": image, "ports": ports, "resources": resources});
    let worker = json!({"name": "ray-worker", "image": image, "resources": resources});
    let expect = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "a", "namespace": "n"},
        "spec": {
            "rayVersion": "2.52.0",
            "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [head]}}},
            "workerGroupSpecs": [{"groupName": "default-group", "replicas": 1, "rayStartParams": {},
                "template": {"spec": {"containers": [worker]}}}],
        },
    });
    assert_eq!(got, expect);
}

#[test]
fn everything_in_a_file_is_used() {
    let text = "
namespace: team
name: a
labels: {team: ml}
annotations: {note: x}
ray-version: 2.53.0
service-account: runner
head: {cpu: 3, memory: 5Gi, gpu: 1, ephemeral-storage: 8Gi, ray-start-params: {metrics-export-port: '8082'}, node-selectors: {zone: a}}
worker-groups:
- {replicas: 2, num-of-hosts: 2, tpu: 4, cpu: 1, node-selectors: {cloud.google.com/gke-tpu-accelerator: v, cloud.google.com/gke-tpu-topology: 2x2}}
- {replicas: 0, gpu: '0'}
autoscaler: {version: v2}
gke: {gcsfuse: {bucket-name: b, mount-path: /data, mount-options: ro, disable-metrics: true, resources: {cpu: 250m, memory: 256Mi, ephemeral-storage: 5Gi}}}
";
    let config = parsed(text);
    config.validate().unwrap();
    let got = cluster(&config, "a", "n");
    let at = |path: &str| got.pointer(path).cloned().unwrap_or_default();
    assert_eq!(at("/metadata/labels"), json!({"team": "ml"}));
    assert_eq!(at("/spec/autoscalerOptions/version"), "v2");
    assert_eq!(at("/spec/enableInTreeAutoscaling"), true);
    let head = at("/spec/headGroupSpec");
    assert_eq!(head["rayStartParams"], json!({"metrics-export-port": "8082"}));
    let pod = &head["template"]["spec"];
    assert_eq!((&pod["serviceAccountName"], &pod["nodeSelector"]), (&json!("runner"), &json!({"zone": "a"})));
    let limits = json!({"memory": "5Gi", "ephemeral-storage": "8Gi", "nvidia.com/gpu": "1"});
    assert_eq!(pod["containers"][0]["resources"]["limits"], limits);
    assert_eq!(pod["containers"][0]["image"], "rayproject/ray:2.53.0");
    assert_eq!(pod["containers"][0]["volumeMounts"], json!([{"name": "cluster-storage", "mountPath": "/data"}]));
    let attributes = json!({"bucketName": "b", "mountOptions": "ro", "disableMetrics": "true"});
    assert_eq!(pod["volumes"][0]["csi"], json!({"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}));
    let annotations = &head["template"]["metadata"]["annotations"];
    assert_eq!(annotations["gke-gcsfuse/memory-request"], "256Mi");
    let names: Vec<Value> = (0..2).map(|n| at(&format!("/spec/workerGroupSpecs/{n}/groupName"))).collect();
    assert_eq!(names, ["default-group", "default-group-1"]);
    assert_eq!(at("/spec/workerGroupSpecs/0/template/spec/containers/0/resources/limits"), json!({"google.com/tpu": "4"}));
    assert_eq!(at("/spec/workerGroupSpecs/1/template/spec/containers/0/resources"), json!({"requests": {}, "limits": {}}));
}

#[test]
fn mistakes_are_named() {
    let check = |text: &str, expect: &str| {
        let got = ClusterConfig::parse(text).and_then(|config| config.validate());
        let got = got.map_err(|error| error.to_string());
        assert!(got.clone().is_err_and(|error| error.contains(expect)), "{text}: {got:?}");
    };
    check("headd: {}", "unknown field `headd`");
    check("head: {cpu: many}", "head-cpu is not a valid resource quantity: ");
    check("head: {memory: -1Gi}", "head-memory cannot be negative");
    check("worker-groups: [{tpu: 4}]", "cloud.google.com/gke-tpu-accelerator is not set in --worker-node-selectors. See https://");
    check("worker-groups: [{tpu: 4, num-of-hosts: 0}]", "numOfHosts cannot be 0 when using TPU");
    check("gke: {gcsfuse: {bucket-name: b}}", "missing field `mount-path`");
    check("autoscaler: {version: v3}", "unknown variant `v3`");
}
