//! Watches of servers that stream lists, refuse to, or do not know how.

use super::*;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug)]
enum Server {
    Streams,
    /// As one whose feature gate is off.
    Refuses,
    /// As one that ignores parameters that it does not know.
    Ignores,
    /// As one that has forgotten the version at which the first watch would begin.
    Forgets,
}

/// The requests that a server got, in short.
type Asked = Arc<Mutex<Vec<&'static str>>>;

fn pod(name: &str) -> Value {
    let labels = json!({"ray.io/cluster": "demo", "ray.io/node-type": "worker"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns", "labels": labels}})
}

/// Returns a response with these watch events that does not end. As with every API server, types come first.
fn stream(events: &[(&str, Value)]) -> Response {
    let line = |(type_, object): &(&str, Value)| format!("{{\"type\":\"{type_}\",\"object\":{object}}}\n");
    let text: String = events.iter().map(line).collect();
    let first = futures::stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(text))]);
    Body::from_stream(first.chain(futures::stream::pending())).into_response()
}

fn answer(server: Server, uri: &Uri, asked: &Asked) -> Response {
    let query = uri.query().unwrap_or_default();
    let (what, response) = match server {
        _ if query.contains("sendInitialEvents=true") && query.contains("resourceVersion=") => {
            ("streamed list that may be old", stream(&[]))
        }
        _ if !query.contains("watch=true") => {
            let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"},
                              "items": [pod("a"), pod("b")]});
            ("list", axum::Json(list).into_response())
        }
        Server::Refuses if query.contains("sendInitialEvents=true") => {
            let status = json!({"kind": "Status", "code": 422, "reason": "Invalid",
                                "message": "sendInitialEvents is forbidden for watch"});
            ("streamed list", (StatusCode::UNPROCESSABLE_ENTITY, axum::Json(status)).into_response())
        }
        Server::Streams if query.contains("sendInitialEvents=true") => {
            let metadata = json!({"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}});
            let end = json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata});
            ("streamed list", stream(&[("ADDED", pod("a")), ("ADDED", pod("b")), ("BOOKMARK", end)]))
        }
        _ if query.contains("sendInitialEvents=true") => ("streamed list", stream(&[])),
        Server::Forgets if !lock(asked).contains(&"watch") => {
            let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
            ("watch", (StatusCode::GONE, axum::Json(status)).into_response())
        }
        _ => ("watch", stream(&[])),
    };
    lock(asked).push(what);
    response
}

#[test]
fn streamed_lists_ask_for_the_current_state() {
    let check = |uri: &str, expect: Option<&str>| {
        let changed = without_version_zero(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(changed.as_deref(), expect, "{uri}");
    };
    let path = "/api/v1/pods?watch=true&labelSelector=a%3Db";
    let list = format!("{path}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    check(&format!("{list}&resourceVersion=0"), Some(&list));
    check(&format!("https://host:6443{list}&resourceVersion=0"), Some(&format!("https://host:6443{list}")));
    // A watch that goes on where an earlier one ended.
    check(&format!("{list}&resourceVersion=70"), None);
    check(&format!("{path}&resourceVersion=0"), None);
    check(&list, None);
    check("/api/v1/pods", None);
}

#[tokio::test(start_paused = true)]
async fn everything_is_listed_whatever_the_server_can_do() {
    let check = async |server: Server, streaming: bool, expect: &[&str]| {
        let asked = Asked::default();
        let seen = Arc::clone(&asked);
        let router = Router::new().fallback(move |uri: Uri| async move { answer(server, &uri, &seen) });
        let (stores, tasks, stop) = (Arc::<Stores>::default(), TaskTracker::new(), CancellationToken::new());
        let queue = Arc::new(Queue::default());
        let client = Client::new(router, "ns");
        let watches = Watches::new(client, Vec::new(), Arc::clone(&stores), queue, tasks.clone(), stop.clone(), None)
            .with_streaming_lists(streaming);
        watches.spawn(Kind::Pod, |stores| &stores.pods, owners::pod_owners);
        let listed = async {
            while !stores.is_synced(Kind::Pod) || lock(&asked).len() < expect.len() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(10 * SILENT, listed).await.unwrap_or_else(|_| panic!("{server:?}: {:?}", lock(&asked)));
        let owner = ObjectKey::new(Kind::RayCluster, "ns", "demo");
        assert_eq!(stores.pods.of(&owner).len(), 2, "{server:?}");
        // Nothing is requested again.
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(*lock(&asked), expect, "{server:?}");
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    };
    check(Server::Streams, true, &["streamed list"]).await;
    check(Server::Streams, false, &["list", "watch"]).await;
    check(Server::Refuses, true, &["streamed list", "list", "watch"]).await;
    check(Server::Ignores, true, &["streamed list", "list", "watch"]).await;
    check(Server::Forgets, false, &["list", "watch", "list", "watch"]).await;
}
