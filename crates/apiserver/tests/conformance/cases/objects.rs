//! Creating, reading and replacing; defaults; what is refused.

use super::*;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case(
            "create, read, replace",
            vec![
                post(MAPS, map("a", json!({"k": "v"})))
                    .keep("rv", "/metadata/resourceVersion")
                    .keep("uid", "/metadata/uid"),
                get(&format!("{MAPS}/a")),
                post(MAPS, map("a", json!({}))),
                put(&format!("{MAPS}/a"), map("a", json!({"k": "w"}))),
                put(
                    &format!("{MAPS}/a"),
                    json!({"metadata": {"name": "a", "resourceVersion": "{rv}"}, "data": {"k": "x"}}),
                ),
                put(
                    &format!("{MAPS}/a"),
                    json!({"metadata": {"name": "a", "uid": "00000000-0000-4000-8000-000000000000"}, "data": {"k": "x"}}),
                ),
                put(&format!("{MAPS}/b"), map("a", json!({}))),
                put(&format!("{MAPS}/none"), map("none", json!({}))),
                put(&format!("{MAPS}/a"), map("a", json!({"k": "w"}))),
                get(&format!("{MAPS}/none")),
            ],
        ),
        case(
            "names",
            vec![
                post(MAPS, map("Bad_Name", json!({}))),
                post(MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})),
                post(MAPS, json!({"metadata": {"name": "x", "resourceVersion": "1"}})),
                post(MAPS, json!({"metadata": {"name": "x", "namespace": "other"}})),
                post(MAPS, json!({"metadata": {"name": "x", "labels": {"bad key": "v"}}})),
                post(MAPS, json!({"metadata": {"name": "x", "labels": {"k": "bad value!"}}})),
                post(MAPS, json!({"metadata": {"name": "x", "annotations": {"/": "v"}}})),
                post(MAPS, json!({"metadata": {"name": "x", "finalizers": ["no spaces"]}})),
                post(
                    MAPS,
                    json!({"metadata": {"name": "x", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]}}),
                ),
                post("/api/v1/namespaces/none-such/configmaps", map("a", json!({}))),
                post(SERVICES, json!({"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 1}]}})),
            ],
        ),
        case(
            "bodies",
            vec![
                post_text(MAPS, "{"),
                post_text(MAPS, "[]"),
                post_text(MAPS, ""),
                post(MAPS, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}})),
                post(MAPS, json!({"metadata": {"name": 5}})),
                post(MAPS, json!({"metadata": {"name": "y"}, "data": {"a": 1}})),
                post_text(MAPS, "kind: ConfigMap\nmetadata: {name: yaml}\ndata: {a: b}\n").content("application/yaml"),
                post_text(MAPS, "x").content("application/octet-stream"),
            ],
        ),
        case(
            "unknown fields",
            vec![
                post(&format!("{PODS}?fieldValidation=Strict"), {
                    let mut pod = pod("a");
                    pod["spec"]["bogus"] = json!(1);
                    pod["spec"]["containers"][0]["wrong"] = json!({});
                    pod
                }),
                post(&format!("{PODS}?fieldValidation=Warn"), {
                    let mut pod = pod("a");
                    pod["spec"]["bogus"] = json!(1);
                    pod
                }),
                post(&format!("{PODS}?fieldValidation=Ignore"), {
                    let mut pod = pod("b");
                    pod["spec"]["bogus"] = json!(1);
                    pod
                }),
                post(&format!("{PODS}?fieldValidation=Nonsense"), pod("c")),
            ],
        ),
        case(
            "dry run",
            vec![
                post(&format!("{MAPS}?dryRun=All"), map("a", json!({"k": "v"}))),
                get(&format!("{MAPS}/a")),
                post(&format!("{MAPS}?dryRun=Some"), map("a", json!({}))),
                post(MAPS, map("a", json!({"k": "v"}))),
                put(&format!("{MAPS}/a?dryRun=All"), map("a", json!({"k": "w"}))),
                delete(&format!("{MAPS}/a?dryRun=All")),
                get(&format!("{MAPS}/a")),
            ],
        ),
        case(
            "paths and verbs",
            vec![
                get("/api/v1/nonsense"),
                get("/apis/nonsense/v1/x"),
                get("/nonsense"),
                post(&format!("{MAPS}/a"), map("a", json!({}))),
                put(MAPS, map("a", json!({}))),
                get(&format!("{MAPS}/a/status")),
                post("/api/v1/pods", pod("a")),
                get(&format!("{MAPS}/a")).accept("text/html"),
                get("/healthz"),
                get("/livez"),
                get("/readyz"),
            ],
        ),
        case(
            "immutable",
            vec![
                post(MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}, "immutable": true})),
                put(&format!("{MAPS}/a"), map("a", json!({"k": "w"}))),
            ],
        ),
        case(
            "secrets",
            vec![
                post(
                    "/api/v1/namespaces/{ns}/secrets",
                    json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
                ),
                post("/api/v1/namespaces/{ns}/secrets", json!({"metadata": {"name": "t"}, "data": {"c": "!"}})),
                post("/api/v1/namespaces/{ns}/secrets", json!({"metadata": {"name": "u"}, "data": {"c": "Z\nA==\n"}})),
                put("/api/v1/namespaces/{ns}/secrets/s", json!({"metadata": {"name": "s"}, "type": "other"})),
            ],
        ),
    ];
    cases.push(pods());
    cases.push(services());
    cases.push(workloads());
    cases.push(others());
    cases
}

fn pods() -> Case {
    let with = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut pod = pod(name);
        change(&mut pod["spec"]);
        pod
    };
    case(
        "pods",
        vec![
            post(
                PODS,
                with("names", &|spec| {
                    spec["serviceAccountName"] = json!("$ACCOUNT");
                    spec["hostname"] = json!("a.b");
                    spec["subdomain"] = json!("A");
                    spec["nodeName"] = json!("under_score");
                    spec["nodeSelector"] = json!({"not a key": "v"});
                }),
            ),
            post(
                PODS,
                with("full", &|spec| {
                    spec["containers"][0] = json!({"name": "c", "image": "busybox", "command": ["a"], "args": [], "tty": false,
                "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81, "protocol": "UDP"}],
                "env": [{"name": "A", "value": ""}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi", "example.com/x": 2}, "requests": {"cpu": 0.5}},
                "livenessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": 0},
                "readinessProbe": {"exec": {"command": ["x"]}, "timeoutSeconds": 5},
                "startupProbe": {"grpc": {"port": 5}},
                "lifecycle": {"preStop": {"exec": {"command": ["y"]}}},
                "volumeMounts": [{"name": "e", "mountPath": "/e"}]});
                    spec["initContainers"] = json!([{"name": "i", "image": "x@sha256:0000000000000000000000000000000000000000000000000000000000000000"}]);
                    spec["volumes"] = json!([{"name": "e"}, {"name": "s", "secret": {"secretName": "x"}}, {"name": "m", "configMap": {"name": "y"}},
                {"name": "d", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                {"name": "h", "hostPath": {"path": "/tmp"}}, {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Ki"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "y"}}]}}]);
                    spec["serviceAccountName"] = json!("robot");
                    spec["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
                    spec["nodeSelector"] = json!({});
                }),
            ),
            post(
                PODS,
                with("host", &|spec| {
                    spec["hostNetwork"] = json!(true);
                    spec["containers"][0]["ports"] = json!([{"containerPort": 80}]);
                    spec["restartPolicy"] = json!("Never");
                }),
            ),
            post(PODS, json!({"metadata": {"name": "empty"}, "spec": {"containers": []}})),
            post(PODS, json!({"metadata": {"name": "none"}})),
            post(PODS, with("bad", &|spec| spec["containers"][0]["image"] = json!(""))),
            post(PODS, with("bad", &|spec| spec["containers"][0]["name"] = json!("A_B"))),
            post(PODS, with("bad", &|spec| spec["restartPolicy"] = json!("Sometimes"))),
            post(
                PODS,
                with("bad", &|spec| {
                    spec["containers"][0]["volumeMounts"] = json!([{"name": "none", "mountPath": "/x"}])
                }),
            ),
            post(
                PODS,
                with("bad", &|spec| {
                    spec["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})
                }),
            ),
            post(PODS, with("bad", &|spec| spec["containers"][0]["resources"] = json!({"limits": {"cpu": "lots"}}))),
            post(PODS, with("bad", &|spec| spec["priorityClassName"] = json!("none-such"))),
            post(PODS, with("critical", &|spec| spec["priorityClassName"] = json!("system-node-critical"))),
            post(PODS, pod("p")),
            patch("merge", &format!("{PODS}/p"), json!({"spec": {"nodeSelector": {"a": "b"}}})),
            patch(
                "merge",
                &format!("{PODS}/p/status"),
                json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}),
            ),
            patch(
                "merge",
                &format!("{PODS}/p"),
                json!({"status": {"phase": "Failed"}, "metadata": {"labels": {"x": "y"}}}),
            ),
            post(
                &format!("{PODS}/p/binding"),
                json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}),
            ),
            post(
                &format!("{PODS}/p/binding"),
                json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n2"}}),
            ),
            get(&format!("{PODS}/p")),
            patch(
                "json",
                &format!("{PODS}/p/resize"),
                json!([{"op": "add", "path": "/spec/containers/0/resources", "value": {"requests": {"cpu": "100m"}}}]),
            ),
            post(
                &format!("{PODS}/p/eviction"),
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}),
            ),
        ],
    )
}

fn services() -> Case {
    case(
        "services",
        vec![
            post(
                SERVICES,
                json!({"metadata": {"name": "a"}, "spec": {"selector": {"x": "y"}, "ports": [{"port": 80}]}}),
            ),
            post(
                SERVICES,
                json!({"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "ports": [{"port": 80, "targetPort": "http", "name": "h"}]}}),
            ),
            post(
                SERVICES,
                json!({"metadata": {"name": "external"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}),
            ),
            post(SERVICES, json!({"metadata": {"name": "none"}, "spec": {}})),
            post(SERVICES, json!({"metadata": {"name": "unnamed"}, "spec": {"ports": [{"port": 1}, {"port": 2}]}})),
            post(
                SERVICES,
                json!({"metadata": {"name": "outside"}, "spec": {"clusterIP": "1.2.3.4", "ports": [{"port": 1}]}}),
            ),
            post(SERVICES, json!({"metadata": {"name": "type"}, "spec": {"type": "Other", "ports": [{"port": 1}]}})),
            patch("merge", &format!("{SERVICES}/a"), json!({"spec": {"ports": [{"port": 81}]}})),
            patch("merge", &format!("{SERVICES}/a"), json!({"spec": {"clusterIP": "None"}})),
            delete(&format!("{SERVICES}/a")),
        ],
    )
}

fn workloads() -> Case {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let mut never = template.clone();
    never["spec"]["restartPolicy"] = json!("Never");
    case(
        "workloads",
        vec![
            post(
                "/apis/apps/v1/namespaces/{ns}/deployments",
                json!({"metadata": {"name": "d"}, "spec": {"paused": true, "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            ),
            post(
                "/apis/apps/v1/namespaces/{ns}/deployments",
                json!({"metadata": {"name": "e"}, "spec": {"selector": {"matchLabels": {"a": "c"}}, "template": template}}),
            ),
            post(
                "/apis/apps/v1/namespaces/{ns}/deployments",
                json!({"metadata": {"name": "f"}, "spec": {"template": template}}),
            ),
            post(
                "/apis/apps/v1/namespaces/{ns}/replicasets",
                json!({"metadata": {"name": "r"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            ),
            post(
                "/apis/apps/v1/namespaces/{ns}/statefulsets",
                json!({"metadata": {"name": "s"}, "spec": {"replicas": 0, "serviceName": "x", "selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            ),
            post(
                "/apis/apps/v1/namespaces/{ns}/daemonsets",
                json!({"metadata": {"name": "s"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            ),
            post(
                "/apis/batch/v1/namespaces/{ns}/jobs",
                json!({"metadata": {"name": "j", "labels": {"l": "m"}}, "spec": {"suspend": true, "template": never}}),
            ),
            post(
                "/apis/batch/v1/namespaces/{ns}/jobs",
                json!({"metadata": {"name": "k"}, "spec": {"template": template}}),
            ),
            post(
                "/apis/batch/v1/namespaces/{ns}/cronjobs",
                json!({"metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": never}}}}),
            ),
            get("/apis/apps/v1/namespaces/{ns}/deployments/d/scale"),
            patch(
                "merge",
                "/apis/batch/v1/namespaces/{ns}/jobs/j",
                json!({"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}, "completions": 5}}),
            ),
            patch(
                "merge",
                "/apis/apps/v1/namespaces/{ns}/deployments/d",
                json!({"spec": {"selector": {"matchLabels": {"z": "z"}}}}),
            ),
        ],
    )
}

fn others() -> Case {
    case(
        "other kinds",
        vec![
            post(
                "/api/v1/namespaces/{ns}/persistentvolumeclaims",
                json!({"metadata": {"name": "p"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}}),
            ),
            post("/api/v1/namespaces/{ns}/persistentvolumeclaims", json!({"metadata": {"name": "q"}, "spec": {}})),
            post(
                "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
                json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}}}),
            ),
            post(
                "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses",
                json!({"metadata": {"name": "j"}, "spec": {}}),
            ),
            post(
                "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
                json!({"metadata": {"name": "n"}, "spec": {"podSelector": {}, "egress": [{"ports": [{"port": 1}]}]}}),
            ),
            post(
                "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
                json!({"metadata": {"name": "b"}, "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}}),
            ),
            post(
                "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
                json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "", "renewTime": "2024-01-01T00:00:00.123456Z"}}),
            ),
            post(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
                json!({"metadata": {"name": "a:b"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
            ),
            post("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", json!({"metadata": {"name": "empty"}})),
            post(
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
                json!({"metadata": {"name": "rb"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a:b"}, "subjects": [{"kind": "User", "name": "u"}]}),
            ),
            patch(
                "merge",
                "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings/rb",
                json!({"roleRef": {"name": "c"}}),
            ),
            post(
                "/api/v1/namespaces/{ns}/events",
                json!({"metadata": {"name": "e", "namespace": "{ns}"}, "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p"}, "reason": "R", "message": "m", "type": "Normal"}),
            ),
            get("/apis/events.k8s.io/v1/namespaces/{ns}/events/e"),
            post(
                "/apis/events.k8s.io/v1/namespaces/{ns}/events",
                json!({"metadata": {"name": "f", "namespace": "{ns}"}, "regarding": {"kind": "Pod", "namespace": "{ns}", "name": "p"}, "reason": "R", "note": "n", "type": "Normal", "action": "A", "eventTime": "2024-01-01T00:00:00.000001Z", "reportingController": "c", "reportingInstance": "i"}),
            ),
            get("/api/v1/namespaces/{ns}/events/f"),
            post("/api/v1/namespaces/{ns}/serviceaccounts", json!({"metadata": {"name": "robot"}})),
            post(
                "/api/v1/namespaces/{ns}/endpoints",
                json!({"metadata": {"name": "e"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}]}),
            ),
            post(
                "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
                json!({"metadata": {"name": "e"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 1}]}),
            ),
        ],
    )
}
