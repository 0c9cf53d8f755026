//! A client layer that measures requests to the API server.

use super::Metrics;
use axum::body::HttpBody;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Counts requests to one host, and measures their latency and size.
#[derive(Clone)]
pub(crate) struct MetricsLayer {
    pub(crate) host: Arc<str>,
    pub(crate) metrics: Arc<Metrics>,
}

impl<S> Layer<S> for MetricsLayer {
    type Service = MetricsService<S>;

    fn layer(&self, inner: S) -> MetricsService<S> {
        MetricsService { inner, layer: self.clone() }
    }
}

/// A service whose requests are measured.
pub(crate) struct MetricsService<S> {
    inner: S,
    layer: MetricsLayer,
}

impl<S, B> Service<Request<Body>> for MetricsService<S>
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
        let MetricsLayer { host, metrics } = self.layer.clone();
        let method = request.method().clone();
        let sent = request.body().size_hint().exact();
        let start = Instant::now();
        let reply = self.inner.call(request);
        Box::pin(async move {
            let reply = reply.await;
            let status = reply.as_ref().ok().map(Response::status);
            let code = status.as_ref().map_or("<error>", http::StatusCode::as_str);
            metrics.observe_request(&method, &host, code, start.elapsed());
            let received = reply.as_ref().ok().and_then(|reply| reply.body().size_hint().exact());
            metrics.observe_sizes(&method, &host, sent, received);
            reply
        })
    }
}
