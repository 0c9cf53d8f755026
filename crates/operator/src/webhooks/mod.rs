//! The admission webhook: the API server asks it before it stores an object, and it answers with the operator's own
//! rules ([`manta_logic::admission::refuse`]).
//!
//! It runs on every replica, whether that leads or not. Certificates come from a folder that cert-manager fills, or are
//! made by the operator itself.

mod folder;
mod review;
mod self_signed;
mod tls;

use crate::args::{Certificates, WebhookArgs};
use crate::metrics::Metrics;
use crate::probes;
use kube::Client;
use manta_logic::config::Config;
use std::path::PathBuf;
use std::sync::Arc;
use tls::{ServedCertificate, TlsListener};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Why the webhook cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("cannot read the webhook's certificate {file}: {why}; mount one there, or use --webhook-self-signed-for")]
    Unreadable { file: PathBuf, why: String },
    #[error("the webhook's certificate cannot be used: {0}")]
    Unusable(String),
}

/// What the webhook needs.
pub(crate) struct Webhook {
    pub(crate) listener: TcpListener,
    pub(crate) args: WebhookArgs,
    pub(crate) config: Config,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) client: Client,
}

impl Webhook {
    /// Serves until told to stop. Fails when there should be a certificate and is none.
    pub(crate) fn start(self, tasks: &TaskTracker, stop: CancellationToken) -> Result<(), WebhookError> {
        let served = Arc::new(ServedCertificate::default());
        match self.args.certificates {
            Certificates::Folder(folder) => {
                let certificates = folder::Folder::open(folder, Arc::clone(&served), Arc::clone(&self.metrics))?;
                tasks.spawn(certificates.watch(stop.clone()));
            }
            Certificates::SelfSignedFor(configuration) => {
                let namespace = self.client.default_namespace().to_owned();
                let source = self_signed::SelfSigned::new(self.client, namespace, configuration, Arc::clone(&served));
                tasks.spawn(source.run(stop.clone()));
            }
        }
        let router = review::router(Arc::new(self.config), self.metrics);
        let listener = TlsListener::start(self.listener, &served, tasks, stop.clone())?;
        tasks.spawn(probes::serve(listener, router, "webhooks", stop));
        Ok(())
    }
}
