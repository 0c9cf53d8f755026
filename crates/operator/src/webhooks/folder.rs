//! A certificate that something else writes to a folder, reloaded when it changes.

use super::WebhookError;
use super::tls::ServedCertificate;
use crate::metrics::Metrics;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often the files are checked. Mounted Secrets change by swapping a symlink, which notifies no watch on the file.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// A folder with `tls.crt` and `tls.key`.
pub(super) struct Folder {
    folder: PathBuf,
    served: Arc<ServedCertificate>,
    metrics: Arc<Metrics>,
    /// The certificate and the key that are served.
    current: (Vec<u8>, Vec<u8>),
}

impl Folder {
    /// Loads the certificate in the folder and serves it.
    pub(super) fn open(
        folder: PathBuf,
        served: Arc<ServedCertificate>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, WebhookError> {
        let mut folder = Self { folder, served, metrics, current: (Vec::new(), Vec::new()) };
        folder.reload()?;
        Ok(folder)
    }

    /// Reloads the certificate whenever it changes, until stopped.
    pub(super) async fn watch(mut self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(POLL_INTERVAL)).await.is_some() {
            match self.reload() {
                Ok(true) => info!("reloaded the webhook certificate"),
                Ok(false) => {}
                Err(error) => warn!(%error, "cannot reload the webhook certificate; serving the previous one"),
            }
        }
    }

    /// Reloads the certificate and counts the attempt. Returns whether it has changed.
    fn reload(&mut self) -> Result<bool, WebhookError> {
        let outcome = self.reload_if_changed();
        if !matches!(outcome, Ok(false)) {
            self.metrics.certificate_read(outcome.is_ok());
        }
        outcome
    }

    fn reload_if_changed(&mut self) -> Result<bool, WebhookError> {
        let read = |name: &str| {
            let file = self.folder.join(name);
            std::fs::read(&file).map_err(|error| WebhookError::Unreadable { file, why: error.to_string() })
        };
        let found = (read("tls.crt")?, read("tls.key")?);
        if found == self.current {
            return Ok(false);
        }
        self.served.set(&found.0, &found.1)?;
        self.current = found;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn a_changed_certificate_is_reloaded_and_a_broken_one_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Folder::open(folder.path().to_owned(), Arc::default(), Arc::default());
        let error = open().err().unwrap().to_string();
        assert!(error.contains("tls.crt") && error.ends_with("or use --webhook-self-signed-for"), "{error}");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let renew = || {
            let key = KeyPair::generate().unwrap();
            write("tls.crt", &CertificateParams::new(["a.svc".to_owned()]).unwrap().self_signed(&key).unwrap().pem());
            write("tls.key", &key.serialize_pem());
        };
        renew();
        let mut opened = open().unwrap();
        assert!(!opened.reload().unwrap());
        renew();
        assert!(opened.reload().unwrap());
        // A half-finished update, as between two writes.
        write("tls.key", &KeyPair::generate().unwrap().serialize_pem());
        assert!(opened.reload().is_err());
        renew();
        assert!(opened.reload().unwrap());
    }
}
