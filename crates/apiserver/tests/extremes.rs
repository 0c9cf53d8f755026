//! Extreme numbers in every integer field of every built-in kind: nothing panics, and all controllers live.

use std::time::{Duration, Instant};

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use manta_apiserver::auth::User;
use manta_apiserver::{Options, Server};
use serde_json::{Value, json};
use tower::ServiceExt;

struct Client {
    server: Server,
}

impl Client {
    async fn call(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let mut request = Request::builder().method(method).uri(path).header("content-type", content);
        request.extensions_mut().expect("valid").insert(User::admin());
        let request = request.body(Body::from(bytes)).expect("valid");
        let response = self.server.router().oneshot(request).await.expect("infallible");
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, &Value::Null).await.1
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits until a condition holds.
    async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let start = Instant::now();
        while !holds().await {
            assert!(start.elapsed() < Duration::from_secs(60), "{what}; panics: {:?}", self.panics());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn panics(&self) -> Vec<(&'static str, u64)> {
        self.server.cluster().panics.counts().into_iter().collect()
    }
}

/// The path of an integer field, and its format.
type Field = (Vec<String>, String);

/// Collects the integer fields below a schema; lists are entered at their first item, maps at the key `k`.
fn integer_fields(
    schemas: &Value,
    schema: &Value,
    path: &mut Vec<String>,
    open: &mut Vec<String>,
    found: &mut Vec<Field>,
) {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    if let Some(name) = reference.and_then(|reference| reference.rsplit('/').next()) {
        if !open.iter().any(|known| known == name) {
            open.push(name.to_owned());
            integer_fields(schemas, &schemas[name], path, open, found);
            open.pop();
        }
        return;
    }
    if schema["type"] == "integer"
        || schema["x-kubernetes-int-or-string"] == true
        || schema["format"] == "int-or-string"
    {
        found.push((path.clone(), schema["format"].as_str().unwrap_or("int32").to_owned()));
    }
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        // The first kind of container stands for all three.
        if !matches!(key.as_str(), "metadata" | "initContainers" | "ephemeralContainers" | "lifecycle") {
            path.push(key.clone());
            integer_fields(schemas, property, path, open, found);
            path.pop();
        }
    }
    for (step, below) in [("0", &schema["items"]), ("k", &schema["additionalProperties"])] {
        if below.is_object() {
            path.push(step.to_owned());
            integer_fields(schemas, below, path, open, found);
            path.pop();
        }
    }
}

/// Sets a value at a path, creating objects and lists on the way.
fn plant(object: &mut Value, path: &[String], value: i64) {
    let Some((step, rest)) = path.split_first() else { return *object = value.into() };
    let inner = match step.as_str() {
        "0" => {
            if !object.is_array() {
                *object = json!([{"name": "x"}]);
            }
            &mut object[0]
        }
        key => {
            if !object.is_object() {
                *object = json!({});
            }
            &mut object[key]
        }
    };
    plant(inner, rest, value);
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}})
}

/// Returns a valid object of a kind, or nothing for kinds that need none of their own.
fn base(kind: &str) -> Value {
    let selector = json!({"matchLabels": {"app": "x"}});
    let mut ending = template();
    ending["spec"]["restartPolicy"] = "Never".into();
    match kind {
        "Pod" => json!({"spec": template()["spec"]}),
        "PodTemplate" => json!({"template": template()}),
        "ReplicationController" => json!({"spec": {"replicas": 1, "template": template()}}),
        "ReplicaSet" | "Deployment" | "DaemonSet" => json!({"spec": {"selector": selector, "template": template()}}),
        "StatefulSet" => json!({"spec": {"selector": selector, "serviceName": "x", "template": template()}}),
        "Job" => json!({"spec": {"template": ending}}),
        "CronJob" => json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": ending}}}}),
        "Service" => json!({"spec": {"selector": {"app": "x"}, "ports": [{"name": "x", "port": 80}]}}),
        "PersistentVolumeClaim" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        "PersistentVolume" => json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"}}}),
        "Ingress" => json!({"spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}}),
        "EndpointSlice" => json!({"addressType": "IPv4", "endpoints": []}),
        "Event" => json!({"involvedObject": {"namespace": "extremes"}}),
        "PodDisruptionBudget" => json!({"spec": {"selector": selector}}),
        "NetworkPolicy" => json!({"spec": {"podSelector": {}}}),
        _ => json!({}),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extreme_numbers_leave_every_controller_alive() {
    let directory = tempfile::tempdir().expect("a directory");
    let options =
        Options { volumes: Some(directory.path().into()), admit_service_accounts: true, ..Options::default() };
    let client = Client { server: Server::start(options).await.expect("starts") };
    client.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "extremes"}})).await;
    client
        .until("no default service account", async || {
            client.get("/api/v1/namespaces/extremes/serviceaccounts/default").await["kind"] == "ServiceAccount"
        })
        .await;
    let created = plant_everywhere(&client).await;
    assert!(created.len() > 200, "only {} objects were accepted", created.len());
    bind_pods(&client).await;
    delete_all(&client, &created).await;
    assert_eq!(client.panics(), [], "no panic was caught");
    check_controllers(&client).await;
    assert_eq!(client.panics(), [], "no panic was caught");
}

/// Creates an object for every field and extreme; returns the paths of those that were accepted.
async fn plant_everywhere(client: &Client) -> Vec<String> {
    let mut created = Vec::new();
    let mut fields_seen = 0;
    let resources = client.server.cluster().registry.now().resources.clone();
    for resource in resources.iter().filter(|resource| resource.verbs().contains(&"create") && resource.is_stored()) {
        let (group, kind) = (&*resource.group, &*resource.kind);
        if ["CustomResourceDefinition", "Namespace", "Node"].contains(&kind) {
            continue;
        }
        let prefix = if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/v1") };
        let document = client.get(&format!("/openapi/v3/{prefix}")).await;
        let schemas = &document["components"]["schemas"];
        let wanted = json!({"group": group, "kind": kind, "version": "v1"});
        let schema = schemas.as_object().into_iter().flatten().find(|(_, schema)| {
            schema["x-kubernetes-group-version-kind"].as_array().is_some_and(|kinds| kinds.contains(&wanted))
        });
        let (_, schema) = schema.unwrap_or_else(|| panic!("{kind} has no schema"));
        let mut fields = Vec::new();
        integer_fields(schemas, schema, &mut Vec::new(), &mut Vec::new(), &mut fields);
        fields_seen += fields.len();
        // Pods and Jobs stand for the other kinds with a pod template.
        if !["Pod", "Job"].contains(&kind) {
            fields.retain(|(path, _)| !path.iter().any(|step| step == "containers" || step == "volumes"));
        }
        let scope = if resource.namespaced { "/namespaces/extremes" } else { "" };
        let collection = format!("/{prefix}{scope}/{}", resource.plural);
        for (field, format) in &fields {
            let extremes: &[i64] = match format.as_str() {
                "int64" => &[i64::MIN, 1_000_000_000_000, i64::MAX],
                _ => &[i32::MIN as i64, i32::MAX as i64, i64::MAX],
            };
            for (index, value) in extremes.iter().enumerate() {
                let name = format!("x{}-{}-{index}", created.len(), kind.to_lowercase());
                let mut object = base(kind);
                if field[0] != "status" {
                    plant(&mut object, field, *value);
                }
                object["metadata"] = json!({"name": name, "namespace": if scope.is_empty() { "" } else { "extremes" }});
                let (status, answer) = client.call(Method::POST, &collection, &object).await;
                assert!([201, 400, 403, 422].contains(&status), "{kind} {field:?} {value}: {status} {answer}");
                if status == 201 {
                    let path = format!("{collection}/{name}");
                    if field[0] == "status" {
                        let mut patch = json!({});
                        plant(&mut patch, field, *value);
                        let (status, answer) = client.call(Method::PATCH, &format!("{path}/status"), &patch).await;
                        assert!([200, 400, 404, 422].contains(&status), "{kind} {field:?} {value}: {status} {answer}");
                    }
                    // Tables compute with the numbers as well.
                    client.get(&format!("{path}?as=Table")).await;
                    created.push(path);
                }
            }
        }
    }
    assert!(fields_seen > 500, "only {fields_seen} integer fields were found");
    created
}

/// Binds the pods that exist now to a node, so that their deletion has a grace period.
async fn bind_pods(client: &Client) {
    client
        .until("jobs have no pods", async || {
            client.items("/api/v1/namespaces/extremes/pods?labelSelector=job-name").await.len() > 10
        })
        .await;
    for pod in client.items("/api/v1/namespaces/extremes/pods?labelSelector=job-name&limit=400").await {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        let path = format!("/api/v1/namespaces/extremes/pods/{name}/binding");
        let (status, answer) = client.call(Method::POST, &path, &binding).await;
        assert!([201, 404, 409].contains(&status), "{answer}");
    }
}

/// Deletes the objects with extreme options, then finishes their pods as a kubelet would.
async fn delete_all(client: &Client, created: &[String]) {
    let graces = [i64::MIN, 0, 1_000_000_000_000, i64::MAX];
    for (index, path) in created.iter().enumerate() {
        let policy = ["Background", "Foreground"][index % 2];
        let options = match index % 3 {
            0 => json!({"propagationPolicy": policy}),
            _ => json!({"propagationPolicy": policy, "gracePeriodSeconds": graces[index % 4]}),
        };
        let (status, answer) = client.call(Method::DELETE, path, &options).await;
        assert!([200, 202, 404].contains(&status), "{path}: {status} {answer}");
    }
    client
        .until("jobs remain", async || {
            client.items("/apis/batch/v1/jobs").await.iter().all(|job| job["metadata"]["deletionTimestamp"].is_string())
        })
        .await;
    client
        .until("pods remain", async || {
            let path = "/api/v1/namespaces/extremes/pods";
            client.call(Method::DELETE, path, &json!({"gracePeriodSeconds": 0})).await;
            client.items(&format!("{path}?limit=1")).await.is_empty()
        })
        .await;
    client.call(Method::DELETE, "/api/v1/namespaces/extremes", &Value::Null).await;
    client
        .until("the namespace remains", async || client.get("/api/v1/namespaces/extremes").await["code"] == 404)
        .await;
}

/// Gives every controller something to do.
async fn check_controllers(client: &Client) {
    client.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "after"}})).await;
    client
        .until("the service-account controller is dead", async || {
            client.get("/api/v1/namespaces/after/serviceaccounts/default").await["kind"] == "ServiceAccount"
        })
        .await;
    let post = async |path: &str, kind: &str, name: &str| {
        let mut object = base(kind);
        object["metadata"] = json!({"name": name});
        let (status, answer) = client.call(Method::POST, path, &object).await;
        assert_eq!(status, 201, "{answer}");
    };
    post("/apis/batch/v1/namespaces/after/jobs", "Job", "job").await;
    post("/apis/apps/v1/namespaces/after/deployments", "Deployment", "deployment").await;
    post("/api/v1/namespaces/after/services", "Service", "service").await;
    post("/api/v1/namespaces/after/persistentvolumeclaims", "PersistentVolumeClaim", "claim").await;
    let pods = async |prefix: &str| {
        let pods = client.items("/api/v1/namespaces/after/pods").await;
        pods.iter().filter(|pod| pod["metadata"]["name"].as_str().unwrap_or("").starts_with(prefix)).count()
    };
    client.until("the job controller is dead", async || pods("job-").await == 1).await;
    client.until("the replicas controller is dead", async || pods("deployment-").await == 1).await;
    client
        .until("the endpoints controller is dead", async || {
            client.get("/api/v1/namespaces/after/endpoints/service").await["kind"] == "Endpoints"
        })
        .await;
    client
        .until("the volume controller is dead", async || {
            let claim = client.get("/api/v1/namespaces/after/persistentvolumeclaims/claim").await;
            claim["status"]["phase"] == "Bound"
        })
        .await;
    let options = json!({"propagationPolicy": "Background"});
    client.call(Method::DELETE, "/apis/apps/v1/namespaces/after/deployments/deployment", &options).await;
    client.call(Method::DELETE, "/apis/batch/v1/namespaces/after/jobs/job", &options).await;
    client.until("the garbage collector is dead", async || pods("").await == 0).await;
    client.call(Method::DELETE, "/api/v1/namespaces/after", &Value::Null).await;
    client
        .until("the namespace controller is dead", async || client.get("/api/v1/namespaces/after").await["code"] == 404)
        .await;
}

#[tokio::test]
async fn extreme_queries_get_an_answer() {
    let client = Client { server: Server::start(Options::default()).await.expect("starts") };
    let path = "/api/v1/namespaces/default/configmaps";
    let mut numbers: Vec<String> = [i64::MIN, -1, 0, i64::MAX].iter().map(ToString::to_string).collect();
    numbers.extend(["99999999999999999999".to_owned(), u64::MAX.to_string(), "x".to_owned(), "1e9".to_owned()]);
    for number in &numbers {
        for query in [
            format!("limit={number}"),
            format!("watch=1&timeoutSeconds={number}&resourceVersion=99999999999"),
            format!("resourceVersion={number}"),
            format!("resourceVersion={number}&resourceVersionMatch=Exact"),
            // {"v":"meta.k8s.io/v1","rv":18446744073709551615,"start":"a/b"}
            format!(
                "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTg0NDY3NDQwNzM3MDk1NTE2MTUsInN0YXJ0IjoiYS9iIn0&limit={number}"
            ),
        ] {
            let answer = tokio::time::timeout(Duration::from_secs(30), client.get(&format!("{path}?{query}"))).await;
            let answer = answer.unwrap_or_else(|_| panic!("{query} hangs"));
            assert_ne!(answer["code"], 500, "{query}: {answer}");
        }
        let path = format!("{path}/nothing?gracePeriodSeconds={number}");
        let (status, answer) = client.call(Method::DELETE, &path, &Value::Null).await;
        assert!([400, 404].contains(&status), "{answer}");
    }
    assert_eq!(client.panics(), []);
}
