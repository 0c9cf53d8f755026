//! What clients can find out about the API before they use it.

use serde_json::{Value, json};

use crate::registry::{Resource, Snapshot};

/// Returns `/version`; clients choose features by its minor version.
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "34",
        "gitVersion": "v1.34.4+manta",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }),
    })
}

/// Returns `/`, the list of paths.
pub(crate) fn root(now: &Snapshot) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into()];
    for (group, versions) in group_versions(now) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(String::from));
    json!({"paths": paths})
}

/// Returns `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// Returns `/apis`.
pub(crate) fn groups(now: &Snapshot) -> Value {
    let groups: Vec<Value> =
        group_versions(now).iter().map(|(group, versions)| describe_group(group, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns `/apis/{group}`.
pub(crate) fn group(now: &Snapshot, wanted: &str) -> Option<Value> {
    let groups = group_versions(now);
    let (group, versions) = groups.iter().find(|(group, _)| group == wanted)?;
    let mut value = describe_group(group, versions);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

fn describe_group(group: &str, versions: &[String]) -> Value {
    let describe = |version: &String| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let listed: Vec<Value> = versions.iter().map(describe).collect();
    json!({"name": group, "versions": listed, "preferredVersion": listed.first()})
}

/// Returns the named groups with their versions, the preferred one first.
fn group_versions(now: &Snapshot) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for resource in now.resources.iter().filter(|resource| !resource.group.is_empty()) {
        let at = groups.iter().position(|(group, _)| **group == *resource.group).unwrap_or_else(|| {
            groups.push((resource.group.to_string(), Vec::new()));
            groups.len() - 1
        });
        let versions = &mut groups[at].1;
        if !versions.iter().any(|version| **version == *resource.version) {
            versions.push(resource.version.to_string());
        }
    }
    for (_, versions) in &mut groups {
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    }
    groups
}

/// Returns the sort key of a version: GA before beta before alpha, newest first, anything else last.
fn priority(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let split = |text: &str, word: &str| -> Option<(u32, u32)> {
        let (major, minor) = text.split_once(word)?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    if let Ok(major) = rest.parse() {
        return (3, major, 0);
    }
    if let Some((major, minor)) = split(rest, "beta") {
        return (2, major, minor);
    }
    split(rest, "alpha").map_or((0, 0, 0), |(major, minor)| (1, major, minor))
}

/// Returns `/api/v1` or `/apis/{group}/{version}`.
pub(crate) fn resources(now: &Snapshot, group: &str, version: &str) -> Option<Value> {
    let mut listed = Vec::new();
    for resource in of_version(now, group, version) {
        let mut entry = json!({
            "name": &*resource.plural,
            "singularName": &*resource.singular,
            "namespaced": resource.namespaced,
            "kind": &*resource.kind,
            "verbs": resource.verbs(),
        });
        add_names(resource, &mut entry);
        if resource.verbs().contains(&"watch") {
            entry["storageVersionHash"] = storage_hash(resource).into();
        }
        listed.push(entry);
        for below in resource.subresources() {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, below.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": below.kind.map_or(&*resource.kind, |(_, _, kind)| kind),
                "verbs": below.verbs,
            });
            if let Some((group, version, _)) = below.kind.filter(|(_, version, _)| !version.is_empty()) {
                entry["group"] = group.into();
                entry["version"] = version.into();
            }
            listed.push(entry);
        }
    }
    if listed.is_empty() {
        return None;
    }
    if of_version(now, group, version).all(|resource| resource.builtin().is_some()) {
        listed.sort_by_key(|entry| entry["name"].as_str().unwrap_or("").to_owned());
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": listed});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

fn of_version<'a>(now: &'a Snapshot, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Resource> {
    let resources = now.resources.iter().map(AsRef::as_ref);
    resources.filter(move |resource: &&Resource| *resource.group == *group && *resource.version == *version)
}

fn add_names(resource: &Resource, entry: &mut Value) {
    let list = |names: &[std::sync::Arc<str>]| names.iter().map(|name| Value::from(&**name)).collect::<Vec<_>>();
    if !resource.short_names.is_empty() {
        entry["shortNames"] = list(&resource.short_names).into();
    }
    if !resource.categories.is_empty() {
        entry["categories"] = list(&resource.categories).into();
    }
}

fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    (&*resource.table, &*resource.kind).hash(&mut hasher);
    base64::engine::general_purpose::STANDARD.encode(hasher.finish().to_be_bytes())
}

/// Returns aggregated discovery for `/api` or `/apis`.
pub(crate) fn aggregated(now: &Snapshot, core: bool, version: &str) -> Value {
    let items: Vec<Value> = if core {
        vec![json!({"metadata": {}, "versions": [aggregated_version(now, "", "v1")]})]
    } else {
        let item = |(group, versions): &(String, Vec<String>)| {
            let versions: Vec<Value> = versions.iter().map(|version| aggregated_version(now, group, version)).collect();
            json!({"metadata": {"name": group}, "versions": versions})
        };
        group_versions(now).iter().map(item).collect()
    };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items})
}

fn aggregated_version(now: &Snapshot, group: &str, version: &str) -> Value {
    let mut members: Vec<&Resource> = of_version(now, group, version).collect();
    members.sort_by_key(|resource| resource.plural.clone());
    let listed: Vec<Value> = members
        .into_iter()
        .map(|resource| {
            // Built-in kinds leave their own group and version out.
            let (group, version) = if resource.builtin().is_some() { ("", "") } else { (group, version) };
            let own = json!({"group": group, "version": version, "kind": &*resource.kind});
            let mut entry = json!({
                "resource": &*resource.plural,
                "responseKind": own,
                "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": &*resource.singular,
                "verbs": resource.verbs(),
            });
            add_names(resource, &mut entry);
            let below: Vec<Value> = resource
                .subresources()
                .iter()
                .map(|below| {
                    let kind = below.kind.map_or_else(
                        || own.clone(),
                        |(group, version, kind)| json!({"group": group, "version": version, "kind": kind}),
                    );
                    json!({"subresource": below.name, "responseKind": kind, "verbs": below.verbs})
                })
                .collect();
            if !below.is_empty() {
                entry["subresources"] = below.into();
            }
            entry
        })
        .collect();
    json!({"version": version, "freshness": "Current", "resources": listed})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn versions_sort_by_maturity() {
        let mut versions = vec!["v1alpha1", "v1", "foo", "v1beta2", "v2", "v1beta10"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]);
    }

    #[test]
    fn both_forms_of_discovery_list_the_same() {
        let now = Registry::default().now();
        let plain = resources(&now, "", "v1").expect("core");
        let names: Vec<_> =
            plain["resources"].as_array().expect("a list").iter().map(|entry| entry["name"].clone()).collect();
        assert!(names.contains(&json!("pods")) && names.contains(&json!("pods/log")));
        let whole = aggregated(&now, true, "v2");
        let listed = whole["items"][0]["versions"][0]["resources"].as_array().expect("a list").len();
        assert_eq!(listed, names.iter().filter(|name| !name.as_str().unwrap_or("").contains('/')).count());
    }
}
