//! What operators leave becomes what KubeRay leaves: the same objects, without what only Manta writes.

use crate::api::Api;
use crate::object::{name, text};
use serde_json::{Value, json};

/// Annotations that KubeRay does not know.
const ANNOTATIONS: [&str; 2] = ["ray.io/delete-after", "ray.io/serve-proxy-location"];
/// Conditions that KubeRay does not know.
const CONDITIONS: [&str; 3] = ["RayClusterPodsBlocked", "UpgradeStalled", "ApplicationsFailed"];
/// The name under which KubeRay's requests are in managed fields.
const MANAGER: &str = "manager";

/// Rewrites all objects of operators.
pub(crate) fn leave_as_kuberay(api: &Api) {
    for kind in ["RayCluster", "RayJob", "RayService", "RayCronJob", "Pod", "Service"] {
        for object in api.list(kind) {
            rewrite(api, kind, &object);
        }
    }
}

fn rewrite(api: &Api, kind: &str, object: &Value) {
    let annotations = &object["metadata"]["annotations"];
    let unknown = ANNOTATIONS.into_iter().filter(|key| !annotations[*key].is_null());
    let removed: serde_json::Map<String, Value> = unknown.map(|key| (key.to_owned(), Value::Null)).collect();
    if !removed.is_empty() {
        api.patch(kind, &name(object), &json!({"metadata": {"annotations": removed}}));
    }
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let kept: Vec<&Value> =
        conditions.iter().filter(|condition| !CONDITIONS.contains(&text(&condition["type"]).as_str())).collect();
    if kind.starts_with("Ray") && kept.len() < conditions.len() {
        api.patch_status(kind, &name(object), &json!({"conditions": kept}));
    }
    let fields = json!([{"manager": MANAGER, "operation": "Update", "apiVersion": object["apiVersion"],
        "time": object["metadata"]["creationTimestamp"], "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {}}}]);
    api.patch(kind, &name(object), &json!({"metadata": {"managedFields": fields}}));
}
