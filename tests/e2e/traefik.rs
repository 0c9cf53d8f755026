//! Traefik as the Gateway of an incremental upgrade: the shares of real responses follow the weights.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, LogParams};
use kube::core::GroupVersionKind;
use manta_testkit::Neighbour;
use serde_json::{Value, json};

use crate::services::start_load;
use crate::up::folder;
use crate::user::{Machine, User, example, poll};

/// The share of the traffic that moves in one step, in percent.
const STEP: i64 = 25;
/// How many responses of a step are counted at least; as many before them are not, because Traefik has yet to follow.
const COUNTED: u64 = 200;
/// How far the share of responses may be from the weight, in percentage points.
const TOLERANCE: f64 = 5.0;
/// How many requests must succeed altogether.
const REQUESTS: u64 = 10_000;

pub(crate) async fn an_incremental_upgrade_follows_its_weights() {
    // The operator looks for the Gateway API when it starts.
    let machine = Machine::run(Arc::new(folder()), &[]).await;
    let crds = manta_testkit::gateway_crds().expect("the CRDs of Gateway API");
    machine.kubectl(&["apply", "--server-side", "--filename", crds.to_str().expect("a path")]);
    let machine = Machine::run(machine.kill(), &["--allow-host-path"]).await;
    let user = machine.user("traefik").await;
    install_traefik(&machine, &user);
    user.apply(&service()).await;
    let first = until_active(&user, "").await;
    start_load(&user, LOAD).await;
    poll(|| async { (responses(&user).await.hello > COUNTED).then_some(()) }).await;

    let config = service()[1]["spec"]["serveConfigV2"].as_str().expect("a config").to_owned();
    let upgrade = json!({"spec": {
        "rayClusterConfig": {"headGroupSpec": {"rayStartParams": {"num-cpus": "2"}}},
        "serveConfigV2": config.replace("greeting: hello", "greeting: welcome"),
    }});
    user.patch("RayService", "greeter", upgrade).await;
    for (weight, share) in follow_upgrade(&user, &first).await {
        println!("weight {weight}: {share:.1} % of the responses");
        assert!((share - weight as f64).abs() <= TOLERANCE, "weight {weight}, but {share:.1} % of the responses");
    }
    poll(|| async { user.ray("RayCluster").get_opt(&first).await.expect("the API").is_none().then_some(()) }).await;
    let end =
        poll(|| async { Some(responses(&user).await).filter(|seen| seen.hello + seen.welcome >= REQUESTS) }).await;
    println!("{end:?}");
    assert_eq!(end.failed, 0, "of {} requests: {}", end.hello + end.welcome, end.error);
    user.clean_up().await;
}

/// Watches an upgrade to its end and returns the share of the new version's responses for every weight it had.
async fn follow_upgrade(user: &User, first: &str) -> BTreeMap<i64, f64> {
    // The first responses of a step that count, and the last that were seen in it.
    let mut steps: BTreeMap<i64, Vec<Responses>> = BTreeMap::new();
    let (mut reached, mut seen) = (BTreeMap::new(), Responses::default());
    while until_active(user, "").await == first {
        let weight = weight_of_new(user).await;
        let now = poll(|| async { Some(responses(user).await).filter(|now| now.total() > seen.total()) }).await;
        if let Some(weight) = weight.filter(|weight| (1..100).contains(weight))
            && weight_of_new(user).await == Some(weight)
        {
            let since: &mut Responses = reached.entry(weight).or_insert_with(|| now.clone());
            if now.total() - since.total() > COUNTED {
                steps.entry(weight).or_default().push(now.clone());
            }
        }
        seen = now;
    }
    assert_eq!(reached.keys().copied().collect::<Vec<_>>(), [STEP, 2 * STEP, 3 * STEP], "the weights of the upgrade");
    let share = |counted: &[Responses]| {
        let (from, to) = (counted.first().expect("responses"), counted.last().expect("responses"));
        let (all, new) = (to.total() - from.total(), to.welcome - from.welcome);
        assert!(all >= COUNTED, "only {all} responses in a step");
        new as f64 / all as f64 * 100.0
    };
    steps.into_iter().map(|(weight, counted)| (weight, share(&counted))).collect()
}

/// Waits until the service is ready with another active cluster than this one, and returns its name.
async fn until_active(user: &User, other: &str) -> String {
    user.until("RayService", "greeter", |status| {
        let name = status["activeServiceStatus"]["rayClusterName"].as_str()?;
        let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
        let ready = status["conditions"].as_array().into_iter().flatten().any(is_ready);
        (ready && !name.is_empty() && name != other).then(|| name.to_owned())
    })
    .await
}

/// Returns the weight of the pending cluster in the route, if there are two clusters.
async fn weight_of_new(user: &User) -> Option<i64> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "HTTPRoute"));
    let api: Api<DynamicObject> = Api::namespaced_with(user.client.clone(), &user.namespace, &resource);
    let route = api.get_opt("greeter-httproute").await.expect("the API")?;
    route.data["spec"]["rules"][0]["backendRefs"][1]["weight"].as_i64()
}

/// Returns the example's documents, with a RayService that is upgraded incrementally.
fn service() -> Vec<Value> {
    let mut documents = example("rayservice.yaml");
    let spec = &mut documents[1]["spec"];
    spec["rayClusterConfig"]["enableInTreeAutoscaling"] = json!(true);
    // Ray's autoscaler does not start without a worker group.
    let mut workers = example("raycluster.yaml")[0]["spec"]["workerGroupSpecs"].clone();
    (workers[0]["replicas"], workers[0]["minReplicas"], workers[0]["maxReplicas"]) = (json!(0), json!(0), json!(1));
    spec["rayClusterConfig"]["workerGroupSpecs"] = workers;
    spec["rayClusterDeletionDelaySeconds"] = json!(3);
    spec["upgradeStrategy"] = json!({
        "type": "NewClusterWithIncrementalUpgrade",
        "clusterUpgradeOptions": {
            "gatewayClassName": "traefik", "maxSurgePercent": 100, "stepSizePercent": STEP, "intervalSeconds": 45,
        },
    });
    documents
}

/// The responses so far, by what they say.
#[derive(Debug, Clone, Default, serde::Deserialize)]
struct Responses {
    hello: u64,
    welcome: u64,
    failed: u64,
    /// The last error.
    error: String,
}

impl Responses {
    fn total(&self) -> u64 {
        self.hello + self.welcome
    }
}

/// Returns what the load pod counted.
async fn responses(user: &User) -> Responses {
    let last = LogParams { tail_lines: Some(1), ..LogParams::default() };
    let log = user.pods().logs("load", &last).await.unwrap_or_default();
    serde_json::from_str(log.trim()).unwrap_or_default()
}

/// Calls the Gateway with a new connection each time, and counts the responses once Traefik knows the route.
const LOAD: &str = "
import json, threading, time, urllib.error, urllib.request
while True:
    try:
        urllib.request.urlopen('http://traefik/', timeout=60).read()
        break
    except urllib.error.URLError:
        time.sleep(0.5)
counts, lock = {'hello': 0, 'welcome': 0, 'failed': 0, 'error': ''}, threading.Lock()
def ask():
    while True:
        try:
            text = urllib.request.urlopen('http://traefik/', timeout=60).read().decode()
            said, error = text.split()[0], ''
        except Exception as failure:
            said, error = 'failed', f'{time.time()} {failure!r}'
        with lock:
            said = said if said in counts else 'failed'
            counts[said] += 1
            counts['error'] = error or counts['error']
for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
while True:
    with lock:
        print(json.dumps(counts), flush=True)
    time.sleep(0.5)
";

/// Runs Traefik as a pod, behind a Service that is called like it.
fn install_traefik(machine: &Machine, user: &User) {
    let program = Neighbour::Traefik.program().expect("Traefik");
    let folder = program.parent().and_then(Path::to_str).expect("a folder");
    let read = ["get", "list", "watch"];
    let group = "gateway.networking.k8s.io";
    let kinds = ["gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants", "backendtlspolicies"];
    let manifest = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": format!("{group}/v1"), "kind": "GatewayClass", "metadata": {"name": "traefik"},
         "spec": {"controllerName": "traefik.io/gateway-controller"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "traefik"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "traefik"}, "rules": [
            {"apiGroups": [""], "resources": ["namespaces", "services", "secrets", "configmaps"], "verbs": read},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
            {"apiGroups": [group], "resources": kinds, "verbs": read},
            {"apiGroups": [group], "resources": kinds.map(|kind| format!("{kind}/status")), "verbs": ["update"]},
        ]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "traefik"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "traefik"},
         "subjects": [{"kind": "ServiceAccount", "name": "traefik", "namespace": user.namespace}]},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "traefik"},
         "spec": {"selector": {"app": "traefik"}, "ports": [{"port": 80}]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "traefik", "labels": {"app": "traefik"}}, "spec": {
            "serviceAccountName": "traefik",
            "containers": [{
                "name": "traefik", "image": "busybox", "command": ["/program/traefik"],
                "args": ["--entryPoints.web.address=:80", "--providers.kubernetesGateway=true",
                         "--global.checkNewVersion=false", "--global.sendAnonymousUsage=false"],
                "ports": [{"containerPort": 80}],
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "volumeMounts": [{"name": "program", "mountPath": "/program", "readOnly": true}],
            }],
            "volumes": [{"name": "program", "hostPath": {"path": folder, "type": "Directory"}}],
        }},
    ]});
    let file = machine.kubeconfig().with_file_name("traefik.json");
    std::fs::write(&file, manifest.to_string()).expect("a manifest");
    machine.kubectl(&["apply", "--namespace", &user.namespace, "--filename", file.to_str().expect("a path")]);
}
