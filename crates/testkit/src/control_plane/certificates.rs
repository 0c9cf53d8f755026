//! The certificates and keys of a control plane: a CA, the API server's certificate, the service account key.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// Writes `ca.crt`, `apiserver.crt`, `apiserver.key`, `sa.key` and `sa.pub` into `folder`.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "manta testkit");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca_pem = ca.self_signed(&ca_key)?.pem();

    let server_key = KeyPair::generate()?;
    let mut server = CertificateParams::new(["localhost", "127.0.0.1", "kubernetes.default.svc"].map(str::to_owned))?;
    server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    server.use_authority_key_identifier_extension = true;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let server_pem = server.signed_by(&server_key, &Issuer::new(ca, ca_key))?.pem();

    let accounts_key = KeyPair::generate()?;
    let files = [
        ("ca.crt", ca_pem),
        ("apiserver.crt", server_pem),
        ("apiserver.key", server_key.serialize_pem()),
        ("sa.key", accounts_key.serialize_pem()),
        ("sa.pub", accounts_key.public_key_pem()),
    ];
    for (name, content) in files {
        fs::write(folder.join(name), content).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}
