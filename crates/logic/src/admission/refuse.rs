//! The rules of the admission webhook: those of the operator with the same messages, and unique names of worker groups.
//!
//! A change that adds no violation is allowed, so that objects from before a rule can still be labelled, corrected step by
//! step, or deleted.

use crate::action::Kind;
use crate::cluster_spec::worker_groups;
use crate::config::Config;
use crate::go::quote::quote;
use crate::labels::is_managed_by_self;
use crate::validate::{Invalid, ValidCluster, ValidCronJob, cluster_problems, validate_job, validate_service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;

/// A reason to refuse an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The path of the field, e.g. `metadata.name`.
    pub field: String,
    /// The value of the field, if it is short.
    pub value: Option<String>,
    pub message: String,
}

/// A request to store an object.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    pub kind: Kind,
    pub object: &'a Value,
    /// The stored object, if there is one.
    pub old: Option<&'a Value>,
}

/// Returns the reasons to refuse a request; none if it is allowed.
pub fn refuse(request: &AdmissionRequest<'_>, config: &Config) -> Vec<Refusal> {
    if !request.object["metadata"]["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let refusals = problems(request.kind, request.object, config);
    let known = request.old.map(|old| problems(request.kind, old, config));
    // A violation that the stored object has already is no reason to refuse other changes.
    if known.is_some_and(|known| refusals.iter().all(|refusal| known.contains(refusal))) {
        return Vec::new();
    }
    refusals
}

/// Returns the message of the refusal in the format of the API server.
pub fn message(kind: &str, name: &str, refusals: &[Refusal]) -> String {
    let reasons: Vec<_> = refusals.iter().map(Refusal::to_string).collect();
    let reasons = if let [reason] = &reasons[..] { reason.clone() } else { format!("[{}]", reasons.join(", ")) };
    format!("{kind}.ray.io {} is invalid: {reasons}", quote(name))
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { field, value, message } = self;
        match value {
            Some(value) => write!(f, "{field}: Invalid value: {}: {message}", quote(value)),
            None => write!(f, "{field}: Invalid value: {message}"),
        }
    }
}

fn problems(kind: Kind, object: &Value, config: &Config) -> Vec<Refusal> {
    match kind {
        Kind::RayCluster => decode(object, |cluster| cluster_refusals(cluster, config)),
        Kind::RayJob => decode(object, |job| job_refusals(job, config)),
        Kind::RayService => decode(object, |service| service_refusals(service, config)),
        Kind::RayCronJob if config.gates.ray_cron_job => decode(object, |cron| cron_job_refusals(cron, config)),
        _ => Vec::new(),
    }
}

/// Decodes and checks an object; the schema allows numbers that are too large to decode.
fn decode<T: DeserializeOwned>(object: &Value, check: impl FnOnce(&T) -> Vec<Refusal>) -> Vec<Refusal> {
    match T::deserialize(object) {
        Ok(object) => check(&object),
        Err(error) => vec![in_field("spec", error.to_string())],
    }
}

fn cluster_refusals(cluster: &RayCluster, config: &Config) -> Vec<Refusal> {
    let mut problems = cluster_problems(cluster, config);
    if problems.is_empty() {
        // Adds the rule that depends on the platform: TLS needs cert-manager.
        problems.extend(ValidCluster::check(cluster, config).err());
    }
    let mut refusals = refusals(problems, &cluster.metadata, cluster.spec.managed_by.as_deref());
    refusals.extend(duplicate_group(cluster));
    refusals
}

fn duplicate_group(cluster: &RayCluster) -> Option<Refusal> {
    let mut known = BTreeSet::new();
    let groups = worker_groups(&cluster.spec).iter().map(|group| &group.group_name);
    let (index, name) = groups.enumerate().find(|(_, name)| !known.insert(*name))?;
    Some(Refusal {
        field: format!("spec.workerGroupSpecs[{index}]"),
        value: Some(name.clone()),
        message: "worker group names must be unique".to_owned(),
    })
}

fn job_refusals(job: &RayJob, config: &Config) -> Vec<Refusal> {
    refusals(validate_job(job, config).err(), &job.metadata, job.spec.managed_by.as_deref())
}

fn service_refusals(service: &RayService, config: &Config) -> Vec<Refusal> {
    refusals(validate_service(service, config).err(), &service.metadata, service.spec.managed_by.as_deref())
}

fn cron_job_refusals(cron: &RayCronJob, config: &Config) -> Vec<Refusal> {
    refusals(ValidCronJob::check(cron, config).err(), &cron.metadata, None)
}

/// Returns the broken rules as refusals; only those of the metadata if another controller manages the object.
///
/// Invalid annotations are also reported under the name.
fn refusals(
    problems: impl IntoIterator<Item = Invalid>,
    metadata: &ObjectMeta,
    managed_by: Option<&str>,
) -> Vec<Refusal> {
    let is_ours = is_managed_by_self(managed_by);
    let refusal = |problem: Invalid| match problem.part.is_metadata() {
        true => Some(by_name(metadata, problem.text)),
        false => is_ours.then(|| in_field("spec", problem.text)),
    };
    problems.into_iter().filter_map(refusal).collect()
}

fn by_name(metadata: &ObjectMeta, message: String) -> Refusal {
    let name = metadata.name.clone().unwrap_or_default();
    Refusal { field: "metadata.name".to_owned(), value: Some(name), message }
}

fn in_field(field: &str, message: String) -> Refusal {
    Refusal { field: field.to_owned(), value: None, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FeatureGates;
    use crate::validate::fixtures::{Edit, cluster_spec, edited, everything};
    use serde_json::json;

    fn object(kind: Kind, edits: &[Edit<'_>]) -> Value {
        let spec = match kind {
            Kind::RayCluster => cluster_spec(),
            Kind::RayJob => json!({"entrypoint": "x", "rayClusterSpec": cluster_spec()}),
            Kind::RayService => json!({"rayClusterConfig": cluster_spec()}),
            _ => json!({"schedule": "0 3 * * *", "jobTemplate": {"entrypoint": "x", "rayClusterSpec": cluster_spec()}}),
        };
        edited(json!({"metadata": {"name": "demo"}, "spec": spec}), edits)
    }

    #[track_caller]
    fn check(kind: Kind, edits: &[Edit<'_>], expect: &str) {
        let object = object(kind, edits);
        let refusals = refuse(&AdmissionRequest { kind, object: &object, old: None }, &everything());
        let name = object["metadata"]["name"].as_str().unwrap();
        let text = if refusals.is_empty() { String::new() } else { message(kind.resource().kind, name, &refusals) };
        assert_eq!(text, expect);
    }

    const LABEL: &str = "should be a valid DNS1035 label: [a DNS-1035 label must consist of lower case alphanumeric \
                         characters or '-', start with an alphabetic character, and end with an alphanumeric \
                         character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
                         '[a-z]([-a-z0-9]*[a-z0-9])?')]";

    #[test]
    fn valid_objects_are_allowed() {
        for kind in [Kind::RayCluster, Kind::RayJob, Kind::RayService, Kind::RayCronJob] {
            check(kind, &[], "");
        }
    }

    #[test]
    fn invalid_names_of_rayjobs_are_refused() {
        for name in ["a".repeat(48).as_str(), "invalid.name", "1st", "Train", ""] {
            let object = object(Kind::RayJob, &[("/metadata/name", json!(name))]);
            let refusals = refuse(&AdmissionRequest { kind: Kind::RayJob, object: &object, old: None }, &everything());
            let text = message("RayJob", name, &refusals);
            assert!(text.starts_with(&format!("RayJob.ray.io \"{name}\" is invalid: metadata.name")), "{text}");
        }
        check(Kind::RayJob, &[("/metadata/name", json!("a".repeat(47)))], "");
    }

    #[test]
    fn invalid_names_and_annotations_are_refused() {
        let named = |name: &str| [("/metadata/name", json!(name))];
        let long = "a".repeat(54);
        check(
            Kind::RayCluster,
            &named(&long),
            &format!(
                "RayCluster.ray.io \"{long}\" is invalid: metadata.name: Invalid value: \"{long}\": RayCluster name \
                 should be no more than 53 characters"
            ),
        );
        let invalid = "is invalid: metadata.name: Invalid value:";
        check(
            Kind::RayCluster,
            &named("a.b"),
            &format!("RayCluster.ray.io \"a.b\" {invalid} \"a.b\": RayCluster name {LABEL}"),
        );
        for (kind, word) in [(Kind::RayJob, "RayJob"), (Kind::RayService, "RayService")] {
            let message = format!("The {word} metadata is invalid: {word} name");
            check(kind, &named("a.b"), &format!("{word}.ray.io \"a.b\" {invalid} \"a.b\": {message} {LABEL}"));
            let long = "a".repeat(48);
            let expect = format!(
                "{word}.ray.io \"{long}\" {invalid} \"{long}\": {message} should be no more than 47 characters"
            );
            check(kind, &named(&long), &expect);
        }
        for (value, expect) in [
            ("0s", "must be a positive duration, got: 0s"),
            ("-3", "must be a positive integer (seconds), got: -3"),
            (
                "soon",
                "has invalid format: soon. Expected Go duration format (e.g., '5m', '1h') or positive integer seconds",
            ),
        ] {
            check(
                Kind::RayService,
                &[("/metadata/annotations", json!({"ray.io/initializing-timeout": value}))],
                &format!(
                    "RayService.ray.io \"demo\" {invalid} \"demo\": The RayService metadata is invalid: RayService \
                     annotations is invalid: annotation ray.io/initializing-timeout {expect}"
                ),
            );
        }
    }

    #[test]
    fn groups_of_the_same_name_are_refused() {
        let group = cluster_spec()["workerGroupSpecs"][0].clone();
        let groups = ("/spec/workerGroupSpecs", json!([group, group, group]));
        let unique = "spec.workerGroupSpecs[1]: Invalid value: \"small\": worker group names must be unique";
        check(
            Kind::RayCluster,
            std::slice::from_ref(&groups),
            &format!("RayCluster.ray.io \"demo\" is invalid: {unique}"),
        );
        check(
            Kind::RayCluster,
            &[groups, ("/metadata/name", json!("a.b"))],
            &format!(
                "RayCluster.ray.io \"a.b\" is invalid: [metadata.name: Invalid value: \"a.b\": RayCluster name {LABEL}, \
                 {unique}]"
            ),
        );
    }

    #[test]
    fn the_rules_of_the_operator_apply() {
        check(
            Kind::RayCluster,
            &[("/spec/workerGroupSpecs/0/minReplicas", json!(-1))],
            "RayCluster.ray.io \"demo\" is invalid: spec: Invalid value: worker group small has negative minReplicas -1",
        );
        check(
            Kind::RayJob,
            &[("/spec/backoffLimit", json!(-1))],
            "RayJob.ray.io \"demo\" is invalid: spec: Invalid value: The RayJob spec is invalid: backoffLimit must be a \
             positive integer",
        );
        check(
            Kind::RayService,
            &[("/spec/upgradeStrategy", json!({"type": "Sometimes"}))],
            "RayService.ray.io \"demo\" is invalid: spec: Invalid value: The RayService spec is invalid: \
             Spec.UpgradeStrategy.Type value Sometimes is invalid, valid options are NewClusterWithIncrementalUpgrade, \
             NewCluster, or None",
        );
        check(
            Kind::RayCronJob,
            &[("/spec/timeZone", json!("Nowhere"))],
            "RayCronJob.ray.io \"demo\" is invalid: spec: Invalid value: invalid time zone: unknown time zone Nowhere",
        );
        // This rule depends on the platform.
        let object = object(Kind::RayCluster, &[("/spec/tlsOptions", json!({"enabled": true}))]);
        let config = Config { platform: crate::config::Platform::default(), ..everything() };
        let [refusal] = &refuse(&AdmissionRequest { kind: Kind::RayCluster, object: &object, old: None }, &config)[..]
        else {
            panic!("not refused")
        };
        assert!(refusal.message.ends_with("cert-manager is not installed"), "{refusal}");
    }

    #[test]
    fn objects_of_another_controller_are_allowed() {
        let managed = |path| (path, json!("kueue.x-k8s.io/multikueue"));
        check(Kind::RayJob, &[managed("/spec/managedBy"), ("/spec/backoffLimit", json!(-1))], "");
        check(Kind::RayCluster, &[managed("/spec/managedBy"), ("/spec/workerGroupSpecs/0/minReplicas", json!(-1))], "");
        let off = Config { gates: FeatureGates { ray_cron_job: false, ..FeatureGates::default() }, ..everything() };
        let object = object(Kind::RayCronJob, &[("/spec/schedule", json!("never"))]);
        assert_eq!(refuse(&AdmissionRequest { kind: Kind::RayCronJob, object: &object, old: None }, &off), []);
    }

    #[test]
    fn a_change_that_adds_no_violation_is_allowed() {
        let kind = Kind::RayCluster;
        let bad = ("/spec/workerGroupSpecs/0/minReplicas", json!(-1));
        let worse = ("/spec/authOptions", json!({"mode": "token"}));
        let old_ray = ("/spec/rayVersion", json!("2.9.0"));
        let labelled = ("/metadata/labels", json!({"team": "a"}));
        let deleted = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        for (old, new, expect) in [
            (vec![bad.clone()], vec![bad.clone(), labelled], 0),
            (vec![bad.clone()], vec![bad.clone(), old_ray.clone(), worse.clone()], 2),
            (vec![bad.clone(), old_ray.clone(), worse.clone()], vec![old_ray, worse], 0),
            (vec![], vec![bad.clone()], 1),
            // It must be possible to remove the finalizer.
            (vec![], vec![bad, deleted], 0),
        ] {
            let (old, new) = (object(kind, &old), object(kind, &new));
            let refusals = refuse(&AdmissionRequest { kind, object: &new, old: Some(&old) }, &everything());
            assert_eq!(refusals.len(), expect, "{old}\n{new}\n{refusals:?}");
        }
    }

    #[test]
    fn objects_that_cannot_be_decoded_are_refused() {
        let object = object(Kind::RayCluster, &[("/spec/workerGroupSpecs/0/replicas", json!(9_999_999_999_i64))]);
        let refusals = refuse(&AdmissionRequest { kind: Kind::RayCluster, object: &object, old: None }, &everything());
        assert_eq!((refusals.len(), refusals[0].field.as_str()), (1, "spec"), "{refusals:?}");
    }
}
