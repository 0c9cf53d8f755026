//! Names that become parts of paths: an API server may have accepted anything.

use k8s_openapi::api::core::v1::Pod;

/// Whether a text is a DNS label, as the names of containers and volumes are.
pub(crate) fn is_label(text: &str) -> bool {
    let ends_well = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && ends_well(bytes.first())
        && ends_well(bytes.last())
}

/// Whether a text is a DNS subdomain, as the names of claims are.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Checks the names of a pod that the agent uses in paths.
pub(crate) fn check(pod: &Pod) -> Result<(), String> {
    let refuse = |field: &str, value: &str| {
        Err(format!("{field} {value:?} is not a valid name; use lower-case letters, digits and dashes"))
    };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    if !is_subdomain(uid) {
        return refuse("metadata.uid", uid);
    }
    let Some(spec) = &pod.spec else { return Ok(()) };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers).map(|c| &c.name);
    for name in containers.chain(spec.ephemeral_containers.iter().flatten().map(|c| &c.name)) {
        if !is_label(name) {
            return refuse("spec.containers[].name", name);
        }
    }
    for volume in spec.volumes.iter().flatten() {
        if !is_label(&volume.name) {
            return refuse("spec.volumes[].name", &volume.name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_never_paths() {
        for good in ["a", "ray-head", "0", "a1-2"] {
            assert!(is_label(good) && is_subdomain(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "/home", "A", "-a", "a-", "a b", "a\n", &"x".repeat(64)] {
            assert!(!is_label(bad) && !is_subdomain(bad), "{bad}");
        }
        assert!(is_subdomain("data.my-claim") && !is_subdomain("data..x") && !is_subdomain("../x"));
    }

    #[test]
    fn a_pod_with_a_path_for_a_name_is_refused() {
        let pod = |container: &str, volume: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"uid": "u-1"},
                "spec": {"containers": [{"name": container}], "volumes": [{"name": volume}]},
            }))
            .unwrap()
        };
        assert_eq!(check(&pod("c", "v")), Ok(()));
        assert!(check(&pod("../../c", "v")).unwrap_err().contains("spec.containers[].name"));
        assert!(check(&pod("c", "..")).unwrap_err().contains("spec.volumes[].name"));
    }
}
