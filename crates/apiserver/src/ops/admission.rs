//! Built-in admission: namespace, priority, runtime class, service account and storage class.

use serde_json::{Value, json};

use super::Cluster;
use crate::error::{ApiError, Named};
use crate::registry::{Resource, admit_pod};
use crate::store::{Entry, ObjectKey};

/// What the JSON of a default priority class has in it.
const DEFAULT_CLASS: &[u8] = b"\"globalDefault\":true";

impl Cluster {
    /// Runs the built-in admission for a new object.
    pub(super) fn admit_create(&self, resource: &Resource, namespace: &str, value: &mut Value) -> Result<(), ApiError> {
        let name = value["metadata"]["name"].as_str().unwrap_or("").to_owned();
        if resource.namespaced {
            self.check_namespace(resource, namespace, &name)?;
        }
        if &*resource.table == "pods" {
            let priority = self.priority(resource, &name, value)?;
            let computed = priority.as_ref().map_or(0, |(priority, _)| *priority);
            if let Some(given) = value["spec"]["priority"].as_i64().filter(|given| *given != computed) {
                let why = format!(
                    "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
                     controller computed {computed} from the given PriorityClass name"
                );
                return Err(ApiError::forbidden(resource.named(&name), &why));
            }
            admit_pod(value, priority);
            self.apply_runtime_class(resource, &name, value)?;
            if self.admit_service_accounts {
                self.mount_service_account(resource, namespace, &name, value)?;
            }
        }
        if &*resource.plural == "persistentvolumeclaims" {
            self.default_storage_class(value);
        }
        Ok(())
    }

    fn check_namespace(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), ApiError> {
        let Some(found) = self.store.get("namespaces", &ObjectKey::new("", namespace)) else {
            return Err(ApiError::not_found(Named { group: "", what: "namespaces", name: namespace }));
        };
        // Events may still report the termination itself.
        if found.deleting && &*resource.table != "events" {
            return Err(ApiError::terminating(resource.named(name), namespace));
        }
        Ok(())
    }

    fn priority(&self, resource: &Resource, name: &str, pod: &mut Value) -> Result<Option<(i64, String)>, ApiError> {
        let policy = |class: &Value| class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority").to_owned();
        if let Some(class) = pod["spec"]["priorityClassName"].as_str().map(str::to_owned) {
            let Some(found) = self.store.get("priorityclasses.scheduling.k8s.io", &ObjectKey::new("", &class)) else {
                let why = format!("no PriorityClass with name {class} was found");
                return Err(ApiError::forbidden(resource.named(name), &why));
            };
            let found = found.value();
            return Ok(Some((found["value"].as_i64().unwrap_or(0), policy(&found))));
        }
        // Every pod asks, and hardly any class is the default: those that are not need no parsing.
        let maybe = |class: &Entry| class.json.windows(DEFAULT_CLASS.len()).any(|piece| piece == DEFAULT_CLASS);
        let classes = self.store.list("priorityclasses.scheduling.k8s.io", &Default::default(), maybe);
        let classes = classes.map(|page| page.entries).unwrap_or_default();
        let default = classes.iter().map(|entry| entry.value()).find(|class| class["globalDefault"] == true);
        Ok(default.map(|class| {
            pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
            (class["value"].as_i64().unwrap_or(0), policy(&class))
        }))
    }

    fn default_storage_class(&self, claim: &mut Value) {
        if !claim["spec"]["storageClassName"].is_null() {
            return;
        }
        let classes = self.store.list("storageclasses.storage.k8s.io", &Default::default(), |_| true);
        let default = classes.map(|page| page.entries).unwrap_or_default().into_iter().find(|entry| {
            entry.value()["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true"
        });
        if let Some(default) = default {
            claim["spec"]["storageClassName"] = (*default.key.name).into();
        }
    }

    fn mount_service_account(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        pod: &mut Value,
    ) -> Result<(), ApiError> {
        let account = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default").to_owned();
        let Some(found) = self.store.get("serviceaccounts", &ObjectKey::new(namespace, &account)) else {
            let why =
                format!("error looking up service account {namespace}/{account}: serviceaccount {account:?} not found");
            return Err(ApiError::forbidden(resource.named(name), &why));
        };
        let found = found.value();
        let spec = &mut pod["spec"];
        spec["serviceAccountName"] = account.as_str().into();
        spec["serviceAccount"] = account.into();
        if spec["imagePullSecrets"].is_null() && found["imagePullSecrets"].is_array() {
            spec["imagePullSecrets"] = found["imagePullSecrets"].clone();
        }
        let wanted = spec["automountServiceAccountToken"].as_bool().or(found["automountServiceAccountToken"].as_bool());
        if wanted == Some(false) {
            return Ok(());
        }
        const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
        let volume = format!("kube-api-access-{}", self.clock.suffix(5));
        let mut mounted = false;
        for list in ["initContainers", "containers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                let mounts = &mut container["volumeMounts"];
                if mounts.is_null() {
                    *mounts = json!([]);
                }
                let Some(mounts) = mounts.as_array_mut() else { continue };
                if !mounts.iter().any(|mount| mount["mountPath"] == PATH) {
                    mounts.push(json!({"name": volume, "mountPath": PATH, "readOnly": true}));
                    mounted = true;
                }
            }
        }
        if mounted {
            if spec["volumes"].is_null() {
                spec["volumes"] = json!([]);
            }
            if let Some(volumes) = spec["volumes"].as_array_mut() {
                volumes.push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [{"path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
                ]}}));
            }
        }
        Ok(())
    }
}
