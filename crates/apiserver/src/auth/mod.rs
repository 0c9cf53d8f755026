//! Authentication and authorization.
//!
//! Callers present a bearer token or a client certificate of the server's own CA; the in-process client names its
//! user. Without RBAC every authenticated caller may do everything.

mod bound_token;
mod default_roles;
mod escalation;
mod impersonation;
mod rbac;
mod rule;
mod static_tokens;
mod subject;
mod token;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub(crate) use bound_token::Bound;
pub(crate) use default_roles::{cluster_role_bindings, cluster_roles};
pub(crate) use impersonation::impersonate;
use rbac::Rbac;
pub(crate) use rule::{Rule, uncovered};
pub use static_tokens::{StaticTokens, TokenFileError};
pub(crate) use subject::user_of_certificate;
pub(crate) use token::ISSUER;
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
    /// Further facts about the credentials, such as the pod of a token.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns the cluster administrator.
    pub fn admin() -> User {
        let groups = vec!["system:masters".into(), "system:authenticated".into()];
        User { name: "kubernetes-admin".into(), groups, ..User::default() }
    }

    /// Returns the anonymous user.
    pub fn anonymous() -> User {
        let groups = vec!["system:unauthenticated".into()];
        User { name: "system:anonymous".into(), groups, ..User::default() }
    }

    /// Returns the user of a service account.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> User {
        let groups = vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".into(),
        ];
        User { name: format!("system:serviceaccount:{namespace}:{name}"), uid: uid.into(), groups, ..User::default() }
    }

    /// Returns the user of a node agent.
    pub fn node(name: &str) -> User {
        let groups = vec!["system:nodes".into(), "system:authenticated".into()];
        User { name: format!("system:node:{name}"), groups, ..User::default() }
    }

    /// Returns whether the user bypasses authorization.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }

    /// Returns whether the user is anonymous.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.groups.iter().any(|group| group == "system:unauthenticated")
    }

    /// Returns the `UserInfo` object.
    pub fn to_value(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
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
    rbac_rules: Rbac,
}

impl Authority {
    /// Creates an authority from its signing key and the administrator's token.
    pub fn new(authenticate: bool, rbac: bool, admin_token: String, signing_key: rcgen::KeyPair) -> Authority {
        Authority {
            authenticate,
            rbac,
            admin_token,
            tokens: StaticTokens::default(),
            signer: Signer::new(signing_key),
            rbac_rules: Rbac::default(),
        }
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
        self.account_of_token(token, &[token::ISSUER], cluster).map(|(user, _)| user)
    }

    /// Authenticates a service account token for some audiences; returns those that it is meant for, too.
    pub(crate) fn account_of_token<'a>(
        &self,
        token: &str,
        audiences: &[&'a str],
        cluster: &Cluster,
    ) -> Option<(User, Vec<&'a str>)> {
        let claims = self.signer.verify(token, cluster.clock.now())?;
        let granted = claims["aud"].as_array()?;
        let common: Vec<&str> =
            audiences.iter().filter(|wanted| granted.iter().any(|one| one == **wanted)).copied().collect();
        if common.is_empty() {
            return None;
        }
        bound_token::user_of_claims(&claims, cluster).map(|user| (user, common))
    }

    /// Issues a token for a service account, bound to an object if there is one; returns it with its expiry.
    pub(crate) fn issue(
        &self,
        account: &Value,
        bound: Option<&Bound>,
        audiences: &[String],
        seconds: i64,
        clock: &Clock,
    ) -> (String, jiff::Timestamp) {
        let now = clock.now();
        let end = add_seconds(now, seconds);
        let mut claims = claims(account, bound, audiences, clock);
        claims["exp"] = end.as_second().into();
        (self.signer.sign(&claims), end)
    }

    /// Issues the token of a service account that a Secret holds, which lasts as long as the Secret.
    pub(crate) fn issue_for_secret(&self, account: &Value, secret: &Value, clock: &Clock) -> String {
        let text = |key: &str| secret["metadata"][key].as_str().unwrap_or("").to_owned();
        let bound = Bound { claim: "secret", name: text("name"), uid: text("uid"), node: None };
        self.signer.sign(&claims(account, Some(&bound), &[token::ISSUER.to_owned()], clock))
    }

    /// Returns the discovery document of the token issuer.
    pub(crate) fn openid_configuration(&self) -> Value {
        json!({
            "issuer": token::ISSUER,
            "jwks_uri": format!("{}/openid/v1/jwks", token::ISSUER),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [token::ALGORITHM],
        })
    }

    /// Returns the public keys of the token issuer.
    pub(crate) fn key_set(&self) -> Value {
        json!({"keys": [self.signer.public_key()]})
    }

    /// Authorizes a request; returns the reason why it is allowed, or as the error why it is not.
    pub fn allows(&self, user: &User, attributes: &Attributes, cluster: &Cluster) -> Result<String, String> {
        if !self.rbac || user.is_master() {
            return Ok(String::new());
        }
        self.rbac_rules.allows(user, attributes, &cluster.store).ok_or_else(String::new)
    }

    /// Returns the status of a SelfSubjectRulesReview.
    pub fn rules_of(&self, user: &User, namespace: &str, cluster: &Cluster) -> Value {
        if !self.rbac || user.is_master() {
            let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
            let paths = json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}]);
            return json!({"resourceRules": everything, "nonResourceRules": paths, "incomplete": false});
        }
        rbac::rules_review(&self.rbac_rules.rules_of(user, namespace, &cluster.store))
    }
}

/// Returns the claims of a token of a service account, without an expiry.
fn claims(account: &Value, bound: Option<&Bound>, audiences: &[String], clock: &Clock) -> Value {
    let now = clock.now().as_second();
    let metadata = &account["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str().unwrap_or(""), metadata["name"].as_str().unwrap_or(""));
    let mut private = json!({"namespace": namespace, "serviceaccount": {"name": name, "uid": metadata["uid"]}});
    if let Some(bound) = bound {
        private[bound.claim] = json!({"name": bound.name, "uid": bound.uid});
        if let Some((name, uid)) = &bound.node {
            private["node"] = json!({"name": name, "uid": uid});
        }
    }
    json!({
        "iss": token::ISSUER,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
        "aud": audiences,
        "iat": now,
        "nbf": now,
        "jti": clock.uid(),
        "kubernetes.io": private,
    })
}

/// Compares two secrets in constant time.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
