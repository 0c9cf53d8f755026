//! Comparison of built objects with recorded objects of KubeRay v1.7.0.
//!
//! The recordings (`../shared/parity`) hold objects as the API server stored them, with placeholders for random values.
//! The recorded RayClusters are the inputs. The built objects get the defaults of the API server and are then compared
//! field by field. The recordings sort lists whose order has no meaning, and environment variables too, whose order
//! other tests check.

mod api_defaults;

use super::testing::valid;
use super::*;
use crate::cluster_spec::{self, Creator};
use crate::config::{Config, FeatureGates};
use crate::labels;
use manta_api::{RayCluster, RayJob, RayService};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Objects that cannot be built from the recorded input.
const NOT_COMPARABLE: [(&str, &str); 3] = [
    // The image was changed later, and without an upgrade strategy the head is not replaced.
    ("case-upgrade-none after", "demo-head-*"),
    // `-*` stands for six characters of the cluster's name, which is truncated in the Pod's name.
    ("sample-agent-sandbox_ray-cluster created", "agent-sandbox-code-execution-demo-*-sandbox-ex-worker-*"),
    ("sample-agent-sandbox_ray-cluster ready", "agent-sandbox-code-execution-demo-*-sandbox-ex-worker-*"),
];

#[test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
fn built_objects_equal_the_recorded_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity");
    let mut tally = Tally::default();
    for file in recordings(&folder) {
        let case: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let name = file.file_stem().unwrap().to_str().unwrap();
        let ignore: Vec<&str> = case["ignore"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (stage, seen) in case["expect"].as_object().into_iter().flatten() {
            if let Some(objects) = seen["objects"].as_array() {
                compare_stage(&format!("{name} {stage}"), objects, &ignore, &mut tally);
            }
        }
    }
    println!("compared {} objects of KubeRay, {} equal:", tally.compared(), tally.equal());
    for (kind, (equal, compared)) in &tally.by_kind {
        println!("  {kind:24} {equal:5} of {compared:5}");
    }
    assert!(tally.compared() > 1000, "the recordings hold more than that");
    assert!(tally.differences.is_empty(), "{}", tally.differences.join("\n"));
}

#[derive(Default)]
struct Tally {
    by_kind: BTreeMap<String, (usize, usize)>,
    differences: Vec<String>,
}

impl Tally {
    fn equal(&self) -> usize {
        self.by_kind.values().map(|(equal, _)| equal).sum()
    }

    fn compared(&self) -> usize {
        self.by_kind.values().map(|(_, compared)| compared).sum()
    }
}

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let list = |name: &str| std::fs::read_dir(folder.join(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = list("cases").chain(list("life")).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

fn compare_stage(stage: &str, objects: &[Value], ignore: &[&str], tally: &mut Tally) {
    let recording = Recording::parse(objects);
    for recorded in objects {
        let kind = recorded["kind"].as_str().unwrap();
        let name = recorded["metadata"]["name"].as_str().unwrap();
        // Without candidates the cluster or the group has been deleted, and the object is a leftover.
        let candidates = recording.build(recorded);
        if candidates.is_empty() || NOT_COMPARABLE.contains(&(stage, name)) {
            continue;
        }
        let mut recorded = recorded.clone();
        recorded.as_object_mut().unwrap().remove("status");
        let as_recorded = |mut made| {
            api_defaults::fill(kind, &mut made);
            normalise("", &mut made, ignore);
            made
        };
        let candidates: Vec<Value> = candidates.into_iter().map(as_recorded).collect();
        let counts = tally.by_kind.entry(kind.to_owned()).or_default();
        counts.1 += 1;
        if candidates.contains(&recorded) {
            counts.0 += 1;
        } else {
            let nearest = candidates.iter().map(|made| differences("", &recorded, made)).min_by_key(Vec::len);
            let lines = nearest.into_iter().flatten();
            tally.differences.extend(lines.map(|line| format!("{stage}: {kind} {name}{line}")));
        }
    }
}

/// The recorded Ray objects of one stage.
struct Recording {
    config: Config,
    clusters: Vec<RayCluster>,
    jobs: Vec<RayJob>,
    services: Vec<RayService>,
}

impl Recording {
    fn parse(objects: &[Value]) -> Self {
        Self {
            config: Config {
                gates: FeatureGates {
                    ray_cluster_network_policy: true,
                    gcs_fault_tolerance_embedded_storage: true,
                    ray_cluster_mtls: true,
                    ..FeatureGates::KUBERAY
                },
                ..Config::default()
            },
            clusters: read_kind(objects, "RayCluster"),
            jobs: read_kind(objects, "RayJob"),
            services: read_kind(objects, "RayService"),
        }
    }

    /// Returns the candidates for a recorded object: several if clusters share a normalised name, none for objects
    /// without a builder.
    fn build(&self, recorded: &Value) -> Vec<Value> {
        let owner = &recorded["metadata"]["ownerReferences"][0];
        let (Some(owner_kind), Some(owner)) = (owner["kind"].as_str(), owner["name"].as_str()) else {
            return Vec::new();
        };
        match (recorded["kind"].as_str().unwrap(), owner_kind) {
            ("Pod" | "RayCluster" | "Job" | "RayJob", "RayJob" | "Job" | "RayCronJob" | "RayService") => Vec::new(),
            ("Service", "RayJob") => self.services_of_job(owner),
            ("Service" | "Gateway" | "HTTPRoute", "RayService") => self.objects_of_service(owner, recorded),
            (kind, "RayCluster") => {
                let clusters = self.clusters.iter().filter(|cluster| cluster.metadata.name.as_deref() == Some(owner));
                clusters.filter_map(|cluster| self.of_cluster(cluster, kind, recorded)).collect()
            }
            other => panic!("no builder for {other:?}"),
        }
    }

    fn of_cluster(&self, cluster: &RayCluster, kind: &str, recorded: &Value) -> Option<Value> {
        let (config, name) = (&self.config, recorded["metadata"]["name"].as_str()?);
        let cluster = valid(cluster);
        Some(match kind {
            "Pod" => self.pod(&cluster, recorded)?,
            "ServiceAccount" => json(rbac::service_account(&cluster)),
            "Role" => json(rbac::role(&cluster)),
            "RoleBinding" => json(rbac::role_binding(&cluster)),
            "Secret" => json(auth_secret(&cluster, "token")),
            "PersistentVolumeClaim" => json(gcs_storage_claim(&cluster)),
            "Ingress" => json(ingress(&cluster)),
            "Job" => json(redis_cleanup_job(&cluster, config)),
            "NetworkPolicy" => {
                let policies = network_policies(&cluster);
                json(policies.into_iter().find(|policy| policy.metadata.name.as_deref() == Some(name))?)
            }
            "Service" if name.ends_with("-headless") => json(headless_service(&cluster)),
            "Service" if name.ends_with("-serve-svc") => {
                let service = self.services.first();
                json(
                    service
                        .map_or_else(|| cluster_serve_service(&cluster), |it| upgrade_serve_service(it, &cluster))
                        .unwrap(),
                )
            }
            "Service" => json(head_service(&cluster, config)),
            "Issuer" | "Certificate" => {
                let ips = recorded["spec"]["ipAddresses"].as_array().into_iter().flatten();
                let ips: Vec<&str> = ips.map(|ip| ip.as_str().unwrap()).collect();
                let all = [
                    mtls::self_signed_issuer(&cluster),
                    mtls::ca_certificate(&cluster),
                    mtls::ca_issuer(&cluster),
                    mtls::head_certificate(&cluster, config, &ips),
                    mtls::worker_certificate(&cluster, &ips),
                ];
                all.into_iter().find(|object| object["metadata"]["name"] == name)?
            }
            other => panic!("no builder for a {other}"),
        })
    }

    fn pod(&self, cluster: &crate::validate::ValidCluster<'_>, recorded: &Value) -> Option<Value> {
        let label = |key: &str| recorded["metadata"]["labels"][key].as_str();
        if label(labels::NODE_TYPE) == Some(labels::HEAD) {
            let mut pod = head_pod(cluster, &self.config, HeadIdentity { suffix: "*", spec_hash: "h" });
            if label(labels::SERVE) == Some("true") {
                // A new head does not serve; the RayService controller enables it later.
                let serve = pod.metadata.labels.as_mut()?.get_mut(labels::SERVE)?;
                assert_eq!(std::mem::replace(serve, "true".to_owned()), "false");
            }
            return Some(json(pod));
        }
        let group = label(labels::GROUP)?;
        let group = cluster_spec::worker_groups(&cluster.spec).iter().find(|it| it.group_name == group)?;
        let number = |key| label(key).and_then(|text| text.parse().ok()).unwrap_or_default();
        let identity = WorkerIdentity {
            suffix: "*",
            replica_index: number(labels::REPLICA_INDEX),
            replica_name: label(labels::REPLICA_NAME).unwrap_or_default(),
            host_index: number(labels::HOST_INDEX),
        };
        Some(json(worker_pod(cluster, group, &self.config, identity)))
    }

    fn services_of_job(&self, name: &str) -> Vec<Value> {
        let job = self.jobs.iter().find(|job| job.metadata.name.as_deref() == Some(name)).unwrap();
        let make = |cluster| owner_head_service(Creator::RayJob, &job.metadata, cluster, &self.config);
        self.clusters.iter().map(|cluster| json(make(cluster))).collect()
    }

    fn objects_of_service(&self, name: &str, recorded: &Value) -> Vec<Value> {
        let service = self.services.iter().find(|it| it.metadata.name.as_deref() == Some(name)).unwrap();
        let make = |cluster: &RayCluster| match recorded["kind"].as_str().unwrap() {
            "Gateway" => gateway::gateway(service).unwrap(),
            "HTTPRoute" => {
                let backends = recorded["spec"]["rules"][0]["backendRefs"].as_array().unwrap();
                let mut backends = backends
                    .iter()
                    .map(|backend| gateway::Backend { cluster, weight: backend["weight"].as_i64().unwrap() as i32 });
                gateway::http_route(service, backends.next().unwrap(), backends.next())
            }
            _ if recorded["spec"]["selector"][labels::SERVE] == "true" => {
                json(service_serve_service(service, cluster).unwrap())
            }
            _ => json(owner_head_service(Creator::RayService, &service.metadata, cluster, &self.config)),
        };
        self.clusters.iter().map(make).collect()
    }
}

fn read_kind<T: serde::de::DeserializeOwned>(objects: &[Value], kind: &str) -> Vec<T> {
    let read = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["uid"] = json!("<uid>");
        // Timestamps are placeholders, and no builder reads a status.
        object.as_object_mut().unwrap().remove("status");
        object["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        serde_json::from_value(object).unwrap()
    };
    objects.iter().filter(|object| object["kind"] == kind).map(read).collect()
}

fn json(object: impl Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

/// Applies the placeholders and the sorting of the recordings.
fn normalise(key: &str, value: &mut Value, ignore: &[&str]) {
    const UNORDERED: [&str; 8] =
        ["env", "volumes", "volumeMounts", "ports", "conditions", "tolerations", "imagePullSecrets", "subjects"];
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| key != "uid" && !ignore.contains(&format!("-{key}").as_str()));
            for (key, field) in fields.iter_mut() {
                match key.as_str() {
                    key if ignore.contains(&key) => *field = json!("<ignored>"),
                    "ray.io/kuberay-version" => *field = json!("<version>"),
                    key if key.to_lowercase().contains("hash") && field.is_string() => *field = json!("<hash>"),
                    key => normalise(key, field, ignore),
                }
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| normalise(key, item, ignore));
            if UNORDERED.contains(&key) {
                items.sort_by_key(Value::to_string);
            }
        }
        Value::String(text) => {
            *text = text
                .replace(&format!("kuberay_version={}", crate::config::KUBERAY_VERSION), "kuberay_version=<version>")
                .replace("-ca-secret-<uid>", "-ca-secret-<hash>");
        }
        _ => {}
    }
}

/// Returns one line for each field that differs.
fn differences(path: &str, recorded: &Value, made: &Value) -> Vec<String> {
    match (recorded, made) {
        (Value::Object(recorded), Value::Object(made)) => {
            let keys: std::collections::BTreeSet<_> = recorded.keys().chain(made.keys()).collect();
            let at = |fields: &serde_json::Map<String, Value>, key: &str| fields.get(key).cloned().unwrap_or_default();
            keys.into_iter()
                .flat_map(|key| differences(&format!("{path}.{key}"), &at(recorded, key), &at(made, key)))
                .collect()
        }
        (Value::Array(recorded), Value::Array(made)) if recorded.len() == made.len() => recorded
            .iter()
            .zip(made)
            .enumerate()
            .flat_map(|(index, (recorded, made))| differences(&format!("{path}[{index}]"), recorded, made))
            .collect(),
        _ if recorded == made => Vec::new(),
        _ => vec![format!("{path}: recorded {recorded}, made {made}")],
    }
}
