//! What the optional admission webhook refuses: bad names and annotations, and worker groups of the same name.
//!
//! Everything else is left to the operator, which tells by event and status, so that an object that was
//! admitted under older rules can still be changed.

use super::cluster::check_cluster_name;
use super::job::check_job_name;
use super::service::check_service_metadata;
use crate::go::quote::quote;
use manta_api::{RayCluster, RayJob, RayService};
use std::collections::BTreeSet;

/// One reason to refuse an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where, e.g. `metadata.name`.
    pub field: String,
    /// What stands there.
    pub value: String,
    pub message: String,
}

/// Why a RayCluster must not be stored.
pub fn refuse_cluster(cluster: &RayCluster) -> Vec<Refusal> {
    let mut refusals = by_name(cluster.metadata.name.as_deref(), check_cluster_name(&cluster.metadata));
    let mut known = BTreeSet::new();
    let groups = cluster.spec.worker_group_specs.iter().flatten().map(|group| &group.group_name);
    if let Some((index, name)) = groups.enumerate().find(|(_, name)| !known.insert(*name)) {
        refusals.push(Refusal {
            field: format!("spec.workerGroupSpecs[{index}]"),
            value: name.clone(),
            message: "worker group names must be unique".to_owned(),
        });
    }
    refusals
}

/// Why a RayJob must not be stored.
pub fn refuse_job(job: &RayJob) -> Vec<Refusal> {
    by_name(job.metadata.name.as_deref(), check_job_name(&job.metadata))
}

/// Why a RayService must not be stored.
pub fn refuse_service(service: &RayService) -> Vec<Refusal> {
    by_name(service.metadata.name.as_deref(), check_service_metadata(&service.metadata))
}

/// The answer to whoever tried to store the object, in the words of the API server.
pub fn answer(kind: &str, name: &str, refusals: &[Refusal]) -> String {
    let reasons: Vec<_> = refusals.iter().map(Refusal::to_string).collect();
    let reasons = if let [reason] = &reasons[..] { reason.clone() } else { format!("[{}]", reasons.join(", ")) };
    format!("{kind}.ray.io {} is invalid: {reasons}", quote(name))
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: Invalid value: {}: {}", self.field, quote(&self.value), self.message)
    }
}

/// Annotations are reported under the name, too.
fn by_name(name: Option<&str>, outcome: Result<(), String>) -> Vec<Refusal> {
    let refusal =
        |message| Refusal { field: "metadata.name".to_owned(), value: name.unwrap_or_default().to_owned(), message };
    outcome.err().map(refusal).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::fixtures::{Edit, cluster_spec, edited};
    use serde::de::DeserializeOwned;
    use serde_json::json;

    fn object<T: DeserializeOwned>(edits: &[Edit<'_>]) -> T {
        let base = json!({"metadata": {"name": "demo"}, "spec": cluster_spec()});
        serde_json::from_value(edited(base, edits)).unwrap()
    }

    #[test]
    fn names_and_annotations() {
        let long = "a".repeat(54);
        let named = |name: &str| [("/metadata/name", json!(name))];
        assert_eq!(refuse_cluster(&object(&[])), []);
        assert_eq!(refuse_job(&object(&[])), []);
        assert_eq!(refuse_service(&object(&[])), []);
        assert_eq!(
            answer("RayCluster", &long, &refuse_cluster(&object(&named(&long)))),
            format!(
                "RayCluster.ray.io \"{long}\" is invalid: metadata.name: Invalid value: \"{long}\": RayCluster name \
                 should be no more than 53 characters"
            )
        );
        let job = answer("RayJob", "invalid.name", &refuse_job(&object(&named("invalid.name"))));
        assert!(
            job.starts_with(
                "RayJob.ray.io \"invalid.name\" is invalid: metadata.name: Invalid value: \"invalid.name\": The RayJob \
                 metadata is invalid: RayJob name should be a valid DNS1035 label: ["
            ),
            "{job}"
        );
        // RayService edge 8
        let long = "s".repeat(48);
        for (name, says) in [
            (long.as_str(), "RayService name should be no more than 47 characters"),
            ("invalid.name", "RayService name should be a valid DNS1035 label: ["),
        ] {
            let service = answer("RayService", name, &refuse_service(&object(&named(name))));
            let expect = format!(
                "RayService.ray.io \"{name}\" is invalid: metadata.name: Invalid value: \"{name}\": The RayService \
                 metadata is invalid: {says}"
            );
            assert!(service.starts_with(&expect), "{service}");
        }
        let annotated = ("/metadata/annotations", json!({"ray.io/initializing-timeout": "0"}));
        let [refusal] = &refuse_service(&object(&[annotated]))[..] else { panic!("not refused") };
        assert_eq!(refusal.field, "metadata.name");
        assert!(refusal.message.ends_with("must be a positive duration, got: 0"), "{refusal}");
    }

    #[test]
    fn edge_14_bad_names_of_rayjobs_are_refused() {
        for name in ["a".repeat(48).as_str(), "invalid.name", "1st", "Train", ""] {
            let refusals = refuse_job(&object(&[("/metadata/name", json!(name))]));
            let text = answer("RayJob", name, &refusals);
            assert!(text.starts_with(&format!("RayJob.ray.io \"{name}\" is invalid: metadata.name")), "{text}");
        }
        assert_eq!(refuse_job(&object(&[("/metadata/name", json!("a".repeat(47)))])), []);
    }

    #[test]
    fn groups_of_the_same_name() {
        let group = cluster_spec()["workerGroupSpecs"][0].clone();
        let groups = json!([group, group, group]);
        let cluster = object(&[("/spec/workerGroupSpecs", groups), ("/metadata/name", json!("a.b"))]);
        let refusals = refuse_cluster(&cluster);
        assert_eq!(refusals.len(), 2, "the first duplicate only");
        assert_eq!(
            refusals[1].to_string(),
            "spec.workerGroupSpecs[1]: Invalid value: \"small\": worker group names must be unique"
        );
        let text = answer("RayCluster", "a.b", &refusals);
        assert!(
            text.starts_with("RayCluster.ray.io \"a.b\" is invalid: [metadata.name: ") && text.ends_with("unique]")
        );
    }
}
