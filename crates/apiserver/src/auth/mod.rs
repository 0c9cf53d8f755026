//! Authentication and authorization.
//!
//! Callers present a bearer token or a client certificate of the server's own CA; the in-process client names its
//! user. Without RBAC every authenticated caller may do everything.

mod rbac;
mod static_tokens;
mod subject;
mod token;

use serde_json::{Value, json};

pub use static_tokens::{StaticTokens, TokenFileError};
pub(crate) use subject::user_of_certificate;
use token::Signer;

use crate::clock::{Clock, add_seconds, random_bytes};
use crate::ops::Cluster;

/// An authenticated caller.
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
    /// Returns the cluster administrator.
    pub fn admin() -> User {
        let groups = vec!["system:masters".into(), "system:authenticated".into()];
        User { name: "kubernetes-admin".into(), uid: String::new(), groups }
    }

    /// Returns the anonymous user.
    pub fn anonymous() -> User {
        let groups = vec!["system:unauthenticated".into()];
        User { name: "system:anonymous".into(), uid: String::new(), groups }
    }

    /// Returns the user of a service account.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
        let groups = vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ];
        User { name: format!("system:serviceaccount:{namespace}:{name}"), uid: uid.into(), groups }
    }

    /// Returns the `UserInfo` object.
    pub fn to_value(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        info
    }
}

/// The attributes of a request that authorization decides on.
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
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name; empty for collections.
    pub name: String,
    /// The path of a non-resource request.
    pub path: String,
}

/// Authentication, authorization and the service account token issuer.
pub struct Authority {
    /// Requests without credentials are anonymous instead of the administrator's.
    pub authenticate: bool,
    /// RBAC authorizes requests; without it every authenticated caller may do everything.
    pub rbac: bool,
    admin_token: String,
    tokens: StaticTokens,
    signer: Signer,
}

/// The longest and the default lifetime of a token, in seconds.
const TOKEN_SECONDS: (i64, i64) = (1 << 32, 3600);

impl Authority {
    /// Creates an authority from its signing key and the administrator's token.
    pub fn new(authenticate: bool, rbac: bool, admin_token: String, signing_key: rcgen::KeyPair) -> Authority {
        Authority { authenticate, rbac, admin_token, tokens: StaticTokens::default(), signer: Signer::new(signing_key) }
    }

    /// Adds the tokens of a static token file.
    pub fn with_tokens(self, tokens: StaticTokens) -> Authority {
        Authority { tokens, ..self }
    }

    /// Returns a random token.
    pub fn random_token() -> String {
        random_bytes::<24>().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the administrator's token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Authenticates a bearer token.
    pub fn user_of_token(&self, token: &str, cluster: &Cluster) -> Option<User> {
        if constant_time_eq(token.as_bytes(), self.admin_token.as_bytes()) {
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

    /// Issues a token for a service account; returns it with its expiry.
    pub fn issue(&self, account: &Value, request: &Value, clock: &Clock) -> (String, jiff::Timestamp) {
        let wanted = request["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS.1);
        let seconds = wanted.clamp(1, TOKEN_SECONDS.0);
        let now = clock.now();
        let end = add_seconds(now, seconds);
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

    /// Authorizes a request; returns the reason why it is allowed, or as the error why it is not.
    pub fn allows(&self, user: &User, attributes: &Attributes, cluster: &Cluster) -> Result<String, String> {
        if !self.rbac || user.groups.iter().any(|group| group == "system:masters") {
            return Ok(String::new());
        }
        rbac::allows(user, attributes, &cluster.store)
    }

    /// Returns the status of a SelfSubjectRulesReview.
    pub fn rules_of(&self, user: &User, namespace: &str, cluster: &Cluster) -> Value {
        if !self.rbac || user.groups.iter().any(|group| group == "system:masters") {
            let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
            let paths = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
            return json!({"resourceRules": everything, "nonResourceRules": paths, "incomplete": false});
        }
        rbac::rules_of(user, namespace, &cluster.store)
    }
}

/// Compares two secrets in constant time.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
