//! Rules for RayServices.

use super::{CelVariable, Rule, cluster, names};
use crate::validate::job::MAX_NAME;

const SPEC: &str = "The RayService spec is invalid: ";

pub(super) fn policy() -> (Vec<CelVariable>, Vec<Rule>) {
    let mut variables = cluster::variables("object.spec.rayClusterConfig");
    variables.push(CelVariable("strategy", "object.spec.?upgradeStrategy.?type.orValue('None')".to_owned()));
    variables.push(CelVariable("steps", "object.spec.?upgradeStrategy.?clusterUpgradeOptions.orValue({})".to_owned()));
    variables.push(CelVariable("surge", "variables.steps.?maxSurgePercent.orValue(100)".to_owned()));
    let rule = |holds: &str, message: &str| Rule::plain(holds, message).with_prefix(SPEC);
    let mut rules = names("RayService", "The RayService metadata is invalid: ", MAX_NAME);
    rules.push(rule("!variables.hasKubernetesToken", "K8s token auth mode is currently not supported for RayService"));
    rules.extend(cluster::rules().into_iter().map(|rule| rule.with_prefix(SPEC)));
    rules.push(rule(
        "variables.cluster.?headGroupSpec.?headService.?metadata.?name.orValue('') == ''",
        "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set",
    ));
    rules.push(
        Rule::interpolated(
            "variables.strategy in ['None', 'NewCluster', 'NewClusterWithIncrementalUpgrade']",
            "Spec.UpgradeStrategy.Type value {variables.strategy} is invalid, valid options are \
             NewClusterWithIncrementalUpgrade, NewCluster, or None",
        )
        .with_prefix(SPEC),
    );
    rules.push(
        Rule::interpolated(
            "object.spec.?rayClusterDeletionDelaySeconds.orValue(0) >= 0",
            "Spec.RayClusterDeletionDelaySeconds should be a non-negative integer, got \
             {object.spec.rayClusterDeletionDelaySeconds}",
        )
        .with_prefix(SPEC),
    );
    let incremental = "variables.strategy == 'NewClusterWithIncrementalUpgrade'";
    for (holds, message) in [
        ("variables.autoscaling", "Ray Autoscaler is required for NewClusterWithIncrementalUpgrade"),
        (
            "has(object.spec.upgradeStrategy.clusterUpgradeOptions)",
            "ClusterUpgradeOptions are required for NewClusterWithIncrementalUpgrade",
        ),
        ("variables.surge >= 0 && variables.surge <= 100", "maxSurgePercent must be between 0 and 100"),
        (
            "variables.steps.?stepSizePercent.orValue(-1) >= 0 && variables.steps.?stepSizePercent.orValue(-1) <= 100",
            "stepSizePercent must be between 0 and 100",
        ),
        (
            "variables.steps.?stepSizePercent.orValue(0) <= variables.surge",
            "stepSizePercent must be less than or equal to maxSurgePercent",
        ),
        ("variables.steps.?intervalSeconds.orValue(0) > 0", "intervalSeconds must be greater than 0"),
        (
            "variables.steps.?gatewayClassName.orValue('') != ''",
            "gatewayClassName is required for NewClusterWithIncrementalUpgrade",
        ),
    ] {
        rules.push(rule(holds, message).only_if(incremental));
    }
    (variables, rules)
}
