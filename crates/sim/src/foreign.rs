//! Objects of somebody else that look like an operator's, by name or by labels.

use crate::api::Api;
use crate::checker::Checker;
use crate::script::Foreign;
use serde_json::{Value, json};

/// What controls those that have a controller.
const CONTROLLER: &str = "somebody";

/// Creates an object, unless there is one of this name already.
pub(crate) fn create(api: &Api, checker: &Checker, foreign: Foreign, number: u8) {
    let cluster = format!("c{number}");
    let (kind, metadata, fields) = object(foreign, &cluster, number);
    let mut metadata = metadata;
    if foreign == Foreign::Worker {
        api.create("ConfigMap", json!({"name": CONTROLLER}), json!({}));
        let Some(controller) = api.get("ConfigMap", CONTROLLER) else { return };
        metadata["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": CONTROLLER, "uid": controller["metadata"]["uid"],
            "controller": true,
        }]);
    }
    let Some(name) = metadata["name"].as_str().map(ToOwned::to_owned) else { return };
    // The name may be taken.
    if api.create(kind, metadata, fields)
        && let Some(created) = api.get(kind, &name)
    {
        checker.foreign_created(kind, &created);
    }
}

/// Deletes all of them.
pub(crate) fn delete_all(api: &Api, checker: &Checker) {
    for (kind, name) in checker.foreign() {
        api.delete(kind, &name);
    }
    api.delete("ConfigMap", CONTROLLER);
}

/// Returns the kind, the metadata and the rest of an object.
fn object(foreign: Foreign, cluster: &str, number: u8) -> (&'static str, Value, Value) {
    let named = |name: String| json!({"name": name});
    let pod = json!({"spec": {"containers": [{"name": "main", "image": "busybox"}]}});
    let service = json!({"spec": {"selector": {"app": "another"}, "ports": [{"port": 80}]}});
    match foreign {
        Foreign::Worker => {
            let labels = json!({"ray.io/cluster": cluster, "ray.io/node-type": "worker", "ray.io/group": "small",
                "ray.io/is-ray-node": "yes"});
            ("Pod", json!({"name": format!("{cluster}-of-somebody"), "labels": labels}), pod)
        }
        Foreign::Client => {
            let labels = json!({"ray.io/cluster": cluster});
            ("Pod", json!({"name": format!("{cluster}-client"), "labels": labels}), pod)
        }
        Foreign::HeadService => ("Service", named(format!("{cluster}-head-svc")), service),
        Foreign::ServeService => ("Service", named(format!("s{number}-serve-svc")), service),
        Foreign::Secret => ("Secret", named(cluster.to_owned()), json!({"data": {"password": "Y29ycmVjdCBob3JzZQ=="}})),
        Foreign::ServiceAccount => ("ServiceAccount", named(cluster.to_owned()), json!({})),
        Foreign::Role => ("Role", named(cluster.to_owned()), json!({"rules": []})),
        Foreign::RoleBinding => {
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "another"});
            ("RoleBinding", named(cluster.to_owned()), json!({"roleRef": role}))
        }
        Foreign::Ingress => {
            let backend = json!({"service": {"name": "another", "port": {"number": 80}}});
            ("Ingress", named(format!("{cluster}-head-ingress")), json!({"spec": {"defaultBackend": backend}}))
        }
        Foreign::Submitter => {
            let template = json!({"spec": {"restartPolicy": "Never", "containers": pod["spec"]["containers"]}});
            ("Job", named(format!("j{number}")), json!({"spec": {"template": template}}))
        }
    }
}
