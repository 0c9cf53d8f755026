//! Quotas, limits, budgets, priorities, roles, leases, webhooks, definitions.

use serde_json::{Value, json};

use super::{Base, Row, base};

fn webhook(kind: &'static str, path: &'static str) -> Base {
    base(
        kind,
        path,
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "conformance-w"},
            "webhooks": [{"name": "a.example.com", "clientConfig": {"url": "https://127.0.0.1:1/x"}, "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": [{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["things"]}]}]}),
    )
}

fn webhook_changes() -> Vec<(&'static str, Value)> {
    vec![
        ("/webhooks/0/name", json!("short")),
        ("/webhooks/0/name", json!("")),
        ("/webhooks/0/sideEffects", Value::Null),
        ("/webhooks/0/sideEffects", json!("Some")),
        ("/webhooks/0/admissionReviewVersions", json!([])),
        ("/webhooks/0/admissionReviewVersions", json!(["v9"])),
        ("/webhooks/0/clientConfig", json!({})),
        ("/webhooks/0/clientConfig", json!({"url": "http://127.0.0.1/x"})),
        ("/webhooks/0/clientConfig", json!({"url": "https://127.0.0.1/x?y"})),
        ("/webhooks/0/clientConfig", json!({"service": {"name": "", "namespace": "n"}})),
        ("/webhooks/0/clientConfig", json!({"service": {"name": "s", "namespace": "n", "port": 0}})),
        ("/webhooks/0/clientConfig", json!({"url": "https://127.0.0.1/x", "service": {"name": "s", "namespace": "n"}})),
        ("/webhooks/0/timeoutSeconds", json!(0)),
        ("/webhooks/0/timeoutSeconds", json!(31)),
        ("/webhooks/0/failurePolicy", json!("Odd")),
        ("/webhooks/0/matchPolicy", json!("Odd")),
        ("/webhooks/0/rules/0/operations", json!([])),
        ("/webhooks/0/rules/0/operations", json!(["ODD"])),
        ("/webhooks/0/rules/0/operations", json!(["*", "CREATE"])),
        ("/webhooks/0/rules/0/apiGroups", json!([])),
        ("/webhooks/0/rules/0/apiVersions", json!([""])),
        ("/webhooks/0/rules/0/resources", json!([])),
        ("/webhooks/0/rules/0/resources", json!(["*", "things"])),
        ("/webhooks/0/rules/0/scope", json!("Odd")),
        ("/webhooks/0/namespaceSelector", json!({"matchLabels": {"bad key": "x"}})),
        ("/webhooks/0/matchConditions", json!([{"name": "a", "expression": "true"}])),
        ("/webhooks/0/matchConditions", json!([{"name": "", "expression": "true"}])),
        ("/webhooks/0/matchConditions", json!([{"name": "a", "expression": ""}])),
        (
            "/webhooks/0/matchConditions",
            json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]),
        ),
        ("/webhooks/0/matchConditions", json!([{"name": "bad name", "expression": "true"}])),
        ("/webhooks/0/matchConditions", json!([{"name": "a", "expression": "not ) valid"}])),
        ("/webhooks/0/matchConditions", json!([{"name": "a", "expression": "'text'"}])),
        ("/webhooks/0/matchConditions", json!([{"name": "a", "expression": "unknown == 1"}])),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let validating = webhook(
        "ValidatingWebhookConfiguration",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    );
    let mutating =
        webhook("MutatingWebhookConfiguration", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations");
    rows.push(validating.good());
    rows.extend(validating.each(webhook_changes()));
    rows.push(mutating.good());
    rows.extend(mutating.each([
        ("/webhooks/0/reinvocationPolicy", json!("Odd")),
        ("/webhooks/0/matchConditions", json!([{"name": "a", "expression": "not ) valid"}])),
        ("/webhooks/0/sideEffects", json!("Unknown")),
    ]));
    let quota = base(
        "ResourceQuota",
        "/api/v1/namespaces/{ns}/resourcequotas",
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"secrets": "1000"}}}),
    );
    rows.push(quota.good());
    rows.extend(quota.each([
        ("/spec/hard", json!({"secrets": "-1"})),
        ("/spec/hard", json!({"secrets": "0.5"})),
        ("/spec/hard", json!({"odd": "1"})),
        ("/spec/hard", json!({"count/deployments.apps": "1"})),
        ("/spec/hard", json!({"requests.nvidia.com/gpu": "1"})),
        ("/spec/scopes", json!(["Odd"])),
        ("/spec/scopes", json!(["BestEffort"])),
        ("/spec/scopeSelector", json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Odd"}]})),
    ]));
    let limits = base(
        "LimitRange",
        "/api/v1/namespaces/{ns}/limitranges",
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}}]}}),
    );
    rows.push(limits.good());
    rows.extend(limits.each([
        ("/spec/limits", json!([{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}])),
        ("/spec/limits", json!([{"type": "Container", "default": {"cpu": "3"}, "max": {"cpu": "2"}}])),
        ("/spec/limits", json!([{"type": "Container", "defaultRequest": {"cpu": "3"}, "default": {"cpu": "2"}}])),
        ("/spec/limits", json!([{"type": "Pod", "default": {"cpu": "1"}}])),
        ("/spec/limits", json!([{"type": "bad type"}])),
        ("/spec/limits", json!([{"type": "Container"}, {"type": "Container"}])),
        ("/spec/limits", json!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "0.5"}}])),
    ]));
    let budget = base(
        "PodDisruptionBudget",
        "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}),
    );
    rows.push(budget.good());
    rows.extend(budget.each([
        ("/spec/minAvailable", json!(-1)),
        ("/spec/minAvailable", json!("odd")),
        ("/spec/minAvailable", json!("150%")),
        ("/spec/maxUnavailable", json!(1)),
        ("/spec/selector", json!({"matchLabels": {"bad key": "x"}})),
        ("/spec/unhealthyPodEvictionPolicy", json!("Odd")),
    ]));
    let class = base(
        "PriorityClass",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "conformance-p"}, "value": 5}),
    );
    rows.push(class.good());
    rows.extend(class.each([
        ("/value", json!(2_000_000_000)),
        ("/preemptionPolicy", json!("Odd")),
        ("/metadata/name", json!("system-odd")),
    ]));
    rows.push(class.update("", json!({"value": 6})));
    rows.push(class.update("", json!({"preemptionPolicy": "Never"})));
    let role = base(
        "Role",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    );
    rows.push(role.good());
    rows.extend(role.each([
        ("/rules/0/verbs", json!([])),
        ("/rules/0/apiGroups", json!([])),
        ("/rules/0/resources", json!([])),
        ("/rules/0/nonResourceURLs", json!(["/x"])),
        ("/metadata/name", json!("a/b")),
    ]));
    let binding = base(
        "RoleBinding",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "u"}]}),
    );
    rows.push(binding.good());
    rows.extend(binding.each([
        ("/roleRef/name", json!("")),
        ("/roleRef/kind", json!("Odd")),
        ("/roleRef/apiGroup", json!("odd")),
        ("/subjects/0/name", json!("")),
        ("/subjects/0/kind", json!("Odd")),
        ("/subjects", json!([{"kind": "ServiceAccount", "name": "default"}])),
        ("/subjects", json!([{"kind": "ServiceAccount", "name": "Bad Name", "namespace": "n"}])),
    ]));
    rows.push(binding.update("", json!({"roleRef": {"name": "edit"}})));
    let lease = base(
        "Lease",
        "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}}),
    );
    rows.push(lease.good());
    rows.extend(lease.each([
        ("/spec/leaseDurationSeconds", json!(0)),
        ("/spec/leaseTransitions", json!(-1)),
        ("/spec/renewTime", json!("yesterday")),
    ]));
    rows.extend(definitions());
    rows
}

fn definitions() -> Vec<Row> {
    let definition = base(
        "CustomResourceDefinition",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.refusals.example.com"},
            "spec": {"group": "refusals.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}}]}}),
    );
    let mut rows = vec![definition.good()];
    rows.extend(definition.each([
        ("/metadata/name", json!("other.refusals.example.com")),
        ("/spec/scope", json!("Odd")),
        ("/spec/group", json!("")),
        ("/spec/group", json!("nodots")),
        ("/spec/names/kind", json!("")),
        ("/spec/names/plural", json!("Things")),
        ("/spec/versions", json!([])),
        ("/spec/versions/0/storage", json!(false)),
        ("/spec/versions/0/name", json!("Bad_Version")),
        ("/spec/versions/0/schema", Value::Null),
        ("/spec/versions/0/schema/openAPIV3Schema", json!({"type": "array"})),
        ("/spec/versions/0/schema/openAPIV3Schema", json!({"type": "object", "properties": {"a": {}}})),
        ("/spec/versions/0/schema/openAPIV3Schema", json!({"type": "object", "properties": {"a": {"type": "odd"}}})),
        (
            "/spec/versions/0/schema/openAPIV3Schema",
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.("}]}),
        ),
        ("/spec/conversion", json!({"strategy": "Odd"})),
        ("/spec/conversion", json!({"strategy": "Webhook"})),
        ("/spec/preserveUnknownFields", json!(true)),
    ]));
    let unapproved = [("/metadata/name", json!("things.refusals.k8s.io")), ("/spec/group", json!("refusals.k8s.io"))];
    rows.push(definition.create(&unapproved));
    rows
}
