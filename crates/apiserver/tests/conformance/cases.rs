//! The cases, by what they are about.

mod custom;
mod deletion;
mod objects;
mod patches;
mod reading;
mod subresources;

use serde_json::{Value, json};

use super::harness::{Case, case, delete, delete_with, get, patch, post, post_text, put};

pub(crate) fn all() -> Vec<Case> {
    [objects::cases(), reading::cases(), patches::cases(), deletion::cases(), custom::cases(), subresources::cases()]
        .into_iter()
        .flatten()
        .collect()
}

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const PODS: &str = "/api/v1/namespaces/{ns}/pods";
const SERVICES: &str = "/api/v1/namespaces/{ns}/services";

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}})
}
