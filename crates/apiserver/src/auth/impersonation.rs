//! Impersonation: acting as another user by the `Impersonate-*` headers, as `kubectl --as` does.

use http::HeaderMap;

use super::{Attributes, User};
use crate::error::{ApiError, Named};
use crate::ops::Cluster;

/// Returns the user that a request acts as; the caller must be allowed to impersonate it.
pub(crate) fn impersonate(caller: User, headers: &HeaderMap, cluster: &Cluster) -> Result<User, ApiError> {
    let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
    let first = |name: &str| headers.get(name).and_then(text).filter(|value| !value.is_empty());
    let groups: Vec<String> = headers.get_all("impersonate-group").iter().filter_map(text).collect();
    let extra = headers.keys().any(|name| name.as_str().starts_with("impersonate-extra-"));
    let uid = first("impersonate-uid");
    let Some(name) = first("impersonate-user") else {
        return match groups.is_empty() && uid.is_none() && !extra {
            true => Ok(caller),
            false => Err(ApiError::bad_request("requested groups, a uid or extra fields without impersonating a user")),
        };
    };
    if extra {
        return Err(ApiError::bad_request("impersonating extra fields is not supported"));
    }
    let require = |group: &str, resource: &str, namespace: &str, name: &str| {
        let attributes = Attributes {
            verb: "impersonate".into(),
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Attributes::default()
        };
        let allowed = cluster.authority.allows(&caller, &attributes, cluster);
        allowed.map(|_| ()).map_err(|_| {
            let scope = match namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let why = format!(
                "User {:?} cannot impersonate resource {resource:?} in API group {group:?} {scope}",
                caller.name
            );
            ApiError::forbidden(Named { group, what: resource, name }, &why)
        })
    };
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, account)) => require("", "serviceaccounts", namespace, account)?,
        None => require("", "users", "", &name)?,
    }
    for group in &groups {
        require("", "groups", "", group)?;
    }
    if let Some(uid) = &uid {
        require("authentication.k8s.io", "uids", "", uid)?;
    }
    let mut user = match account {
        Some((namespace, account)) if groups.is_empty() => User::service_account(namespace, account, ""),
        _ => User { name: name.clone(), groups, ..User::default() },
    };
    user.uid = uid.unwrap_or_default();
    let everyone = if name == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
    if !user.groups.iter().any(|group| group == everyone) {
        user.groups.push(everyone.to_owned());
    }
    Ok(user)
}
