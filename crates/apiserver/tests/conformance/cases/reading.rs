//! Lists, selectors, pages, watches, tables, discovery.

use super::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIALS: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

fn labelled(name: &str, label: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"l": label, "of": "test"}}})
}

pub(crate) fn cases() -> Vec<Case> {
    let list = |query: &str| get(&format!("{MAPS}?labelSelector=of%3Dtest&{query}"));
    vec![
        case(
            "lists",
            vec![
                post(MAPS, labelled("a", "1")),
                post(MAPS, labelled("b", "2")),
                post(MAPS, labelled("c", "3")),
                list(""),
                list("limit=2").keep("next", "/metadata/continue"),
                list("limit=2&continue={next}"),
                list("continue=nonsense"),
                get(&format!("{MAPS}?labelSelector=l%20in%20(1,2)")),
                get(&format!("{MAPS}?labelSelector=l%20notin%20(1,2),of")),
                get(&format!("{MAPS}?labelSelector=!of,l")),
                get(&format!("{MAPS}?labelSelector=l%3D%3D3")),
                get(&format!("{MAPS}?labelSelector=l%3D")),
                get(&format!("{MAPS}?labelSelector=l%20in%20x")),
                get(&format!("{MAPS}?labelSelector=%26")),
                get(&format!("{MAPS}?fieldSelector=metadata.name%3Da")),
                get(&format!("{MAPS}?fieldSelector=metadata.name!%3Da,metadata.name!%3Dkube-root-ca.crt")),
                get(&format!("{MAPS}?fieldSelector=data.x%3Da")),
                get(&format!("{MAPS}?fieldSelector=nonsense")),
                list("resourceVersion=0"),
                list("resourceVersion=1&resourceVersionMatch=NotOlderThan"),
                list("resourceVersionMatch=Exact"),
                list("resourceVersion=0&resourceVersionMatch=Exact"),
                list("resourceVersion=x"),
                list("resourceVersion=1&resourceVersionMatch=Sometimes"),
                list("").accept(PARTIALS),
                get(&format!("{MAPS}/a")).accept(PARTIAL),
                get(&format!("{PODS}?fieldSelector=status.phase%3DRunning")),
                get(&format!("{PODS}?fieldSelector=spec.nodeName%3D")),
            ],
        ),
        case(
            "exact lists",
            vec![
                post(MAPS, labelled("a", "1")).keep("first", "/metadata/resourceVersion"),
                post(MAPS, labelled("b", "2")),
                delete(&format!("{MAPS}/a")),
                list("resourceVersion={first}&resourceVersionMatch=Exact"),
                list(""),
            ],
        ),
        case(
            "watches",
            vec![
                post(MAPS, labelled("a", "1")).keep("first", "/metadata/resourceVersion"),
                patch("merge", &format!("{MAPS}/a"), json!({"data": {"x": "y"}})),
                post(MAPS, labelled("b", "2")),
                patch("merge", &format!("{MAPS}/b"), json!({"metadata": {"labels": {"of": "other"}}})),
                delete(&format!("{MAPS}/a")),
                list("watch=1&timeoutSeconds=1&resourceVersion={first}"),
                list("watch=1&timeoutSeconds=1"),
                get(&format!(
                    "{MAPS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Db&resourceVersion={{first}}"
                )),
                list(
                    "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                ),
                list("watch=1&timeoutSeconds=1&sendInitialEvents=true"),
                list("watch=1&timeoutSeconds=1&resourceVersionMatch=NotOlderThan"),
                list("watch=1&timeoutSeconds=1&resourceVersion={first}").accept(PARTIAL),
                list("watch=1&timeoutSeconds=1&resourceVersion=nonsense"),
            ],
        ),
        case(
            "tables",
            vec![
                post(PODS, pod("a")),
                get(&format!("{PODS}/a")).accept(TABLE),
                patch(
                    "merge",
                    &format!("{PODS}/a/status"),
                    json!({"status": {"phase": "Running", "podIP": "10.1.1.1",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "c", "image": "x", "imageID": "y", "ready": true, "restartCount": 2, "state": {"running": {}}}]}}),
                ),
                get(&format!("{PODS}/a")).accept(TABLE),
                post(
                    SERVICES,
                    json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}, {"port": 81, "name": "x"}]}}),
                ),
                post(
                    SERVICES,
                    json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80, "name": "w"}, {"port": 81, "name": "x"}]}}),
                ),
                get(&format!("{SERVICES}/s")).accept(TABLE),
                post("/api/v1/namespaces/{ns}/secrets", json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})),
                get("/api/v1/namespaces/{ns}/secrets/s").accept(TABLE),
                post(MAPS, map("m", json!({"a": "b", "c": "d"}))),
                get(&format!("{MAPS}/m")).accept(TABLE),
                get("/api/v1/namespaces/{ns}").accept(TABLE),
                post(
                    "/apis/batch/v1/namespaces/{ns}/jobs",
                    json!({"metadata": {"name": "j", "labels": {"a": "b"}}, "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}}),
                ),
                get("/apis/batch/v1/namespaces/{ns}/jobs/j").until("/status/conditions/0/type", json!("Suspended")),
                get("/apis/batch/v1/namespaces/{ns}/jobs/j").accept(TABLE),
                get("/apis/apps/v1/namespaces/{ns}/deployments").accept(TABLE),
                get("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases").accept(TABLE),
                get("/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses").accept(TABLE),
                get("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles").accept(TABLE),
            ],
        ),
        case(
            "discovery",
            vec![
                get("/api/v1"),
                get("/apis/apps/v1"),
                get("/apis/batch"),
                get("/apis/batch/v1"),
                get("/apis/policy/v1"),
                get("/apis/none-such"),
                get("/apis/none-such/v1"),
                get("/api").accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            ],
        ),
    ]
}
