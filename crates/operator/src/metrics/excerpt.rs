//! The few fields of an object that its metrics show, parsed once for each version of it.

use jiff::Timestamp;
use manta_logic::labels;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;

/// The conditions that metrics show.
const CONDITIONS: [&str; 3] = ["RayClusterProvisioned", "Ready", "UpgradeInProgress"];

/// What metrics show of an object beside its name; fields that its kind does not have are empty.
#[derive(Debug, PartialEq)]
pub(crate) struct Excerpt {
    pub(super) created: Option<Timestamp>,
    /// The kind that a RayCluster was created for.
    pub(super) originated_from: Option<Box<str>>,
    /// A RayJob's.
    pub(super) deployment_status: Option<Box<str>>,
    /// The conditions that are true, and since when.
    holding: Box<[(&'static str, Timestamp)]>,
}

impl Excerpt {
    /// Returns since when a condition is true, if it is.
    pub(super) fn since(&self, condition: &str) -> Option<Timestamp> {
        self.holding.iter().find(|(type_, _)| *type_ == condition).map(|(_, since)| *since)
    }
}

impl<'de> Deserialize<'de> for Excerpt {
    fn deserialize<D: serde::Deserializer<'de>>(inner: D) -> Result<Self, D::Error> {
        let Whole { metadata, status } = Whole::deserialize(inner)?;
        let status = status.unwrap_or_default();
        let holding = status.conditions.unwrap_or_default().into_iter().filter(|condition| condition.status == "True");
        let holding = holding.filter_map(|condition| {
            let type_ = CONDITIONS.into_iter().find(|known| *known == condition.type_)?;
            Some((type_, condition.last_transition_time?))
        });
        Ok(Self {
            created: metadata.creation_timestamp,
            originated_from: metadata
                .labels
                .and_then(|mut labels| labels.remove(labels::ORIGINATED_FROM_CRD))
                .map(Into::into),
            deployment_status: status.job_deployment_status.map(Into::into),
            holding: holding.collect(),
        })
    }
}

#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    status: Option<Status<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    creation_timestamp: Option<Timestamp>,
    #[serde(borrow)]
    labels: Option<HashMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status<'a> {
    #[serde(borrow)]
    job_deployment_status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition<'a> {
    #[serde(rename = "type", borrow)]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    last_transition_time: Option<Timestamp>,
}
