//! The client that everything goes through: it counts, and refuses once leadership is lost.

use super::Metrics;
use http::Request;
use kube::Client;
use kube::client::Body;
use std::sync::Arc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Nothing may be asked any more.
#[derive(Debug, thiserror::Error)]
#[error("leadership is lost: nothing is sent any more")]
struct Fenced;

/// A client that counts its requests to `host`, and sends and awaits none after `fence`.
pub fn measured(client: Client, host: String, metrics: Arc<Metrics>, fence: CancellationToken) -> Client {
    let namespace = client.default_namespace().to_owned();
    let host: Arc<str> = host.into();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, host, metrics, fence) = (client.clone(), Arc::clone(&host), Arc::clone(&metrics), fence.clone());
        async move {
            let method = request.method().clone();
            let start = Instant::now();
            let answer = tokio::select! {
                biased;
                () = fence.cancelled() => return Err(Box::new(Fenced).into()),
                answer = client.send(request) => answer,
            };
            let code = match &answer {
                Ok(answer) => answer.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            metrics.request(&method, &host, &code, start.elapsed());
            answer.map_err(tower::BoxError::from)
        }
    });
    Client::new(service, namespace)
}
