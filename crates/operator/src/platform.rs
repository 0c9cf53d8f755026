//! Detects which optional APIs the API server serves, once, at start.

use kube::Client;
use manta_logic::config::Platform;

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
    Ok(Platform {
        openshift: ["route.openshift.io", "security.openshift.io", "config.openshift.io"].iter().any(|name| has(name)),
        cert_manager: serves("cert-manager.io", "v1"),
        gateway_api: serves("gateway.networking.k8s.io", "v1"),
        workload_api: serves("scheduling.k8s.io", "v1alpha2"),
    })
}
