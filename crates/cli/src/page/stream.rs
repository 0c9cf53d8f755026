//! HTTP requests to a Pod, over a port-forward through the API server.

use crate::connect::Target;
use anyhow::{Context, bail, ensure};
use axum::body::Body;
use http::request::Builder;
use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::Portforwarder;
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::sync::Semaphore;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// The longest reply that is read whole: whatever listens there must not fill this machine's memory.
const MAX_REPLY: usize = 32 << 20;
/// The longest metrics that are read. A head with thousands of tasks has some megabytes.
const MAX_METRICS: usize = 8 << 20;
/// How many metrics are read at once, for all viewers together.
const MAX_READERS: usize = 16;
/// What a Pod that is asked again and again has for a reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a request to a port of a Pod in the target's namespace, over a stream of its own.
pub(super) async fn send(
    target: &Target,
    pod: &str,
    port: u16,
    request: Request<Body>,
) -> anyhow::Result<Response<Incoming>> {
    let (stream, refused, forwarder) = open(target, pod, port).await?;
    let no_answer = || format!("port {port} of Pod {pod} does not answer");
    let exchange = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.with_context(no_answer)?;
        tokio::spawn(async move {
            // The stream ends with the forwarder.
            let _forwarder = forwarder;
            // The exchange reports what goes wrong.
            let _ = connection.with_upgrades().await;
        });
        sender.send_request(request).await.with_context(no_answer)
    };
    tokio::select! {
        biased;
        Some(error) = refused => bail!("Pod {pod}: {}", error.trim()),
        replied = exchange => replied,
    }
}

/// Opens a WebSocket to a port of a Pod. Nothing on this machine listens for it, so no other account can use it.
pub(super) async fn websocket(
    target: &Target,
    pod: &str,
    port: u16,
    request: Request<()>,
    config: WebSocketConfig,
) -> anyhow::Result<WebSocketStream<DuplexStream>> {
    let (stream, refused, forwarder) = open(target, pod, port).await?;
    let handshake = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
    let (socket, _) = tokio::select! {
        biased;
        Some(error) = refused => bail!("Pod {pod}: {}", error.trim()),
        opened = handshake => opened.with_context(|| format!("port {port} of Pod {pod} does not answer"))?,
    };
    // It goes on as long as the stream does.
    tokio::spawn(forwarder.join());
    Ok(socket)
}

/// Opens a stream to a port of a Pod; the second part reports why the Pod refuses it.
async fn open(
    target: &Target,
    pod: &str,
    port: u16,
) -> anyhow::Result<(DuplexStream, impl Future<Output = Option<String>> + use<>, Portforwarder)> {
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let forwarder = pods.portforward(pod, &[port]).await;
    let mut forwarder = forwarder.map_err(|error| target.failed(&format!("cannot forward to Pod {pod}"), error))?;
    let refused = forwarder.take_error(port).context("the port was not forwarded")?;
    let stream = forwarder.take_stream(port).context("the port was not forwarded")?;
    Ok((stream, refused, forwarder))
}

/// Ticks for whoever reads again and again; after a slow reading nothing is made up for.
pub(super) fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Reads the metrics of a Pod, and returns what `parse` makes of them.
///
/// Views ask dozens of nodes every few seconds, so that texts that are not needed any more would fill the memory.
pub(super) async fn metrics<T>(
    target: &Target,
    pod: &str,
    port: u16,
    parse: impl FnOnce(&str) -> T,
) -> anyhow::Result<T> {
    static READERS: Semaphore = Semaphore::const_new(MAX_READERS);
    let _reader = READERS.acquire().await?;
    let text = read_up_to(MAX_METRICS, target, pod, port, Request::get("/metrics")).await?;
    Ok(parse(&text))
}

/// Reads what a Pod replies, unless it does not in time.
pub(super) async fn read(target: &Target, pod: &str, port: u16, request: Builder) -> anyhow::Result<String> {
    read_up_to(MAX_REPLY, target, pod, port, request).await
}

async fn read_up_to(limit: usize, target: &Target, pod: &str, port: u16, request: Builder) -> anyhow::Result<String> {
    let reading = async {
        let request = request.header(header::HOST, "localhost").body(Body::empty())?;
        let response = send(target, pod, port, request).await?;
        ensure!(response.status().is_success(), "Pod {pod} answers {}", response.status());
        let body = axum::body::to_bytes(Body::new(response.into_body()), limit).await;
        let body =
            body.with_context(|| format!("the reply of Pod {pod} ends early, or has more than {limit} bytes"))?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    };
    match tokio::time::timeout(TIMEOUT, reading).await {
        Ok(read) => read,
        Err(_) => bail!("Pod {pod} does not answer within {} s", TIMEOUT.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn slow_readings_are_not_made_up_for() {
        let period = Duration::from_secs(3);
        let mut tick = every(period);
        tick.tick().await;
        // A reading that takes ten periods; the next one is due at once, and only that one.
        tokio::time::advance(period * 10).await;
        tick.tick().await;
        let start = Instant::now();
        tick.tick().await;
        assert_eq!(start.elapsed(), period);
    }
}
