//! Tokens that live and die with an object: a pod, a secret or a node.
//!
//! A token names the object and its uid. It is valid as long as the object exists under that uid, and for a short
//! leeway after a pod was asked to stop, so that it can say goodbye.

use serde_json::Value;

use super::User;
use crate::clock::add_seconds;
use crate::error::{ApiError, Named};
use crate::ops::Cluster;
use crate::store::{ObjectKey, Uid};

/// How long the token of a pod outlives the end of its grace period, in seconds.
const LEEWAY: i64 = 60;

/// The object that a token is bound to.
pub(crate) struct Bound {
    /// The name of the claim: `pod`, `secret` or `node`.
    pub(super) claim: &'static str,
    pub(super) name: String,
    pub(super) uid: String,
    /// Name and uid of the node that a pod runs on.
    pub(super) node: Option<(String, String)>,
}

impl Bound {
    /// Resolves the `boundObjectRef` of a TokenRequest.
    pub(crate) fn resolve(
        reference: &Value,
        namespace: &str,
        account: &str,
        cluster: &Cluster,
    ) -> Result<Option<Bound>, ApiError> {
        if reference.is_null() {
            return Ok(None);
        }
        let text = |key: &str| reference[key].as_str().unwrap_or("");
        let (claim, table, namespace) = match (text("apiVersion"), text("kind")) {
            ("v1" | "", "Pod") => ("pod", "pods", namespace),
            ("v1" | "", "Secret") => ("secret", "secrets", namespace),
            ("v1" | "", "Node") => ("node", "nodes", ""),
            (version, kind) => {
                let why = format!("cannot bind token to object of type {version}, Kind={kind}");
                return Err(ApiError::bad_request(why));
            }
        };
        let name = text("name");
        let found = cluster.store.get(table, &ObjectKey::new(namespace, name));
        let Some(found) = found.map(|entry| entry.value()) else {
            return Err(ApiError::not_found(Named { group: "", what: table, name }));
        };
        let uid = found["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        if !text("uid").is_empty() && text("uid") != uid {
            let why =
                format!("the UID in the bound object reference ({}) does not match the UID in record", text("uid"));
            return Err(ApiError::conflict(Named { group: "", what: table, name }, &why));
        }
        let runs_as = found["spec"]["serviceAccountName"].as_str().unwrap_or("default");
        if claim == "pod" && runs_as != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
            )));
        }
        let node = found["spec"]["nodeName"].as_str().filter(|_| claim == "pod");
        let node = node.and_then(|node| {
            let found = cluster.store.get("nodes", &ObjectKey::new("", node))?;
            Some((node.to_owned(), found.value()["metadata"]["uid"].as_str()?.to_owned()))
        });
        Ok(Some(Bound { claim, name: name.to_owned(), uid, node }))
    }
}

/// Returns the user of verified claims, if the account and the bound objects still exist.
pub(super) fn user_of_claims(claims: &Value, cluster: &Cluster) -> Option<User> {
    let private = &claims["kubernetes.io"];
    let namespace = private["namespace"].as_str()?;
    let account = &private["serviceaccount"];
    let (name, uid) = (account["name"].as_str()?, account["uid"].as_str()?);
    exists(account, "serviceaccounts", namespace, cluster)?;
    let mut user = User::service_account(namespace, name, uid);
    let mut add = |key: &str, value: &Value| {
        let key = format!("authentication.kubernetes.io/{key}");
        user.extra.insert(key, vec![value.as_str().unwrap_or("").to_owned()]);
    };
    add("credential-id", &format!("JTI={}", claims["jti"].as_str().unwrap_or("")).into());
    for (claim, table, namespace) in
        [("pod", "pods", namespace), ("secret", "secrets", namespace), ("node", "nodes", "")]
    {
        let bound = &private[claim];
        if bound.is_null() {
            continue;
        }
        // A token that is bound to a pod only tells on which node the pod was.
        if claim != "node" || private["pod"].is_null() {
            exists(bound, table, namespace, cluster)?;
        }
        if claim != "secret" {
            add(&format!("{claim}-name"), &bound["name"]);
            add(&format!("{claim}-uid"), &bound["uid"]);
        }
    }
    Some(user)
}

/// Returns something if the named object exists under its uid and was not asked to stop too long ago.
fn exists(named: &Value, table: &str, namespace: &str, cluster: &Cluster) -> Option<()> {
    let found = cluster.store.get(table, &ObjectKey::new(namespace, named["name"].as_str()?))?;
    if found.uid != Uid::parse(named["uid"].as_str()?) {
        return None;
    }
    if !found.deleting {
        return Some(());
    }
    let value = found.value();
    let stopped: jiff::Timestamp = value["metadata"]["deletionTimestamp"].as_str()?.parse().ok()?;
    (cluster.clock.now() < add_seconds(stopped, LEEWAY)).then_some(())
}
