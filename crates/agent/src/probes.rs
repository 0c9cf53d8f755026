//! Runs a probe: an HTTP request, a gRPC health check, a TCP connection, or a command in the container.

mod grpc;

use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;

use crate::exec::{self, ExecTarget};

/// The container that a probe or hook addresses.
#[derive(Clone)]
pub struct ProbeTarget {
    pub container: Container,
    pub ip: String,
    pub inside: ExecTarget,
}

/// Runs a probe once; an error is a failed probe, with the kubelet's wording where it has one.
pub async fn probe(target: &ProbeTarget, probe: &Probe, timeout: Duration) -> Result<(), String> {
    let attempt = async {
        if let Some(action) = &probe.http_get {
            return http_get(target, action, timeout).await;
        }
        if let Some(action) = &probe.tcp_socket {
            let port = port(&target.container, &action.port)?;
            return connect(action.host.as_deref().unwrap_or(&target.ip), port).await.map(drop);
        }
        if let Some(action) = &probe.grpc {
            let port = u16::try_from(action.port).map_err(|_| format!("invalid port number: {}", action.port))?;
            let stream = connect(&target.ip, port).await?;
            return grpc::check_health(stream, action.service.as_deref().unwrap_or_default()).await;
        }
        if let Some(action) = &probe.exec {
            let command = action.command.clone().unwrap_or_default();
            let (code, output) = exec::capture(&target.inside, command, 10 << 10).await?;
            return if code == 0 { Ok(()) } else { Err(output) };
        }
        Err("missing probe handler".to_owned())
    };
    match tokio::time::timeout(timeout, attempt).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("command timed out after {timeout:?}")),
    }
}

/// Sends a GET request; a status from 200 to 399 is a success.
pub async fn http_get(target: &ProbeTarget, action: &HTTPGetAction, timeout: Duration) -> Result<(), String> {
    let port = port(&target.container, &action.port)?;
    let host = action.host.clone().filter(|h| !h.is_empty()).unwrap_or_else(|| target.ip.clone());
    let stream = connect(&host, port).await?;
    if action.scheme.as_deref() == Some("HTTPS") {
        // The kubelet does not verify certificates either; an accepted connection is a success.
        return Ok(());
    }
    let path = action.path.as_deref().filter(|p| !p.is_empty()).unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut request = Request::get(&path).header("User-Agent", "kube-probe/manta").header("Accept", "*/*");
    let headers = action.http_headers.iter().flatten();
    if !action.http_headers.iter().flatten().any(|h| h.name.eq_ignore_ascii_case("host")) {
        request = request.header("Host", format!("{host}:{port}"));
    }
    for header in headers {
        request = request.header(&header.name, &header.value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| e.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    let talk = async {
        let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = response.status();
        let _ = response.into_body().collect().await;
        if (200..400).contains(&status.as_u16()) {
            Ok(())
        } else {
            Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
        }
    };
    tokio::select! {
        answer = talk => answer,
        () = async { let _ = connection.await; tokio::time::sleep(timeout).await; } => Err("connection closed".to_owned()),
    }
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port)).await.map_err(|e| format!("dial tcp {host}:{port}: {e}"))
}

/// Returns a port given by number or by its name in the container.
fn port(container: &Container, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|p| p.name.as_ref() == Some(name))
            .map(|p| p.container_port)
            .or_else(|| name.parse().ok()),
    };
    number.and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0).ok_or_else(|| {
        let shown = match port {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(name) => name.clone(),
        };
        format!("couldn't find port: {shown}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_numbers_or_names() {
        let container: Container = serde_json::from_value(serde_json::json!(
            {"name": "c", "ports": [{"name": "web", "containerPort": 80}]}
        ))
        .unwrap();
        let check = |given: IntOrString, expect: Result<u16, &str>| {
            assert_eq!(port(&container, &given), expect.map_err(str::to_owned));
        };
        check(IntOrString::Int(8000), Ok(8000));
        check(IntOrString::String("web".into()), Ok(80));
        check(IntOrString::String("81".into()), Ok(81));
        check(IntOrString::String("no".into()), Err("couldn't find port: no"));
        check(IntOrString::Int(70_000), Err("couldn't find port: 70000"));
    }
}
