//! Who is calling, and whether they may.
//!
//! Callers show a bearer token or a client certificate of our own CA; the in-process client is trusted as it
//! is. With RBAC off, whoever is known may do everything; with RBAC on, roles decide as usual.

mod rbac;
mod static_tokens;
mod subject;
mod token;

use serde_json::{Value, json};

pub use static_tokens::{StaticTokens, TokenFileError};
pub(crate) use subject::user_of_certificate;
use token::Signer;

use crate::clock::{Clock, secret_bytes};
use crate::ops::Cluster;

/// Somebody who makes requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name, e.g. `system:serviceaccount:default:ray`.
    pub name: String,
    /// The uid, if there is one.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
}

impl User {
    /// The one who may do everything.
    pub fn admin() -> User {
        let groups = vec!["system:masters".into(), "system:authenticated".into()];
        User { name: "kubernetes-admin".into(), uid: String::new(), groups }
    }

    /// Nobody in particular.
    pub fn anonymous() -> User {
        let groups = vec!["system:unauthenticated".into()];
        User { name: "system:anonymous".into(), uid: String::new(), groups }
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
        let groups = vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ];
        User { name: format!("system:serviceaccount:{namespace}:{name}"), uid: uid.into(), groups }
    }

    /// The `UserInfo` object.
    pub fn to_value(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        info
    }
}

/// What is asked for, in RBAC's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// get, list, watch, create, update, patch, delete, deletecollection, or an HTTP method in lower case.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural resource; empty for plain paths.
    pub resource: String,
    /// The subresource, or nothing.
    pub subresource: String,
    /// The namespace, or nothing.
    pub namespace: String,
    /// The object's name, or nothing.
    pub name: String,
    /// The path, where it is no resource.
    pub path: String,
}

/// Who may call, and tokens for those who may.
pub struct Authority {
    /// Callers must say who they are.
    pub authenticate: bool,
    /// Roles decide what they may do.
    pub rbac: bool,
    admin_token: String,
    tokens: StaticTokens,
    signer: Signer,
}

/// How long a token may last at most, and how long if nobody says.
const TOKEN_SECONDS: (i64, i64) = (1 << 32, 3600);

impl Authority {
    /// An authority with its signing key and the administrator's token.
    pub fn new(authenticate: bool, rbac: bool, admin_token: String, signing_key: rcgen::KeyPair) -> Authority {
        Authority { authenticate, rbac, admin_token, tokens: StaticTokens::default(), signer: Signer::new(signing_key) }
    }

    /// The same, with tokens that a file names.
    pub fn with_tokens(self, tokens: StaticTokens) -> Authority {
        Authority { tokens, ..self }
    }

    /// A token nobody can guess.
    pub fn random_token() -> String {
        secret_bytes::<24>().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The token that may do everything.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Who holds a bearer token.
    pub fn user_of_token(&self, token: &str, cluster: &Cluster) -> Option<User> {
        if same(token.as_bytes(), self.admin_token.as_bytes()) {
            return Some(User::admin());
        }
        if let Some(user) = self.tokens.user_of(token) {
            return Some(user.clone());
        }
        let claims = self.signer.verify(token, cluster.clock.now())?;
        let account = &claims["kubernetes.io"]["serviceaccount"];
        let (namespace, name) = (claims["kubernetes.io"]["namespace"].as_str()?, account["name"].as_str()?);
        let found = cluster.store.get("serviceaccounts", &crate::store::ObjectKey::new(namespace, name))?;
        let uid = account["uid"].as_str()?;
        (found.uid == crate::store::Uid::parse(uid)).then(|| User::service_account(namespace, name, uid))
    }

    /// A token for a service account: the token and when it ends.
    pub fn issue(&self, account: &Value, request: &Value, clock: &Clock) -> (String, jiff::Timestamp) {
        let wanted = request["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS.1);
        let seconds = wanted.clamp(1, TOKEN_SECONDS.0);
        let now = clock.now();
        let end = now + jiff::SignedDuration::from_secs(seconds);
        let metadata = &account["metadata"];
        let (namespace, name) = (metadata["namespace"].as_str().unwrap_or(""), metadata["name"].as_str().unwrap_or(""));
        let audiences = match request["spec"]["audiences"].as_array() {
            Some(audiences) if !audiences.is_empty() => json!(audiences),
            _ => json!([token::ISSUER]),
        };
        let mut bound = json!({"namespace": namespace, "serviceaccount": {"name": name, "uid": metadata["uid"]}});
        if request["spec"]["boundObjectRef"]["kind"] == "Pod" {
            let pod = &request["spec"]["boundObjectRef"];
            bound["pod"] = json!({"name": pod["name"], "uid": pod["uid"]});
        }
        let claims = json!({
            "iss": token::ISSUER,
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "aud": audiences,
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "exp": end.as_second(),
            "jti": clock.uid(),
            "kubernetes.io": bound,
        });
        (self.signer.sign(&claims), end)
    }

    /// Whether a user may, and why; the error is why not.
    pub fn allows(&self, user: &User, asked: &Attributes, cluster: &Cluster) -> Result<String, String> {
        if !self.rbac || user.groups.iter().any(|group| group == "system:masters") {
            return Ok(String::new());
        }
        rbac::allows(user, asked, &cluster.store)
    }

    /// The status of a SelfSubjectRulesReview.
    pub fn rules_of(&self, user: &User, namespace: &str, cluster: &Cluster) -> Value {
        if !self.rbac || user.groups.iter().any(|group| group == "system:masters") {
            let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
            let paths = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
            return json!({"resourceRules": everything, "nonResourceRules": paths, "incomplete": false});
        }
        rbac::rules_of(user, namespace, &cluster.store)
    }
}

/// Compares without telling by its duration how far two secrets agree.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
