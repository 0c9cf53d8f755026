//! Rules for network isolation: no rules for an open direction, and valid names of groups.

use super::ensure;
use crate::cluster_spec::worker_groups;
use crate::config::FeatureGates;
use crate::go::quote::quote;
use crate::validate::kubernetes_names::dns1123_label;
use manta_api::{NetworkPolicyMode, NetworkPolicyRules, RayClusterSpec};

pub(super) fn check(spec: &RayClusterSpec, gates: &FeatureGates) -> Result<(), String> {
    let Some(policy) = &spec.network_policy else { return Ok(()) };
    ensure(gates.ray_cluster_network_policy, || {
        "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled".to_owned()
    })?;
    let mode = policy.mode.as_ref().unwrap_or(&NetworkPolicyMode::DenyAll);
    for (section, rules) in [("head", &policy.head), ("worker", &policy.worker)] {
        if let Some(rules) = rules {
            check_rules(mode, section, rules)?;
        }
    }
    let groups = || worker_groups(spec).iter().map(|group| &group.group_name);
    for name in groups() {
        let problems = dns1123_label(name);
        ensure(problems.is_empty(), || {
            format!(
                "worker group name {} must be a valid DNS1123 label when networkPolicy is enabled (it is embedded in \
                 the NetworkPolicy name): [{}]",
                quote(name),
                problems.join(" ")
            )
        })?;
    }
    for entry in policy.worker_groups.iter().flatten() {
        let section = format!("workerGroups[{}]", quote(&entry.group_name));
        check_rules(mode, &section, &entry.rules)?;
        ensure(groups().any(|name| *name == entry.group_name), || {
            format!("networkPolicy.{section} does not match any group name in workerGroupSpecs")
        })?;
    }
    Ok(())
}

fn check_rules(mode: &NetworkPolicyMode, section: &str, rules: &NetworkPolicyRules) -> Result<(), String> {
    let has_ingress = rules.ingress_rules.as_ref().is_some_and(|rules| !rules.is_empty());
    let has_egress = rules.egress_rules.as_ref().is_some_and(|rules| !rules.is_empty());
    match mode {
        NetworkPolicyMode::DenyAllEgress if has_ingress => Err(format!(
            "networkPolicy.{section}.ingressRules cannot be set when mode is \"DenyAllEgress\" (ingress is not \
             restricted)"
        )),
        NetworkPolicyMode::DenyAllIngress if has_egress => Err(format!(
            "networkPolicy.{section}.egressRules cannot be set when mode is \"DenyAllIngress\" (egress is not \
             restricted)"
        )),
        _ => Ok(()),
    }
}
