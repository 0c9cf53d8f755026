//! ConfigMaps, Secrets, claims, volumes, storage classes.

use serde_json::{Value, json};

use super::{Row, base};

pub(super) fn rows() -> Vec<Row> {
    let map = base(
        "ConfigMap",
        "/api/v1/namespaces/{ns}/configmaps",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}),
    );
    let mut rows = vec![map.good()];
    rows.extend(map.each([
        ("/data", json!({"bad key": "v"})),
        ("/data", json!({"": "v"})),
        ("/data", json!({"..": "v"})),
        ("/data", json!({"k": 1})),
        ("/data", json!({"k": "x".repeat((1 << 20) + 1)})),
        ("/binaryData", json!({"k": "dg=="})),
        ("/binaryData", json!({"b": "not base64!"})),
        ("/binaryData", json!({"b": "dg=="})),
    ]));
    let fixed = base(
        "immutable ConfigMap",
        "/api/v1/namespaces/{ns}/configmaps",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fixed"}, "immutable": true, "data": {"k": "v"}}),
    );
    rows.push(fixed.update("", json!({"data": {"k": "w"}})));
    rows.push(fixed.update("", json!({"immutable": false})));
    rows.push(fixed.update("", json!({"metadata": {"labels": {"a": "b"}}})));
    let secret = base(
        "Secret",
        "/api/v1/namespaces/{ns}/secrets",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "dg=="}}),
    );
    rows.push(secret.good());
    rows.extend(secret.each([
        ("/data", json!({"bad key": "dg=="})),
        ("/data", json!({"k": "not base64!"})),
        ("/stringData", json!({"bad key": "v"})),
        ("/type", json!("kubernetes.io/tls")),
        ("/type", json!("kubernetes.io/basic-auth")),
        ("/type", json!("kubernetes.io/ssh-auth")),
        ("/type", json!("kubernetes.io/dockerconfigjson")),
        ("/type", json!("kubernetes.io/dockercfg")),
        ("/type", json!("kubernetes.io/service-account-token")),
        ("/type", json!("example.com/own")),
    ]));
    rows.push(secret.create(&[
        ("/type", json!("kubernetes.io/dockerconfigjson")),
        ("/data", json!({".dockerconfigjson": "bm90IGpzb24="})),
    ]));
    rows.push(secret.update("", json!({"type": "example.com/other"})));
    let claim = base(
        "PersistentVolumeClaim",
        "/api/v1/namespaces/{ns}/persistentvolumeclaims",
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s"}}),
    );
    rows.push(claim.good());
    rows.extend(claim.each([
        ("/spec/accessModes", json!([])),
        ("/spec/accessModes", json!(["Odd"])),
        ("/spec/accessModes", json!(["ReadWriteOncePod", "ReadWriteOnce"])),
        ("/spec/resources", json!({})),
        ("/spec/resources", json!({"requests": {"storage": "-1Gi"}})),
        ("/spec/resources", json!({"requests": {"storage": "0"}})),
        ("/spec/volumeMode", json!("Odd")),
        ("/spec/storageClassName", json!("Bad Class")),
        ("/spec/selector", json!({"matchLabels": {"bad key": "x"}})),
        ("/spec/dataSource", json!({"kind": "X", "name": ""})),
        ("/spec/volumeName", json!("v")),
    ]));
    rows.push(claim.update("", json!({"spec": {"accessModes": ["ReadWriteMany"]}})));
    rows.push(claim.update("", json!({"spec": {"resources": {"requests": {"storage": "1Mi"}}}})));
    let volume = base(
        "PersistentVolume",
        "/api/v1/persistentvolumes",
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "conformance-v"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/x"},
                "storageClassName": "s"}}),
    );
    rows.push(volume.good());
    rows.extend(volume.each([
        ("/spec/capacity", json!({})),
        ("/spec/capacity", json!({"storage": "-1"})),
        ("/spec/capacity", json!({"cpu": "1"})),
        ("/spec/accessModes", json!([])),
        ("/spec/accessModes", json!(["Odd"])),
        ("/spec/hostPath", Value::Null),
        ("/spec/hostPath", json!({"path": "/a/../b"})),
        ("/spec/hostPath", json!({"path": "", "type": "Odd"})),
        ("/spec/nfs", json!({"server": "s", "path": "/p"})),
        ("/spec/persistentVolumeReclaimPolicy", json!("Odd")),
        ("/spec/volumeMode", json!("Odd")),
        ("/spec/storageClassName", json!("Bad Class")),
        ("/spec/nodeAffinity", json!({"required": {"nodeSelectorTerms": []}})),
    ]));
    let class = base(
        "StorageClass",
        "/apis/storage.k8s.io/v1/storageclasses",
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "conformance-c"},
            "provisioner": "example.com/p"}),
    );
    rows.push(class.good());
    rows.extend(class.each([
        ("/provisioner", json!("")),
        ("/provisioner", json!("bad provisioner")),
        ("/reclaimPolicy", json!("Odd")),
        ("/volumeBindingMode", json!("Odd")),
        ("/parameters", json!({"": "x"})),
    ]));
    rows
}
