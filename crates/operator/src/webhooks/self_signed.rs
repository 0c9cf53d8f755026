//! Certificates that the operator makes itself, and tells the API server to trust.
//!
//! The certificate lies in a Secret that all replicas share; the hosts that it must be good for are those of the
//! ValidatingWebhookConfiguration, which in turn gets the certificate as `caBundle`. Any replica may make a new one: the
//! Secret is written onto the version that was seen, so only one does.

use super::WebhookError;
use super::tls::Served;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhookConfiguration, WebhookClientConfig};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use manta_logic::admission::certificate::{LIFETIME, StoredCertificate, renewal_reason};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, date_time_ymd};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The Secret with the certificate.
const SECRET: &str = "kuberay-webhook-certificate";
const HOSTS: &str = "manta/webhook-hosts";
const EXPIRES: &str = "manta/webhook-expires";
/// How often it is looked whether all is well, and how soon again when it is not.
const LOOK: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Why there is no certificate yet.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("there is no ValidatingWebhookConfiguration {0}")]
    NoConfiguration(String),
    #[error("the ValidatingWebhookConfiguration {0} names no host")]
    NoHost(String),
    #[error("cannot {what}: {error}")]
    Api { what: &'static str, error: kube::Error },
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    Use(#[from] WebhookError),
}

/// Makes, keeps and serves the certificate.
pub(super) struct SelfSigned {
    configurations: Api<ValidatingWebhookConfiguration>,
    secrets: Api<Secret>,
    configuration: String,
    served: Arc<Served>,
    /// The certificate that is served.
    current: Vec<u8>,
}

impl SelfSigned {
    pub(super) fn new(client: Client, namespace: String, configuration: String, served: Arc<Served>) -> Self {
        let secrets = Api::namespaced(client.clone(), &namespace);
        Self { configurations: Api::all(client), secrets, configuration, served, current: Vec::new() }
    }

    /// Sees to it that there is a trusted certificate, until told to stop.
    pub(super) async fn keep_up(mut self, stop: CancellationToken) {
        let mut told = String::new();
        loop {
            let wait = match stop.run_until_cancelled(self.look(Timestamp::now())).await {
                None => return,
                Some(Ok(())) => {
                    told.clear();
                    LOOK
                }
                Some(Err(trouble)) => {
                    let now = trouble.to_string();
                    if now != told {
                        warn!("the webhook waits for its certificate: {now}");
                        told = now;
                    }
                    LOOK_AGAIN
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    async fn look(&mut self, now: Timestamp) -> Result<(), Trouble> {
        let doing = |what| move |error| Trouble::Api { what, error };
        let found = self.configurations.get_opt(&self.configuration).await;
        let configuration = found
            .map_err(doing("read the ValidatingWebhookConfiguration"))?
            .ok_or_else(|| Trouble::NoConfiguration(self.configuration.clone()))?;
        let hosts = hosts(&configuration);
        if hosts.is_empty() {
            return Err(Trouble::NoHost(self.configuration.clone()));
        }
        let found = self.secrets.get_opt(SECRET).await.map_err(doing("read the Secret of the certificate"))?;
        let secret = match renewal_reason(found.as_ref().and_then(kept).as_ref(), &hosts, now) {
            None => found.unwrap_or_default(),
            Some(why) => {
                info!(?hosts, %why, "making a certificate for the webhook");
                self.write(&successor(found.as_ref(), &hosts, now)?).await.map_err(doing("write the Secret"))?
            }
        };
        // Trust first: who is served the new one must know it already.
        let bundle = part(&secret, "ca.crt");
        if let Some(patch) = trust(&configuration, bundle) {
            let params = PatchParams::default();
            let patched = self.configurations.patch(&self.configuration, &params, &Patch::Strategic(patch)).await;
            patched.map_err(doing("make the API server trust the certificate"))?;
        }
        let certificate = part(&secret, "tls.crt");
        if certificate != self.current {
            self.served.set(certificate, part(&secret, "tls.key"))?;
            self.current = certificate.to_vec();
        }
        Ok(())
    }

    async fn write(&self, secret: &Secret) -> Result<Secret, kube::Error> {
        if secret.metadata.resource_version.is_none() {
            return self.secrets.create(&PostParams::default(), secret).await;
        }
        self.secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(secret)).await
    }
}

/// The hosts under which the API server calls the webhooks.
fn hosts(configuration: &ValidatingWebhookConfiguration) -> Vec<String> {
    let of = |client: &WebhookClientConfig| match (&client.service, &client.url) {
        (Some(service), _) => Some(format!("{}.{}.svc", service.name, service.namespace)),
        (None, Some(url)) => url.parse::<http::Uri>().ok()?.host().map(str::to_owned),
        (None, None) => None,
    };
    let webhooks = configuration.webhooks.as_deref().unwrap_or_default();
    let mut hosts: Vec<_> = webhooks.iter().filter_map(|webhook| of(&webhook.client_config)).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// The patch that makes all webhooks trust the bundle, if one does not.
fn trust(configuration: &ValidatingWebhookConfiguration, bundle: &[u8]) -> Option<serde_json::Value> {
    let webhooks = configuration.webhooks.as_deref().unwrap_or_default();
    let trusting = |client: &WebhookClientConfig| client.ca_bundle.as_ref().is_some_and(|known| known.0 == bundle);
    if webhooks.iter().all(|webhook| trusting(&webhook.client_config)) {
        return None;
    }
    let bundle = STANDARD.encode(bundle);
    let entry = |name: &str| json!({"name": name, "clientConfig": {"caBundle": bundle}});
    Some(json!({"webhooks": webhooks.iter().map(|webhook| entry(&webhook.name)).collect::<Vec<_>>()}))
}

fn part<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    secret.data.as_ref().and_then(|data| data.get(key)).map_or(&[], |value| value.0.as_slice())
}

/// What a Secret says about its certificate; nothing if it is not one of ours, or damaged.
fn kept(secret: &Secret) -> Option<StoredCertificate> {
    let annotations = secret.metadata.annotations.as_ref()?;
    let expires = annotations.get(EXPIRES)?.parse().ok()?;
    let hosts = annotations.get(HOSTS)?.split(',').map(str::to_owned).collect();
    let whole = ["tls.crt", "tls.key", "ca.crt"].iter().all(|key| !part(secret, key).is_empty());
    whole.then_some(StoredCertificate { hosts, expires })
}

/// The Secret with a new certificate; the one before stays trusted.
fn successor(before: Option<&Secret>, hosts: &[String], now: Timestamp) -> Result<Secret, rcgen::Error> {
    // Certificates count days here; a clock that is a little behind must find it valid, too.
    let day = |time: Timestamp| time.to_zoned(TimeZone::UTC).date();
    let (from, to) = (day(now - jiff::SignedDuration::from_hours(24)), day(now + LIFETIME));
    let time = |date: jiff::civil::Date| {
        date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, "manta webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    (params.not_before, params.not_after) = (time(from), time(to));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    let trusted = [certificate.as_bytes(), before.map_or(&[], |before| part(before, "tls.crt"))].concat();
    let expires = to.to_zoned(TimeZone::UTC).map(|time| time.timestamp()).unwrap_or(now);
    let data =
        [("tls.crt", certificate.into_bytes()), ("tls.key", key.serialize_pem().into_bytes()), ("ca.crt", trusted)];
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            resource_version: before.and_then(|before| before.metadata.resource_version.clone()),
            annotations: Some(BTreeMap::from([
                (HOSTS.to_owned(), hosts.join(",")),
                (EXPIRES.to_owned(), expires.to_string()),
            ])),
            ..ObjectMeta::default()
        },
        type_: before.is_none().then(|| "kubernetes.io/tls".to_owned()),
        data: Some(data.map(|(key, value)| (key.to_owned(), ByteString(value))).into()),
        ..Secret::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(bundle: &[u8]) -> ValidatingWebhookConfiguration {
        let bundle = STANDARD.encode(bundle);
        let webhook = |name: &str, mut client: serde_json::Value| {
            client["caBundle"] = json!(bundle);
            json!({"name": name, "clientConfig": client, "admissionReviewVersions": ["v1"], "sideEffects": "None"})
        };
        let service = json!({"service": {"name": "hook", "namespace": "ns", "path": "/x"}});
        serde_json::from_value(json!({"webhooks": [
            webhook("a", service.clone()), webhook("b", service), webhook("c", json!({"url": "https://127.0.0.1:1/x"})),
        ]}))
        .unwrap()
    }

    #[test]
    fn a_successor_is_made_in_time_and_both_are_trusted() {
        let now: Timestamp = "2026-01-31T13:00:00Z".parse().unwrap();
        let hosts = hosts(&configuration(b""));
        assert_eq!(hosts, ["127.0.0.1", "hook.ns.svc"]);
        let mut first = successor(None, &hosts, now).unwrap();
        assert_eq!(first.type_.as_deref(), Some("kubernetes.io/tls"));
        let known = kept(&first).unwrap();
        assert_eq!((known.expires.to_string().as_str(), &known.hosts), ("2026-05-01T00:00:00Z", &hosts));
        assert_eq!(renewal_reason(Some(&known), &hosts, now), None);
        let served = Served::default();
        served.set(part(&first, "tls.crt"), part(&first, "tls.key")).unwrap();

        first.metadata.resource_version = Some("7".to_owned());
        let second = successor(Some(&first), &hosts, known.expires).unwrap();
        assert_eq!(second.metadata.resource_version.as_deref(), Some("7"), "written onto what was seen");
        assert_ne!(part(&second, "tls.crt"), part(&first, "tls.crt"));
        assert_eq!(part(&second, "ca.crt"), [part(&second, "tls.crt"), part(&first, "tls.crt")].concat());
        // The third no longer trusts the first.
        let third = successor(Some(&second), &hosts, known.expires).unwrap();
        assert_eq!(part(&third, "ca.crt"), [part(&third, "tls.crt"), part(&second, "tls.crt")].concat());
    }

    #[test]
    fn a_damaged_secret_is_none() {
        let now = Timestamp::UNIX_EPOCH;
        let good = successor(None, &["a.svc".to_owned()], now).unwrap();
        let damage: [fn(&mut Secret); 3] = [
            |secret| secret.metadata.annotations = None,
            |secret| secret.data = None,
            |secret| {
                secret.metadata.annotations.as_mut().unwrap().insert(EXPIRES.to_owned(), "soon".to_owned());
            },
        ];
        for damage in damage {
            let mut secret = good.clone();
            damage(&mut secret);
            assert_eq!(kept(&secret), None, "{secret:?}");
        }
    }

    #[test]
    fn all_webhooks_are_made_to_trust() {
        assert_eq!(trust(&configuration(b"x"), b"x"), None);
        let patch = trust(&configuration(b"x"), b"y").unwrap();
        assert_eq!(patch["webhooks"][2], json!({"name": "c", "clientConfig": {"caBundle": "eQ=="}}));
        assert_eq!(patch["webhooks"].as_array().unwrap().len(), 3);
    }
}
