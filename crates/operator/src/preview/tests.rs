//! Previews on objects in memory.

use super::*;
use manta_logic::config::BatchScheduler;
use serde_json::json;

fn now() -> Timestamp {
    "2026-03-01T08:00:00Z".parse().unwrap()
}

fn container(name: &str) -> Value {
    json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.53.0"}]}})
}

fn cluster_spec() -> Value {
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": container("ray-head")},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": 2, "minReplicas": 0, "maxReplicas": 5, "numOfHosts": 1,
            "rayStartParams": {}, "template": container("ray-worker"),
        }],
    })
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "ns"}, "spec": spec})
}

/// Previews the manifests on the objects. Returns the changes and the objects as they are afterwards.
async fn run(objects: Vec<Value>, manifests: Vec<Value>) -> (Preview, Vec<Value>) {
    run_with(&Config::default(), objects, manifests).await
}

async fn run_with(config: &Config, objects: Vec<Value>, manifests: Vec<Value>) -> (Preview, Vec<Value>) {
    let cluster = Cluster::Objects(objects);
    let mut run = Run::new(&cluster, config, now());
    run.load(manifests).await.unwrap();
    let scope = run.world.ray_objects().into_iter().collect();
    run.rounds(scope).await.unwrap();
    let after = run.world.all().map(|(key, object)| {
        let mut object = object.clone();
        object["apiVersion"] = json!(key.kind.resource().api_version());
        object["kind"] = json!(key.kind.resource().kind);
        if key.kind == Kind::Pod {
            object["status"] = json!({
                "phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}],
            });
        }
        object
    });
    let after = after.collect();
    (run.preview, after)
}

/// Returns the changes, one line each, with the names of Pods and generated clusters cut.
fn lines(preview: &Preview) -> Vec<String> {
    let line = |change: &Change| {
        let verb = match change.action {
            Action::Create { .. } => "create",
            Action::Replace { .. } => "replace",
            Action::Merge { .. } => "patch",
            Action::Delete { .. } => "delete",
            Action::Ray { .. } => "request",
        };
        format!("{verb} {}", change.action.key().kind.resource().kind)
    };
    preview.changes.iter().map(line).collect()
}

/// Returns the objects of a cluster at rest, with ready Pods.
async fn at_rest(manifest: Value) -> Vec<Value> {
    at_rest_with(&Config::default(), manifest).await
}

async fn at_rest_with(config: &Config, manifest: Value) -> Vec<Value> {
    let (_, mut objects) = run_with(config, Vec::new(), vec![manifest]).await;
    // What follows from ready Pods: a status, and for other kinds than RayCluster more objects.
    for _ in 0..3 {
        objects = run_with(config, objects, Vec::new()).await.1;
    }
    let (preview, objects) = run_with(config, objects, Vec::new()).await;
    assert_eq!(lines(&preview), Vec::<String>::new());
    objects
}

fn position(objects: &[Value], kind: &str) -> usize {
    objects.iter().position(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[tokio::test]
async fn a_new_cluster_gets_its_service_and_pods_with_reasons() {
    let (preview, _) = run(Vec::new(), vec![object("RayCluster", "demo", cluster_spec())]).await;
    assert_eq!(lines(&preview), ["create Service", "create Pod", "create Pod", "create Pod"]);
    assert!(preview.changes.iter().all(|change| !change.why.is_empty() && change.owner.name == "demo"));
    assert!(preview.changes.iter().all(|change| change.before.is_none() && change.after.is_some()));
    assert_eq!(preview.objects, 1);
}

#[tokio::test]
async fn what_follows_from_a_job_is_shown_too() {
    let spec = json!({"entrypoint": "python x.py", "rayClusterSpec": cluster_spec()});
    let (preview, _) = run(Vec::new(), vec![object("RayJob", "train", spec)]).await;
    let lines = lines(&preview);
    assert!(lines.contains(&"create RayCluster".to_owned()), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| *line == "create Pod").count(), 3, "{lines:?}");
    assert_eq!(preview.objects, 2, "the RayJob and its RayCluster");
    assert!(preview.remarks.iter().any(|remark| remark.kind == RemarkKind::Waiting), "{:?}", preview.remarks);
}

#[tokio::test]
async fn a_service_gets_a_cluster() {
    let spec = json!({"serveConfigV2": "applications: []\n", "rayClusterConfig": cluster_spec()});
    let (preview, _) = run(Vec::new(), vec![object("RayService", "web", spec)]).await;
    let lines = lines(&preview);
    assert!(lines.contains(&"create RayCluster".to_owned()), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| *line == "create Pod").count(), 3, "{lines:?}");
}

#[tokio::test]
async fn a_cluster_at_rest_has_an_empty_plan_and_each_planted_difference_is_found() {
    let mut spec = cluster_spec();
    spec["enableInTreeAutoscaling"] = json!(true);
    spec["authOptions"] = json!({"mode": "token"});
    spec["headGroupSpec"]["enableIngress"] = json!(true);
    let manifest = object("RayCluster", "demo", spec.clone());
    let objects = at_rest(manifest.clone()).await;
    let check = async |what: &str, plant: &dyn Fn(&mut Vec<Value>), expect: &[&str]| {
        let mut planted = objects.clone();
        plant(&mut planted);
        let (preview, _) = run(planted, Vec::new()).await;
        assert_eq!(lines(&preview), expect, "{what}");
    };
    check("nothing", &|_| {}, &[]).await;
    for kind in ["Service", "Secret", "ServiceAccount", "Role", "RoleBinding", "Ingress"] {
        let expect = format!("create {kind}");
        let plant = |objects: &mut Vec<Value>| drop(objects.remove(position(objects, kind)));
        check(kind, &plant, &[&expect]).await;
    }
    let change_ingress = |objects: &mut Vec<Value>| {
        let at = position(objects, "Ingress");
        objects[at]["spec"]["rules"] = json!([]);
    };
    check("the Ingress's rules", &change_ingress, &["replace Ingress"]).await;
    let is_head = |object: &Value| object["metadata"]["labels"]["ray.io/node-type"] == "head";
    let lose_head = |objects: &mut Vec<Value>| objects.retain(|object| !(object["kind"] == "Pod" && is_head(object)));
    check("the head", &lose_head, &["create Pod"]).await;
    let fail_head = |objects: &mut Vec<Value>| {
        let head = objects.iter_mut().find(|object| object["kind"] == "Pod" && is_head(object)).unwrap();
        head["status"]["phase"] = json!("Failed");
    };
    check("a failed head", &fail_head, &["delete Pod", "create Pod"]).await;
    let scale = |objects: &mut Vec<Value>| {
        let at = position(objects, "RayCluster");
        objects[at]["spec"]["workerGroupSpecs"][0]["replicas"] = json!(3);
        objects[at]["metadata"]["generation"] = json!(2);
    };
    check("replicas", &scale, &["create Pod"]).await;
}

#[tokio::test]
async fn what_is_missing_of_each_feature_is_created_again() {
    let check = async |what: &str, config: &Config, manifest: Value, kinds: &[&str]| {
        let objects = at_rest_with(config, manifest).await;
        for kind in kinds {
            let mut planted = objects.clone();
            let gone = planted.remove(position(&planted, kind));
            let (preview, _) = run_with(config, planted, Vec::new()).await;
            let name = gone["metadata"]["name"].as_str().unwrap();
            let is_it = |change: &Change| {
                let key = change.action.key();
                matches!(change.action, Action::Create { .. }) && key.kind.resource().kind == *kind && key.name == name
            };
            assert!(preview.changes.iter().any(is_it), "{what}: {kind} {name}: {:?}", lines(&preview));
            assert!(preview.changes.iter().filter(|change| is_it(change)).all(|change| !change.why.is_empty()));
        }
    };
    let with = |field: &str, value: Value| {
        let mut spec = cluster_spec();
        spec[field] = value;
        object("RayCluster", "demo", spec)
    };

    let mut config = Config::default();
    config.gates.ray_cluster_network_policy = true;
    check("isolation", &config, with("networkPolicy", json!({"mode": "DenyAll"})), &["NetworkPolicy"]).await;

    let mut config = Config::default();
    config.gates.ray_cluster_mtls = true;
    config.platform.cert_manager = true;
    check("TLS", &config, with("tlsOptions", json!({"enabled": true})), &["Issuer", "Certificate"]).await;

    let mut config = Config::default();
    config.gates.gcs_fault_tolerance_embedded_storage = true;
    let options = json!({"backend": "rocksdb", "storage": {"size": "1Gi"}});
    check("storage", &config, with("gcsFaultToleranceOptions", options), &["PersistentVolumeClaim"]).await;

    let config = Config { batch_scheduler: Some(BatchScheduler::Volcano), ..Config::default() };
    check("a gang", &config, object("RayCluster", "demo", cluster_spec()), &["PodGroup"]).await;

    let spec = json!({"entrypoint": "python x.py", "rayClusterSpec": cluster_spec()});
    check("a job", &Config::default(), object("RayJob", "train", spec), &["Job"]).await;

    let spec = json!({"serveConfigV2": "applications: []\n", "rayClusterConfig": cluster_spec()});
    check("a service", &Config::default(), object("RayService", "web", spec), &["Service"]).await;

    let mut config = Config::default();
    config.platform.gateway_api = true;
    let mut autoscaled = cluster_spec();
    autoscaled["enableInTreeAutoscaling"] = json!(true);
    let options =
        json!({"gatewayClassName": "istio", "stepSizePercent": 10, "intervalSeconds": 30, "maxSurgePercent": 10});
    let spec = json!({
        "serveConfigV2": "applications: []\n", "rayClusterConfig": autoscaled,
        "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options},
    });
    let manifest = object("RayService", "web", spec);
    check("an incremental upgrade", &config, manifest.clone(), &["Gateway"]).await;
    // A route leads to the cluster that serves, which Ray decides.
    let mut objects = at_rest_with(&config, manifest).await;
    let at = position(&objects, "RayService");
    let status = objects[at]["status"].as_object_mut().unwrap();
    let pending = status.remove("pendingServiceStatus").unwrap();
    status.insert("activeServiceStatus".to_owned(), pending);
    let (preview, _) = run_with(&config, objects, Vec::new()).await;
    assert!(lines(&preview).contains(&"create HTTPRoute".to_owned()), "{:?}", lines(&preview));
}

#[tokio::test]
async fn a_recreation_restarts_every_pod() {
    let mut spec = cluster_spec();
    spec["upgradeStrategy"] = json!({"type": "Recreate"});
    let objects = at_rest(object("RayCluster", "demo", spec.clone())).await;
    spec["headGroupSpec"]["template"]["spec"]["containers"][0]["image"] = json!("rayproject/ray:2.54.0");
    let (preview, _) = run(objects, vec![object("RayCluster", "demo", spec)]).await;
    let count = |line: &str| lines(&preview).iter().filter(|made| *made == line).count();
    assert_eq!((count("delete Pod"), count("create Pod")), (3, 3), "{:?}", lines(&preview));
}

#[tokio::test]
async fn redis_cleanup_is_a_patch_and_a_deletion_takes_the_pods_along() {
    let mut spec = cluster_spec();
    spec["gcsFaultToleranceOptions"] = json!({"redisAddress": "redis:6379"});
    let (preview, _) = run(Vec::new(), vec![object("RayCluster", "demo", spec)]).await;
    assert_eq!(lines(&preview)[0], "patch RayCluster", "the finalizer");

    let spec = json!({
        "entrypoint": "python x.py", "rayClusterSpec": cluster_spec(), "shutdownAfterJobFinishes": true, "suspend": false,
    });
    let mut objects = at_rest(object("RayJob", "train", spec)).await;
    let at = position(&objects, "RayJob");
    objects[at]["spec"]["suspend"] = json!(true);
    objects[at]["metadata"]["generation"] = json!(2);
    let (preview, _) = run(objects, Vec::new()).await;
    assert!(lines(&preview).contains(&"delete RayCluster".to_owned()), "{:?}", lines(&preview));
    assert_eq!(preview.collected_pods.len(), 3);
}

#[tokio::test]
async fn a_spec_that_the_operator_refuses_is_a_warning() {
    let mut spec = cluster_spec();
    spec["workerGroupSpecs"][0]["minReplicas"] = json!(9);
    let (preview, _) = run(Vec::new(), vec![object("RayCluster", "demo", spec)]).await;
    assert!(preview.changes.is_empty(), "{:?}", lines(&preview));
    assert!(preview.remarks.iter().any(|remark| remark.kind == RemarkKind::Warning), "{:?}", preview.remarks);
}

#[tokio::test]
async fn only_objects_in_scope_are_planned() {
    let manifests = vec![object("RayCluster", "a", cluster_spec()), object("RayCluster", "b", cluster_spec())];
    let scope = Scope::Objects(vec![ObjectKey::new(Kind::RayCluster, "ns", "b")]);
    let cluster = Cluster::Objects(Vec::new());
    let preview = preview(&cluster, &Config::default(), scope, manifests, now()).await.unwrap();
    assert!(preview.changes.len() == 4 && preview.changes.iter().all(|change| change.owner.name == "b"));
}

#[tokio::test]
async fn what_cannot_be_looked_up_is_named_and_never_created() {
    let mut spec = cluster_spec();
    spec["authOptions"] = json!({"mode": "token"});
    spec["networkPolicy"] = json!({"mode": "DenyAll"});
    let mut config = Config::default();
    config.gates.ray_cluster_network_policy = true;
    // It may list, and get nothing.
    let answer = |uri: axum::http::Uri| async move {
        use axum::response::IntoResponse;
        let plural = uri.path().split('/').find(|part| part.ends_with('s') && !["apis", "namespaces"].contains(part));
        match uri.query() {
            Some(_) => axum::Json(json!({"metadata": {}, "items": []})).into_response(),
            None => {
                let message = format!("{} is forbidden", plural.unwrap_or_default());
                let status = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message});
                (axum::http::StatusCode::FORBIDDEN, axum::Json(status)).into_response()
            }
        }
    };
    let client = kube::Client::new(axum::Router::new().fallback(answer), "ns");
    let cluster = Cluster::Live { client, namespaces: vec!["ns".to_owned()] };
    let manifests = vec![object("RayCluster", "demo", spec)];
    let preview = preview(&cluster, &config, Scope::All, manifests, now()).await.unwrap();
    let refused: Vec<&str> = preview.unreadable.iter().map(|it| it.what.as_str()).collect();
    assert!(refused.contains(&"get secrets") && refused.contains(&"get networkpolicies"), "{refused:?}");
    assert!(preview.unreadable.iter().all(|it| it.why.ends_with("is forbidden")), "{:?}", preview.unreadable);
    let made = lines(&preview);
    assert!(!made.iter().any(|line| line.contains("NetworkPolicy") || line.contains("Secret")), "{made:?}");
}
