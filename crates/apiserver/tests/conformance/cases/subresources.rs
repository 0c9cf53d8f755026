//! What is done to an object below its own path: eviction, binding, tokens; and reviews, which are no objects.

use super::*;

pub(crate) fn cases() -> Vec<Case> {
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let node =
        |name: &str| json!({"target": {"apiVersion": "v1", "kind": "Node", "name": name}, "metadata": {"name": "p"}});
    let access = "/apis/authorization.k8s.io/v1";
    vec![
        case(
            "evictions",
            vec![
                post(PODS, pod("p")),
                post(&format!("{PODS}/none/eviction"), eviction("none")),
                post(&format!("{PODS}/p/eviction"), eviction("other")),
                post(&format!("{PODS}/p/eviction"), eviction("p")),
                get(&format!("{PODS}/p")),
            ],
        ),
        case(
            "bindings",
            vec![
                post(PODS, pod("p")),
                post(&format!("{PODS}/p/binding"), json!({"metadata": {"name": "p"}, "target": {"kind": "Pod"}})),
                post(&format!("{PODS}/p/binding"), node("n1")),
                get(&format!("{PODS}/p")),
                post(&format!("{PODS}/p/binding"), node("n2")),
                post(&format!("{PODS}/none/binding"), node("n1")),
            ],
        ),
        case(
            "token requests",
            vec![
                post("/api/v1/namespaces/{ns}/serviceaccounts", json!({"metadata": {"name": "robot"}})),
                post(
                    "/api/v1/namespaces/{ns}/serviceaccounts/robot/token",
                    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 600}}),
                )
                .keep("token", "/status/token"),
                post(
                    "/api/v1/namespaces/{ns}/serviceaccounts/robot/token",
                    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 5}}),
                ),
                post("/api/v1/namespaces/{ns}/serviceaccounts/none/token", json!({"spec": {}})),
                post("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": "nonsense"}})),
            ],
        ),
        case(
            "reviews",
            vec![
                post(
                    &format!("{access}/selfsubjectaccessreviews"),
                    json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}}),
                ),
                post(&format!("{access}/selfsubjectaccessreviews"), json!({"spec": {}})),
                post(
                    &format!("{access}/subjectaccessreviews"),
                    json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
                ),
                get(&format!("{access}/selfsubjectaccessreviews")),
            ],
        ),
    ]
}
