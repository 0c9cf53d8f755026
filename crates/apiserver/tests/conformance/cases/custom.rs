//! Custom resources: definitions, schemas, versions, subresources, columns.

use super::*;

const WIDGETS: &str = "/apis/conformance.test/v1/namespaces/{ns}/widgets";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.conformance.test"},
        "spec": {
            "group": "conformance.test", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true,
                 "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
                 "additionalPrinterColumns": [
                    {"name": "Size", "type": "string", "jsonPath": ".spec.size"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "priority": 1}],
                 "selectableFields": [{"jsonPath": ".spec.size"}],
                 "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "string", "enum": ["small", "large"]},
                        "replicas": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
                        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed cannot change"}]},
                        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 5}}}},
                        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "port": {"x-kubernetes-int-or-string": true}},
                        "x-kubernetes-validations": [{"rule": "self.size != 'large' || self.replicas > 1", "message": "large widgets come in pairs"}]},
                    "status": {"type": "object", "default": {"phase": "New"}, "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}, "selector": {"type": "string"},
                        "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}}}}}}}},
                {"name": "v1beta1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "conformance.test/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

pub(crate) fn cases() -> Vec<Case> {
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let name = format!("{crd}/widgets.conformance.test");
    let a = format!("{WIDGETS}/a");
    vec![case(
        "custom resources",
        vec![
            post(crd, definition()).accept("application/json"),
            get(&name).until("/status/conditions/1/status", json!("True")),
            get("/apis/conformance.test/v1").until("/kind", json!("APIResourceList")),
            get("/apis/conformance.test"),
            get(WIDGETS).until("/kind", json!("WidgetList")),
            post(
                WIDGETS,
                widget(
                    "a",
                    json!({"size": "small", "bogus": 1, "free": {"x": {"y": 1}}, "parts": [{"name": "p"}], "port": "http"}),
                ),
            ),
            post(WIDGETS, widget("b", json!({}))),
            post(WIDGETS, widget("b", json!({"size": "medium", "replicas": 11}))),
            post(WIDGETS, widget("b", json!({"size": 5}))),
            post(WIDGETS, widget("b", json!({"size": "large", "replicas": 1}))),
            post(WIDGETS, widget("b", json!({"size": "small", "tags": ["a", "a"]}))),
            post(WIDGETS, widget("b", json!({"size": "small", "parts": [{"name": "a"}, {"name": "a"}]}))),
            post(&format!("{WIDGETS}?fieldValidation=Strict"), widget("b", json!({"size": "small", "bogus": 1}))),
            post(WIDGETS, json!({"metadata": {"name": "b"}, "spec": {"size": "small"}})),
            get(&a).keep("rv", "/metadata/resourceVersion"),
            put(&a, widget("a", json!({"size": "small"}))),
            put(&a, {
                let mut widget = widget("a", json!({"size": "small", "replicas": 3, "fixed": "x"}));
                widget["metadata"]["resourceVersion"] = json!("{rv}");
                widget["status"] = json!({"replicas": 9});
                widget
            }),
            patch("merge", &a, json!({"spec": {"fixed": "y"}})),
            patch("merge", &a, json!({"metadata": {"labels": {"l": "m"}}})),
            patch(
                "merge",
                &format!("{a}/status"),
                json!({"status": {"replicas": 2, "selector": "a=b", "conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"size": "large"}, "metadata": {"labels": {"x": "y"}}}),
            ),
            patch("merge", &format!("{a}/status"), json!({"status": {"replicas": "two"}})),
            get(&format!("{a}/status")),
            get(&format!("{a}/scale")),
            patch("merge", &format!("{a}/scale"), json!({"spec": {"replicas": 4}})),
            patch("merge", &format!("{a}/scale"), json!({"spec": {"replicas": 40}})),
            patch("strategic", &a, json!({"spec": {"replicas": 1}})),
            patch("json", &a, json!([{"op": "replace", "path": "/spec/parts", "value": [{"name": "q"}]}])),
            patch(
                "apply",
                &format!("{a}?fieldManager=m1&force=true"),
                widget("a", json!({"size": "small", "parts": [{"name": "r", "count": 1}]})),
            ),
            patch("apply", &format!("{a}?fieldManager=m2"), widget("a", json!({"size": "large"}))),
            get("/apis/conformance.test/v1beta1/namespaces/{ns}/widgets/a"),
            get(&a).accept("application/json;as=Table;v=v1;g=meta.k8s.io"),
            get(&format!("{WIDGETS}?fieldSelector=spec.size%3Dsmall")),
            get(&format!("{WIDGETS}?fieldSelector=spec.replicas%3D4")),
            delete(&a),
            get(&format!("{WIDGETS}/a/nonsense")),
            delete(&name),
            get(&name).until("/code", json!(404)),
            post(crd, {
                let mut bad = definition();
                bad["metadata"]["name"] = json!("wrong.conformance.test");
                bad
            }),
            post(crd, {
                let mut bad = definition();
                bad["spec"]["versions"][1]["storage"] = json!(true);
                bad
            }),
        ],
    )]
}
