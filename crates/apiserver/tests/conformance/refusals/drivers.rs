//! RuntimeClasses, CSI objects, volume attachments, and the kinds of flow control.

use serde_json::{Value, json};

use super::{Row, base};

pub(super) fn rows() -> Vec<Row> {
    let class = base(
        "RuntimeClass",
        "/apis/node.k8s.io/v1/runtimeclasses",
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "refusals-class"}, "handler": "h"}),
    );
    let mut rows = vec![class.good()];
    rows.extend(class.each([
        ("/handler", json!("Bad_Handler")),
        ("/handler", json!("")),
        ("/handler", json!("x".repeat(64))),
        ("/scheduling", json!({"nodeSelector": {"bad key": "v"}})),
    ]));
    rows.push(class.update("", json!({"handler": "other"})));
    let driver = base(
        "CSIDriver",
        "/apis/storage.k8s.io/v1/csidrivers",
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "driver.example.com"}, "spec": {}}),
    );
    rows.push(driver.good());
    rows.extend(driver.each([("/spec/fsGroupPolicy", json!("Odd")), ("/spec/volumeLifecycleModes", json!(["Odd"]))]));
    let node = base(
        "CSINode",
        "/apis/storage.k8s.io/v1/csinodes",
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "refusals-node"},
            "spec": {"drivers": [{"name": "driver.example.com", "nodeID": "n", "topologyKeys": ["a"]}]}}),
    );
    rows.push(node.good());
    rows.extend(node.each([
        ("/spec/drivers/0/name", json!("")),
        ("/spec/drivers/0/name", json!("bad name")),
        ("/spec/drivers/0/nodeID", json!("")),
        ("/spec/drivers/0/topologyKeys", json!(["a", "a"])),
        ("/spec/drivers/0/topologyKeys", json!([""])),
        ("/spec/drivers/0/allocatable", json!({"count": -1})),
        (
            "/spec/drivers",
            json!([{"name": "d", "nodeID": "n", "topologyKeys": []}, {"name": "d", "nodeID": "n", "topologyKeys": []}]),
        ),
    ]));
    let attachment = base(
        "VolumeAttachment",
        "/apis/storage.k8s.io/v1/volumeattachments",
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "refusals-attachment"},
            "spec": {"attacher": "driver.example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
    );
    rows.push(attachment.good());
    rows.extend(attachment.each([
        ("/spec/attacher", json!("")),
        ("/spec/attacher", json!("bad name")),
        ("/spec/nodeName", json!("")),
        ("/spec/nodeName", json!("Bad_Node")),
        ("/spec/source", json!({})),
        ("/spec/source", json!({"persistentVolumeName": ""})),
    ]));
    rows.push(attachment.update("", json!({"spec": {"nodeName": "other"}})));
    rows.extend(flow_control());
    rows
}

fn flow_control() -> Vec<Row> {
    let schema = base(
        "FlowSchema",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "refusals"},
            "spec": {"matchingPrecedence": 500, "priorityLevelConfiguration": {"name": "global-default"}, "rules": [
                {"subjects": [{"kind": "User", "user": {"name": "u"}}], "nonResourceRules": [
                    {"verbs": ["get"], "nonResourceURLs": ["/x"]}]}]}}),
    );
    let mut rows = vec![schema.good()];
    rows.extend(schema.each([
        ("/spec/matchingPrecedence", json!(-1)),
        ("/spec/matchingPrecedence", json!(10_001)),
        ("/spec/matchingPrecedence", json!(1)),
        ("/spec/distinguisherMethod", json!({"type": "Odd"})),
        ("/spec/priorityLevelConfiguration", json!({"name": ""})),
        ("/spec/priorityLevelConfiguration", json!({"name": "Bad_Name"})),
        ("/spec/rules/0/subjects", json!([])),
        ("/spec/rules/0/subjects", json!([{"kind": "Odd"}])),
        ("/spec/rules/0/subjects", json!([{"kind": "User"}])),
        ("/spec/rules/0/subjects", json!([{"kind": "Group", "group": {"name": ""}}])),
        ("/spec/rules/0/nonResourceRules", json!([])),
        ("/spec/rules/0/nonResourceRules/0/verbs", json!([])),
    ]));
    let level = base(
        "PriorityLevelConfiguration",
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
        json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
            "metadata": {"name": "refusals"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}),
    );
    rows.push(level.good());
    rows.extend(level.each([
        ("/spec/type", json!("Odd")),
        ("/spec/type", json!("Exempt")),
        ("/spec/limited", Value::Null),
        ("/spec/limited/nominalConcurrencyShares", json!(-1)),
        ("/spec/limited/lendablePercent", json!(101)),
        ("/spec/limited/borrowingLimitPercent", json!(-1)),
        ("/spec/limited/limitResponse/type", json!("Odd")),
        ("/spec/limited/limitResponse/queuing", json!({"queues": 1})),
        ("/spec/limited/limitResponse", json!({"type": "Queue", "queuing": {"queues": -1}})),
    ]));
    rows
}
