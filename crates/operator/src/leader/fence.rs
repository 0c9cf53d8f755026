//! Fencing: a client layer that sends no request, and drops pending ones, once leadership is lost.

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use std::task::{Context, Poll};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service};

/// Leadership is lost.
#[derive(Debug, thiserror::Error)]
#[error("lost the lease: no more requests are sent")]
struct Fenced;

/// Fails requests after the end of a term.
#[derive(Clone)]
pub struct Fence(pub(crate) CancellationToken);

impl<S> Layer<S> for Fence {
    type Service = FencedService<S>;

    fn layer(&self, inner: S) -> FencedService<S> {
        FencedService { inner, over: self.0.clone() }
    }
}

/// A service behind the fence.
pub struct FencedService<S> {
    inner: S,
    over: CancellationToken,
}

impl<S, B> Service<Request<Body>> for FencedService<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let over = self.over.clone();
        if over.is_cancelled() {
            return Box::pin(std::future::ready(Err(Fenced.into())));
        }
        let reply = self.inner.call(request);
        Box::pin(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => Err(Fenced.into()),
                reply = reply => reply,
            }
        })
    }
}
