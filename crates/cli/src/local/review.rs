//! The admission webhook of local mode: the rules of the operator, without a network in between.

use manta_apiserver::schema::{ErrorType, FieldError};
use manta_apiserver::{Reviewer, Verdict};
use manta_logic::action::Kind;
use manta_logic::admission::refuse::{AdmissionRequest, refuse};
use manta_logic::config::Config;
use serde_json::Value;
use std::sync::Arc;

/// The kinds that are reviewed.
const KINDS: [Kind; 4] = [Kind::RayCluster, Kind::RayJob, Kind::RayService, Kind::RayCronJob];

/// Returns a reviewer that refuses what the operator would not reconcile.
pub(super) fn reviewer(mut config: Config) -> Reviewer {
    // Whether cert-manager is there may change; the operator looks when it needs it.
    config.platform.cert_manager = true;
    let review = move |kind: &str, object: &Value, old: Option<&Value>| review(&config, kind, object, old);
    Reviewer { group: "ray.io", review: Arc::new(review) }
}

fn review(config: &Config, kind: &str, object: &Value, old: Option<&Value>) -> Verdict {
    let Some(kind) = KINDS.into_iter().find(|known| known.resource().kind == kind) else { return Verdict::default() };
    let refusals = refuse(&AdmissionRequest { kind, object, old }, config);
    let errors = refusals.into_iter().map(|refusal| match refusal.value {
        Some(value) => FieldError::invalid(refusal.field, &value.into(), &refusal.message),
        None => FieldError {
            error_type: ErrorType::Invalid,
            field: refusal.field,
            body: format!("Invalid value: {}", refusal.message),
        },
    });
    Verdict { errors: errors.collect(), warnings: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_operator_refuses_is_refused_at_once() {
        let object = |mode: &str| {
            json!({
                "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "demo"},
                "spec": {"entrypoint": "x", "submissionMode": mode, "rayClusterSpec": {"headGroupSpec": {
                    "rayStartParams": {}, "template": {"spec": {"containers": [{"name": "head", "image": "i"}]}}}}},
            })
        };
        let reviewer = reviewer(Config::default());
        let judge = |kind: &str, object: &Value, old: Option<&Value>| -> Vec<String> {
            (reviewer.review)(kind, object, old).errors.iter().map(ToString::to_string).collect()
        };
        assert_eq!(judge("RayJob", &object("HTTPMode"), None), [""; 0]);
        let wrong = object("K8JobMode");
        let found = judge("RayJob", &wrong, None);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("spec: Invalid value: The RayJob spec is invalid: submissionMode"), "{found:?}");
        assert_eq!(judge("RayJob", &wrong, Some(&wrong)), [""; 0], "a change that adds no violation");
        assert_eq!(judge("Other", &wrong, None), [""; 0]);
    }
}
