//! Waits for objects, and says on stderr what for.

use crate::connect::Target;
use crate::local::summarise;
use crate::output::print_note;
use crate::resource::Reference;
use anyhow::bail;
use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use std::time::Duration;

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    Done(T),
    TimedOut,
}

/// What it means that an object is not there when the wait begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absence {
    Deleted,
    NotYetCreated,
}

/// Watches an object until `check` returns something, or the time is over. Prints a line whenever its state changes.
pub(crate) async fn until<T>(
    target: &Target,
    reference: &Reference,
    timeout: Option<Duration>,
    check: impl FnMut(&DynamicObject) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Waited<T>> {
    within(timeout, watch(target, reference, Absence::Deleted, check)).await
}

/// Like [`until`], for an object that somebody else is about to create.
pub(crate) async fn until_created<T>(
    target: &Target,
    reference: &Reference,
    timeout: Option<Duration>,
    check: impl FnMut(&DynamicObject) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Waited<T>> {
    within(timeout, watch(target, reference, Absence::NotYetCreated, check)).await
}

async fn within<T>(
    timeout: Option<Duration>,
    watching: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Waited<T>> {
    match timeout {
        None => watching.await.map(Waited::Done),
        Some(timeout) => match tokio::time::timeout(timeout, watching).await {
            Ok(result) => result.map(Waited::Done),
            Err(_) => Ok(Waited::TimedOut),
        },
    }
}

/// Returns the server's message, if it refuses to show the objects, which another attempt would not change.
pub(crate) fn refusal(error: &watcher::Error) -> Option<&str> {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return None,
    };
    (status.code == 403).then_some(status.message.as_str())
}

async fn watch<T>(
    target: &Target,
    reference: &Reference,
    absence: Absence,
    mut check: impl FnMut(&DynamicObject) -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let only = watcher::Config::default().fields(&format!("metadata.name={}", reference.name));
    let mut events = watcher(target.ray_api(reference.kind), only).default_backoff().boxed();
    let mut shown = None;
    let mut exists = false;
    while let Some(event) = events.next().await {
        let object = match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => object,
            Ok(watcher::Event::Delete(_)) => bail!("{reference} was deleted in the meantime"),
            Ok(watcher::Event::InitDone) if !exists && absence == Absence::NotYetCreated => {
                print_note(&format!("waiting for {reference}: not created yet"));
                continue;
            }
            Ok(watcher::Event::InitDone) if !exists => bail!("{reference} was deleted in the meantime"),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(error) => {
                if let Some(message) = refusal(&error) {
                    bail!("cannot watch {reference}: {message}");
                }
                print_note(&format!("the watch of {reference} was interrupted and goes on: {error}"));
                continue;
            }
        };
        exists = true;
        if let Some(result) = check(&object)? {
            return Ok(result);
        }
        let state = summarise(reference.kind.name(), &object.data);
        if shown.as_ref() != Some(&state) {
            let text = if state.is_empty() { "no status yet" } else { &state };
            print_note(&format!("waiting for {reference}: {text}"));
            shown = Some(state);
        }
    }
    bail!("the watch of {reference} ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Kind;
    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use axum::response::IntoResponse;
    use serde_json::json;

    #[tokio::test]
    async fn a_refused_watch_ends_with_the_message_of_the_server() {
        let answer = |uri: Uri| async move {
            if uri.query().is_some_and(|query| query.contains("watch=true")) {
                let message = "rayclusters.ray.io is forbidden: User \"u\" cannot watch resource";
                let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message});
                return (StatusCode::FORBIDDEN, axum::Json(status)).into_response();
            }
            let object = json!({"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "1"}});
            axum::Json(json!({"metadata": {"resourceVersion": "1"}, "items": [object]})).into_response()
        };
        let client = kube::Client::new(Router::new().fallback(answer), "ns");
        let target = Target { client, namespace: "ns".to_owned(), context: None, url: String::new() };
        let reference = Reference { kind: Kind::Cluster, name: "a".to_owned() };
        let ended = until(&target, &reference, Some(Duration::from_secs(60)), |_| Ok(None::<()>)).await;
        let expect = "cannot watch raycluster/a: rayclusters.ray.io is forbidden: User \"u\" cannot watch resource";
        assert_eq!(ended.unwrap_err().to_string(), expect);
    }
}
