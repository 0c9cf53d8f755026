//! Counts the requests of a client.

use super::Metrics;
use axum::body::HttpBody;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Counts and times requests to a host.
#[derive(Clone)]
pub(crate) struct Counting {
    pub(crate) host: Arc<str>,
    pub(crate) metrics: Arc<Metrics>,
}

impl<S> Layer<S> for Counting {
    type Service = CountedService<S>;

    fn layer(&self, inner: S) -> CountedService<S> {
        CountedService { inner, counting: self.clone() }
    }
}

/// A service whose requests are counted.
pub(crate) struct CountedService<S> {
    inner: S,
    counting: Counting,
}

impl<S, B> Service<Request<Body>> for CountedService<S>
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
        let Counting { host, metrics } = self.counting.clone();
        let method = request.method().clone();
        let sent = request.body().size_hint().exact();
        let start = Instant::now();
        let reply = self.inner.call(request);
        Box::pin(async move {
            let reply = reply.await;
            let status = reply.as_ref().ok().map(Response::status);
            let code = status.as_ref().map_or("<error>", http::StatusCode::as_str);
            metrics.request(&method, &host, code, start.elapsed());
            let received = reply.as_ref().ok().and_then(|reply| reply.body().size_hint().exact());
            metrics.sizes(&method, &host, sent, received);
            reply
        })
    }
}
