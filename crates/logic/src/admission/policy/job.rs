//! Rules for RayJobs and RayCronJobs.

use super::cluster::restarts;
use super::{CelVariable, Rule, cluster, name_length, names};
use crate::validate::cronjob;
use crate::validate::job::MAX_NAME;

const SPEC: &str = "The RayJob spec is invalid: ";

pub(super) fn policy() -> (Vec<CelVariable>, Vec<Rule>) {
    let mut rules = names("RayJob", "The RayJob metadata is invalid: ", MAX_NAME);
    rules.extend(self::rules());
    (variables("object.spec"), rules)
}

pub(super) fn cron_policy() -> (Vec<CelVariable>, Vec<Rule>) {
    let mut rules = vec![
        name_length("RayCronJob", "", cronjob::MAX_NAME),
        Rule::plain(
            "!object.spec.schedule.contains('TZ')",
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ),
        Rule::plain(
            "object.spec.?timeZone.orValue('UTC') != ''",
            "timeZone must not be empty string, omit the field to use the local time zone of the KubeRay operator",
        ),
    ];
    rules.extend(self::rules().into_iter().map(|rule| rule.with_prefix("invalid RayJob template: ")));
    let mut variables = variables("object.spec.jobTemplate");
    // The annotations of a RayCronJob are not copied to its jobs.
    variables
        .iter_mut()
        .filter(|variable| variable.0 == "annotations")
        .for_each(|variable| variable.1 = "{}".to_owned());
    (variables, rules)
}

fn variables(job: &str) -> Vec<CelVariable> {
    let mut variables: Vec<CelVariable> = [
        ("job", job),
        ("shutdown", "variables.job.?shutdownAfterJobFinishes.orValue(false)"),
        ("suspend", "variables.job.?suspend.orValue(false)"),
        ("ttl", "variables.job.?ttlSecondsAfterFinished.orValue(0)"),
        ("mode", "variables.job.?submissionMode.orValue('K8sJobMode')"),
        ("selector", "variables.job.?clusterSelector.orValue({})"),
        ("retries", "variables.job.?backoffLimit.orValue(0)"),
        ("hasCluster", "has(variables.job.rayClusterSpec)"),
        ("hasDeletion", "has(variables.job.deletionStrategy)"),
        ("deletion", "variables.job.?deletionStrategy.orValue({})"),
        ("deletionRules", "variables.deletion.?deletionRules.orValue([])"),
        ("isLegacy", "has(variables.deletion.onSuccess) || has(variables.deletion.onFailure)"),
    ]
    .map(|(name, expression)| CelVariable(name, expression.to_owned()))
    .into();
    variables.extend(cluster::variables("variables.job.?rayClusterSpec.orValue({})"));
    variables
}

fn rules() -> Vec<Rule> {
    let rule = |holds: &str, message: &str| Rule::plain(holds, &format!("{SPEC}{message}"));
    let mut rules = vec![
        rule(
            "!variables.suspend || variables.shutdown || size(variables.deletionRules) > 0",
            "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended",
        ),
        rule("variables.ttl >= 0", "TTLSecondsAfterFinished must be a non-negative integer"),
        rule(
            "variables.shutdown || variables.ttl <= 0",
            "a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished",
        ),
        rule(
            "!variables.shutdown || size(variables.deletionRules) == 0",
            "spec.shutdownAfterJobFinishes and spec.deletionStrategy.deletionRules are mutually exclusive",
        ),
        rule(
            "!variables.isLegacy || size(variables.deletionRules) == 0",
            "Cannot use both legacy onSuccess/onFailure fields and deletionRules simultaneously",
        ),
        rule(
            "!variables.hasDeletion || variables.isLegacy || size(variables.deletionRules) > 0",
            "DeletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot be empty)",
        ),
        rule(
            "!variables.suspend || size(variables.selector) == 0",
            "the ClusterSelector mode doesn't support the suspend operation",
        ),
        rule(
            "variables.hasCluster || size(variables.selector) > 0",
            "one of RayClusterSpec or ClusterSelector must be set",
        ),
    ];
    rules.extend(selector_and_mode());
    rules.push(rule("!variables.hasKubernetesToken", "K8s token auth mode is currently not supported for RayJob"));
    rules.extend(cluster::rules().into_iter().map(|rule| rule.with_prefix(SPEC).only_if("variables.hasCluster")));
    for (field, message) in [
        ("activeDeadlineSeconds", "activeDeadlineSeconds must be a positive integer"),
        ("preRunningDeadlineSeconds", "preRunningDeadlineSeconds must be a positive integer"),
    ] {
        rules.push(rule(&format!("variables.job.?{field}.orValue(1) > 0"), message));
    }
    rules.push(rule("variables.retries >= 0", "backoffLimit must be a positive integer"));
    rules.push(Rule::interpolated(
        "variables.mode in ['', 'K8sJobMode', 'HTTPMode', 'InteractiveMode', 'SidecarMode']",
        &format!(
            "{SPEC}submissionMode \"{{variables.mode}}\" is not one of K8sJobMode, HTTPMode, InteractiveMode and \
             SidecarMode"
        ),
    ));
    rules
}

fn selector_and_mode() -> Vec<Rule> {
    let on_selector = "size(variables.selector) == 0";
    let in_sidecar = "variables.mode != 'SidecarMode'";
    let head = restarts("variables.cluster.?headGroupSpec.?template");
    vec![
        Rule::plain(
            &format!("{on_selector} || variables.selector[?'ray.io/cluster'].orValue('') != ''"),
            "cluster name in ClusterSelector should not be empty",
        ),
        Rule::plain(&format!("{on_selector} || {in_sidecar}"), "ClusterSelector is not supported in SidecarMode"),
        Rule::plain(
            &format!("{on_selector} || variables.retries <= 0"),
            &format!("{SPEC}BackoffLimit is incompatible with ClusterSelector mode"),
        ),
        Rule::plain(
            "variables.mode != 'InteractiveMode' || variables.retries <= 0",
            &format!("{SPEC}BackoffLimit is incompatible with InteractiveMode"),
        ),
        Rule::plain(
            &format!("{in_sidecar} || !has(variables.job.submitterPodTemplate)"),
            "Currently, SidecarMode doesn't support SubmitterPodTemplate",
        ),
        Rule::plain(
            &format!("{in_sidecar} || !has(variables.job.submitterConfig)"),
            "Currently, SidecarMode doesn't support SubmitterConfig",
        ),
        Rule::plain(
            &format!("{in_sidecar} || !({head})"),
            "restartPolicy for head Pod should be Never or unset when using SidecarMode",
        ),
    ]
}
