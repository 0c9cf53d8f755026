//! Compares the chart's permissions with the operator's requests: nothing may be denied, and nothing granted unused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use manta_testkit::audit::Request;
use manta_testkit::permission;
use serde::Deserialize;

/// Permissions that the cases do not use, and why the chart grants them nevertheless.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unused {
    permissions: Vec<String>,
    #[serde(rename = "why")]
    _why: String,
}

/// Reads the list of permissions that are granted although the cases do not use them.
pub(super) fn unused_on_purpose(file: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let entries: Vec<Unused> = serde_saphyr::from_str(&text)
        .with_context(|| format!("{} is not a valid list of permissions", file.display()))?;
    Ok(entries.into_iter().flat_map(|entry| entry.permissions).collect())
}

/// Returns one line per denied request, and per permission that is neither used nor listed.
pub(super) fn complaints(
    requests: &[Request],
    granted: Option<&BTreeSet<String>>,
    unused: &BTreeSet<String>,
) -> Vec<String> {
    let as_text = |request: &Request| permission(&request.verb, &request.object_ref.api_group, &request.target());
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.is_forbidden()) {
        *refused.entry(as_text(request)).or_default() += 1;
    }
    let mut complaints: Vec<String> = refused
        .into_iter()
        .map(|(what, times)| format!("the chart lacks a needed permission: {what} (denied {times} times)"))
        .collect();
    let Some(granted) = granted else { return complaints };
    let used: BTreeSet<String> = requests.iter().map(as_text).collect();
    complaints.extend(granted.iter().filter(|what| !used.contains(*what) && !unused.contains(*what)).map(|what| {
        format!(
            "the chart grants an unused permission: {what}; remove it, or explain it in tests/parity/permissions.yaml"
        )
    }));
    complaints.extend(
        unused
            .difference(granted)
            .map(|what| format!("tests/parity/permissions.yaml lists a permission that is not granted: {what}")),
    );
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(verb: &str, group: &str, resource: &str, decision: &str) -> Request {
        serde_json::from_value(json!({
            "stage": "ResponseComplete", "verb": verb, "annotations": {"authorization.k8s.io/decision": decision},
            "objectRef": {"apiGroup": group, "resource": resource},
        }))
        .unwrap()
    }

    #[test]
    fn denied_unused_and_wrongly_listed_permissions_are_reported() {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        let requests = [
            request("list", "", "pods", "allow"),
            request("get", "ray.io", "rayjobs", "forbid"),
            request("get", "ray.io", "rayjobs", "forbid"),
        ];
        let granted = set(&["list pods", "watch pods", "patch pods"]);
        let unused = set(&["patch pods", "delete pods"]);
        assert_eq!(
            complaints(&requests, Some(&granted), &unused),
            [
                "the chart lacks a needed permission: get rayjobs.ray.io (denied 2 times)",
                "the chart grants an unused permission: watch pods; remove it, or explain it in tests/parity/permissions.yaml",
                "tests/parity/permissions.yaml lists a permission that is not granted: delete pods",
            ]
        );
        assert_eq!(complaints(&requests, None, &unused).len(), 1, "with a subset of the cases, use is not checked");
    }
}
