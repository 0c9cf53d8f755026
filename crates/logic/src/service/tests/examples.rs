//! Worked examples, pass by pass: objects, requests to Ray, and the whole status.

use super::incremental::{migration, migration_from};
use super::world::{World, key};
use crate::action::Kind;
use serde_json::{Value, json};

const SAMPLE: &str = "rayservice-sample";
const INCREMENTAL: &str = "rayservice-incremental-upgrade";

/// Returns a service with two applications, as in its manifest.
fn sample() -> World {
    let container = |name: &str, limits: Value, requests: Value| {
        let resources = json!({"limits": limits, "requests": requests});
        json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.52.0", "resources": resources}]}})
    };
    let head = container("ray-head", json!({"cpu": 2, "memory": "5Gi"}), json!({"cpu": 2, "memory": "2Gi"}));
    let worker = container("ray-worker", json!({"cpu": "1", "memory": "2Gi"}), json!({"cpu": "500m", "memory": "2Gi"}));
    let group = json!({
        "groupName": "small-group", "replicas": 1, "minReplicas": 1, "maxReplicas": 5, "numOfHosts": 1, "priority": 0,
        "rayStartParams": {}, "template": worker,
    });
    let cluster = json!({
        "rayVersion": "2.52.0", "headGroupSpec": {"rayStartParams": {}, "template": head}, "workerGroupSpecs": [group],
    });
    World::named(SAMPLE, json!({"rayClusterConfig": cluster, "serveConfigV2": SAMPLE_CONFIG}))
}

const SAMPLE_CONFIG: &str = r#"
applications:
  - name: fruit_app
    import_path: fruit.deployment_graph
    route_prefix: /fruit
    runtime_env: {working_dir: "https://example.com/fruit.zip"}
    deployments:
      - name: MangoStand
        num_replicas: 2
        max_replicas_per_node: 1
        user_config: {price: 3}
        ray_actor_options: {num_cpus: 0.1}
      - name: FruitMarket
        num_replicas: 1
        ray_actor_options: {num_cpus: 0.1}
  - name: math_app
    import_path: conditional_dag.serve_dag
    route_prefix: /calc
    deployments:
      - name: Adder
        num_replicas: 1
"#;

/// Returns a service that is upgraded in steps of 10 %, every 30 s.
fn incremental() -> World {
    let port = |name: &str, number: i32| json!({"name": name, "containerPort": number, "protocol": "TCP"});
    let ports = json!([port("gcs-server", 6379), port("dashboard", 8265), port("client", 10001), port("serve", 8000)]);
    let resources = |limits: (&str, &str), requests: (&str, &str)| {
        let of = |(cpu, memory): (&str, &str)| json!({"cpu": cpu, "memory": memory});
        json!({"limits": of(limits), "requests": of(requests)})
    };
    let image = "rayproject/ray:2.51.0";
    let head = json!({
        "name": "ray-head", "image": image, "ports": ports, "resources": resources(("1", "5Gi"), ("1", "2Gi")),
    });
    let stop = json!({"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}});
    let worker = json!({
        "name": "ray-worker", "image": image, "lifecycle": stop,
        "resources": resources(("1", "4Gi"), ("500m", "1Gi")),
    });
    let template = |container: Value| json!({"spec": {"containers": [container]}});
    let group = json!({
        "groupName": "small-group", "replicas": 0, "minReplicas": 0, "maxReplicas": 4, "numOfHosts": 1, "priority": 0,
        "rayStartParams": {}, "template": template(worker),
    });
    let options = json!({
        "gatewayClassName": "istio", "stepSizePercent": 10, "maxSurgePercent": 10, "intervalSeconds": 30,
    });
    let cluster = json!({
        "rayVersion": "2.51.0", "enableInTreeAutoscaling": true, "workerGroupSpecs": [group],
        "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": template(head)},
    });
    World::named(
        INCREMENTAL,
        json!({
            "rayClusterConfig": cluster, "serveConfigV2": super::world::CONFIG,
            "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options},
        }),
    )
}

/// Returns the status without times and without the copies of cluster statuses.
fn status(world: &World) -> Value {
    let mut status = serde_json::to_value(world.status()).unwrap();
    status.as_object_mut().unwrap().remove("lastUpdateTime");
    for slot in ["activeServiceStatus", "pendingServiceStatus"] {
        let own = status[slot].as_object_mut().unwrap().remove("rayClusterStatus");
        assert!(own.is_some_and(|own| own.is_object()), "{slot} always has one");
    }
    for condition in status["conditions"].as_array_mut().unwrap() {
        condition.as_object_mut().unwrap().remove("lastTransitionTime");
    }
    status
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, generation: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": generation})
}

fn initializing(type_: &str) -> Value {
    condition(type_, "False", "Initializing", "RayService is initializing", 2)
}

fn serving(generation: i64) -> Value {
    let message = "Number of serve endpoints is greater than 0";
    condition("Ready", "True", "NonZeroServeEndpoints", message, generation)
}

fn no_pending(generation: i64) -> Value {
    let message = "Active Ray cluster exists and no pending Ray cluster";
    condition("UpgradeInProgress", "False", "NoPendingCluster", message, generation)
}

fn both(generation: i64) -> Value {
    let message = "Both active and pending Ray clusters exist";
    condition("UpgradeInProgress", "True", "BothActivePendingClustersExist", message, generation)
}

/// Applications in a status, all with the same state.
fn apps(status: &str) -> Value {
    json!({"fruit_app": {"status": status}, "math_app": {"status": status}})
}

fn owner() -> Value {
    json!([{
        "apiVersion": "ray.io/v1", "kind": "RayService", "name": SAMPLE, "uid": format!("u-{SAMPLE}"),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

#[test]
fn a_first_start_pass_by_pass() {
    let mut world = sample();
    world.outcome = "DEPLOYING".to_owned();
    // Pass 1: the finalizer, by which the generation goes from 1 to 2.
    world.step();
    assert_eq!(world.service.metadata.finalizers, Some(vec!["ray.io/rayservice-finalizer".to_owned()]));
    assert_eq!((world.service.status.as_ref(), world.service.metadata.generation), (None, Some(2)));

    // Pass 2: a name.
    world.step();
    let c1 = world.pending();
    let initial = json!([initializing("Ready"), initializing("UpgradeInProgress")]);
    let waiting = json!({
        "activeServiceStatus": {}, "pendingServiceStatus": {"rayClusterName": c1}, "conditions": initial,
        "observedGeneration": 2,
    });
    assert_eq!(status(&world), waiting);
    assert!(c1.starts_with("rayservice-sample-") && c1.len() == SAMPLE.len() + 6, "{c1}");
    assert_eq!((world.clusters(), world.status_writes), (0, 1));

    // Pass 3: the cluster. Pass 4: its head is there, but not ready.
    world.head_not_ready.insert(c1.clone());
    world.proxy_down.insert(c1.clone());
    world.step();
    check_cluster(&mut world, &c1);
    world.step();
    assert_eq!(head_label(&mut world, &c1), "false");
    assert_eq!(
        (status(&world), world.status_writes),
        (waiting.clone(), 1),
        "a cluster's own status alone is not written"
    );
    assert!(world.puts.is_empty());

    // Pass 5: the head is ready, its dashboard replies, and the configuration is sent.
    world.head_not_ready.clear();
    world.steps(2);
    assert_eq!((status(&world), world.status_writes), (waiting, 1));
    check_config(&world, &c1);

    // Pass 6: the applications deploy.
    world.step();
    let sent = format!("Updated serve applications to the RayCluster ns/{c1}");
    assert_eq!(world.notes("UpdatedServeApplications"), [sent]);
    assert_eq!(
        status(&world),
        json!({
            "activeServiceStatus": {},
            "pendingServiceStatus": {"rayClusterName": c1, "applicationStatuses": apps("DEPLOYING")},
            "conditions": initial, "observedGeneration": 2,
        })
    );
    assert_eq!(world.api.names(Kind::Service), Vec::<String>::new());

    // Pass 7: they run. Services, and promotion.
    world.set_apps(&c1, "RUNNING");
    world.step();
    world.step();
    assert_eq!(
        world.notes("CreatedService"),
        ["Created the service ns/rayservice-sample-head-svc", "Created the service ns/rayservice-sample-serve-svc"]
    );
    check_services(&mut world, &c1);
    assert_eq!(
        status(&world),
        json!({
            "activeServiceStatus": {"rayClusterName": c1, "applicationStatuses": apps("RUNNING")},
            "pendingServiceStatus": {}, "conditions": [initializing("Ready"), no_pending(2)], "observedGeneration": 2,
        }),
        "no endpoint is there yet"
    );

    // Pass 8: the proxy answers. Pass 9: head and worker are endpoints.
    world.proxy_down.clear();
    world.until("endpoints", |world| world.endpoints() == 2);
    assert_eq!(head_label(&mut world, &c1), "true");
    let note = format!("Updated the serve label to \"true\" for the Head Pod ns/{c1}-head-0");
    assert_eq!(world.notes("UpdatedHeadPodServeLabel"), [note]);
    let deployments = json!({"Adder": {"status": "HEALTHY"}});
    world.apps.get_mut(&c1).unwrap().get_mut("math_app").unwrap()["deployments"] = deployments.clone();
    world.steps(2);
    let mut steady = apps("RUNNING");
    steady["math_app"]["serveDeploymentStatuses"] = deployments;
    assert_eq!(
        status(&world),
        json!({
            "activeServiceStatus": {"rayClusterName": c1, "applicationStatuses": steady},
            "pendingServiceStatus": {}, "conditions": [serving(2), no_pending(2)], "numServeEndpoints": 2,
            "observedGeneration": 2, "serviceStatus": "Running",
        })
    );
    let before = (world.status_writes, world.puts.len(), world.api.writes);
    world.steps(30);
    assert_eq!((world.status_writes, world.puts.len(), world.api.writes), before, "at rest");
}

fn head_label(world: &mut World, cluster: &str) -> String {
    let label = &world.object(Kind::Pod, &format!("{cluster}-head-0"))["metadata"]["labels"]["ray.io/serve"];
    label.as_str().unwrap().to_owned()
}

fn check_cluster(world: &mut World, name: &str) {
    assert_eq!(world.notes("CreatedRayCluster"), [format!("Created the RayCluster ns/{name}")]);
    let cluster = world.object(Kind::RayCluster, name);
    let template = |name: &str, limits: Value, requests: Value| {
        let resources = json!({"limits": limits, "requests": requests});
        let container = json!({"name": name, "image": "rayproject/ray:2.52.0", "resources": resources});
        json!({"metadata": {}, "spec": {"containers": [container]}})
    };
    let of = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    assert_eq!(
        cluster["spec"],
        json!({
            "rayVersion": "2.52.0",
            "headGroupSpec": {
                "rayStartParams": {}, "template": template("ray-head", of("2", "5Gi"), of("2", "2Gi")),
            },
            "workerGroupSpecs": [{
                "groupName": "small-group", "replicas": 1, "minReplicas": 1, "maxReplicas": 5, "numOfHosts": 1,
                "priority": 0, "rayStartParams": {}, "scaleStrategy": {},
                "template": template("ray-worker", of("1", "2Gi"), of("500m", "2Gi")),
            }],
        })
    );
    let metadata = &cluster["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"ray.io/originated-from-cr-name": SAMPLE, "ray.io/originated-from-crd": "RayService"})
    );
    assert_eq!(
        metadata["annotations"],
        json!({
            "ray.io/hash-without-replicas-and-workers-to-delete": "Q1055GBNIO0AH4T77DF02RUTJ6K23ASF",
            "ray.io/kuberay-version": "v1.7.0", "ray.io/num-worker-groups": "1",
        })
    );
    assert_eq!(metadata["ownerReferences"], owner());
}

fn check_config(world: &World, cluster: &str) {
    let [(to, body)] = &world.puts[..] else { panic!("{:?}", world.puts) };
    assert_eq!(to, cluster);
    let start = "{\"applications\":[{\"deployments\":[{\"max_replicas_per_node\":1,\"name\":\"MangoStand\",\
                 \"num_replicas\":2,\"ray_actor_options\":{\"num_cpus\":0.1},\"user_config\":{\"price\":3}},";
    let end = "\"import_path\":\"fruit.deployment_graph\",\"name\":\"fruit_app\",\"route_prefix\":\"/fruit\",\
               \"runtime_env\":{\"working_dir\":\"https://example.com/fruit.zip\"}},";
    let text = body.to_string();
    assert!(text.starts_with(start) && text.contains(end), "{text}");
}

fn check_services(world: &mut World, c1: &str) {
    let head = world.object(Kind::Service, "rayservice-sample-head-svc").clone();
    assert_eq!(head["metadata"]["ownerReferences"], owner());
    assert_eq!(
        head["metadata"]["labels"],
        json!({
            "ray.io/originated-from-cr-name": SAMPLE, "ray.io/originated-from-crd": "RayService",
            "ray.io/node-type": "head", "ray.io/identifier": "rayservice-sample-head",
        })
    );
    let port = |name: &str, port: i32| json!({"name": name, "port": port, "appProtocol": "tcp"});
    assert_eq!(
        head["spec"],
        json!({
            "clusterIP": "None", "publishNotReadyAddresses": true,
            "selector": {
                "ray.io/cluster": c1, "ray.io/identifier": format!("{c1}-head"), "ray.io/node-type": "head",
                "app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator",
            },
            "ports": [
                port("client", 10001), port("dashboard", 8265), port("gcs-server", 6379), port("metrics", 8080),
                port("serve", 8000),
            ],
        })
    );
    let serve = world.object(Kind::Service, "rayservice-sample-serve-svc").clone();
    assert_eq!(serve["metadata"]["ownerReferences"], owner());
    assert_eq!(
        serve["metadata"]["labels"],
        json!({
            "ray.io/originated-from-cr-name": SAMPLE, "ray.io/originated-from-crd": "RayService",
            "ray.io/serve": "rayservice-sample-serve",
        })
    );
    assert_eq!(serve["spec"]["selector"], json!({"ray.io/cluster": c1, "ray.io/serve": "true"}));
    assert_eq!(serve["spec"]["ports"], json!([{"name": "serve", "port": 8000}]));
}

#[test]
fn an_upgrade_pass_by_pass() {
    let mut world = sample();
    world.until_ready();
    let c1 = world.active();
    let sent = world.puts.len();
    // U1: a name. The applications of the active cluster stay visible, unlike in KubeRay.
    world.set_version("2.53.0");
    world.step();
    let c2 = world.pending();
    let during = |pending: Value| {
        json!({
            "activeServiceStatus": {"rayClusterName": c1, "applicationStatuses": apps("RUNNING")},
            "pendingServiceStatus": pending, "conditions": [serving(3), both(3)], "numServeEndpoints": 2,
            "observedGeneration": 3, "serviceStatus": "Running",
        })
    };
    assert_eq!(status(&world), during(json!({"rayClusterName": c2})));
    // U2: the cluster. Both heads are looked after while the new one starts.
    world.outcomes.insert(c2.clone(), "DEPLOYING".to_owned());
    world.head_not_ready.insert(c2.clone());
    world.steps(3);
    assert_eq!(world.api.names(Kind::RayCluster).len(), 2);
    assert_eq!(status(&world), during(json!({"rayClusterName": c2})));
    assert_eq!(world.puts.len(), sent);
    // U3: its head is ready, and it alone gets the configuration.
    world.head_not_ready.clear();
    world.steps(3);
    assert_eq!(world.puts[sent..].iter().map(|(to, _)| to).collect::<Vec<_>>(), [&c2]);
    let deploying = json!({"rayClusterName": c2, "applicationStatuses": apps("DEPLOYING")});
    assert_eq!(status(&world), during(deploying));
    assert_eq!(world.leads_to("rayservice-sample-serve-svc"), c1);
    // U4: all run. Both Services move, and it is promoted in the same pass.
    world.set_apps(&c2, "RUNNING");
    world.until("moved", |world| world.leads_to("rayservice-sample-serve-svc") == c2);
    assert_eq!(world.leads_to("rayservice-sample-head-svc"), c2);
    assert_eq!(
        world.notes("UpdatedService"),
        ["Updated the service ns/rayservice-sample-head-svc", "Updated the service ns/rayservice-sample-serve-svc"]
    );
    assert_eq!(
        status(&world),
        json!({
            "activeServiceStatus": {"rayClusterName": c2, "applicationStatuses": apps("RUNNING")},
            "pendingServiceStatus": {}, "conditions": [serving(3), no_pending(3)], "numServeEndpoints": 2,
            "observedGeneration": 3, "serviceStatus": "Running",
        })
    );
    let promoted = world.now;
    // U5: the old one gets the time at which it goes. U6: it goes after that.
    world.step();
    let at = world.object(Kind::RayCluster, &c1)["metadata"]["annotations"]["ray.io/delete-after"].clone();
    let at: jiff::Timestamp = at.as_str().unwrap().parse().unwrap();
    assert_eq!(at.duration_since(promoted).as_secs(), 2 + 60);
    world.until("gone", |world| world.api.names(Kind::RayCluster) == [c2.clone()]);
    assert!((0..=2).contains(&world.now.duration_since(at).as_secs()), "{at} {}", world.now);
    assert_eq!(world.notes("DeletedRayCluster"), [format!("Deleted the RayCluster ns/{c1}")]);
}

#[test]
fn an_incremental_upgrade_starts_pass_by_pass() {
    let mut world = incremental();
    // Pass 2: Gateway and name, with all of the capacity.
    world.steps(2);
    let gateway = world.object(Kind::Gateway, "rayservice-incremental-upgrade-gateway").clone();
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
    assert_eq!(gateway["spec"], json!({"gatewayClassName": "istio", "listeners": listeners}));
    assert_eq!(gateway["metadata"]["ownerReferences"][0]["name"], INCREMENTAL);
    let c1 = world.pending();
    assert_eq!(world.shares()[1], (Some(100), None));
    assert!(world.api.names(Kind::HttpRoute).is_empty());
    // Pass 3: the cluster; then its own Service.
    world.step();
    let cluster = world.object(Kind::RayCluster, &c1).clone();
    assert_eq!(
        cluster["metadata"]["annotations"]["ray.io/hash-without-replicas-and-workers-to-delete"],
        "8KCPNG21DG7BNQSKV0AEJPAIFB1EP70P"
    );
    assert_eq!(cluster["spec"]["workerGroupSpecs"][0]["replicas"], 0, "as the spec has it");
    world.step();
    let own = format!("{c1}-serve-svc");
    assert_eq!(world.api.names(Kind::Service), std::slice::from_ref(&own));
    assert_eq!(world.object(Kind::Service, &own)["metadata"]["ownerReferences"][0]["kind"], "RayCluster");
    world.step();
    assert_eq!(world.capacities(&c1), [100]);
    // The applications run: head Service and promotion.
    world.until("promoted", |world| world.active() == c1);
    assert_eq!(world.api.names(Kind::Service), [own, format!("{INCREMENTAL}-head-svc")], "none for all clusters");
    let head = world.object(Kind::Service, "rayservice-incremental-upgrade-head-svc").clone();
    let ports: Vec<_> = head["spec"]["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    assert_eq!(ports, ["client", "dashboard", "gcs-server", "metrics", "serve"]);
    assert!(world.api.names(Kind::HttpRoute).is_empty());
    // The next pass: the route.
    world.step();
    assert_eq!((world.weights(), world.shares()[0]), (vec![100], (Some(100), Some(100))));
    world.until("the head", |world| world.endpoints() == 1);
    world.steps(3);
    let writes = (world.status_writes, world.api.writes);
    world.steps(5);
    assert_eq!((world.status_writes, world.api.writes), writes, "at rest, unlike KubeRay");
}

/// Returns the service of the incremental example before its first step.
fn steady() -> World {
    let mut world = incremental();
    world.until("route", |world| world.weights() == [100] && world.condition("Ready").0 == "True");
    world.steps(3);
    world
}

#[test]
fn an_incremental_upgrade_migrates_traffic_step_by_step() {
    let mut world = steady();
    let c1 = world.active();
    let sent = world.puts.len();
    world.set_version("2.52.0");
    world.until("step 1", |world| !world.pending().is_empty());
    let c2 = world.pending();
    assert_eq!((world.shares()[1], world.clusters()), ((Some(0), None), 1), "step 1");
    world.step();
    let group = world.object(Kind::RayCluster, &c2)["spec"]["workerGroupSpecs"][0].clone();
    assert_eq!(group["replicas"], Value::Null, "step 2: the autoscaler grows it");
    world.until("step 2", |world| world.weights() == [100, 0]);
    assert!(world.api.names(Kind::Service).contains(&format!("{c2}-serve-svc")));
    let t0 = world.now;

    world.until("step 4", |world| world.weights() == [90, 10]);
    assert!(world.now.duration_since(t0).as_secs() >= 30);
    let backend = |cluster: &str, weight: i32| json!({"name": format!("{cluster}-serve-svc"), "namespace": "ns", "port": 8000, "weight": weight});
    assert_eq!(
        world.object(Kind::HttpRoute, "rayservice-incremental-upgrade-httproute")["spec"],
        json!({
            "parentRefs": [{"name": "rayservice-incremental-upgrade-gateway", "namespace": "ns"}],
            "rules": [{
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [backend(&c1, 90), backend(&c2, 10)],
            }],
        })
    );
    assert_eq!(world.endpoints(), 2, "the sum of both");
    let lines = migration_from(&mut world, "A 100/90 P 10/10 route 90/10");

    let mut expect = Vec::new();
    for done in (10..100).step_by(10) {
        let (left, next) = (100 - done, done + 10);
        expect.push(format!("A {}/{left} P {done}/{done} route {left}/{done}", left + 10));
        expect.push(format!("A {left}/{left} P {done}/{done} route {left}/{done}"));
        expect.push(format!("A {left}/{left} P {next}/{done} route {left}/{done}"));
    }
    expect.push("A 10/0 P 100/100 route 0/100".to_owned());
    expect.push("A 100/100 P - route 0/100".to_owned());
    expect.push("A 100/100 P - route 100".to_owned());
    assert_eq!(lines, expect, "steps 4 to 32");

    let mut puts = vec![(&c2, 0), (&c2, 10)];
    puts.extend((10..100).step_by(10).flat_map(|done| [(&c1, 100 - done), (&c2, done + 10)]));
    puts.push((&c1, 0));
    let capacity = |body: &Value| body["target_capacity"].as_i64().unwrap();
    let made: Vec<_> = world.puts[sent..].iter().map(|(to, body)| (to, capacity(body))).collect();
    assert_eq!(made, puts);
    assert_eq!(
        (world.active(), world.leads_to("rayservice-incremental-upgrade-head-svc")),
        (c2.clone(), c2),
        "step 32"
    );
    world.until("clean", |world| world.clusters() == 1);
    assert!(
        !world.api.objects.contains_key(&key(Kind::Service, &format!("{c1}-serve-svc"))),
        "it went with its cluster"
    );
}

#[test]
fn the_first_incremental_steps() {
    let mut world = steady();
    world.set_version("2.52.0");
    let lines = migration(&mut world);
    let expect = [
        "A 100/100 P - route 100",
        "A 100/100 P 0/null route 100",
        "A 100/100 P 0/0 route 100/0",
        "A 100/100 P 10/0 route 100/0",
        "A 100/90 P 10/10 route 90/10",
    ];
    assert_eq!(lines[..5], expect, "steps 0 to 4");
}

#[test]
fn an_incremental_rollback_step_by_step() {
    let mut world = steady();
    let c1 = world.active();
    world.set_version("2.52.0");
    world.until("far", |world| world.shares() == [(Some(40), Some(30)), (Some(70), Some(70))]);
    world.set_version("2.51.0");
    let lines = migration(&mut world);
    let mut expect = vec!["A 40/30 P 70/70 route 30/70".to_owned()];
    for back in (40..100).step_by(10) {
        let left = 100 - back;
        expect.push(format!("A {back}/{back} P {}/{left} route {back}/{left}", left + 10));
        // One pass in KubeRay.
        expect.push(format!("A {back}/{back} P {left}/{left} route {back}/{left}"));
        expect.push(format!("A {}/{back} P {left}/{left} route {back}/{left}", back + 10));
    }
    expect.push("A 100/100 P 10/0 route 100/0".to_owned());
    expect.push("A 100/100 P - route 100/0".to_owned());
    expect.push("A 100/100 P - route 100".to_owned());
    assert_eq!(lines, expect);
    assert_eq!((world.active(), world.condition("RollbackInProgress")), (c1.clone(), ("", "")));
    assert_eq!(world.condition("UpgradeInProgress"), ("False", "NoPendingCluster"));
    world.until("clean", |world| world.api.names(Kind::RayCluster) == [c1.clone()]);
}
