//! Impersonation: acting as another user by the `Impersonate-*` headers, as `kubectl --as` does.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::{Attributes, User};
use crate::error::{ApiError, Named};
use crate::ops::Cluster;

/// Returns the user that a request acts as; the caller must be allowed to impersonate it.
pub(crate) fn impersonate(caller: User, headers: &HeaderMap, cluster: &Cluster) -> Result<User, ApiError> {
    let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
    let first = |name: &str| headers.get(name).and_then(text).filter(|value| !value.is_empty());
    let groups: Vec<String> = headers.get_all("impersonate-group").iter().filter_map(text).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        if let Some(key) = header.as_str().strip_prefix("impersonate-extra-") {
            extra.entry(unescape(key)).or_default().extend(text(value));
        }
    }
    let uid = first("impersonate-uid");
    let Some(name) = first("impersonate-user") else {
        return match groups.is_empty() && uid.is_none() && extra.is_empty() {
            true => Ok(caller),
            false => Err(ApiError::bad_request("requested groups, a uid or extra fields without impersonating a user")),
        };
    };
    let require_below = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let attributes = Attributes {
            subresource: subresource.into(),
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
            let what = if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
            let why =
                format!("User {:?} cannot impersonate resource {what:?} in API group {group:?} {scope}", caller.name);
            ApiError::forbidden(Named { group, what: resource, name }, &why)
        })
    };
    let require =
        |group: &str, resource: &str, namespace: &str, name: &str| require_below(group, resource, "", namespace, name);
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
    for (key, values) in &extra {
        for value in values {
            require_below("authentication.k8s.io", "userextras", key, "", value)?;
        }
    }
    let mut user = match account {
        Some((namespace, account)) if groups.is_empty() => User::service_account(namespace, account, ""),
        _ => User { name: name.clone(), groups, ..User::default() },
    };
    user.uid = uid.unwrap_or_default();
    user.extra = extra;
    let everyone = if name == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
    if !user.groups.iter().any(|group| group == everyone) {
        user.groups.push(everyone.to_owned());
    }
    Ok(user)
}

/// Decodes the percent escapes with which clients put the key of an extra field into the name of a header.
fn unescape(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some(first) = rest.chars().next() {
        let escaped = rest.get(1..3).filter(|_| first == '%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[3..];
            }
            None => {
                bytes.extend(first.to_string().as_bytes());
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_extra_fields_are_unescaped() {
        for (given, expect) in [("scopes", "scopes"), ("example.com%2fa", "example.com/a"), ("50%", "50%")] {
            assert_eq!(unescape(given), expect);
        }
    }
}
