//! The specs of the conformance profile, and their groups.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The groups that are counted unless one is named.
pub(super) const GROUPS: [&str; 6] = ["api-machinery", "apps", "auth", "cli", "network", "node"];

/// The kinds of `apps` that have a controller here; specs about others count as `apps-other`.
const APPS: [&str; 5] = ["Deployment ", "DisruptionController ", "Job ", "ReplicaSet ", "ReplicationController "];

/// One spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) name: String,
    /// The special interest group that owns it, such as `node`.
    pub(super) group: String,
}

#[derive(Deserialize)]
struct Listed {
    codename: String,
}

/// Reads Kubernetes' list of conformance specs.
pub(super) fn read(list: &Path) -> Result<Vec<Spec>> {
    let text = fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    let listed: Vec<Listed> =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is not a list of specs", list.display()))?;
    Ok(listed.into_iter().map(|spec| Spec { group: group(&spec.codename), name: spec.codename }).collect())
}

fn group(name: &str) -> String {
    let Some((group, rest)) = name.strip_prefix("[sig-").and_then(|name| name.split_once("] ")) else {
        return "none".to_owned();
    };
    let has_controller = APPS.iter().any(|kind| rest.starts_with(kind));
    if group == "apps" && !has_controller { "apps-other".to_owned() } else { group.to_owned() }
}

/// Escapes a name for Ginkgo, which takes a regular expression.
pub(super) fn quoted(name: &str) -> String {
    let special = |c: char| r"\.+*?()|[]{}^$".contains(c);
    name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

impl Spec {
    /// Whether it disturbs other specs.
    pub(super) fn is_serial(&self) -> bool {
        self.name.contains("[Serial]") || self.name.contains("[Disruptive]")
    }

    /// Returns how long it may take: some watch for minutes that nothing happens, or that old lists expire.
    pub(super) fn timeout(&self) -> Duration {
        let watches = ["[Slow]", "[Disruptive]", "should *not* be restarted", "monotonically increasing restart count"];
        let contains = |part: &&str| self.name.contains(part);
        let minutes = match (contains(&"compacted away"), watches.iter().any(contains)) {
            (true, _) => 9,
            (_, true) => 6,
            _ => 2,
        };
        Duration::from_secs(minutes * 60)
    }

    /// Returns the name of the file with its output.
    pub(super) fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let mut name: String = self.name.replace("[Conformance]", "").chars().map(plain).collect();
        while name.contains("--") {
            name = name.replace("--", "-");
        }
        let name: String = name.trim_matches('-').chars().take(150).collect();
        format!("{name}.log")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_follow_the_owner_and_the_kind() {
        for (name, expect) in [
            ("[sig-node] Pods should be updated [Conformance]", "node"),
            ("[sig-apps] Job should delete a job [Conformance]", "apps"),
            ("[sig-apps] ReplicationController should adopt matching pods on creation [Conformance]", "apps"),
            ("[sig-apps] DisruptionController should block an eviction until the PDB is updated [Conformance]", "apps"),
            ("[sig-apps] StatefulSet Basic should scale [Conformance]", "apps-other"),
            ("no owner", "none"),
        ] {
            assert_eq!(group(name), expect, "{name}");
        }
    }

    #[test]
    fn names_are_plain_text_for_ginkgo_and_the_file_system() {
        let spec = Spec { name: "[sig-cli] Kubectl (v1.0): a* [Conformance]".into(), group: "cli".into() };
        assert_eq!(quoted(&spec.name), r"\[sig-cli\] Kubectl \(v1\.0\): a\* \[Conformance\]");
        assert_eq!(spec.file_name(), "sig-cli-kubectl-v1-0-a.log");
    }
}
