//! Keys and certificates: our own CA, the server's certificate, and what a kubeconfig needs.
//!
//! With a data directory everything is kept there, so that clients survive a restart.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The keys and certificates of a server.
pub struct Identity {
    /// The CA's certificate, as clients need it.
    pub ca_pem: String,
    ca: Issuer<'static, KeyPair>,
    ca_der: CertificateDer<'static>,
    pub(crate) token_key_pem: String,
    /// Returns the administrator's token.
    pub admin_token: String,
}

/// Why there is no usable identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A certificate or key could not be made or read.
    #[error("cannot make or read a certificate: {0}")]
    Certificate(String),
    /// A file could not be read or written.
    #[error("cannot use {path}")]
    File {
        /// Which.
        path: String,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

impl From<rcgen::Error> for IdentityError {
    fn from(error: rcgen::Error) -> IdentityError {
        IdentityError::Certificate(error.to_string())
    }
}

impl From<rustls::Error> for IdentityError {
    fn from(error: rustls::Error) -> IdentityError {
        IdentityError::Certificate(error.to_string())
    }
}

impl Identity {
    /// Loads the identity from a directory, creating it on first use; without a directory, creates a new one.
    pub fn load(directory: Option<&Path>) -> Result<Identity, IdentityError> {
        let ca_key = load_or_create(directory, "ca.key", || Ok(KeyPair::generate()?.serialize_pem()))?;
        let ca_key = KeyPair::from_pem(&ca_key)?;
        let params = ca_params()?;
        let ca_pem = load_or_create(directory, "ca.crt", || Ok(params.clone().self_signed(&ca_key)?.pem()))?;
        let ca_der = first_certificate(&ca_pem)?;
        let token_key_pem = token_key_pem(directory)?;
        let admin_token = load_or_create(directory, "admin.token", || Ok(crate::auth::Authority::random_token()))?;
        Ok(Identity { ca_pem, ca: Issuer::new(params, ca_key), ca_der, token_key_pem, admin_token })
    }

    /// Returns the key that signs service account tokens.
    pub(crate) fn token_key(&self) -> Result<KeyPair, IdentityError> {
        Ok(KeyPair::from_pem(&self.token_key_pem)?)
    }

    /// Returns a TLS configuration with a certificate for the usual names and these.
    pub fn server_config(&self, extra_names: &[String]) -> Result<Arc<rustls::ServerConfig>, IdentityError> {
        let names = [
            "localhost",
            "127.0.0.1",
            "::1",
            "10.96.0.1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let mut params = CertificateParams::default();
        for name in names.iter().copied().chain(extra_names.iter().map(String::as_str)) {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.try_into()?),
            });
        }
        params.distinguished_name = named("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.ca)?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca_der.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| IdentityError::Certificate(error.to_string()))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone(), self.ca_der.clone()], private(&key))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Returns a client certificate and its key, in PEM, for a user with groups.
    pub fn client_certificate(&self, user: &str, groups: &[&str]) -> Result<(String, String), IdentityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(user, groups.first().copied());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.ca)?.pem(), key.serialize_pem()))
    }

    /// Returns a kubeconfig for the administrator.
    pub fn kubeconfig(&self, server: &str) -> String {
        use base64::Engine;
        let ca = base64::engine::general_purpose::STANDARD.encode(&self.ca_pem);
        let token = &self.admin_token;
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: manta\nclusters:\n- name: manta\n  cluster:\n    \
             server: {server}\n    certificate-authority-data: {ca}\nusers:\n- name: manta\n  user:\n    \
             token: {token}\ncontexts:\n- name: manta\n  context:\n    cluster: manta\n    user: manta\n    \
             namespace: default\n"
        )
    }
}

fn ca_params() -> Result<CertificateParams, IdentityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("manta", None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn named(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    if let Some(group) = group {
        names.push(DnType::OrganizationName, group);
    }
    names.push(DnType::CommonName, name);
    names
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

fn first_certificate(pem: &str) -> Result<CertificateDer<'static>, IdentityError> {
    use rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| IdentityError::Certificate(error.to_string()))
}

/// Reads a file of the directory, or creates it, readable by the owner only.
/// Loads or creates the key that signs service account tokens; one of another kind, from an earlier version, is replaced.
fn token_key_pem(directory: Option<&Path>) -> Result<String, IdentityError> {
    let create = || Ok(KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?.serialize_pem());
    let pem = load_or_create(directory, "token.key", create)?;
    if KeyPair::from_pem(&pem)?.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
        return Ok(pem);
    }
    if let Some(path) = directory.map(|directory| directory.join("token.key")) {
        std::fs::remove_file(&path).map_err(|cause| IdentityError::File { path: path.display().to_string(), cause })?;
    }
    load_or_create(directory, "token.key", create)
}

fn load_or_create(
    directory: Option<&Path>,
    name: &str,
    make: impl FnOnce() -> Result<String, IdentityError>,
) -> Result<String, IdentityError> {
    let Some(directory) = directory else { return make() };
    let path = directory.join(name);
    let failed = |cause| IdentityError::File { path: path.display().to_string(), cause };
    match std::fs::read_to_string(&path) {
        Ok(text) => return Ok(text.trim_end().to_owned() + if name.ends_with(".token") { "" } else { "\n" }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let text = make()?;
    std::fs::create_dir_all(directory).map_err(failed)?;
    write_secret(&path, &text).map_err(failed)?;
    Ok(text)
}

/// Atomically writes a file that only its owner can read.
pub fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_a_restart() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let first = Identity::load(Some(directory.path())).expect("made");
        let again = Identity::load(Some(directory.path())).expect("read");
        assert_eq!(first.admin_token, again.admin_token);
        assert_eq!(first.ca_pem.trim(), again.ca_pem.trim());
        again.server_config(&["example.test".into()]).expect("a configuration");
        assert!(again.kubeconfig("https://127.0.0.1:1").contains(&first.admin_token));
    }
}
