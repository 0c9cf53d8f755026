//! Finalizers: the one way in which they are added and removed.

use crate::action::{Accept, ObjectKey, Step, merge_difference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Returns whether an object carries a finalizer.
pub(crate) fn has(metadata: &ObjectMeta, name: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

/// Adds a finalizer to the version that was seen.
///
/// KubeRay writes the whole object back here: empty parts of Go's structs appear in its spec, and empty values
/// disappear. That is harmless, and whoever compares generations knows the object in that form, so the spec is
/// patched from the `stored` form to the `written` one.
pub(crate) fn add(
    key: ObjectKey,
    metadata: &ObjectMeta,
    name: &str,
    stored: &Value,
    written: &Value,
    why: &str,
) -> Step {
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(name.to_owned());
    let patch = json!({
        "metadata": {"finalizers": finalizers, "resourceVersion": metadata.resource_version},
        "spec": merge_difference(stored, written),
    });
    Step::merge(key, patch, why)
}

/// Removes a finalizer from the version that was seen.
pub(crate) fn remove(key: ObjectKey, metadata: &ObjectMeta, name: &str, why: &str) -> Step {
    let left: Vec<&String> = metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != name).collect();
    let patch = json!({"metadata": {"finalizers": left, "resourceVersion": metadata.resource_version}});
    Step::merge(key, patch, why).accept(Accept::NotFound)
}
