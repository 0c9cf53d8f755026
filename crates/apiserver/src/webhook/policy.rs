//! ValidatingAdmissionPolicies: CEL expressions that judge a write, bound to kinds and parameters by bindings.
//!
//! The action `Audit` does nothing here, as there is no audit annotation to write. `authorizer` is not available;
//! validation refuses policies that use it.

use serde_json::{Value, json};

use super::review::{AdmissionRequest, Operation};
use super::select;
use crate::error::ApiError;
use crate::ops::Cluster;
use crate::schema::{Outcome, with_variables};
use crate::selector::{LabelRule, labels_match};
use crate::store::{ListRange, ObjectKey};

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
pub(super) const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

/// Judges a write by every policy that is bound to it; returns warnings.
pub(super) fn admit(
    cluster: &Cluster,
    request: &AdmissionRequest<'_>,
    object: &Value,
    old: &Value,
) -> Result<Vec<String>, ApiError> {
    if cluster.store.count(BINDINGS) == 0 {
        return Ok(Vec::new());
    }
    let bindings = cluster.store.list(BINDINGS, &ListRange::default(), |_| true);
    let mut warnings = Vec::new();
    for binding in bindings.map(|page| page.entries).unwrap_or_default() {
        let binding = binding.value();
        let name = binding["spec"]["policyName"].as_str().unwrap_or("");
        let Some(policy) = cluster.store.get(POLICIES, &ObjectKey::new("", name)) else { continue };
        let policy = policy.value();
        if !is_bound(&policy["spec"]["matchConstraints"], request, object, old)
            || (!binding["spec"]["matchResources"].is_null()
                && !is_bound(&binding["spec"]["matchResources"], request, object, old))
        {
            continue;
        }
        let bound = Bound { cluster, request, policy: &policy, binding: &binding };
        for violation in bound.violations(object, old) {
            warnings.extend(bound.act(&violation)?);
        }
    }
    Ok(warnings)
}

/// Returns whether the rules and selectors of a policy or a binding match a write; no rules match everything.
fn is_bound(matches: &Value, request: &AdmissionRequest<'_>, object: &Value, old: &Value) -> bool {
    let equivalent = matches["matchPolicy"] != "Exact";
    let rules = &matches["resourceRules"];
    let named = rules.as_array().is_none_or(Vec::is_empty) || select::names(rules, equivalent, request);
    named
        && !select::names(&matches["excludeResourceRules"], equivalent, request)
        && select::selects(matches, request, object, old)
}

/// A validation that failed.
struct Violation {
    message: String,
    reason: String,
}

struct Bound<'a> {
    cluster: &'a Cluster,
    request: &'a AdmissionRequest<'a>,
    policy: &'a Value,
    binding: &'a Value,
}

impl Bound<'_> {
    fn violations(&self, object: &Value, old: &Value) -> Vec<Violation> {
        let fails_closed = self.policy["spec"]["failurePolicy"] != "Ignore";
        let params = match self.params() {
            Ok(params) => params,
            Err(message) if fails_closed => return vec![Violation { message, reason: "Invalid".to_owned() }],
            Err(_) => return Vec::new(),
        };
        let mut request = self.request.review(&Value::Null, &Value::Null)["request"].take();
        if let Some(request) = request.as_object_mut() {
            request.remove("object");
            request.remove("oldObject");
        }
        let namespace = self.cluster.store.get("namespaces", &ObjectKey::new("", self.request.target.namespace));
        let namespace = namespace.map_or(Value::Null, |namespace| namespace.value());
        let mut found = Vec::new();
        for params in &params {
            let given = [
                ("object", if self.request.operation == Operation::Delete { &Value::Null } else { object }),
                ("oldObject", old),
                ("request", &request),
                ("params", params),
                ("namespaceObject", &namespace),
            ];
            found.extend(self.evaluate(&given, fails_closed));
        }
        found
    }

    fn evaluate(&self, given: &[(&str, &Value)], fails_closed: bool) -> Vec<Violation> {
        let spec = &self.policy["spec"];
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let composed: Vec<(&str, &str)> = spec["variables"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|variable| Some((variable["name"].as_str()?, variable["expression"].as_str()?)))
            .collect();
        with_variables(given, &composed, |evaluate| {
            let failed = |expression: &str, why: String| Violation {
                message: format!("expression '{}' resulted in error: {why}", expression.trim()),
                reason: "Invalid".to_owned(),
            };
            let mut condition_error = None;
            for condition in spec["matchConditions"].as_array().into_iter().flatten() {
                let expression = text(&condition["expression"]);
                match evaluate(&expression) {
                    Ok(Outcome::Bool(false)) => return Vec::new(),
                    Ok(Outcome::Bool(true)) => {}
                    Ok(_) => condition_error = Some(failed(&expression, "no bool".to_owned())),
                    Err(why) => condition_error = Some(failed(&expression, why)),
                }
            }
            if let Some(error) = condition_error {
                return if fails_closed { vec![error] } else { Vec::new() };
            }
            let mut found = Vec::new();
            for validation in spec["validations"].as_array().into_iter().flatten() {
                let expression = text(&validation["expression"]);
                let outcome = evaluate(&expression);
                match outcome {
                    Ok(Outcome::Bool(true)) => {}
                    Ok(Outcome::Bool(false)) => {
                        let own = Some(text(&validation["message"])).filter(|message| !message.trim().is_empty());
                        let made = validation["messageExpression"].as_str().and_then(|made| match evaluate(made) {
                            Ok(Outcome::Text(text)) if !text.trim().is_empty() => Some(text),
                            _ => None,
                        });
                        let plain = || format!("failed expression: {}", expression.trim());
                        let message = made.or(own).unwrap_or_else(plain).trim().to_owned();
                        found.push(Violation { message, reason: text(&validation["reason"]) });
                    }
                    Ok(_) if fails_closed => found.push(failed(&expression, "no bool".to_owned())),
                    Err(why) if fails_closed => found.push(failed(&expression, why)),
                    Ok(_) | Err(_) => {}
                }
            }
            found
        })
    }

    /// Returns the parameters, or a null if the policy takes none.
    fn params(&self) -> Result<Vec<Value>, String> {
        let (kind, reference) = (&self.policy["spec"]["paramKind"], &self.binding["spec"]["paramRef"]);
        if kind.is_null() || reference.is_null() {
            return Ok(vec![Value::Null]);
        }
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let now = self.cluster.registry.now();
        let Some(resource) = now.find_kind(&text(&kind["apiVersion"]), &text(&kind["kind"])) else {
            return Err(format!("failed to find resource referenced by paramKind: '{}'", json!(kind)));
        };
        let own = self.request.target.namespace.to_owned();
        let namespace = match (resource.namespaced, text(&reference["namespace"])) {
            (false, _) => String::new(),
            (true, given) if given.is_empty() => own,
            (true, given) => given,
        };
        let shown = |entry: &crate::store::Entry| {
            let mut value = entry.value();
            resource.to_served(&mut value);
            value
        };
        let found: Vec<Value> = match reference["name"].as_str() {
            Some(name) => self
                .cluster
                .store
                .get(&resource.table, &ObjectKey::new(&namespace, name))
                .iter()
                .map(|one| shown(one))
                .collect(),
            None => {
                let rules = LabelRule::from_object(&reference["selector"]);
                let range = ListRange {
                    namespace: Some(&namespace).filter(|_| resource.namespaced).map(|name| name.as_str()),
                    ..ListRange::default()
                };
                let page = self.cluster.store.list(&resource.table, &range, |entry| labels_match(&rules, entry));
                page.map(|page| page.entries).unwrap_or_default().iter().map(|one| shown(one)).collect()
            }
        };
        match (found.is_empty(), reference["parameterNotFoundAction"] == "Allow") {
            (true, false) => Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()),
            _ => Ok(found),
        }
    }

    /// Does what the binding says about a violation; returns warnings.
    fn act(&self, violation: &Violation) -> Result<Option<String>, ApiError> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let (policy, binding) = (name(self.policy), name(self.binding));
        let says = |action: &str| {
            self.binding["spec"]["validationActions"].as_array().into_iter().flatten().any(|one| one == action)
        };
        let message = &violation.message;
        if says("Deny") {
            let why =
                format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}");
            let target = self.request.target;
            return Err(ApiError::denied_by_policy(target.resource.named(target.name), &violation.reason, &why));
        }
        let warning =
            format!("Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}");
        Ok(says("Warn").then_some(warning))
    }
}
