//! Detects which optional APIs the API server serves, once, at start.

use kube::Client;
use manta_logic::config::Platform;

/// The first minor version of Kubernetes 1 that streams lists by default.
const MIN_MINOR_FOR_STREAMING_LISTS: u32 = 34;

/// Returns the number of a minor version such as `34` or `34+`, or 0.
pub(crate) fn minor(version: &str) -> u32 {
    version.trim_end_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap_or(0)
}

/// Returns the optional APIs that are served.
pub async fn detect(client: &Client) -> Result<Platform, kube::Error> {
    let groups = client.list_api_groups().await?;
    let has = |name: &str| groups.groups.iter().any(|group| group.name == name);
    let serves = |name: &str, version: &str| {
        groups
            .groups
            .iter()
            .any(|group| group.name == name && group.versions.iter().any(|served| served.version == version))
    };
    let version = client.apiserver_version().await?;
    Ok(Platform {
        streaming_lists: version.major == "1" && minor(&version.minor) >= MIN_MINOR_FOR_STREAMING_LISTS,
        openshift: ["route.openshift.io", "security.openshift.io", "config.openshift.io"].iter().any(|name| has(name)),
        cert_manager: serves("cert-manager.io", "v1"),
        gateway_api: serves("gateway.networking.k8s.io", "v1"),
        workload_api: serves("scheduling.k8s.io", "v1alpha2"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_versions_may_have_a_suffix() {
        for (text, expect) in [("34", 34), ("34+", 34), ("", 0), ("x", 0)] {
            assert_eq!(minor(text), expect, "{text}");
        }
    }
}
