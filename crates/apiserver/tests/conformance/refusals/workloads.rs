//! Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers.

use serde_json::{Value, json};

use super::{Base, Row, base};

pub(super) fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}})
}

fn deployment() -> Base {
    base(
        "Deployment",
        "/apis/apps/v1/namespaces/{ns}/deployments",
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"paused": true, "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template()}}),
    )
}

fn apps(kind: &'static str, path: &'static str, more: Value) -> Base {
    let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template()});
    spec.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
    base(kind, path, json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": spec}))
}

pub(super) fn rows() -> Vec<Row> {
    let deployment = deployment();
    let mut rows = vec![deployment.good()];
    rows.extend(deployment.each([
        ("/spec/replicas", json!(-1)),
        ("/spec/minReadySeconds", json!(-1)),
        ("/spec/revisionHistoryLimit", json!(-1)),
        ("/spec/progressDeadlineSeconds", json!(0)),
        ("/spec/progressDeadlineSeconds", json!(-5)),
        ("/spec/selector", Value::Null),
        ("/spec/selector", json!({})),
        ("/spec/selector", json!({"matchLabels": {"a": "c"}})),
        ("/spec/selector", json!({"matchLabels": {"bad key": "c"}})),
        ("/spec/selector", json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]})),
        ("/spec/selector", json!({"matchExpressions": [{"key": "a", "operator": "Odd", "values": ["b"]}]})),
        ("/spec/selector", json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]})),
        ("/spec/template/spec/restartPolicy", json!("Never")),
        ("/spec/template/spec/restartPolicy", json!("OnFailure")),
        ("/spec/template/spec/activeDeadlineSeconds", json!(5)),
        ("/spec/template/spec/containers", json!([])),
        ("/spec/template/spec/containers/0/image", json!("")),
        ("/spec/template/spec/containers/0/name", json!("Bad")),
        ("/spec/template/spec/ephemeralContainers", json!([{"name": "e", "image": "i"}])),
        ("/spec/template/metadata/labels", json!({"bad key": "b"})),
        ("/spec/template/metadata/annotations", json!({"bad key": "b"})),
        ("/spec/strategy", json!({"type": "Odd"})),
        ("/spec/strategy", json!({"type": "Recreate"})),
        ("/spec/strategy", json!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}})),
        ("/spec/strategy", json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}})),
        ("/spec/strategy", json!({"rollingUpdate": {"maxSurge": -1}})),
        ("/spec/strategy", json!({"rollingUpdate": {"maxUnavailable": "150%"}})),
        ("/spec/strategy", json!({"rollingUpdate": {"maxUnavailable": "odd"}})),
    ]));
    rows.push(deployment.update("", json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}})));
    rows.push(deployment.update("", json!({"spec": {"replicas": -3}})));
    rows.push(deployment.update("", json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}})));
    rows.push(deployment.update("/scale", json!({"spec": {"replicas": -1}})));
    rows.push(deployment.update("/status", json!({"status": {"replicas": -1}})));
    rows.push(deployment.update("/status", json!({"status": {"replicas": 1, "availableReplicas": 2}})));
    rows.push(deployment.update("/status", json!({"status": {"replicas": 1, "readyReplicas": 2}})));
    let set = apps("ReplicaSet", "/apis/apps/v1/namespaces/{ns}/replicasets", json!({"replicas": 0}));
    rows.push(set.good());
    rows.extend(set.each([
        ("/spec/replicas", json!(-1)),
        ("/spec/minReadySeconds", json!(-1)),
        ("/spec/selector", json!({"matchLabels": {"a": "c"}})),
        ("/spec/selector", json!({})),
        ("/spec/template/spec/restartPolicy", json!("Never")),
        ("/metadata/name", json!("Bad_Name")),
    ]));
    rows.push(set.update("", json!({"spec": {"selector": {"matchLabels": {"x": "y"}}}})));
    rows.push(set.update("/status", json!({"status": {"replicas": 1, "readyReplicas": 2}})));
    let stateful =
        apps("StatefulSet", "/apis/apps/v1/namespaces/{ns}/statefulsets", json!({"replicas": 0, "serviceName": "s"}));
    rows.push(stateful.good());
    rows.extend(stateful.each([
        ("/spec/replicas", json!(-1)),
        ("/spec/podManagementPolicy", json!("Odd")),
        ("/spec/updateStrategy", json!({"type": "Odd"})),
        ("/spec/updateStrategy", json!({"type": "OnDelete", "rollingUpdate": {"partition": 1}})),
        ("/spec/updateStrategy", json!({"rollingUpdate": {"partition": -1}})),
        ("/spec/selector", json!({"matchLabels": {"a": "c"}})),
        ("/spec/template/spec/restartPolicy", json!("Never")),
        ("/spec/persistentVolumeClaimRetentionPolicy", json!({"whenDeleted": "Odd"})),
        ("/spec/ordinals", json!({"start": -1})),
        ("/spec/serviceName", json!("Bad_Name")),
    ]));
    rows.push(stateful.update("", json!({"spec": {"serviceName": "t"}})));
    rows.push(stateful.update("", json!({"spec": {"replicas": 0, "minReadySeconds": 5}})));
    let daemons = apps("DaemonSet", "/apis/apps/v1/namespaces/{ns}/daemonsets", json!({}));
    rows.push(daemons.good());
    rows.extend(daemons.each([
        ("/spec/selector", json!({"matchLabels": {"a": "c"}})),
        ("/spec/template/spec/restartPolicy", json!("Never")),
        ("/spec/updateStrategy", json!({"type": "Odd"})),
        ("/spec/updateStrategy", json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}})),
        ("/spec/minReadySeconds", json!(-1)),
        ("/spec/revisionHistoryLimit", json!(-1)),
    ]));
    let controller = base(
        "ReplicationController",
        "/api/v1/namespaces/{ns}/replicationcontrollers",
        json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "rc"},
            "spec": {"replicas": 0, "selector": {"a": "b"}, "template": template()}}),
    );
    rows.push(controller.good());
    rows.extend(controller.each([
        ("/spec/replicas", json!(-1)),
        ("/spec/selector", json!({"a": "c"})),
        ("/spec/selector", Value::Null),
        ("/spec/template", Value::Null),
        ("/spec/minReadySeconds", json!(-1)),
        ("/spec/template/spec/restartPolicy", json!("Never")),
    ]));
    let template = base(
        "PodTemplate",
        "/api/v1/namespaces/{ns}/podtemplates",
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}, "template": template()}),
    );
    rows.push(template.good());
    rows.extend(
        template.each([("/template/spec/containers", json!([])), ("/template/spec/restartPolicy", json!("Odd"))]),
    );
    let revision = base(
        "ControllerRevision",
        "/apis/apps/v1/namespaces/{ns}/controllerrevisions",
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "r"}, "revision": 1, "data": {"a": 1}}),
    );
    rows.push(revision.good());
    rows.extend(revision.each([("/revision", json!(-1)), ("/data", Value::Null)]));
    rows.push(revision.update("", json!({"data": {"a": 2}})));
    rows
}
