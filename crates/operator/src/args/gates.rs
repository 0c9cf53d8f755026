//! `--feature-gates`: the features that are enabled.

use super::ArgsError;
use manta_logic::config::FeatureGates;

/// Parses `Name=bool,Name=bool`; `AllAlpha` and `AllBeta` set every gate of that stage not set by name.
pub(super) fn parse(text: &str) -> Result<FeatureGates, ArgsError> {
    let mut gates = FeatureGates::default();
    let mut by_name = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, value) = item.split_once('=').ok_or_else(|| ArgsError::MissingValue(item.to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let on = parse_bool(value).ok_or_else(|| ArgsError::InvalidValue(name.to_owned(), value.to_owned()))?;
        match name {
            "AllAlpha" => alpha(&mut gates).into_iter().for_each(|gate| *gate = on),
            "AllBeta" => beta(&mut gates).into_iter().for_each(|gate| *gate = on),
            name => by_name.push((name.to_owned(), on)),
        }
    }
    for (name, on) in by_name {
        *gate(&mut gates, &name).ok_or_else(|| ArgsError::UnknownGate(name.clone()))? = on;
    }
    Ok(gates)
}

/// Returns the gates by name, in the order of KubeRay's documentation.
pub fn by_name(gates: &FeatureGates) -> [(&'static str, bool); 11] {
    [
        ("RayClusterStatusConditions", gates.ray_cluster_status_conditions),
        ("RayJobDeletionPolicy", gates.ray_job_deletion_policy),
        ("RayMultiHostIndexing", gates.ray_multi_host_indexing),
        ("RayServiceIncrementalUpgrade", gates.ray_service_incremental_upgrade),
        ("RayCronJob", gates.ray_cron_job),
        ("SidecarSubmitterRestart", gates.sidecar_submitter_restart),
        ("RayClusterNetworkPolicy", gates.ray_cluster_network_policy),
        ("GCSFaultToleranceEmbeddedStorage", gates.gcs_fault_tolerance_embedded_storage),
        ("RayClusterMTLS", gates.ray_cluster_mtls),
        ("RayClusterHistoryServer", gates.ray_cluster_history_server),
        ("KubernetesWAS", gates.kubernetes_was),
    ]
}

fn gate<'a>(gates: &'a mut FeatureGates, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "RayClusterStatusConditions" => &mut gates.ray_cluster_status_conditions,
        "RayJobDeletionPolicy" => &mut gates.ray_job_deletion_policy,
        "RayMultiHostIndexing" => &mut gates.ray_multi_host_indexing,
        "RayServiceIncrementalUpgrade" => &mut gates.ray_service_incremental_upgrade,
        "RayCronJob" => &mut gates.ray_cron_job,
        "SidecarSubmitterRestart" => &mut gates.sidecar_submitter_restart,
        "RayClusterNetworkPolicy" => &mut gates.ray_cluster_network_policy,
        "GCSFaultToleranceEmbeddedStorage" => &mut gates.gcs_fault_tolerance_embedded_storage,
        "RayClusterMTLS" => &mut gates.ray_cluster_mtls,
        "RayClusterHistoryServer" => &mut gates.ray_cluster_history_server,
        "KubernetesWAS" => &mut gates.kubernetes_was,
        _ => return None,
    })
}

fn beta(gates: &mut FeatureGates) -> [&mut bool; 4] {
    [
        &mut gates.ray_cluster_status_conditions,
        &mut gates.ray_job_deletion_policy,
        &mut gates.ray_multi_host_indexing,
        &mut gates.ray_service_incremental_upgrade,
    ]
}

fn alpha(gates: &mut FeatureGates) -> [&mut bool; 7] {
    [
        &mut gates.ray_cron_job,
        &mut gates.sidecar_submitter_restart,
        &mut gates.ray_cluster_network_policy,
        &mut gates.gcs_fault_tolerance_embedded_storage,
        &mut gates.ray_cluster_mtls,
        &mut gates.ray_cluster_history_server,
        &mut gates.kubernetes_was,
    ]
}

/// Parses a bool as Go's `strconv.ParseBool` does.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every gate with its default; those that differ from KubeRay's are features that Manta implements completely.
    const GATES: [(&str, bool); 11] = [
        ("RayClusterStatusConditions", true),
        ("RayJobDeletionPolicy", true),
        ("RayMultiHostIndexing", true),
        ("RayServiceIncrementalUpgrade", true),
        ("RayCronJob", true),
        ("SidecarSubmitterRestart", false),
        ("RayClusterNetworkPolicy", true),
        ("GCSFaultToleranceEmbeddedStorage", true),
        ("RayClusterMTLS", true),
        ("RayClusterHistoryServer", true),
        ("KubernetesWAS", false),
    ];

    #[test]
    fn every_gate_has_its_default_and_can_be_switched() {
        assert_eq!(by_name(&FeatureGates::default()), GATES);
        for (name, default) in GATES {
            let gates = parse(&format!("{name}={}", !default)).unwrap();
            let differing: Vec<_> = by_name(&gates).into_iter().filter(|gate| !GATES.contains(gate)).collect();
            assert_eq!(differing, [(name, !default)]);
        }
    }

    #[test]
    fn gates_are_set_by_name_and_by_stage() {
        let on = |text: &str| -> Vec<&str> {
            by_name(&parse(text).unwrap()).into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
        };
        assert_eq!(on("AllAlpha=false,AllBeta=f, RayCronJob = T ,,"), ["RayCronJob"]);
        assert_eq!(on("RayCronJob=1,AllAlpha=0,AllBeta=FALSE"), ["RayCronJob"]);
        assert_eq!(on("AllAlpha=true").len(), 11);
    }

    #[test]
    fn invalid_gates_are_rejected() {
        let check = |text: &str, expect: &str| {
            let expect = format!("Unable to set flag gates for known features: {expect}");
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(expect));
        };
        check("Nope=true", "unrecognized feature gate: Nope");
        check("RayCronJob", "missing bool value for RayCronJob");
        check(
            "RayCronJob=yes",
            "invalid value of RayCronJob=yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax",
        );
    }
}
