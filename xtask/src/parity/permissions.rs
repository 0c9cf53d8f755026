//! Holds what the chart permits against what the operator did: nothing may be refused, and nothing be granted unused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use manta_testkit::audit::Request;
use manta_testkit::permission;
use serde::Deserialize;

/// A permission that the played cases have no use for, and why the chart grants it all the same.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    permissions: Vec<String>,
    #[serde(rename = "why")]
    _why: String,
}

/// The permissions that are granted without being seen used, as listed in this file.
pub(super) fn kept_on_purpose(file: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let entries: Vec<Kept> =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is not as expected", file.display()))?;
    Ok(entries.into_iter().flat_map(|entry| entry.permissions).collect())
}

/// What is wrong, a line each: requests that were refused, and permissions that nobody used or explained.
pub(super) fn complaints(
    requests: &[Request],
    granted: Option<&BTreeSet<String>>,
    kept: &BTreeSet<String>,
) -> Vec<String> {
    let in_words = |request: &Request| permission(&request.verb, &request.object_ref.api_group, &request.target());
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.is_forbidden()) {
        *refused.entry(in_words(request)).or_default() += 1;
    }
    let mut complaints: Vec<String> = refused
        .into_iter()
        .map(|(what, times)| format!("the chart forbids what is needed: {what} ({times} times)"))
        .collect();
    let Some(granted) = granted else { return complaints };
    let used: BTreeSet<String> = requests.iter().map(in_words).collect();
    complaints.extend(granted.iter().filter(|what| !used.contains(*what) && !kept.contains(*what)).map(|what| {
        format!("the chart permits what nobody uses: {what}; remove it, or say why in tests/parity/permissions.yaml")
    }));
    complaints.extend(
        kept.difference(granted).map(|what| format!("tests/parity/permissions.yaml lists what is not granted: {what}")),
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
    fn what_is_refused_unused_or_listed_for_nothing_is_told() {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        let requests = [
            request("list", "", "pods", "allow"),
            request("get", "ray.io", "rayjobs", "forbid"),
            request("get", "ray.io", "rayjobs", "forbid"),
        ];
        let granted = set(&["list pods", "watch pods", "patch pods"]);
        let kept = set(&["patch pods", "delete pods"]);
        assert_eq!(
            complaints(&requests, Some(&granted), &kept),
            [
                "the chart forbids what is needed: get rayjobs.ray.io (2 times)",
                "the chart permits what nobody uses: watch pods; remove it, or say why in tests/parity/permissions.yaml",
                "tests/parity/permissions.yaml lists what is not granted: delete pods",
            ]
        );
        assert_eq!(complaints(&requests, None, &kept).len(), 1, "with a part of the cases, use is not judged");
    }
}
