//! Pods.

use serde_json::{Value, json};

use super::{Base, Row, base};

pub(super) fn pod() -> Base {
    base(
        "Pod",
        "/api/v1/namespaces/{ns}/pods",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "busybox:1"}], "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false}}),
    )
}

pub(super) fn rows() -> Vec<Row> {
    let pod = pod();
    let mut rows = vec![pod.good()];
    rows.extend(pod.each(spec()));
    rows.extend(pod.each(container()));
    rows.extend(pod.each(probes()));
    rows.extend(pod.each(volumes()));
    rows.extend(pod.each(affinity()));
    rows.push(pod.create(&[
        ("/spec/volumes", json!([{"name": "v", "emptyDir": {}}])),
        (
            "/spec/containers/0/volumeMounts",
            json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]),
        ),
    ]));
    rows.push(pod.create(&[
        ("/spec/volumes", json!([{"name": "v", "emptyDir": {}}])),
        ("/spec/containers/0/volumeMounts", json!([{"name": "v", "mountPath": "/a", "subPath": "/b"}])),
    ]));
    rows.push(pod.create(&[
        ("/spec/volumes", json!([{"name": "v", "emptyDir": {}}])),
        ("/spec/containers/0/volumeMounts", json!([{"name": "v", "mountPath": ""}])),
    ]));
    rows.push(pod.create(&[
        ("/spec/volumes", json!([{"name": "v", "emptyDir": {}}])),
        ("/spec/containers/0/volumeMounts", json!([{"name": "v", "mountPath": "/a", "mountPropagation": "Odd"}])),
    ]));
    for patch in [
        json!({"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}),
        json!({"spec": {"containers": [{"name": "c", "image": ""}]}}),
        json!({"spec": {"restartPolicy": "Never"}}),
        json!({"spec": {"activeDeadlineSeconds": 5}}),
        json!({"spec": {"activeDeadlineSeconds": 0}}),
        json!({"spec": {"nodeName": "n"}}),
        json!({"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}),
        json!({"metadata": {"labels": {"bad key": "x"}}}),
        json!({"metadata": {"annotations": {"bad key": "x"}}}),
        json!({"metadata": {"name": "q"}}),
    ] {
        rows.push(pod.update("", patch));
    }
    rows.push(pod.update("/status", json!({"status": {"phase": "Running"}})));
    rows.push(
        pod.update("/ephemeralcontainers", json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}})),
    );
    rows.push(
        pod.update("/ephemeralcontainers", json!({"spec": {"ephemeralContainers": [{"name": "c", "image": "i"}]}})),
    );
    rows
}

fn spec() -> Vec<(&'static str, Value)> {
    let container = |name: &str| json!({"name": name, "image": "i"});
    vec![
        ("/spec/containers", json!([])),
        ("/spec/containers", Value::Null),
        ("/spec/containers", json!([container("c"), container("c")])),
        ("/spec/initContainers", json!([container("c")])),
        ("/spec/initContainers", json!([container("Bad")])),
        ("/spec/initContainers", json!([{"name": "i", "image": "i", "restartPolicy": "Always"}])),
        ("/spec/initContainers", json!([{"name": "i", "image": "i", "restartPolicy": "Never"}])),
        ("/spec/initContainers", json!([{"name": "i", "image": "i", "livenessProbe": {"tcpSocket": {"port": 1}}}])),
        (
            "/spec/initContainers",
            json!([{"name": "i", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]),
        ),
        ("/spec/ephemeralContainers", json!([container("e")])),
        ("/spec/restartPolicy", json!("Sometimes")),
        ("/spec/dnsPolicy", json!("Odd")),
        ("/spec/dnsPolicy", json!("None")),
        ("/spec/dnsConfig", json!({"nameservers": ["x"]})),
        ("/spec/dnsConfig", json!({"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]})),
        ("/spec/dnsConfig", json!({"searches": ["bad name"]})),
        ("/spec/dnsConfig", json!({"options": [{"value": "x"}]})),
        ("/spec/terminationGracePeriodSeconds", json!(-1)),
        ("/spec/activeDeadlineSeconds", json!(0)),
        ("/spec/activeDeadlineSeconds", json!(10)),
        ("/spec/nodeName", json!("Bad Node")),
        ("/spec/nodeSelector", json!({"bad key": "v"})),
        ("/spec/nodeSelector", json!({"k": "bad value"})),
        ("/spec/hostname", json!("a.b")),
        ("/spec/hostname", json!("UPPER")),
        ("/spec/subdomain", json!("a.b")),
        ("/spec/serviceAccountName", json!("Bad Account")),
        ("/spec/priorityClassName", json!("no-such-class")),
        ("/spec/priority", json!(5)),
        ("/spec/schedulerName", json!("other")),
        ("/spec/imagePullSecrets", json!([{"name": "s"}])),
        ("/spec/hostAliases", json!([{"ip": "x", "hostnames": ["a"]}])),
        ("/spec/hostAliases", json!([{"ip": "1.2.3.4", "hostnames": ["Bad_Name"]}])),
        ("/spec/tolerations", json!([{"key": "k", "operator": "Odd"}])),
        ("/spec/tolerations", json!([{"key": "k", "operator": "Exists", "value": "v"}])),
        ("/spec/tolerations", json!([{"operator": "Equal", "value": "v"}])),
        ("/spec/tolerations", json!([{"key": "k", "effect": "Odd"}])),
        (
            "/spec/tolerations",
            json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]),
        ),
        ("/spec/tolerations", json!([{"key": "bad key", "operator": "Exists"}])),
        ("/spec/readinessGates", json!([{"conditionType": "bad type"}])),
        ("/spec/overhead", json!({"cpu": "1"})),
        ("/spec/runtimeClassName", json!("no-such-class")),
        ("/spec/preemptionPolicy", json!("Odd")),
        ("/spec/securityContext", json!({"runAsUser": -1})),
        ("/spec/securityContext", json!({"fsGroup": -1})),
        ("/spec/securityContext", json!({"supplementalGroups": [-1]})),
        ("/spec/securityContext", json!({"fsGroupChangePolicy": "Odd"})),
        ("/spec/securityContext", json!({"seccompProfile": {"type": "Odd"}})),
        ("/spec/securityContext", json!({"seccompProfile": {"type": "Localhost"}})),
        ("/spec/securityContext", json!({"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}})),
        ("/spec/securityContext", json!({"sysctls": [{"name": "bad name", "value": "1"}]})),
        ("/spec/shareProcessNamespace", json!(true)),
        ("/spec/hostPID", json!(true)),
        ("/spec/hostNetwork", json!(true)),
        ("/spec/schedulingGates", json!([{"name": "example.com/g"}])),
        ("/spec/schedulingGates", json!([{"name": "g"}, {"name": "g"}])),
        ("/spec/os", json!({"name": "odd"})),
        ("/spec/enableServiceLinks", json!("yes")),
        ("/spec/restartPolicy", json!(1)),
        ("/spec/unknown", json!(1)),
        ("/spec/resourceClaims", json!([{"name": "c"}])),
    ]
}

fn container() -> Vec<(&'static str, Value)> {
    vec![
        ("/spec/containers/0/name", json!("")),
        ("/spec/containers/0/name", json!("a.b")),
        ("/spec/containers/0/name", json!("x".repeat(64))),
        ("/spec/containers/0/image", json!("")),
        ("/spec/containers/0/image", json!(" busybox")),
        ("/spec/containers/0/imagePullPolicy", json!("Odd")),
        ("/spec/containers/0/ports", json!([{"containerPort": 0}])),
        ("/spec/containers/0/ports", json!([{"containerPort": 65536}])),
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "name": "Bad_Name"}])),
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "name": "much-too-long-name"}])),
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}])),
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "protocol": "Odd"}])),
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "hostPort": 70000}])),
        ("/spec/containers/0/ports", json!([{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}])),
        ("/spec/containers/0/env", json!([{"name": ""}])),
        ("/spec/containers/0/env", json!([{"name": "A=B", "value": "x"}])),
        (
            "/spec/containers/0/env",
            json!([{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        ),
        ("/spec/containers/0/env", json!([{"name": "A", "valueFrom": {}}])),
        ("/spec/containers/0/env", json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.odd"}}}])),
        ("/spec/containers/0/env", json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": ""}}}])),
        (
            "/spec/containers/0/env",
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a']"}}}]),
        ),
        (
            "/spec/containers/0/env",
            json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.odd"}}}]),
        ),
        ("/spec/containers/0/env", json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": ""}}}])),
        ("/spec/containers/0/env", json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "", "key": "k"}}}])),
        (
            "/spec/containers/0/env",
            json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "bad key"}}}]),
        ),
        ("/spec/containers/0/envFrom", json!([{}])),
        ("/spec/containers/0/envFrom", json!([{"configMapRef": {"name": ""}}])),
        ("/spec/containers/0/envFrom", json!([{"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}])),
        ("/spec/containers/0/resources", json!({"limits": {"cpu": "-1"}})),
        ("/spec/containers/0/resources", json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})),
        ("/spec/containers/0/resources", json!({"limits": {"odd": "1"}})),
        ("/spec/containers/0/resources", json!({"requests": {"nvidia.com/gpu": "1"}})),
        ("/spec/containers/0/resources", json!({"limits": {"nvidia.com/gpu": "0.5"}})),
        (
            "/spec/containers/0/resources",
            json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}),
        ),
        ("/spec/containers/0/resources", json!({"limits": {"hugepages-2Mi": "4Mi"}})),
        ("/spec/containers/0/resources", json!({"limits": {"cpu": "x"}})),
        ("/spec/containers/0/resources", json!({"limits": {"memory": "64m"}})),
        ("/spec/containers/0/resizePolicy", json!([{"resourceName": "cpu", "restartPolicy": "Odd"}])),
        ("/spec/containers/0/terminationMessagePolicy", json!("Odd")),
        ("/spec/containers/0/terminationMessagePath", json!("x")),
        ("/spec/containers/0/securityContext", json!({"runAsUser": -5})),
        ("/spec/containers/0/securityContext", json!({"privileged": true, "allowPrivilegeEscalation": false})),
        (
            "/spec/containers/0/securityContext",
            json!({"capabilities": {"add": ["SYS_ADMIN"]}, "allowPrivilegeEscalation": false}),
        ),
        ("/spec/containers/0/securityContext", json!({"procMount": "Odd"})),
        ("/spec/containers/0/lifecycle", json!({"preStop": {}})),
        ("/spec/containers/0/lifecycle", json!({"preStop": {"exec": {"command": []}}})),
        ("/spec/containers/0/lifecycle", json!({"preStop": {"exec": {"command": ["x"]}, "httpGet": {"port": 1}}})),
        ("/spec/containers/0/lifecycle", json!({"preStop": {"sleep": {"seconds": 100}}})),
        ("/spec/containers/0/lifecycle", json!({"postStart": {"httpGet": {"port": 0}}})),
        ("/spec/containers/0/workingDir", json!("relative")),
        ("/spec/containers/0/stdinOnce", json!(true)),
        ("/spec/containers/0/volumeMounts", json!([{"name": "none", "mountPath": "/x"}])),
        ("/spec/containers/0/volumeDevices", json!([{"name": "none", "devicePath": "/x"}])),
        ("/spec/containers/0/restartPolicy", json!("Always")),
    ]
}

fn probes() -> Vec<(&'static str, Value)> {
    vec![
        ("/spec/containers/0/livenessProbe", json!({})),
        ("/spec/containers/0/livenessProbe", json!({"exec": {"command": []}})),
        ("/spec/containers/0/livenessProbe", json!({"httpGet": {"port": 0}})),
        ("/spec/containers/0/livenessProbe", json!({"httpGet": {"port": "Bad_Port"}})),
        ("/spec/containers/0/livenessProbe", json!({"httpGet": {"port": 1, "scheme": "FTP"}})),
        (
            "/spec/containers/0/livenessProbe",
            json!({"httpGet": {"port": 1, "httpHeaders": [{"name": "bad header", "value": "x"}]}}),
        ),
        ("/spec/containers/0/livenessProbe", json!({"tcpSocket": {"port": 70000}})),
        ("/spec/containers/0/livenessProbe", json!({"grpc": {"port": 0}})),
        ("/spec/containers/0/livenessProbe", json!({"tcpSocket": {"port": 1}, "exec": {"command": ["x"]}})),
        ("/spec/containers/0/livenessProbe", json!({"tcpSocket": {"port": 1}, "successThreshold": 2})),
        ("/spec/containers/0/livenessProbe", json!({"tcpSocket": {"port": 1}, "periodSeconds": -1})),
        ("/spec/containers/0/livenessProbe", json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 0})),
        ("/spec/containers/0/readinessProbe", json!({"tcpSocket": {"port": 1}, "successThreshold": 2})),
        ("/spec/containers/0/readinessProbe", json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 5})),
        ("/spec/containers/0/startupProbe", json!({"tcpSocket": {"port": 1}, "successThreshold": 2})),
        ("/spec/containers/0/startupProbe", json!({"tcpSocket": {"port": 1}, "failureThreshold": -2})),
    ]
}

fn volumes() -> Vec<(&'static str, Value)> {
    let volumes = [
        json!([{"name": "v"}]),
        json!([{"name": ""}]),
        json!([{"name": "Bad"}]),
        json!([{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
        json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
        json!([{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]),
        json!([{"name": "v", "hostPath": {"path": ""}}]),
        json!([{"name": "v", "hostPath": {"path": "/a/../b"}}]),
        json!([{"name": "v", "hostPath": {"path": "/x", "type": "Odd"}}]),
        json!([{"name": "v", "secret": {"secretName": ""}}]),
        json!([{"name": "v", "secret": {"secretName": "s", "defaultMode": 4096}}]),
        json!([{"name": "v", "secret": {"secretName": "s", "items": [{"key": "", "path": "p"}]}}]),
        json!([{"name": "v", "secret": {"secretName": "s", "items": [{"key": "k", "path": "../p"}]}}]),
        json!([{"name": "v", "configMap": {"name": ""}}]),
        json!([{"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": "/p"}]}}]),
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": ""}}]),
        json!([{"name": "v", "downwardAPI": {"items": [{"path": "p"}]}}]),
        json!([{"name": "v", "downwardAPI": {"items": [{"path": "", "fieldRef": {"fieldPath": "metadata.name"}}]}}]),
        json!([{"name": "v", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "spec.odd"}}]}}]),
        json!([{"name": "v", "projected": {"sources": [{}]}}]),
        json!([{"name": "v", "projected": {"sources": [{"secret": {"name": ""}}]}}]),
        json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "", "expirationSeconds": 600}}]}}]),
        json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}}]),
        json!([{"name": "v", "nfs": {"server": "", "path": "/x"}}]),
        json!([{"name": "v", "nfs": {"server": "s", "path": "x"}}]),
        json!([{"name": "v", "csi": {"driver": ""}}]),
    ];
    volumes.into_iter().map(|volumes| ("/spec/volumes", volumes)).collect()
}

fn affinity() -> Vec<(&'static str, Value)> {
    let term = |key: &str| json!({"topologyKey": key, "labelSelector": {"matchLabels": {"a": "b"}}});
    let node = |operator: &str, values: Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}]}}})
    };
    vec![
        ("/spec/affinity", node("In", json!(["a"]))),
        ("/spec/affinity", node("In", json!([]))),
        ("/spec/affinity", node("Odd", json!(["a"]))),
        ("/spec/affinity", node("Exists", json!(["a"]))),
        ("/spec/affinity", node("Gt", json!(["a", "b"]))),
        (
            "/spec/affinity",
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
        ),
        ("/spec/affinity", json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("")]}})),
        (
            "/spec/affinity",
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("bad key")]}}),
        ),
        (
            "/spec/affinity",
            json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": term("k")}]}}),
        ),
        (
            "/spec/topologySpreadConstraints",
            json!([{"maxSkew": 0, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}]),
        ),
        (
            "/spec/topologySpreadConstraints",
            json!([{"maxSkew": 1, "topologyKey": "", "whenUnsatisfiable": "DoNotSchedule"}]),
        ),
        ("/spec/topologySpreadConstraints", json!([{"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "Odd"}])),
    ]
}
