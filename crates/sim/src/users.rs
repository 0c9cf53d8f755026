//! What users do: they create, change and delete Ray objects, and edit by hand what belongs to the operator.

use crate::checker::Checker;
use crate::kueue::{self, QUEUE};
use crate::object::text;
use crate::scheduler::GANG;
use crate::script::Act;
use crate::specs::{
    cluster_spec, deletion_strategy, durable, is_invalid, job_spec, suspends_sized_group, with_feature,
    without_containers,
};
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use crate::api::NAMESPACE;

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
    pub(crate) versions: Arc<Mutex<Versions>>,
}

/// The versions of services.
#[derive(Default)]
pub(crate) struct Versions {
    /// Makes every new version different.
    last: u32,
    /// The versions of each service's cluster, the newest last.
    clusters: BTreeMap<String, Vec<u32>>,
}

// What users do may be refused: the object may be there already, or gone.
impl Users {
    /// Does what a user does. Acts of others do nothing here.
    pub(crate) async fn act(&self, act: &Act) {
        match act {
            Act::CreateCluster { cluster, workers, token, autoscaled, tls, queue } => {
                let mut spec = cluster_spec(*workers);
                if *token {
                    spec["authOptions"] = json!({"mode": "token"});
                }
                if *autoscaled {
                    spec["enableInTreeAutoscaling"] = json!(true);
                }
                if *tls {
                    spec["tlsOptions"] = json!({"enabled": true});
                }
                self.create("RayCluster", &format!("c{cluster}"), *queue, spec).await;
            }
            Act::CreateClusterWith { cluster, workers, feature } => {
                let spec = with_feature(cluster_spec(*workers), *feature);
                self.create("RayCluster", &format!("c{cluster}"), false, spec).await;
            }
            Act::SuspendGroup { cluster, suspend } => {
                self.edit_group(&format!("c{cluster}"), "suspend", json!(suspend)).await;
            }
            Act::Scale { cluster, workers } => self.scale(&format!("c{cluster}"), *workers).await,
            Act::Autoscale { cluster, change } => self.autoscale(&format!("c{cluster}"), *change).await,
            Act::Suspend { cluster, suspend } => self.suspend("RayCluster", &format!("c{cluster}"), *suspend).await,
            Act::DeleteCluster(cluster) => self.delete("RayCluster", &format!("c{cluster}")).await,
            Act::RecreateCluster { cluster, secret_stays } => {
                let name = format!("c{cluster}");
                if *secret_stays {
                    self.hold_secret(&name).await;
                }
                self.recreate("RayCluster", &name).await;
            }
            Act::RecreateClusterUnseen(cluster) => {
                let name = format!("c{cluster}");
                self.hide_from_collector("RayCluster", &name).await;
                self.recreate("RayCluster", &name).await;
            }
            Act::CreateJob { job, http, fails, retries, shutdown, queue } => {
                let mut spec = job_spec(*http, *fails);
                spec["backoffLimit"] = json!(retries);
                // Only such a job can be suspended.
                spec["shutdownAfterJobFinishes"] = json!(*shutdown || *queue);
                self.create("RayJob", &format!("j{job}"), *queue, spec).await;
            }
            Act::CreateJobWithRules { job, http, fails, rules } => {
                let mut spec = job_spec(*http, *fails);
                spec["deletionStrategy"] = deletion_strategy(*rules);
                self.create("RayJob", &format!("j{job}"), false, spec).await;
            }
            Act::CreateInteractiveJob(job) => {
                let mut spec = job_spec(false, false);
                spec["submissionMode"] = json!("InteractiveMode");
                // Ends a job that its head forgets.
                spec["activeDeadlineSeconds"] = json!(300);
                self.create("RayJob", &format!("j{job}"), false, spec).await;
            }
            Act::NameJob(job) => self.name_job(&format!("j{job}")).await,
            Act::SuspendJob { job, suspend } => self.suspend("RayJob", &format!("j{job}"), *suspend).await,
            Act::RecreateJob(job) => self.recreate("RayJob", &format!("j{job}")).await,
            Act::RecreateJobUnseen(job) => {
                let name = format!("j{job}");
                self.hide_from_collector("RayJob", &name).await;
                self.recreate("RayJob", &name).await;
            }
            Act::DeleteJob(job) => self.delete("RayJob", &format!("j{job}")).await,
            Act::CreateService(service) => {
                let spec = self.service_spec(false);
                self.create("RayService", &format!("s{service}"), false, spec).await;
            }
            Act::CreateIncrementalService(service) => {
                let spec = self.service_spec(true);
                self.create("RayService", &format!("s{service}"), false, spec).await;
            }
            Act::CreateDurableService(service) => {
                let mut spec = self.service_spec(false);
                spec["rayClusterConfig"]["gcsFaultToleranceOptions"] = durable("DeleteWithCluster");
                self.create("RayService", &format!("s{service}"), false, spec).await;
            }
            Act::UpgradeService(service) => self.upgrade(&format!("s{service}")).await,
            Act::RevertService(service) => self.revert(&format!("s{service}")).await,
            Act::SuspendService { service, suspend } => {
                self.suspend("RayService", &format!("s{service}"), *suspend).await;
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
                self.create("RayCronJob", &format!("cron{cron_job}"), false, spec).await;
            }
            Act::SuspendCronJob { cron_job, suspend } => {
                self.patch("RayCronJob", &format!("cron{cron_job}"), json!({"suspend": suspend})).await;
            }
            Act::DeleteCronJob(cron_job) => self.delete("RayCronJob", &format!("cron{cron_job}")).await,
            Act::Invalidate { kind, name } => self.invalidate(*kind, *name).await,
            Act::Correct => self.correct().await,
            Act::RelabelPod(number) => {
                if let Some(pod) = self.ray_pod(*number).await {
                    self.checker.relabelled(&pod.name_any());
                    self.edit_pod(&pod, json!({"labels": {"ray.io/cluster": "another"}})).await;
                }
            }
            Act::OrphanPod(number) => {
                if let Some(pod) = self.ray_pod(*number).await {
                    self.checker.orphaned(&pod.name_any());
                    self.edit_pod(&pod, json!({"ownerReferences": null})).await;
                }
            }
            Act::OrphanHeadService(cluster) => {
                let name = format!("c{cluster}-head-svc");
                self.checker.orphaned(&name);
                let patch = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
                let _ = self.api::<Service>().patch(&name, &PatchParams::default(), &patch).await;
            }
            Act::DeletePod(number) => {
                if let Some(pod) = self.pod(*number).await {
                    self.checker.asked_to_delete([pod.name_any()]);
                    let _ = self.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default()).await;
                }
            }
            Act::DeleteSecret(cluster) => {
                let _ = self.api::<Secret>().delete(&format!("c{cluster}"), &DeleteParams::default()).await;
            }
            Act::DeleteTlsSecret(cluster) => {
                let name = format!("ray-head-secret-c{cluster}");
                let _ = self.api::<Secret>().delete(&name, &DeleteParams::default()).await;
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

    /// Makes the spec of an object invalid. The webhook refuses that, where there is one.
    async fn invalidate(&self, kind: u8, name: u8) {
        let (kind, name, spec) = match kind % 4 {
            0 => ("RayCluster", format!("c{name}"), without_containers()),
            1 => ("RayJob", format!("j{name}"), json!({"rayClusterSpec": without_containers()})),
            2 => ("RayService", format!("s{name}"), json!({"rayClusterConfig": without_containers()})),
            _ => ("RayCronJob", format!("cron{name}"), json!({"schedule": "every now and then"})),
        };
        self.patch(kind, &name, spec).await;
    }

    /// Corrects the specs that are invalid.
    pub(crate) async fn correct(&self) {
        let valid = json!({"headGroupSpec": {"template": cluster_spec(0)["headGroupSpec"]["template"]}});
        let corrections = [
            ("RayCluster", valid.clone()),
            ("RayJob", json!({"rayClusterSpec": valid})),
            ("RayService", json!({"rayClusterConfig": valid})),
            ("RayCronJob", json!({"schedule": "* * * * *"})),
        ];
        for (kind, correction) in corrections {
            for name in self.names(kind).await {
                let Some(object) = self.get(kind, &name).await.filter(is_invalid) else { continue };
                self.patch(kind, &name, correction.clone()).await;
                if suspends_sized_group(&object["spec"]) {
                    self.edit_group(&name, "suspend", json!(false)).await;
                }
            }
        }
    }

    /// Deletes all Ray objects, and what somebody took out of their hands.
    pub(crate) async fn delete_everything(&self) {
        for kind in ["RayCronJob", "RayService", "RayJob", "RayCluster"] {
            for name in self.names(kind).await {
                self.delete(kind, &name).await;
            }
        }
        for name in self.checker.without_owner() {
            let _ = self.api::<Pod>().delete(&name, &DeleteParams::default()).await;
            let _ = self.api::<Service>().delete(&name, &DeleteParams::default()).await;
        }
    }

    /// Returns the n-th Pod that is alive, if Ray runs in it.
    async fn ray_pod(&self, number: u8) -> Option<Pod> {
        self.pod(number).await.filter(|pod| pod.labels().contains_key("ray.io/node-type"))
    }

    async fn edit_pod(&self, pod: &Pod, metadata: Value) {
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let _ = self.api::<Pod>().patch(&pod.name_any(), &PatchParams::default(), &patch).await;
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
            self.edit_group(cluster, "replicas", json!(workers)).await;
        }
    }

    async fn edit_group(&self, cluster: &str, field: &str, value: Value) {
        let Some(object) = self.get("RayCluster", cluster).await else { return };
        let mut groups = object["spec"]["workerGroupSpecs"].clone();
        groups[0][field] = value;
        self.patch("RayCluster", cluster, json!({"workerGroupSpecs": groups})).await;
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

    /// Suspends or resumes an object, unless that is Kueue's business.
    async fn suspend(&self, kind: &str, name: &str, suspend: bool) {
        let Some(object) = self.get(kind, name).await else { return };
        if !kueue::is_queued(&object) {
            self.patch(kind, name, json!({"suspend": suspend})).await;
        }
    }

    /// Submits a job to the cluster of an interactive RayJob, if it waits for that.
    async fn name_job(&self, job: &str) {
        let Some(object) = self.get("RayJob", job).await else { return };
        if object["status"]["jobDeploymentStatus"] != "Waiting" {
            return;
        }
        let cluster = text(&object["status"]["rayClusterName"]);
        let id = format!("{cluster}-by-hand");
        self.checker.ray().submit(&format!("{cluster}-head-svc"), &id, false);
        self.patch("RayJob", job, json!({"jobId": id})).await;
    }

    /// Gives a service's cluster a spec that it never had.
    async fn upgrade(&self, service: &str) {
        let version = {
            let mut versions = self.versions();
            versions.last += 1;
            let version = versions.last;
            versions.clusters.entry(service.to_owned()).or_default().push(version);
            version
        };
        self.set_version(service, Some(version)).await;
    }

    /// Gives a service's cluster the spec that it had before the last upgrade.
    async fn revert(&self, service: &str) {
        let version = {
            let mut versions = self.versions();
            let known = versions.clusters.entry(service.to_owned()).or_default();
            known.pop();
            known.last().copied()
        };
        self.set_version(service, version).await;
    }

    async fn set_version(&self, service: &str, version: Option<u32>) {
        let annotations = json!({"version": version.map(|version| version.to_string())});
        let template = json!({"metadata": {"annotations": annotations}});
        let spec = json!({"rayClusterConfig": {"headGroupSpec": {"template": template}}});
        self.patch("RayService", service, spec).await;
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

    /// Makes the garbage collector leave what belongs to an object: it leaves what refers to a version that is not served.
    async fn hide_from_collector(&self, kind: &str, name: &str) {
        for resource in dependents() {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
            for object in api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default() {
                let mut owners = object.owner_references().to_vec();
                let Some(owner) = owners.iter_mut().find(|owner| owner.kind == kind && owner.name == name) else {
                    continue;
                };
                owner.api_version = "ray.io/v1alpha1".to_owned();
                let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
                let _ = api.patch(&object.name_any(), &PatchParams::default(), &patch).await;
            }
        }
    }

    /// Deletes an object, and creates it again as soon as it is gone.
    async fn recreate(&self, kind: &str, name: &str) {
        let Ok(Some(object)) = self.ray_objects(kind).get_opt(name).await else { return };
        self.delete(kind, name).await;
        let users = self.clone();
        let queue = object.labels().contains_key(QUEUE);
        let (kind, name, spec) = (kind.to_owned(), name.to_owned(), object.data["spec"].clone());
        tokio::spawn(async move {
            for _ in 0..RECREATION_TRIES {
                if users.create(&kind, &name, queue, spec.clone()).await {
                    return;
                }
                tokio::time::sleep(RECREATION_INTERVAL).await;
            }
        });
    }

    fn service_spec(&self, incremental: bool) -> Value {
        let mut cluster = cluster_spec(1);
        let mut spec = json!({"serveConfigV2": self.serve_config(), "rayClusterDeletionDelaySeconds": 10});
        if incremental {
            cluster["enableInTreeAutoscaling"] = json!(true);
            let options = json!({
                "gatewayClassName": "sim", "stepSizePercent": 30, "intervalSeconds": 5, "maxSurgePercent": 50,
            });
            spec["upgradeStrategy"] =
                json!({"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options});
        }
        spec["rayClusterConfig"] = cluster;
        spec
    }

    fn serve_config(&self) -> String {
        let mut versions = self.versions();
        versions.last += 1;
        format!("applications:\n- name: app\n  import_path: app:v{}.\n", versions.last)
    }

    fn versions(&self) -> std::sync::MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let object = self.ray_objects(kind).get_opt(name).await.ok()??;
        serde_json::to_value(object).ok()
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
    async fn create(&self, kind: &str, name: &str, queue: bool, mut spec: Value) -> bool {
        let mut labels = json!({GANG: "true"});
        if queue {
            labels[QUEUE] = json!("queue");
            spec["suspend"] = json!(true);
        }
        let metadata = json!({"name": name, "labels": labels});
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
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

/// Returns the kinds that belong to Ray objects.
fn dependents() -> [ApiResource; 8] {
    [
        ("", "v1", "Pod"),
        ("", "v1", "Service"),
        ("", "v1", "Secret"),
        ("", "v1", "ServiceAccount"),
        ("rbac.authorization.k8s.io", "v1", "Role"),
        ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
        ("batch", "v1", "Job"),
        ("ray.io", "v1", "RayCluster"),
    ]
    .map(|(group, version, kind)| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)))
}
