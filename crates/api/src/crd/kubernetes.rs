//! Additions to the schemas of Kubernetes' own types inside a custom resource.
//!
//! k8s-openapi's schemas come from the OpenAPI document of the API server, which has no bounds, patterns and defaults
//! because code checks and defaults the built-in types.

use crate::markers::{self, Marker};
use serde_json::{Map, Value, json};

const QUANTITY: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
const QUALIFIED_NAME: &str = concat!(
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
);

/// Adds markers, constraints and defaults to the schema of a type.
pub(super) fn amend(name: &str, schema: &mut Map<String, Value>) {
    if let Some(replacement) = replacement(name) {
        *schema = replacement;
        return;
    }
    if let Some(markers) = markers::of(name) {
        for (field, marker) in markers.fields {
            add_to_field(schema, field, marker_keywords(*marker));
        }
        if markers.atomic {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
    }
    for (field, keywords) in constraints(name) {
        add_to_field(schema, field, keywords);
    }
    for (field, default) in defaults(name) {
        add_to_field(schema, field, json!({"default": default}));
        set_required(schema, |required| required.retain(|name| name != field));
    }
    match name {
        "io.k8s.api.core.v1.Service" => set_required(schema, Vec::clear),
        "io.k8s.api.core.v1.PortStatus" => set_required(schema, |required| required.push("error".into())),
        // In Go these embed a LocalObjectReference, and inherit its marker in a CRD.
        "io.k8s.api.core.v1.ConfigMapEnvSource"
        | "io.k8s.api.core.v1.ConfigMapProjection"
        | "io.k8s.api.core.v1.ConfigMapVolumeSource"
        | "io.k8s.api.core.v1.SecretEnvSource"
        | "io.k8s.api.core.v1.SecretProjection" => {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        _ => {}
    }
}

fn add_to_field(schema: &mut Map<String, Value>, field: &str, keywords: Value) {
    let property = schema.get_mut("properties").and_then(|properties| properties.get_mut(field));
    if let (Some(Value::Object(property)), Value::Object(mut keywords)) = (property, keywords) {
        property.append(&mut keywords);
    }
}

fn set_required(schema: &mut Map<String, Value>, change: impl FnOnce(&mut Vec<Value>)) {
    let Some(Value::Array(mut required)) = schema.remove("required") else { return };
    change(&mut required);
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
}

fn marker_keywords(marker: Marker) -> Value {
    match marker {
        Marker::Atomic => json!({"x-kubernetes-list-type": "atomic"}),
        Marker::Set => json!({"x-kubernetes-list-type": "set"}),
        Marker::Keyed(keys) => json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}),
        Marker::AtomicMap => json!({"x-kubernetes-map-type": "atomic"}),
    }
}

/// Returns the replacement of a schema by the name of its type.
fn replacement(name: &str) -> Option<Map<String, Value>> {
    let schema = match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        }),
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
        }),
        // Only these fields of a template's metadata have a meaning.
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" => json!({
            "type": "object",
            "properties": {
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                "finalizers": {"type": "array", "items": {"type": "string"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "name": {"type": "string"},
                "namespace": {"type": "string"},
            },
        }),
        _ => return None,
    };
    schema.as_object().cloned()
}

/// Returns bounds and patterns by type and field.
fn constraints(name: &str) -> Vec<(&'static str, Value)> {
    match name {
        "io.k8s.apimachinery.pkg.apis.meta.v1.Condition" => vec![
            ("message", json!({"maxLength": 32768})),
            ("observedGeneration", json!({"minimum": 0})),
            ("reason", json!({"minLength": 1, "maxLength": 1024, "pattern": CONDITION_REASON})),
            ("status", json!({"enum": ["True", "False", "Unknown"]})),
            ("type", json!({"maxLength": 316, "pattern": QUALIFIED_NAME})),
        ],
        "io.k8s.api.core.v1.PortStatus" => vec![("error", json!({"maxLength": 316, "pattern": QUALIFIED_NAME}))],
        _ => Vec::new(),
    }
}

/// Returns defaults by type and field; a field with a default is not required.
fn defaults(name: &str) -> Vec<(&'static str, Value)> {
    match name {
        "io.k8s.api.core.v1.ConfigMapEnvSource"
        | "io.k8s.api.core.v1.ConfigMapKeySelector"
        | "io.k8s.api.core.v1.ConfigMapProjection"
        | "io.k8s.api.core.v1.ConfigMapVolumeSource"
        | "io.k8s.api.core.v1.LocalObjectReference"
        | "io.k8s.api.core.v1.SecretEnvSource"
        | "io.k8s.api.core.v1.SecretKeySelector"
        | "io.k8s.api.core.v1.SecretProjection" => vec![("name", json!(""))],
        "io.k8s.api.core.v1.ContainerPort" | "io.k8s.api.core.v1.ServicePort" => vec![("protocol", json!("TCP"))],
        "io.k8s.api.core.v1.FileKeySelector" => vec![("optional", json!(false))],
        "io.k8s.api.core.v1.GRPCAction" => vec![("service", json!(""))],
        "io.k8s.api.core.v1.AzureDiskVolumeSource" => vec![("fsType", json!("ext4")), ("readOnly", json!(false))],
        "io.k8s.api.core.v1.ISCSIVolumeSource" => vec![("iscsiInterface", json!("default"))],
        "io.k8s.api.core.v1.RBDVolumeSource" => {
            vec![("keyring", json!("/etc/ceph/keyring")), ("pool", json!("rbd")), ("user", json!("admin"))]
        }
        "io.k8s.api.core.v1.ScaleIOVolumeSource" => {
            vec![("fsType", json!("xfs")), ("storageMode", json!("ThinProvisioned"))]
        }
        _ => Vec::new(),
    }
}
