//! All broken rules of a cluster, so that users can fix them at once.
//!
//! The operator stops at the first broken rule, as KubeRay does, and the first one here is the same.

use super::{Invalid, Part, SPEC_CHECKS, check_cluster_name, invalid, upgrade_options};
use crate::cluster_spec;
use crate::config::Config;
use manta_api::{RayCluster, RayClusterSpec};
use std::collections::BTreeMap;

/// The maximum number of worker groups that are checked one by one.
const MAX_GROUPS: usize = 100;

/// Returns the rules that the metadata and the spec of a RayCluster break.
pub fn cluster_problems(cluster: &RayCluster, config: &Config) -> Vec<Invalid> {
    let metadata = &cluster.metadata;
    let name = check_cluster_name(metadata).err().map(invalid(Part::ClusterMetadata));
    let spec = cluster_spec_problems(&cluster.spec, metadata.annotations.as_ref(), config);
    let upgrade = upgrade_options(cluster).err().map(invalid(Part::ClusterUpgradeStrategy));
    name.into_iter().chain(spec.into_iter().map(invalid(Part::ClusterSpec))).chain(upgrade).collect()
}

/// Returns the rules that the spec of a cluster breaks, in the order in which they are checked.
pub fn cluster_spec_problems(
    spec: &RayClusterSpec,
    annotations: Option<&BTreeMap<String, String>>,
    config: &Config,
) -> Vec<String> {
    let broken = |spec: &RayClusterSpec| -> Vec<String> {
        SPEC_CHECKS.iter().filter_map(|check| check(spec, annotations, config).err()).collect()
    };
    let mut found = broken(spec);
    let groups = cluster_spec::worker_groups(spec);
    if found.is_empty() || groups.len() < 2 {
        return found;
    }
    // A check stops at the first group that breaks a rule, so each group is checked alone.
    let mut alone = RayClusterSpec { worker_group_specs: None, ..spec.clone() };
    for group in groups.iter().take(MAX_GROUPS) {
        alone.worker_group_specs = Some(vec![group.clone()]);
        for problem in broken(&alone) {
            if mentions(&problem, &group.group_name) && !found.contains(&problem) {
                found.push(problem);
            }
        }
    }
    found
}

/// Returns whether a message names a group.
fn mentions(message: &str, group: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    message.split(|c: char| !is_part(c)).any(|word| word.trim_end_matches('.') == group)
}

#[cfg(test)]
mod tests {
    use super::super::ValidCluster;
    use super::*;
    use crate::validate::fixtures::{cluster_spec, edited, everything};
    use serde_json::json;

    #[test]
    fn all_broken_rules_are_reported_in_the_order_of_the_operator() {
        let mut groups = vec![cluster_spec()["workerGroupSpecs"][0].clone(); 3];
        for (group, (name, min)) in groups.iter_mut().zip([("fine", 0), ("low", -1), ("high", 9)]) {
            group["groupName"] = json!(name);
            group["minReplicas"] = json!(min);
        }
        let base = json!({"metadata": {"name": "Demo"}, "spec": cluster_spec()});
        let edits = [
            ("/spec/workerGroupSpecs", json!(groups)),
            ("/spec/authOptions", json!({"mode": "token"})),
            ("/spec/rayVersion", json!("2.9.0")),
            ("/spec/upgradeStrategy", json!({"type": "Sometimes"})),
        ];
        let cluster: RayCluster = serde_json::from_value(edited(base, &edits)).unwrap();
        let found = cluster_problems(&cluster, &everything());
        let reported: Vec<(Part, &str)> =
            found.iter().map(|p| (p.part, p.text.split_once(':').map_or(p.text.as_str(), |(text, _)| text))).collect();
        assert_eq!(
            reported,
            [
                (Part::ClusterMetadata, "RayCluster name should be a valid DNS1035 label"),
                (Part::ClusterSpec, "worker group low has negative minReplicas -1"),
                (Part::ClusterSpec, "authOptions.mode is 'token' but minimum Ray version is 2.52.0, got 2.9.0"),
                (Part::ClusterSpec, "worker group high has minReplicas 9 greater than maxReplicas 5"),
                (Part::ClusterUpgradeStrategy, "The RayCluster spec is invalid"),
            ]
        );
        assert_eq!(ValidCluster::check(&cluster, &everything()).err(), found.first().cloned());
    }
}
