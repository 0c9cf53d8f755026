//! The service account tokens of a pod: short-lived, bound to the pod, renewed in time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};

/// The life of a token whose projection names none, as the kubelet asks for.
const DEFAULT_SECONDS: i64 = 3607;
/// How soon a failed renewal is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(30);

/// What a projected volume asks of a token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenKind {
    /// Empty for the API server's own.
    pub audience: String,
    pub seconds: i64,
}

impl Default for TokenKind {
    fn default() -> Self {
        Self { audience: String::new(), seconds: DEFAULT_SECONDS }
    }
}

impl TokenKind {
    pub(crate) fn new(audience: Option<&str>, seconds: Option<i64>) -> Self {
        Self { audience: audience.unwrap_or_default().to_owned(), seconds: seconds.unwrap_or(DEFAULT_SECONDS) }
    }
}

/// The tokens of one pod.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<BTreeMap<TokenKind, Issued>>);

#[derive(Debug, Clone)]
struct Issued {
    token: String,
    expires: Timestamp,
    renew: Timestamp,
    /// Not before this time, once a renewal has been tried.
    retry: Timestamp,
}

impl Tokens {
    /// Returns a token of each kind, asking the API server for those that are missing or due.
    pub(crate) async fn get(
        &self,
        client: &Client,
        pod: &Pod,
        kinds: &BTreeSet<TokenKind>,
    ) -> Result<BTreeMap<TokenKind, String>, String> {
        let mut tokens = BTreeMap::new();
        for kind in kinds {
            let now = Timestamp::now();
            let held = self.lock().get(kind).cloned();
            let token = match held {
                Some(held) if now < held.renew => held.token,
                held => {
                    let account = account(pod);
                    match request(client, pod, account, kind, now).await {
                        Ok(issued) => {
                            let token = issued.token.clone();
                            self.lock().insert(kind.clone(), issued);
                            token
                        }
                        // One that is still good serves until the next attempt.
                        Err(_) if held.as_ref().is_some_and(|held| now < held.expires) => {
                            held.map(|held| held.token).unwrap_or_default()
                        }
                        Err(cause) => {
                            self.lock().remove(kind);
                            let why = match &cause {
                                kube::Error::Api(status) => status.message.clone(),
                                other => other.to_string(),
                            };
                            return Err(format!("cannot get a token for service account {account}: {why}"));
                        }
                    }
                }
            };
            tokens.insert(kind.clone(), token);
        }
        Ok(tokens)
    }

    /// Returns when the first token is due for renewal.
    pub(crate) fn renew_at(&self) -> Option<Timestamp> {
        self.lock().values().map(|issued| issued.renew.max(issued.retry)).min()
    }

    /// Puts off those that are due, so that a renewal under way is not started again.
    pub(crate) fn postpone(&self, now: Timestamp) {
        for issued in self.lock().values_mut().filter(|issued| issued.renew <= now) {
            issued.retry = now.checked_add(RETRY).unwrap_or(Timestamp::MAX);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TokenKind, Issued>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn account(pod: &Pod) -> &str {
    let named = pod.spec.as_ref().and_then(|s| s.service_account_name.as_deref());
    named.filter(|name| !name.is_empty()).unwrap_or("default")
}

async fn request(
    client: &Client,
    pod: &Pod,
    account: &str,
    kind: &TokenKind,
    now: Timestamp,
) -> Result<Issued, kube::Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let audience = Some(kind.audience.clone()).filter(|audience| !audience.is_empty());
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: audience.map(|audience| vec![audience]),
            expiration_seconds: Some(kind.seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        }),
        ..TokenRequest::default()
    };
    let issued = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    let status = issued.status.unwrap_or_default();
    let expires = status.expiration_timestamp.map_or_else(|| after(now, kind.seconds), |t| t.0);
    Ok(Issued { token: status.token.unwrap_or_default(), renew: renewal(now, expires), retry: now, expires })
}

/// Returns the time at which four fifths of a token's life are over, as the kubelet renews it.
fn renewal(issued: Timestamp, expires: Timestamp) -> Timestamp {
    let life = expires.duration_since(issued).as_secs().max(0);
    after(issued, life / 5 * 4)
}

fn after(now: Timestamp, seconds: i64) -> Timestamp {
    now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_under_way_is_not_started_again() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let tokens = Tokens::default();
        assert_eq!(tokens.renew_at(), None);
        let issued = Issued { token: "t".into(), expires: after(now, 100), renew: now, retry: now };
        tokens.lock().insert(TokenKind::default(), issued);
        assert_eq!(tokens.renew_at(), Some(now));
        tokens.postpone(now);
        assert_eq!(tokens.renew_at(), Some(after(now, 30)));
    }

    #[test]
    fn tokens_are_renewed_before_they_expire() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let check = |life: i64, expect: i64| {
            assert_eq!(renewal(now, after(now, life)).duration_since(now).as_secs(), expect);
        };
        check(3607, 2884);
        check(600, 480);
        check(-5, 0);
        assert!(renewal(now, after(now, i64::MAX)) > now);
    }
}
