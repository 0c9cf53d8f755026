//! Certificates as they are issued into Secrets, and the TLS handshakes that they allow.

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The content of a Secret, as PEM.
pub(super) struct Issued {
    pub(super) authority: Vec<u8>,
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl Issued {
    /// Writes the files that a webhook server reads.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        std::fs::write(folder.join("tls.key"), &self.key)?;
        Ok(std::fs::write(folder.join("tls.crt"), &self.certificate)?)
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>> {
        CertificateDer::pem_slice_iter(&self.certificate).collect::<Result<_, _>>().context("tls.crt")
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_slice(&self.key).context("tls.key")
    }

    fn trusted(&self) -> Result<Arc<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.authority) {
            roots.add(certificate.context("ca.crt")?)?;
        }
        Ok(Arc::new(roots))
    }
}

/// Connects one holder of a certificate to another at an address; both verify the other's certificate.
pub(super) async fn handshake(client: &Issued, server: &Issued, address: &str) -> Result<()> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(server.trusted()?, Arc::clone(&provider)).build()?;
    let accepts = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(server.chain()?, server.private_key()?)?;
    let connects = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(client.trusted()?)
        .with_client_auth_cert(client.chain()?, client.private_key()?)?;
    let name = ServerName::try_from(address.to_owned())?;
    let (near, far) = tokio::io::duplex(64 * 1024);
    let connector = TlsConnector::from(Arc::new(connects));
    let acceptor = TlsAcceptor::from(Arc::new(accepts));
    let (connected, accepted) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
    connected.context("the client refuses")?;
    accepted.context("the server refuses")?;
    Ok(())
}
