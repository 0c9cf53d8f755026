//! The client that everything goes through: it counts, and refuses once leadership is lost.

use super::Metrics;
use axum::body::HttpBody;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service};

/// Nothing may be asked any more.
#[derive(Debug, thiserror::Error)]
#[error("leadership is lost: nothing is sent any more")]
struct Fenced;

/// A client that counts its requests, and sends and awaits none after `fence`.
pub fn measured(config: kube::Config, metrics: Arc<Metrics>, fence: CancellationToken) -> Result<Client, kube::Error> {
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let layer = Counting { host: host.into(), metrics, fence };
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

#[derive(Clone)]
struct Counting {
    host: Arc<str>,
    metrics: Arc<Metrics>,
    fence: CancellationToken,
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counting: self.clone() }
    }
}

struct Counted<S> {
    inner: S,
    counting: Counting,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody + Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Counting { host, metrics, fence } = self.counting.clone();
        if fence.is_cancelled() {
            return Box::pin(std::future::ready(Err(Fenced.into())));
        }
        let method = request.method().clone();
        let sent = request.body().size_hint().exact();
        let start = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = tokio::select! {
                biased;
                () = fence.cancelled() => return Err(Fenced.into()),
                answer = answer => answer,
            };
            let status = answer.as_ref().ok().map(Response::status);
            let code = status.as_ref().map_or("<error>", http::StatusCode::as_str);
            metrics.request(&method, &host, code, start.elapsed());
            let received = answer.as_ref().ok().and_then(|answer| answer.body().size_hint().exact());
            metrics.sizes(&method, &host, sent, received);
            answer
        })
    }
}
