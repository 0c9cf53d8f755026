//! What users do: they create, change and delete Ray objects, and edit by hand what belongs to the operator.

use crate::checker::Checker;
use crate::script::Act;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Where everything happens.
pub(crate) const NAMESPACE: &str = "default";

/// How often, and how many times, users try to create an object whose predecessor is still being deleted.
const RECREATION_INTERVAL: Duration = Duration::from_millis(300);
const RECREATION_TRIES: usize = 100;
/// How long a Secret stays that a slow garbage collector deletes.
const SLOW_COLLECTION: Duration = Duration::from_secs(20);

/// The users.
#[derive(Clone)]
pub(crate) struct Users {
    pub(crate) client: Client,
    pub(crate) checker: Checker,
    /// Makes every new version of a service different.
    pub(crate) versions: Arc<AtomicU32>,
}

// What users do may be refused: the object may be there already, or gone.
impl Users {
    /// Does what a user does. Acts of others do nothing here.
    pub(crate) async fn act(&self, act: &Act) {
        match act {
            Act::CreateCluster { cluster, workers, token, autoscaled } => {
                let mut spec = cluster_spec(*workers);
                if *token {
                    spec["authOptions"] = json!({"mode": "token"});
                }
                if *autoscaled {
                    spec["enableInTreeAutoscaling"] = json!(true);
                }
                self.create("RayCluster", &format!("c{cluster}"), spec).await;
            }
            Act::Scale { cluster, workers } => self.scale(&format!("c{cluster}"), *workers).await,
            Act::Autoscale { cluster, change } => self.autoscale(&format!("c{cluster}"), *change).await,
            Act::Suspend { cluster, suspend } => {
                self.patch("RayCluster", &format!("c{cluster}"), json!({"suspend": suspend})).await;
            }
            Act::DeleteCluster(cluster) => self.delete("RayCluster", &format!("c{cluster}")).await,
            Act::RecreateCluster { cluster, secret_stays } => {
                let name = format!("c{cluster}");
                if *secret_stays {
                    self.hold_secret(&name).await;
                }
                self.recreate("RayCluster", &name).await;
            }
            Act::CreateJob { job, http, fails, retries, shutdown } => {
                let mut spec = job_spec(*http, *fails);
                spec["backoffLimit"] = json!(retries);
                spec["shutdownAfterJobFinishes"] = json!(shutdown);
                self.create("RayJob", &format!("j{job}"), spec).await;
            }
            Act::SuspendJob { job, suspend } => {
                self.patch("RayJob", &format!("j{job}"), json!({"suspend": suspend})).await;
            }
            Act::RecreateJob(job) => self.recreate("RayJob", &format!("j{job}")).await,
            Act::DeleteJob(job) => self.delete("RayJob", &format!("j{job}")).await,
            Act::CreateService(service) => {
                let spec = json!({
                    "serveConfigV2": self.serve_config(), "rayClusterConfig": cluster_spec(1),
                    "rayClusterDeletionDelaySeconds": 10,
                });
                self.create("RayService", &format!("s{service}"), spec).await;
            }
            Act::UpgradeService(service) => {
                let mut cluster = cluster_spec(1);
                let version = self.versions.fetch_add(1, Ordering::Relaxed).to_string();
                cluster["headGroupSpec"]["template"]["metadata"] = json!({"annotations": {"version": version}});
                let spec = json!({"rayClusterConfig": {"headGroupSpec": cluster["headGroupSpec"]}});
                self.patch("RayService", &format!("s{service}"), spec).await;
            }
            Act::ReconfigureService(service) => {
                let spec = json!({"serveConfigV2": self.serve_config()});
                self.patch("RayService", &format!("s{service}"), spec).await;
            }
            Act::DeleteService(service) => self.delete("RayService", &format!("s{service}")).await,
            Act::CreateCronJob(cron_job) => {
                let mut template = job_spec(true, false);
                template["shutdownAfterJobFinishes"] = json!(true);
                let spec = json!({"schedule": "* * * * *", "jobTemplate": template});
                self.create("RayCronJob", &format!("cron{cron_job}"), spec).await;
            }
            Act::SuspendCronJob { cron_job, suspend } => {
                self.patch("RayCronJob", &format!("cron{cron_job}"), json!({"suspend": suspend})).await;
            }
            Act::DeleteCronJob(cron_job) => self.delete("RayCronJob", &format!("cron{cron_job}")).await,
            Act::DeletePod(number) => {
                if let Some(pod) = self.pod(*number).await {
                    self.checker.asked_to_delete([pod.name_any()]);
                    let _ = self.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default()).await;
                }
            }
            Act::DeleteSecret(cluster) => {
                let _ = self.api::<Secret>().delete(&format!("c{cluster}"), &DeleteParams::default()).await;
            }
            Act::DeleteHeadService(cluster) => {
                let name = format!("c{cluster}-head-svc");
                let _ = self.api::<Service>().delete(&name, &DeleteParams::default()).await;
            }
            _ => {}
        }
    }

    /// Stops all schedules: without this, nothing would ever be at rest.
    pub(crate) async fn suspend_cron_jobs(&self) {
        for cron_job in self.names("RayCronJob").await {
            self.patch("RayCronJob", &cron_job, json!({"suspend": true})).await;
        }
    }

    /// Deletes all Ray objects.
    pub(crate) async fn delete_everything(&self) {
        for kind in ["RayCronJob", "RayService", "RayJob", "RayCluster"] {
            for name in self.names(kind).await {
                self.delete(kind, &name).await;
            }
        }
    }

    /// Returns the n-th Pod that is alive.
    pub(crate) async fn pod(&self, number: u8) -> Option<Pod> {
        let names = self.checker.pods();
        let name = names.get(usize::from(number) % names.len().max(1))?;
        self.api::<Pod>().get_opt(name).await.ok()?
    }

    /// Changes the size of a cluster, unless that is an autoscaler's business.
    async fn scale(&self, cluster: &str, workers: u8) {
        if self.is_autoscaled(cluster).await == Some(false) {
            let groups = cluster_spec(workers)["workerGroupSpecs"].clone();
            self.patch("RayCluster", cluster, json!({"workerGroupSpecs": groups})).await;
        }
    }

    async fn is_autoscaled(&self, cluster: &str) -> Option<bool> {
        let object = self.ray_objects("RayCluster").get_opt(cluster).await.ok()??;
        Some(object.data["spec"]["enableInTreeAutoscaling"] == true)
    }

    /// Does what Ray's autoscaler does: it asks for more workers, or names those that go.
    async fn autoscale(&self, cluster: &str, change: i8) {
        let Ok(Some(object)) = self.ray_objects("RayCluster").get_opt(cluster).await else { return };
        if object.data["spec"]["enableInTreeAutoscaling"] != true {
            return;
        }
        let mut groups = object.data["spec"]["workerGroupSpecs"].clone();
        let replicas = groups[0]["replicas"].as_i64().unwrap_or_default();
        let most = usize::from((-change).max(0).unsigned_abs());
        let mut named: Vec<String> = self.checker.workers(cluster).into_iter().take(most).collect();
        let removed = i64::try_from(named.len()).unwrap_or_default();
        groups[0]["replicas"] = json!((replicas + i64::from(change.max(0)) - removed).max(0));
        self.checker.asked_to_delete(named.clone());
        // Those that were named before stay named until they are gone.
        let before = groups[0]["scaleStrategy"]["workersToDelete"].as_array().cloned().unwrap_or_default();
        let present = before.iter().filter_map(Value::as_str).filter(|pod| self.checker.has_pod(pod));
        named.extend(present.map(ToOwned::to_owned));
        groups[0]["scaleStrategy"] = json!({"workersToDelete": named});
        self.patch("RayCluster", cluster, json!({"workerGroupSpecs": groups})).await;
    }

    /// Keeps a Secret from going for a while, as a slow garbage collector does.
    async fn hold_secret(&self, name: &str) {
        let finalizers = |list: Value| Patch::Merge(json!({"metadata": {"finalizers": list}}));
        let (secrets, name) = (self.api::<Secret>(), name.to_owned());
        if secrets.patch(&name, &PatchParams::default(), &finalizers(json!(["sim.io/slow"]))).await.is_ok() {
            tokio::spawn(async move {
                tokio::time::sleep(SLOW_COLLECTION).await;
                let _ = secrets.patch(&name, &PatchParams::default(), &finalizers(Value::Null)).await;
            });
        }
    }

    /// Deletes an object, and creates it again as soon as it is gone.
    async fn recreate(&self, kind: &str, name: &str) {
        let Ok(Some(object)) = self.ray_objects(kind).get_opt(name).await else { return };
        self.delete(kind, name).await;
        let users = self.clone();
        let (kind, name, spec) = (kind.to_owned(), name.to_owned(), object.data["spec"].clone());
        tokio::spawn(async move {
            for _ in 0..RECREATION_TRIES {
                if users.create(&kind, &name, spec.clone()).await {
                    return;
                }
                tokio::time::sleep(RECREATION_INTERVAL).await;
            }
        });
    }

    fn serve_config(&self) -> String {
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        format!("applications:\n- name: app\n  import_path: app:v{version}.\n")
    }

    async fn names(&self, kind: &str) -> Vec<String> {
        let list = self.ray_objects(kind).list(&ListParams::default()).await;
        list.map(|list| list.items.iter().map(ResourceExt::name_any).collect()).unwrap_or_default()
    }

    fn ray_objects(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates an object. Returns whether that was possible.
    async fn create(&self, kind: &str, name: &str, spec: Value) -> bool {
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        match serde_json::from_value(object) {
            Ok(object) => self.ray_objects(kind).create(&PostParams::default(), &object).await.is_ok(),
            Err(_) => false,
        }
    }

    async fn patch(&self, kind: &str, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        let _ = self.ray_objects(kind).patch(name, &PatchParams::default(), &patch).await;
    }

    async fn delete(&self, kind: &str, name: &str) {
        let _ = self.ray_objects(kind).delete(name, &DeleteParams::default()).await;
    }
}

fn job_spec(http: bool, fails: bool) -> Value {
    json!({
        "entrypoint": if fails { "fail" } else { "succeed" },
        "submissionMode": if http { "HTTPMode" } else { "K8sJobMode" },
        "rayClusterSpec": cluster_spec(1),
    })
}

fn cluster_spec(workers: u8) -> Value {
    let container = |name: &str| json!({"name": name, "image": "rayproject/ray:2.53.0"});
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head")]}}},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 10, "rayStartParams": {},
            "template": {"spec": {"containers": [container("ray-worker")]}},
        }],
    })
}
