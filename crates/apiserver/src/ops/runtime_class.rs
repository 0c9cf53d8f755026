//! What the RuntimeClass of a new pod adds to it.

use serde_json::{Value, json};

use super::Cluster;
use crate::error::ApiError;
use crate::registry::Resource;
use crate::store::ObjectKey;

impl Cluster {
    /// Applies the RuntimeClass that a pod names: its overhead, node selector and tolerations.
    pub(super) fn apply_runtime_class(&self, resource: &Resource, name: &str, pod: &mut Value) -> Result<(), ApiError> {
        let spec = &mut pod["spec"];
        let refuse = |why: String| ApiError::forbidden(resource.named(name), &why);
        let Some(class) = spec["runtimeClassName"].as_str().filter(|class| !class.is_empty()).map(str::to_owned) else {
            // Only a class may declare an overhead.
            return merge(&Value::Null, spec).map_err(|why| refuse(format!("pod rejected: {why}")));
        };
        let classes = self.registry.builtin("node.k8s.io", "runtimeclasses");
        let Some(found) = self.store.get(&classes.table, &ObjectKey::new("", &class)) else {
            return Err(refuse(format!("pod rejected: RuntimeClass \"{class}\" not found")));
        };
        merge(&found.value(), spec).map_err(|why| refuse(format!("pod rejected: {why}")))
    }
}

/// Adds what a class says to the spec of a pod.
fn merge(class: &Value, spec: &mut Value) -> Result<(), String> {
    let overhead = &class["overhead"]["podFixed"];
    if overhead.is_object() {
        if spec["overhead"].is_object() && spec["overhead"] != *overhead {
            return Err("Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
        }
        spec["overhead"] = overhead.clone();
    } else if spec["overhead"].as_object().is_some_and(|overhead| !overhead.is_empty()) {
        return Err("Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned());
    }
    let scheduling = &class["scheduling"];
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let known = &spec["nodeSelector"][key];
        if !known.is_null() && known != value {
            return Err(format!("conflict: RuntimeClass.scheduling.nodeSelector[{key}] differs from the pod's"));
        }
        spec["nodeSelector"][key] = value.clone();
    }
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for toleration in scheduling["tolerations"].as_array().into_iter().flatten() {
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
        }
    }
    if !tolerations.is_empty() {
        spec["tolerations"] = json!(tolerations);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_adds_overhead_selector_and_tolerations() {
        let class = json!({"handler": "h", "overhead": {"podFixed": {"cpu": "10m"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]}});
        let check = |mut spec: Value, expect: Result<Value, &str>| {
            let merged = merge(&class, &mut spec).map(|()| spec);
            assert_eq!(merged, expect.map_err(str::to_owned));
        };
        let full = json!({"overhead": {"cpu": "10m"}, "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]});
        check(json!({}), Ok(full.clone()));
        check(full.clone(), Ok(full));
        let other = "Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        check(json!({"overhead": {"cpu": "1"}}), Err(other));
        let conflict = "conflict: RuntimeClass.scheduling.nodeSelector[a] differs from the pod's";
        check(json!({"nodeSelector": {"a": "c"}}), Err(conflict));
    }

    #[test]
    fn overhead_needs_a_class_that_defines_it() {
        let refused = merge(&json!({"handler": "h"}), &mut json!({"overhead": {"cpu": "1"}}));
        assert_eq!(refused, Err("Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned()));
    }
}
