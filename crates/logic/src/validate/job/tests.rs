//! Tables of every rule and its edge cases.

use super::*;
use crate::validate::fixtures::{Edit, cluster_spec, edited, everything};
use serde_json::{Value, json};

fn outcome(edits: &[Edit<'_>], config: &Config) -> Result<(), Invalid> {
    let base = json!({
        "metadata": {"name": "train", "namespace": "ns"},
        "spec": {"entrypoint": "x", "submissionMode": "K8sJobMode", "backoffLimit": 0, "rayClusterSpec": cluster_spec()},
    });
    let job: RayJob = serde_json::from_value(edited(base, edits)).unwrap();
    validate_job(&job, config).map(|_| ())
}

#[track_caller]
fn check(edits: &[Edit<'_>], expect: &str) {
    let text = outcome(edits, &everything()).map_or_else(|invalid| invalid.text, |()| "ok".to_owned());
    assert_eq!(text, expect, "{edits:?}");
}

fn spec(text: &str) -> String {
    format!("The RayJob spec is invalid: {text}")
}

fn selector(value: Value) -> [Edit<'static>; 2] {
    [("/spec/rayClusterSpec", Value::Null), ("/spec/clusterSelector", value)]
}

fn on_existing_cluster(more: &[Edit<'static>]) -> Vec<Edit<'static>> {
    let mut edits = selector(json!({"ray.io/cluster": "x"})).to_vec();
    edits.extend_from_slice(more);
    edits
}

const SHUTDOWN: &str = "/spec/shutdownAfterJobFinishes";
const STRATEGY: &str = "/spec/deletionStrategy";
const AUTOSCALING: &str = "/spec/rayClusterSpec/enableInTreeAutoscaling";

#[test]
fn names_are_short_dns_labels() {
    let check = |name: &str, expect: &str| check(&[("/metadata/name", json!(name))], expect);
    check(&"j".repeat(47), "ok");
    check(&"j".repeat(48), "The RayJob metadata is invalid: RayJob name should be no more than 47 characters");
    check(
        &"1".repeat(47),
        "The RayJob metadata is invalid: RayJob name should be a valid DNS1035 label: [a DNS-1035 label must consist of \
         lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric \
         character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]",
    );
}

#[test]
fn suspend_and_ttl_need_shutdown_after_finish() {
    let suspend = || ("/spec/suspend", json!(true));
    let ttl = |seconds: i32| ("/spec/ttlSecondsAfterFinished", json!(seconds));
    let shutdown = || (SHUTDOWN, json!(true));
    let s1 = spec("a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended");
    check(&[suspend()], &s1);
    check(&[suspend(), shutdown()], "ok");
    let s2 = spec("TTLSecondsAfterFinished must be a non-negative integer");
    check(&[ttl(-5)], &s2);
    check(&[ttl(-5), shutdown()], &s2);
    let d1 = spec("a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished");
    check(&[ttl(5)], &d1);
    check(&[ttl(5), shutdown()], "ok");
    check(&[ttl(0)], "ok");
    let s4 = spec("the ClusterSelector mode doesn't support the suspend operation");
    check(&on_existing_cluster(&[suspend(), shutdown()]), &s4);
}

#[test]
fn a_cluster_is_either_created_or_selected() {
    let s5 = spec("one of RayClusterSpec or ClusterSelector must be set");
    check(&[("/spec", json!({}))], &s5);
    check(&selector(json!({})), &s5);
    let s6 = "cluster name in ClusterSelector should not be empty";
    check(&selector(json!({"ray.io/cluster": ""})), s6);
    check(&selector(json!({"app": "x"})), s6);
    check(&on_existing_cluster(&[]), "ok");
    check(
        &on_existing_cluster(&[("/spec/submissionMode", json!("SidecarMode"))]),
        "ClusterSelector is not supported in SidecarMode",
    );
    let s8 = spec("BackoffLimit is incompatible with ClusterSelector mode");
    check(&on_existing_cluster(&[("/spec/backoffLimit", json!(1))]), &s8);
}

#[test]
fn submission_modes_restrict_other_fields() {
    let mode = |mode: &str| ("/spec/submissionMode", json!(mode));
    let s9 = spec("BackoffLimit is incompatible with InteractiveMode");
    check(&[mode("InteractiveMode"), ("/spec/backoffLimit", json!(1))], &s9);
    check(&[mode("InteractiveMode"), ("/spec/backoffLimit", json!(0))], "ok");
    check(&[mode("InteractiveMode"), ("/spec/backoffLimit", Value::Null)], "ok");
    check(&[mode("SidecarMode")], "ok");
    let template = json!({"spec": {"containers": []}});
    check(
        &[mode("SidecarMode"), ("/spec/submitterPodTemplate", template.clone())],
        "Currently, SidecarMode doesn't support SubmitterPodTemplate",
    );
    check(&[("/spec/submitterPodTemplate", template)], "ok");
    check(
        &[mode("SidecarMode"), ("/spec/submitterConfig", json!({}))],
        "Currently, SidecarMode doesn't support SubmitterConfig",
    );
    let policy = "/spec/rayClusterSpec/headGroupSpec/template/spec/restartPolicy";
    check(
        &[mode("SidecarMode"), (policy, json!("Always"))],
        "restartPolicy for head Pod should be Never or unset when using SidecarMode",
    );
    check(&[mode("SidecarMode"), (policy, json!("Never"))], "ok");
    check(&[mode("HTTPMode"), (policy, json!("Always"))], "ok");
    check(&[mode("")], "ok");
    let known = "is not one of K8sJobMode, HTTPMode, InteractiveMode and SidecarMode";
    check(&[mode("K8JobMode")], &spec(&format!("submissionMode \"K8JobMode\" {known}")));
}

#[test]
fn cluster_specs_are_checked() {
    let s13 = spec("K8s token auth mode is currently not supported for RayJob");
    check(&[("/spec/rayClusterSpec/authOptions", json!({"mode": "token", "enableK8sTokenAuth": true}))], &s13);
    let s14 = spec("headGroupSpec should have at least one container");
    check(&[("/spec/rayClusterSpec/headGroupSpec/template/spec/containers", json!([]))], &s14);
    let annotated = spec(
        "cannot set `ray.io/external-storage-namespace` annotation when GcsFaultToleranceOptions is enabled - use \
         GcsFaultToleranceOptions.ExternalStorageNamespace instead",
    );
    check(
        &[
            ("/metadata/annotations", json!({"ray.io/external-storage-namespace": "x"})),
            ("/spec/rayClusterSpec/gcsFaultToleranceOptions", json!({})),
        ],
        &annotated,
    );
}

#[test]
fn runtime_environments_are_yaml_mappings() {
    let check = |text: &str, expect: &str| check(&[("/spec/runtimeEnvYAML", json!(text))], expect);
    check("", "ok");
    check("pip: [torch]", "ok");
    check("a: 1\na: 2", "ok");
    check(
        "invalid_yaml_string",
        "failed to unmarshal RuntimeEnvYAML: invalid_yaml_string: error unmarshaling JSON: while decoding JSON: json: \
         cannot unmarshal string into Go value of type types.RuntimeEnvType",
    );
    check(
        "- a",
        "failed to unmarshal RuntimeEnvYAML: - a: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal \
         array into Go value of type types.RuntimeEnvType",
    );
}

#[test]
fn limits_are_positive() {
    for (field, texts) in [
        ("activeDeadlineSeconds", [-1, 0].as_slice()),
        ("preRunningDeadlineSeconds", [-1, 0].as_slice()),
        ("backoffLimit", [-1].as_slice()),
    ] {
        let path = format!("/spec/{field}");
        for value in texts {
            check(&[(&path, json!(value))], &spec(&format!("{field} must be a positive integer")));
        }
        check(&[(&path, json!(1))], "ok");
    }
}

#[test]
fn only_interactive_jobs_can_be_waiting() {
    let status = |status: &str| ("/status", json!({"jobDeploymentStatus": status}));
    let t1 = "The RayJob status is invalid: JobDeploymentStatus cannot be `Waiting` when SubmissionMode is not \
              InteractiveMode";
    check(&[status("Waiting")], t1);
    check(&[status("Waiting"), ("/spec/submissionMode", Value::Null)], t1);
    check(&[status("Waiting"), ("/spec/submissionMode", json!("InteractiveMode"))], "ok");
    check(&[status("Running"), ("/spec/submissionMode", json!("HTTPMode"))], "ok");
}

fn legacy(success: Value, failure: Value) -> Edit<'static> {
    (STRATEGY, json!({"onSuccess": {"policy": success}, "onFailure": {"policy": failure}}))
}

fn rules(rules: Value) -> Edit<'static> {
    (STRATEGY, json!({"deletionRules": rules}))
}

fn rule(policy: &str, job_status: &str, ttl: i32) -> Value {
    json!({"policy": policy, "condition": {"jobStatus": job_status, "ttlSeconds": ttl}})
}

fn deployment_rule(policy: &str, status: &str, ttl: i32) -> Value {
    json!({"policy": policy, "condition": {"jobDeploymentStatus": status, "ttlSeconds": ttl}})
}

#[test]
fn deletion_strategies_are_complete_and_exclusive() {
    let mut gate_off = everything();
    gate_off.gates.ray_job_deletion_policy = false;
    assert_eq!(
        outcome(&[(STRATEGY, json!({}))], &gate_off).unwrap_err().text,
        "RayJobDeletionPolicy feature gate must be enabled to use DeletionStrategy"
    );
    let one = || rules(json!([rule("DeleteSelf", "SUCCEEDED", 0)]));
    check(&[one()], "ok");
    let d3 = spec("spec.shutdownAfterJobFinishes and spec.deletionStrategy.deletionRules are mutually exclusive");
    check(&[one(), (SHUTDOWN, json!(true))], &d3);
    let d4 = spec("Cannot use both legacy onSuccess/onFailure fields and deletionRules simultaneously");
    check(&[(STRATEGY, json!({"onSuccess": {}, "deletionRules": [rule("DeleteSelf", "SUCCEEDED", 0)]}))], &d4);
    let d5 = spec(
        "DeletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot be empty)",
    );
    check(&[(STRATEGY, json!({}))], &d5);
    check(&[rules(json!([]))], &d5);
}

#[test]
fn legacy_policies_fit_the_cluster() {
    let shutdown = || (SHUTDOWN, json!(true));
    check(&[legacy(json!("DeleteCluster"), json!("DeleteNone"))], "ok");
    check(&[legacy(json!("DeleteCluster"), json!("DeleteCluster")), shutdown()], "ok");
    check(
        &[(STRATEGY, json!({"onSuccess": {"policy": "DeleteSelf"}}))],
        "both DeletionStrategy.OnSuccess and DeletionStrategy.OnFailure must be set when using the legacy deletion \
         policy fields of DeletionStrategy",
    );
    check(
        &[legacy(Value::Null, Value::Null)],
        "the DeletionPolicyType field of DeletionStrategy.OnSuccess cannot be unset when DeletionStrategy is enabled",
    );
    check(
        &[legacy(json!("DeleteSelf"), Value::Null)],
        "the DeletionPolicyType field of DeletionStrategy.OnFailure cannot be unset when DeletionStrategy is enabled",
    );
    for policy in ["DeleteCluster", "DeleteWorkers"] {
        check(
            &on_existing_cluster(&[legacy(json!(policy), json!("DeleteCluster"))]),
            &format!("the ClusterSelector mode doesn't support DeletionStrategy={policy} on success"),
        );
        check(
            &on_existing_cluster(&[legacy(json!("DeleteSelf"), json!(policy))]),
            &format!("the ClusterSelector mode doesn't support DeletionStrategy={policy} on failure"),
        );
    }
    check(&on_existing_cluster(&[legacy(json!("DeleteSelf"), json!("DeleteNone"))]), "ok");
    let autoscaling = "DeletionStrategy=DeleteWorkers currently does not support RayCluster with autoscaling enabled";
    check(&[legacy(json!("DeleteNone"), json!("DeleteWorkers")), (AUTOSCALING, json!(true))], autoscaling);
    check(&[legacy(json!("DeleteNone"), json!("DeleteWorkers"))], "ok");
    let l7 = spec("shutdownAfterJobFinshes is set to 'true' while deletion policy is 'DeleteNone'");
    check(&[legacy(json!("DeleteSelf"), json!("DeleteNone")), shutdown()], &l7);
}

#[test]
fn deletion_rules_have_one_condition_each() {
    let check_rules = |list: Value, expect: &str| check(&[rules(list)], expect);
    check_rules(
        json!([{"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}}]),
        "deletionRules[0]: cannot set both JobStatus and JobDeploymentStatus at the same time",
    );
    check_rules(
        json!([{"policy": "DeleteSelf", "condition": {}}]),
        "deletionRules[0]: exactly one of JobStatus and JobDeploymentStatus must be set",
    );
    check_rules(json!([rule("DeleteSelf", "FAILED", -10)]), "deletionRules[0]: TTLSeconds must be non-negative");
    for policy in ["DeleteCluster", "DeleteWorkers"] {
        check(
            &on_existing_cluster(&[rules(json!([rule(policy, "FAILED", 0)]))]),
            &format!("deletionRules[0]: DeletionPolicyType '{policy}' not supported when ClusterSelector is set"),
        );
    }
    check(
        &[rules(json!([rule("DeleteWorkers", "FAILED", 0)])), (AUTOSCALING, json!(true))],
        "deletionRules[0]: DeletionPolicyType 'DeleteWorkers' not supported with autoscaling enabled",
    );
    check_rules(
        json!([rule("DeleteSelf", "SUCCEEDED", 0), rule("DeleteSelf", "SUCCEEDED", 5)]),
        "deletionRules[1]: duplicate rule for DeletionPolicyType 'DeleteSelf' and JobStatus 'SUCCEEDED'",
    );
    check_rules(
        json!([deployment_rule("DeleteCluster", "Failed", 0), deployment_rule("DeleteCluster", "Failed", 0)]),
        "deletionRules[1]: duplicate rule for DeletionPolicyType 'DeleteCluster' and JobDeploymentStatus 'Failed'",
    );
    check_rules(
        json!([rule("DeleteSelf", "FAILED", -1), {"policy": "DeleteNone", "condition": {}}]),
        "deletionRules[0]: TTLSeconds must be non-negative\ndeletionRules[1]: exactly one of JobStatus and \
         JobDeploymentStatus must be set",
    );
}

#[test]
fn deletion_ttls_are_in_order() {
    let check_rules = |list: Value, expect: &str| check(&[rules(list)], expect);
    check_rules(
        json!([rule("DeleteCluster", "SUCCEEDED", 10), rule("DeleteWorkers", "SUCCEEDED", 20)]),
        "for JobStatus 'SUCCEEDED': DeleteCluster TTL (10) must be >= DeleteWorkers TTL (20)",
    );
    check_rules(
        json!([deployment_rule("DeleteWorkers", "Failed", 20), deployment_rule("DeleteCluster", "Failed", 10)]),
        "for JobDeploymentStatus 'Failed': DeleteCluster TTL (10) must be >= DeleteWorkers TTL (20)",
    );
    check_rules(
        json!([rule("DeleteCluster", "FAILED", 20), rule("DeleteSelf", "FAILED", 10)]),
        "for JobStatus 'FAILED': DeleteSelf TTL (10) must be >= DeleteCluster TTL (20)",
    );
    check_rules(
        json!([rule("DeleteWorkers", "FAILED", 20), rule("DeleteSelf", "FAILED", 10)]),
        "for JobStatus 'FAILED': DeleteSelf TTL (10) must be >= DeleteWorkers TTL (20)",
    );
    check_rules(
        json!([
            rule("DeleteWorkers", "SUCCEEDED", 10),
            rule("DeleteCluster", "SUCCEEDED", 20),
            rule("DeleteSelf", "SUCCEEDED", 30),
            rule("DeleteSelf", "FAILED", 0),
        ]),
        "ok",
    );
    check_rules(json!([rule("DeleteWorkers", "FAILED", 10), deployment_rule("DeleteCluster", "Failed", 20)]), "ok");
    // An invalid rule is not part of the order.
    check_rules(
        json!([rule("DeleteWorkers", "FAILED", 20), rule("DeleteSelf", "FAILED", -1)]),
        "deletionRules[1]: TTLSeconds must be non-negative",
    );
}

#[test]
fn events_name_the_part() {
    let event = |edits: &[Edit<'_>]| outcome(edits, &everything()).unwrap_err().event("ns", "train");
    assert_eq!(event(&[("/metadata/name", json!("a.b"))]).reason, "InvalidRayJobMetadata");
    assert_eq!(event(&[("/status", json!({"jobDeploymentStatus": "Waiting"}))]).reason, "InvalidRayJobStatus");
    assert_eq!(
        event(&[("/spec/backoffLimit", json!(-1))]),
        crate::action::Event::warning(
            "InvalidRayJobSpec",
            "Validate",
            "ns/train: The RayJob spec is invalid: backoffLimit must be a positive integer"
        )
    );
}
