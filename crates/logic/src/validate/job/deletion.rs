//! Rules for the deletion strategy: either the two legacy policies or a list of rules.

use super::{SPEC, ensure, has_selector};
use crate::cluster_spec::is_autoscaling;
use crate::config::Config;
use manta_api::{DeletionPolicy, DeletionPolicyType, DeletionRule, DeletionStrategy, RayJobSpec};
use std::collections::BTreeMap;

pub(super) fn check(spec: &RayJobSpec, config: &Config) -> Result<(), String> {
    let Some(strategy) = &spec.deletion_strategy else { return Ok(()) };
    ensure(config.gates.ray_job_deletion_policy, || {
        "RayJobDeletionPolicy feature gate must be enabled to use DeletionStrategy".to_owned()
    })?;
    let rules = strategy.deletion_rules.as_deref().unwrap_or_default();
    let shutdown = spec.shutdown_after_job_finishes == Some(true);
    let legacy = strategy.on_success.is_some() || strategy.on_failure.is_some();
    ensure(rules.is_empty() || !shutdown, || {
        format!("{SPEC} spec.shutdownAfterJobFinishes and spec.deletionStrategy.deletionRules are mutually exclusive")
    })?;
    ensure(rules.is_empty() || !legacy, || {
        format!("{SPEC} Cannot use both legacy onSuccess/onFailure fields and deletionRules simultaneously")
    })?;
    ensure(!rules.is_empty() || legacy, || {
        format!(
            "{SPEC} DeletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot \
             be empty)"
        )
    })?;
    if legacy { check_legacy(spec, strategy, shutdown) } else { check_rules(spec, rules) }
}

fn check_legacy(spec: &RayJobSpec, strategy: &DeletionStrategy, shutdown: bool) -> Result<(), String> {
    let (Some(success), Some(failure)) = (&strategy.on_success, &strategy.on_failure) else {
        return Err(
            "both DeletionStrategy.OnSuccess and DeletionStrategy.OnFailure must be set when using the legacy \
                    deletion policy fields of DeletionStrategy"
                .to_owned(),
        );
    };
    let set = |policy: &DeletionPolicy, name: &str| {
        policy.policy.clone().ok_or_else(|| {
            format!(
                "the DeletionPolicyType field of DeletionStrategy.{name} cannot be unset when DeletionStrategy is \
                 enabled"
            )
        })
    };
    let (success, failure) = (set(success, "OnSuccess")?, set(failure, "OnFailure")?);
    for (policy, outcome) in [(&success, "success"), (&failure, "failure")] {
        ensure(!has_selector(spec) || !needs_own_cluster(policy), || {
            format!("the ClusterSelector mode doesn't support DeletionStrategy={policy} on {outcome}")
        })?;
    }
    let either = |policy| success == policy || failure == policy;
    ensure(!either(DeletionPolicyType::DeleteWorkers) || !autoscales(spec), || {
        "DeletionStrategy=DeleteWorkers currently does not support RayCluster with autoscaling enabled".to_owned()
    })?;
    ensure(!shutdown || !either(DeletionPolicyType::DeleteNone), || {
        // The misspelt field name is part of KubeRay's message.
        format!("{SPEC} shutdownAfterJobFinshes is set to 'true' while deletion policy is 'DeleteNone'")
    })
}

/// Reports the problems of all rules, and then the order of the TTLs of the valid ones.
fn check_rules(spec: &RayJobSpec, rules: &[DeletionRule]) -> Result<(), String> {
    let mut problems = Vec::new();
    let mut ttls = Ttls::default();
    for (index, rule) in rules.iter().enumerate() {
        if let Err(problem) = check_rule(spec, rule).and_then(|()| ttls.insert(rule)) {
            problems.push(format!("deletionRules[{index}]: {problem}"));
        }
    }
    problems.extend(ttls.disorder());
    ensure(problems.is_empty(), || problems.join("\n"))
}

fn check_rule(spec: &RayJobSpec, rule: &DeletionRule) -> Result<(), String> {
    let condition = &rule.condition;
    let policy = &rule.policy;
    ensure(condition.job_status.is_none() || condition.job_deployment_status.is_none(), || {
        "cannot set both JobStatus and JobDeploymentStatus at the same time".to_owned()
    })?;
    ensure(condition.job_status.is_some() || condition.job_deployment_status.is_some(), || {
        "exactly one of JobStatus and JobDeploymentStatus must be set".to_owned()
    })?;
    ensure(condition.ttl_seconds.is_none_or(|ttl| ttl >= 0), || "TTLSeconds must be non-negative".to_owned())?;
    ensure(!has_selector(spec) || !needs_own_cluster(policy), || {
        format!("DeletionPolicyType '{policy}' not supported when ClusterSelector is set")
    })?;
    ensure(*policy != DeletionPolicyType::DeleteWorkers || !autoscales(spec), || {
        "DeletionPolicyType 'DeleteWorkers' not supported with autoscaling enabled".to_owned()
    })
}

/// The TTLs of the valid rules by condition, in the order of the rules.
#[derive(Default)]
struct Ttls {
    by_condition: Vec<(Condition, BTreeMap<DeletionPolicyType, i32>)>,
}

/// The kind and the value of the status that a rule waits for.
#[derive(Clone, PartialEq, Eq)]
struct Condition {
    kind: &'static str,
    value: String,
}

impl Ttls {
    fn insert(&mut self, rule: &DeletionRule) -> Result<(), String> {
        let condition = match (&rule.condition.job_status, &rule.condition.job_deployment_status) {
            (Some(status), _) => Condition { kind: "JobStatus", value: status.to_string() },
            (None, Some(status)) => Condition { kind: "JobDeploymentStatus", value: status.to_string() },
            (None, None) => return Ok(()),
        };
        let index = self.by_condition.iter().position(|(known, _)| *known == condition).unwrap_or_else(|| {
            self.by_condition.push((condition.clone(), BTreeMap::new()));
            self.by_condition.len() - 1
        });
        let times = &mut self.by_condition[index].1;
        ensure(!times.contains_key(&rule.policy), || {
            let Condition { kind, value } = &condition;
            format!("duplicate rule for DeletionPolicyType '{}' and {kind} '{value}'", rule.policy)
        })?;
        times.insert(rule.policy.clone(), rule.condition.ttl_seconds.unwrap_or_default());
        Ok(())
    }

    /// Returns the violations of the order: workers are deleted before their cluster, and the cluster before the job.
    fn disorder(&self) -> Vec<String> {
        use DeletionPolicyType::{DeleteCluster, DeleteSelf, DeleteWorkers};
        let of_kind =
            |kind: &'static str| self.by_condition.iter().filter(move |(condition, _)| condition.kind == kind);
        let mut problems = Vec::new();
        for (Condition { kind, value }, times) in of_kind("JobStatus").chain(of_kind("JobDeploymentStatus")) {
            let known: Vec<_> = [DeleteWorkers, DeleteCluster, DeleteSelf]
                .into_iter()
                .filter_map(|p| times.get_key_value(&p).map(|(p, t)| (p.clone(), *t)))
                .collect();
            for pair in known.windows(2) {
                let [(before, earlier), (policy, later)] = pair else { continue };
                if later < earlier {
                    problems.push(format!(
                        "for {kind} '{value}': {policy} TTL ({later}) must be >= {before} TTL ({earlier})"
                    ));
                }
            }
        }
        problems
    }
}

/// Returns whether the policy deletes parts of the cluster, which a job on a selected cluster must not.
fn needs_own_cluster(policy: &DeletionPolicyType) -> bool {
    matches!(policy, DeletionPolicyType::DeleteCluster | DeletionPolicyType::DeleteWorkers)
}

fn autoscales(spec: &RayJobSpec) -> bool {
    spec.ray_cluster_spec.as_ref().is_some_and(is_autoscaling)
}
