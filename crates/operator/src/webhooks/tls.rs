//! A TLS listener that serves the current certificate.

use super::WebhookError;
use crate::lock::lock;
use rustls::ServerConfig;
use rustls::crypto::ring::{default_provider, sign};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that may wait to be accepted after their handshake.
const MAX_READY_CONNECTIONS: usize = 16;

/// The certificate being served, if there is one yet.
#[derive(Debug, Default)]
pub(crate) struct ServedCertificate(Mutex<Option<Arc<CertifiedKey>>>);

impl ServedCertificate {
    /// Serves this certificate from now on.
    pub(crate) fn set(&self, certificate_pem: &[u8], key_pem: &[u8]) -> Result<(), WebhookError> {
        let unusable = |error: &dyn std::fmt::Display| WebhookError::Unusable(error.to_string());
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificate_pem)
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(&error))?;
        if chain.is_empty() {
            return Err(unusable(&"it holds no certificate"));
        }
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| unusable(&error))?;
        let key = sign::any_supported_type(&key).map_err(|error| unusable(&error))?;
        let certified = CertifiedKey::new(chain, key);
        // With another certificate's key every handshake would fail, and nothing would be logged here.
        certified.keys_match().map_err(|error| unusable(&error))?;
        *lock(&self.0) = Some(Arc::new(certified));
        Ok(())
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        lock(&self.0).clone()
    }
}

/// Yields connections that have completed their handshake.
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: io::Result<SocketAddr>,
}

impl TlsListener {
    /// Accepts connections until stopped; a slow handshake blocks no other.
    pub(crate) fn start(
        listener: TcpListener,
        served: &Arc<ServedCertificate>,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<Self, WebhookError> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<ServedCertificate>::clone(served);
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| WebhookError::Unusable(error.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = listener.local_addr();
        let (sender, ready) = mpsc::channel(MAX_READY_CONNECTIONS);
        tasks.spawn({
            let tasks = tasks.clone();
            async move {
                while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
                    match accepted {
                        Ok((stream, peer)) => {
                            let handshake = handshake(acceptor.clone(), stream, peer, sender.clone());
                            let stop = stop.clone();
                            tasks.spawn(async move { stop.run_until_cancelled(handshake).await });
                        }
                        Err(error) => {
                            // Usually too many open files: wait for some to close rather than spin.
                            warn!(%error, "cannot accept a webhook connection");
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    }
                }
            }
        });
        Ok(Self { ready, address })
    }
}

async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    peer: SocketAddr,
    sender: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        // The receiver is gone once the server has stopped.
        Ok(Ok(stream)) => drop(sender.send((stream, peer)).await),
        Ok(Err(error)) => debug!(%error, "TLS handshake failed"),
        Err(_) => debug!("TLS handshake timed out"),
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        match &self.address {
            Ok(address) => Ok(*address),
            Err(error) => Err(error.kind().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn only_a_certificate_with_its_own_key_is_served() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let certificate = CertificateParams::new(["a.svc".to_owned()]).unwrap().self_signed(&key).unwrap().pem();
        let served = ServedCertificate::default();
        for (certificate, key, expect) in [
            (certificate.as_str(), key.serialize_pem(), ""),
            (certificate.as_str(), other.serialize_pem(), "the webhook's certificate cannot be used: "),
            ("", key.serialize_pem(), "the webhook's certificate cannot be used: it holds no certificate"),
            (certificate.as_str(), String::new(), "the webhook's certificate cannot be used: "),
        ] {
            let error = served.set(certificate.as_bytes(), key.as_bytes()).err().map(|error| error.to_string());
            assert!(error.as_deref().unwrap_or_default().starts_with(expect), "{error:?}");
            assert_eq!(error.is_none(), expect.is_empty(), "{error:?}");
        }
        assert!(lock(&served.0).is_some(), "an unusable certificate does not replace a usable one");
    }
}
