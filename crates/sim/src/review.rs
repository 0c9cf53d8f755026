//! The operators' admission webhook, without a network in between.

use manta_apiserver::schema::{ErrorType, FieldError};
use manta_apiserver::{Reviewer, Verdict};
use manta_logic::action::Kind;
use manta_logic::admission::refuse::{AdmissionRequest, refuse};
use manta_logic::config::Config;
use serde_json::Value;
use std::sync::Arc;

/// The kinds that are reviewed.
const KINDS: [Kind; 4] = [Kind::RayCluster, Kind::RayJob, Kind::RayService, Kind::RayCronJob];

/// Returns a reviewer that refuses what operators with these settings would not reconcile.
pub(crate) fn reviewer(config: Config) -> Reviewer {
    let review = move |kind: &str, object: &Value, old: Option<&Value>| {
        let Some(kind) = KINDS.into_iter().find(|known| known.resource().kind == kind) else {
            return Verdict::default();
        };
        let refusals = refuse(&AdmissionRequest { kind, object, old }, &config).into_iter();
        let errors = refusals.map(|refusal| FieldError {
            error_type: ErrorType::Invalid,
            field: refusal.field,
            body: refusal.message,
        });
        Verdict { errors: errors.collect(), warnings: Vec::new() }
    };
    Reviewer { group: "ray.io", review: Arc::new(review) }
}
