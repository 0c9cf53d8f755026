//! Reaching a webhook: by its URL, or through a service to a pod behind it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::http::Backend;
use crate::node::Duplex;
use crate::ops::{Cluster, Target};

/// The largest accepted response.
const ANSWER_LIMIT: usize = 3 << 20;

/// The address of a webhook.
struct Endpoint {
    host: String,
    port: u16,
    path: String,
    /// The service of the webhook, if it has one.
    service: Option<(String, String)>,
}

/// Sends a review to a webhook and returns its response.
pub(super) async fn post(cluster: &Cluster, hook: &Value, review: &Value) -> Result<Value, String> {
    let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30);
    let place = Endpoint::of(&hook["clientConfig"])?;
    let url = format!("https://{}:{}{}?timeout={seconds}s", place.host, place.port, place.path);
    let exchange = exchange(cluster, &place, &url, &hook["clientConfig"]["caBundle"], review);
    let answer = match tokio::time::timeout(Duration::from_secs(seconds), exchange).await {
        Ok(answer) => answer,
        Err(_) => Err("context deadline exceeded".to_owned()),
    };
    answer.map_err(|why| format!("failed to call webhook: Post {url:?}: {why}"))
}

impl Endpoint {
    fn of(config: &Value) -> Result<Endpoint, String> {
        if let Some(url) = config["url"].as_str() {
            let uri: Uri = url.parse().map_err(|error| format!("the URL {url:?} cannot be used: {error}"))?;
            let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
            let host = host.ok_or_else(|| format!("the URL {url:?} is not https://host"))?.to_owned();
            let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
            return Ok(Endpoint { host, port: uri.port_u16().unwrap_or(443), path, service: None });
        }
        let service = &config["service"];
        let (Some(namespace), Some(name)) = (service["namespace"].as_str(), service["name"].as_str()) else {
            return Err("it has neither a URL nor a service".to_owned());
        };
        let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        Ok(Endpoint {
            host: format!("{name}.{namespace}.svc"),
            port,
            path: service["path"].as_str().unwrap_or("/").to_owned(),
            service: Some((namespace.to_owned(), name.to_owned())),
        })
    }

    async fn connect(&self, cluster: &Cluster) -> Result<Box<dyn Duplex>, String> {
        let Some((namespace, name)) = &self.service else {
            let host = self.host.trim_start_matches('[').trim_end_matches(']');
            let stream = TcpStream::connect((host, self.port)).await.map_err(|error| error.to_string())?;
            return Ok(Box::new(stream));
        };
        let services = cluster.registry.builtin("", "services");
        let target = Target { resource: &services, namespace, name };
        let backend =
            Backend::of_service(cluster, target, &self.port.to_string()).map_err(|error| error.to_string())?;
        backend.connect(cluster).await.map_err(|error| error.to_string())
    }
}

async fn exchange(
    cluster: &Cluster,
    place: &Endpoint,
    url: &str,
    authority: &Value,
    review: &Value,
) -> Result<Value, String> {
    let connector = tokio_rustls::TlsConnector::from(Arc::new(trust(authority)?));
    let name = place.host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(|error| error.to_string())?;
    let stream = place.connect(cluster).await?;
    let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
    let (mut client, driver) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = Request::post(
        url.strip_prefix("https://").and_then(|rest| rest.find('/').map(|at| &rest[at..])).unwrap_or("/"),
    )
    .header(header::HOST, format!("{}:{}", place.host, place.port))
    .header(header::CONTENT_TYPE, "application/json")
    .header(header::ACCEPT, "application/json")
    .body(Full::new(bytes::Bytes::from(review.to_string())))
    .map_err(|error| error.to_string())?;
    let answer = async {
        let response = client.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
        let bytes = body.map_err(|error| error.to_string())?.to_bytes();
        if !status.is_success() {
            return Err(format!(
                "the server answered {status}: {}",
                String::from_utf8_lossy(&bytes[..bytes.len().min(200)])
            ));
        }
        serde_json::from_slice(&bytes).map_err(|error| format!("the answer is not JSON: {error}"))
    };
    // The driver moves the bytes and ends with the connection; the answer may come before that.
    tokio::pin!(driver, answer);
    tokio::select! {
        answer = &mut answer => answer,
        _ = &mut driver => answer.await,
    }
}

/// Returns a TLS configuration that trusts only the given CA bundle.
fn trust(bundle: &Value) -> Result<rustls::ClientConfig, String> {
    let Some(bundle) = bundle.as_str().filter(|text| !text.is_empty()) else {
        return Err("it has no caBundle, and this server trusts no others".to_owned());
    };
    let pem = base64::engine::general_purpose::STANDARD.decode(bundle).map_err(|_| "its caBundle is not base64")?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| "its caBundle is not PEM")?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config.map_err(|error| error.to_string())?.with_root_certificates(roots).with_no_client_auth())
}
