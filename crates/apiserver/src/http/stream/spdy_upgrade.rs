//! From HTTP to SPDY on the connection itself, as clients before kubectl 1.31 want it.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::WriteHalf;
use tokio_util::codec::{BytesCodec, FramedRead, FramedWrite};

use crate::error::ApiError;

const VERSIONS: &str = "X-Stream-Protocol-Version";

pub(super) type Incoming = BoxStream<'static, Bytes>;
pub(super) type Outgoing = FramedWrite<WriteHalf<TokioIo<Upgraded>>, BytesCodec>;

pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|wanted| wanted.as_bytes().eq_ignore_ascii_case(b"SPDY/3.1"))
}

/// Accepts the upgrade, and passes the connection on once the response is sent.
pub(super) fn to_spdy<Carried: Future<Output = ()> + Send>(
    mut request: Request,
    protocol: &'static str,
    carry: impl FnOnce(Incoming, Outgoing) -> Carried + Send + 'static,
) -> Result<Response, ApiError> {
    let mut offered =
        request.headers().get_all(VERSIONS).iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    if request.headers().contains_key(VERSIONS) && !offered.any(|one| one.trim_ascii() == protocol.as_bytes()) {
        return Err(ApiError::bad_request(format!("unable to upgrade: this path speaks {protocol}")));
    }
    let Some(upgraded) = request.extensions_mut().remove::<OnUpgrade>() else {
        return Err(ApiError::bad_request("unable to upgrade: the connection cannot change its protocol"));
    };
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
        let incoming = FramedRead::new(reader, BytesCodec::new())
            .take_while(|piece| std::future::ready(piece.is_ok()))
            .filter_map(|piece| std::future::ready(piece.ok().map(|bytes| bytes.freeze())));
        carry(incoming.boxed(), FramedWrite::new(writer, BytesCodec::new())).await;
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert(VERSIONS, HeaderValue::from_static(protocol));
    Ok(response)
}
