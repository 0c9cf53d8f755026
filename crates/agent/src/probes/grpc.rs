//! The health check of gRPC, `grpc.health.v1.Health/Check`, without a gRPC library: one request of a few bytes.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// The field of both messages: the service's name in the request, its status in the response.
const FIELD_ONE_BYTES: u8 = 0x0a;
const FIELD_ONE_VARINT: u8 = 0x08;
const SERVING: u8 = 1;
/// Most bytes of a response that are read.
const LIMIT: usize = 4 << 10;

/// Asks a server for the health of one of its services.
pub(super) async fn check_health(stream: TcpStream, service: &str) -> Result<(), String> {
    let io = TokioIo::new(stream);
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .map_err(|e| format!("failed to connect to the gRPC server: {e}"))?;
    let talk = async {
        let request = Request::post("http://localhost/grpc.health.v1.Health/Check")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("user-agent", "kube-probe/manta")
            .body(Full::new(message(service)?))
            .map_err(|e| e.to_string())?;
        let response = client.send_request(request).await.map_err(|e| format!("health rpc failed: {e}"))?;
        let (head, body) = response.into_parts();
        let collected = Limited::new(body, LIMIT).collect().await.map_err(|e| format!("health rpc failed: {e}"))?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let status = trailers.get("grpc-status").or_else(|| head.headers.get("grpc-status"));
        let status = status.and_then(|value| value.to_str().ok()).unwrap_or("0").to_owned();
        verdict(&status, &collected.to_bytes())
    };
    tokio::select! {
        answer = talk => answer,
        ended = connection => Err(format!("health rpc failed: {}", ended.err().map_or("closed".to_owned(), |e| e.to_string()))),
    }
}

/// Returns the request, with gRPC's prefix: not compressed, and the length.
fn message(service: &str) -> Result<Bytes, String> {
    let length = u8::try_from(service.len()).ok().filter(|length| *length < 0x80);
    let length = length.ok_or_else(|| format!("the name of the gRPC service is too long: {service:?}"))?;
    let mut body = BytesMut::new();
    if length > 0 {
        body.put_u8(FIELD_ONE_BYTES);
        body.put_u8(length);
        body.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::with_capacity(5 + body.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(body.len()).unwrap_or_default());
    framed.put_slice(&body);
    Ok(framed.freeze())
}

/// Reads a response.
fn verdict(status: &str, framed: &[u8]) -> Result<(), String> {
    if status != "0" {
        return Err(format!("health rpc failed: grpc-status {status}"));
    }
    let serving = matches!(framed.get(5..), Some([FIELD_ONE_VARINT, SERVING, ..]));
    if serving { Ok(()) } else { Err("service unhealthy (responded with a status other than SERVING)".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_name_the_service() {
        assert_eq!(&message("").unwrap()[..], [0, 0, 0, 0, 0]);
        assert_eq!(&message("ab").unwrap()[..], [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert!(message(&"x".repeat(128)).is_err());
    }

    #[test]
    fn only_serving_is_healthy() {
        let check = |status: &str, body: &[u8], healthy: bool| {
            assert_eq!(verdict(status, body).is_ok(), healthy, "{status} {body:?}");
        };
        check("0", &[0, 0, 0, 0, 2, 8, 1], true);
        check("0", &[0, 0, 0, 0, 2, 8, 2], false);
        check("0", &[0, 0, 0, 0, 0], false);
        check("12", &[], false);
    }
}
