//! The kinds that requests are about, with a valid object of each.

use serde_json::{Value, json};

use crate::dice::Dice;

/// A kind and where it is served.
pub(crate) struct Kind {
    pub(crate) group_version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
}

const fn kind(group_version: &'static str, plural: &'static str, kind: &'static str) -> Kind {
    Kind { group_version, plural, kind, namespaced: true }
}

pub(crate) const KINDS: &[Kind] = &[
    kind("api/v1", "configmaps", "ConfigMap"),
    kind("api/v1", "secrets", "Secret"),
    kind("api/v1", "pods", "Pod"),
    kind("api/v1", "services", "Service"),
    kind("api/v1", "serviceaccounts", "ServiceAccount"),
    kind("api/v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    kind("api/v1", "events", "Event"),
    kind("apis/events.k8s.io/v1", "events", "Event"),
    kind("apis/apps/v1", "deployments", "Deployment"),
    kind("apis/batch/v1", "jobs", "Job"),
    kind("apis/rbac.authorization.k8s.io/v1", "roles", "Role"),
    kind("apis/coordination.k8s.io/v1", "leases", "Lease"),
    kind("apis/fuzz.example/v1", "widgets", "Widget"),
    kind("apis/fuzz.example/v2", "widgets", "Widget"),
    Kind { namespaced: false, ..kind("api/v1", "namespaces", "Namespace") },
    Kind { namespaced: false, ..kind("apis/fuzz.example/v1", "gadgets", "Gadget") },
    Kind { namespaced: false, ..kind(DEFINITIONS, "customresourcedefinitions", "CustomResourceDefinition") },
];

const DEFINITIONS: &str = "apis/apiextensions.k8s.io/v1";
/// Few, so that most requests meet an object.
const NAMESPACES: &[&str] = &["default", "default", "default", "one", "missing"];
const NAMES: &[&str] = &["a", "b"];
const DEFINED: &[&str] = &["widgets.fuzz.example", "gadgets.fuzz.example"];

impl Kind {
    pub(crate) fn is_definition(&self) -> bool {
        self.group_version == DEFINITIONS
    }

    pub(crate) fn api_version(&self) -> &str {
        self.group_version.trim_start_matches("apis/").trim_start_matches("api/")
    }

    pub(crate) fn collection(&self, namespace: u8) -> String {
        if self.namespaced {
            let namespace = NAMESPACES[usize::from(namespace) % NAMESPACES.len()];
            format!("/{}/namespaces/{namespace}/{}", self.group_version, self.plural)
        } else {
            format!("/{}/{}", self.group_version, self.plural)
        }
    }

    pub(crate) fn name(&self, index: u8) -> &'static str {
        let names = match self.kind {
            "Namespace" => &["default", "one"],
            "CustomResourceDefinition" => DEFINED,
            _ => NAMES,
        };
        names[usize::from(index) % names.len()]
    }

    /// Returns a valid object, with owners among `uids`, finalizers and labels by chance.
    pub(crate) fn object(&self, name: &str, dice: &Dice, uids: &[String]) -> Value {
        let mut object = self.plain(name, dice);
        object["apiVersion"] = self.api_version().into();
        object["kind"] = self.kind.into();
        object["metadata"] = json!({"name": name, "labels": {"app": dice.pick(&["x", "y"])}});
        if dice.once_in(4) {
            object["metadata"]["finalizers"] = json!(["fuzz.example/hold"]);
        }
        if dice.once_in(3) && !uids.is_empty() {
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": dice.pick(&["ConfigMap", "Pod"]),
                "name": dice.pick(NAMES), "uid": dice.pick(uids), "blockOwnerDeletion": dice.once_in(2)}]);
        }
        if dice.once_in(8) {
            object["metadata"]["generateName"] = "made-".into();
            object["metadata"]["name"] = Value::Null;
        }
        object
    }

    fn plain(&self, name: &str, dice: &Dice) -> Value {
        let pod = json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
            "env": [{"name": "A", "value": dice.pick(&["1", "2"])}]}]});
        let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pod});
        match self.kind {
            "ConfigMap" => json!({"data": {"k": "v".repeat(dice.below(500)), "l": "w"}}),
            "Secret" => json!({"data": {"k": "dg=="}, "stringData": {"s": "t"}}),
            "Pod" => json!({"spec": pod}),
            "Service" => json!({"spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}}),
            "PersistentVolumeClaim" => {
                json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
            }
            "Event" if self.group_version == "api/v1" => {
                json!({"involvedObject": {"namespace": "default", "name": "a"}, "reason": "R", "message": "m"})
            }
            "Event" => json!({"regarding": {"namespace": "default"}, "reason": "R", "note": "m", "action": "A",
                "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "fuzz.example/c",
                "reportingInstance": "i", "type": "Normal"}),
            "Deployment" => {
                json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template}})
            }
            "Job" => {
                let mut template = template;
                template["spec"]["restartPolicy"] = "Never".into();
                json!({"spec": {"parallelism": dice.below(3), "template": template}})
            }
            "Role" => json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
            "Lease" => json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15}}),
            "CustomResourceDefinition" => definition(name, dice),
            "Widget" | "Gadget" => {
                json!({"spec": {"size": dice.below(200), "parts": [{"name": "p", "n": 1}], "free": {}}})
            }
            _ => json!({}),
        }
    }
}

/// Returns a definition: its versions, schema and subresources vary.
fn definition(name: &str, dice: &Dice) -> Value {
    let plural = name.split('.').next().unwrap_or(name);
    let (kind, scope) = if plural == "widgets" { ("Widget", "Namespaced") } else { ("Gadget", "Cluster") };
    let part = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "n": {"type": "integer", "default": 3}}});
    let spec = json!({"type": "object", "properties": {
        "size": {"type": "integer", "maximum": dice.pick(&[10, 1000])},
        "parts": {"type": "array", "items": part, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}});
    let mut versions = vec![json!({"name": "v1", "served": true, "storage": true, "schema": schema})];
    if dice.once_in(2) {
        versions.push(json!({"name": "v2", "served": dice.once_in(2), "storage": false, "schema": schema}));
    }
    if dice.once_in(2) {
        versions[0]["subresources"] = json!({"status": {}});
    }
    json!({"spec": {"group": "fuzz.example", "scope": scope, "versions": versions,
        "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()}}})
}
