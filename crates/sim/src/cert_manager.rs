//! cert-manager: writes the Secrets of Certificates, sometimes late, and renews them.

use crate::api::Api;
use crate::object::{generation, is_deleting, name, text, uid};
use crate::rng::Rng;
use crate::transcript::Transcript;
use manta_apiserver::store::Change;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// How long issuing a certificate takes, in milliseconds, and how long when it is late.
const ISSUING: std::ops::Range<u64> = 50..5_000;
const LATE: u64 = 40_000;
/// How many certificates out of a hundred are late.
const LATE_PERCENT: u64 = 10;
/// How often a certificate looks for the Secret of its authority.
const LOOKING: Duration = Duration::from_secs(1);
/// The annotation that names the Certificate of a Secret.
pub(crate) const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";

/// cert-manager.
#[derive(Clone)]
pub(crate) struct CertManager {
    api: Api,
    rng: Rng,
    transcript: Transcript,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The addresses in the certificate of each Secret.
    addresses: BTreeMap<String, Vec<Value>>,
    /// The UIDs of the Certificates that were ever ready.
    issued: BTreeSet<String>,
}

impl CertManager {
    pub(crate) fn new(api: Api, rng: Rng, transcript: Transcript) -> Self {
        Self { api, rng, transcript, state: Arc::default() }
    }

    /// Returns whether a Secret is there and its certificate holds for an address.
    pub(crate) fn covers(&self, secret: &str, address: &str) -> bool {
        let known = self.lock().addresses.get(secret).is_some_and(|known| known.iter().any(|known| known == address));
        known && self.api.get("Secret", secret).is_some()
    }

    /// Returns whether a Certificate, by its UID, was ever ready.
    pub(crate) fn has_issued(&self, certificate: &str) -> bool {
        self.lock().issued.contains(certificate)
    }

    /// Issues all certificates anew.
    pub(crate) fn renew(&self) {
        for name in self.api.names("Certificate") {
            self.reissue(name);
        }
    }

    /// Runs until dropped.
    pub(crate) async fn run(self) {
        futures::future::join(self.follow_certificates(), self.follow_secrets()).await;
    }

    async fn follow_certificates(&self) {
        let Some(mut changes) = self.api.changes("Certificate") else { return };
        loop {
            for event in changes.next().await {
                let object = event.entry.shared_value();
                let observed = event.before.as_ref().map(|before| generation(&before.shared_value()));
                if event.change != Change::Deleted && observed != Some(generation(&object)) {
                    self.reissue(name(&object));
                }
            }
        }
    }

    /// A Secret that is gone is issued again.
    async fn follow_secrets(&self) {
        let Some(mut changes) = self.api.changes("Secret") else { return };
        loop {
            for event in changes.next().await {
                if event.change != Change::Deleted {
                    continue;
                }
                let object = event.entry.shared_value();
                let name = text(&object["metadata"]["annotations"][CERTIFICATE_NAME]);
                if self.api.get("Certificate", &name).is_some_and(|certificate| !is_deleting(&certificate)) {
                    let status = json!({"conditions": [condition("False", 0)]});
                    self.api.patch_status("Certificate", &name, &status);
                    self.reissue(name);
                }
            }
        }
    }

    fn reissue(&self, name: String) {
        let cert_manager = self.clone();
        tokio::spawn(async move { cert_manager.issue(&name).await });
    }

    /// Writes the Secret of a Certificate, and says that it is ready.
    async fn issue(&self, name: &str) {
        let takes = if self.rng.percent(LATE_PERCENT) { LATE } else { self.rng.within(ISSUING) };
        sleep(Duration::from_millis(takes)).await;
        let certificate = loop {
            let Some(certificate) = self.api.get("Certificate", name).filter(|found| !is_deleting(found)) else {
                return;
            };
            if self.is_signed(&certificate["spec"]) {
                break certificate;
            }
            sleep(LOOKING).await;
        };
        let secret = text(&certificate["spec"]["secretName"]);
        let number = || format!("{:016x}", self.rng.next());
        let data = json!({"tls.crt": number(), "tls.key": number(), "ca.crt": number()});
        let annotations = json!({CERTIFICATE_NAME: name});
        if !self.api.patch("Secret", &secret, &json!({"metadata": {"annotations": annotations}, "data": data})) {
            let metadata = json!({"name": secret, "annotations": annotations});
            self.api.create("Secret", metadata, json!({"type": "kubernetes.io/tls", "data": data}));
        }
        let addresses = certificate["spec"]["ipAddresses"].as_array().cloned().unwrap_or_default();
        self.transcript.line("certs", format!("{name} holds for {} addresses", addresses.len()));
        self.lock().addresses.insert(secret, addresses);
        self.lock().issued.insert(uid(&certificate));
        let ready = condition("True", generation(&certificate));
        let status = json!({"conditions": [ready], "notAfter": "2026-04-01T00:00:00Z"});
        self.api.patch_status("Certificate", name, &status);
    }

    /// Returns whether there is something to sign a certificate with.
    fn is_signed(&self, spec: &Value) -> bool {
        let issuer = self.api.get("Issuer", spec["issuerRef"]["name"].as_str().unwrap_or_default());
        issuer.is_some_and(|issuer| match issuer["spec"]["ca"]["secretName"].as_str() {
            Some(secret) => self.api.get("Secret", secret).is_some(),
            None => true,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn condition(status: &str, generation: i64) -> Value {
    json!({
        "type": "Ready", "status": status, "reason": "Issued", "message": "", "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}
