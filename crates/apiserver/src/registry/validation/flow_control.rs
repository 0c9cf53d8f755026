//! Validation of FlowSchemas and PriorityLevelConfigurations.

use serde_json::Value;

use super::fields::{indexed, one_of, required_one_of, text};
use crate::names;
use crate::schema::FieldError;

/// Validates a flow schema.
pub(in crate::registry) fn flow_schema(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let precedence = &spec["matchingPrecedence"];
    let fault = match precedence.as_i64().unwrap_or(0) {
        number if number <= 0 => Some("must be a positive value"),
        number if number > 10_000 => Some("must not be greater than 10000"),
        1 if new["metadata"]["name"] != "exempt" => {
            Some("only the schema named 'exempt' may have matchingPrecedence 1")
        }
        _ => None,
    };
    if let Some(why) = fault {
        errors.push(FieldError::invalid("spec.matchingPrecedence", precedence, why));
    }
    if !spec["distinguisherMethod"].is_null() {
        let kinds = ["ByNamespace", "ByUser"];
        one_of(&spec["distinguisherMethod"]["type"], "spec.distinguisherMethod.type", &kinds, errors);
    }
    let level = &spec["priorityLevelConfiguration"]["name"];
    match text(level) {
        "" => {
            let why = "must reference a priority level";
            errors.push(FieldError::required("spec.priorityLevelConfiguration.name", why));
        }
        name => {
            if let Some(why) = names::subdomain(name) {
                errors.push(FieldError::invalid("spec.priorityLevelConfiguration.name", level, &why));
            }
        }
    }
    for (index, rule) in indexed(&spec["rules"]) {
        rules(rule, &format!("spec.rules[{index}]"), errors);
    }
}

fn rules(rule: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    if is_empty(&rule["subjects"]) {
        errors.push(FieldError::required(format!("{path}.subjects"), "subjects must contain at least one value"));
    }
    for (index, subject) in indexed(&rule["subjects"]) {
        subject_of(subject, &format!("{path}.subjects[{index}]"), errors);
    }
    if is_empty(&rule["resourceRules"]) && is_empty(&rule["nonResourceRules"]) {
        let why = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, why));
    }
    for (list, keys) in [
        ("resourceRules", &["verbs", "apiGroups", "resources"][..]),
        ("nonResourceRules", &["verbs", "nonResourceURLs"]),
    ] {
        for (index, one) in indexed(&rule[list]) {
            for key in keys.iter().filter(|key| is_empty(&one[**key])) {
                let field = format!("{path}.{list}[{index}].{key}");
                let why = format!("{list}.{key} must contain at least one value");
                errors.push(FieldError::required(
                    field,
                    if *key == "verbs" { "verbs must contain at least one value" } else { &why },
                ));
            }
        }
    }
}

fn subject_of(subject: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kinds = [("Group", "group"), ("ServiceAccount", "serviceAccount"), ("User", "user")];
    let Some((kind, key)) = kinds.iter().find(|(kind, _)| subject["kind"] == *kind) else {
        let supported = kinds.map(|(kind, _)| kind);
        errors.push(FieldError::not_supported(format!("{path}.kind"), &subject["kind"], &supported));
        return;
    };
    for (_, other) in kinds.iter().filter(|(_, other)| other != key && !subject[*other].is_null()) {
        let kind = kinds.iter().find(|(_, key)| key == other).map_or("", |(kind, _)| kind);
        let why = format!("{other} is forbidden when subject kind is not '{kind}'");
        errors.push(FieldError::forbidden(format!("{path}.{other}"), &why));
    }
    if subject[*key].is_null() {
        let why = format!("{key} is required when subject kind is '{kind}'");
        errors.push(FieldError::required(format!("{path}.{key}"), &why));
    } else if text(&subject[*key]["name"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.{key}.name"), ""));
    }
}

/// Validates a priority level.
pub(in crate::registry) fn priority_level(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let (spec, name) = (&new["spec"], text(&new["metadata"]["name"]));
    let kind = text(&spec["type"]);
    if (name == "exempt") != (kind == "Exempt") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid("spec.type", &spec["type"], why));
    }
    match kind {
        "Exempt" => {
            if !spec["limited"].is_null() {
                errors.push(FieldError::forbidden("spec.limited", "must be nil if the type is not Limited"));
            }
        }
        "Limited" if spec["limited"].is_null() => {
            errors.push(FieldError::required("spec.limited", "must not be empty when type is Limited"));
        }
        "Limited" => limited(&spec["limited"], errors),
        _ => errors.push(FieldError::not_supported("spec.type", &spec["type"], &["Exempt", "Limited"])),
    }
}

fn limited(limited: &Value, errors: &mut Vec<FieldError>) {
    let number = |key: &str| limited[key].as_i64();
    let mut refuse = |key: &str, why: &str| {
        errors.push(FieldError::invalid(format!("spec.limited.{key}"), &limited[key], why));
    };
    if number("nominalConcurrencyShares").is_some_and(|shares| shares < 0) {
        refuse("nominalConcurrencyShares", "must be a non-negative integer");
    }
    if number("lendablePercent").is_some_and(|percent| !(0..=100).contains(&percent)) {
        refuse("lendablePercent", "must be between 0 and 100, inclusive");
    }
    if number("borrowingLimitPercent").is_some_and(|percent| percent < 0) {
        refuse("borrowingLimitPercent", "if specified, must be a non-negative integer");
    }
    let response = &limited["limitResponse"];
    let queuing = !response["queuing"].is_null();
    match text(&response["type"]) {
        "Reject" if queuing => {
            let why = "must be nil if limited.limitResponse.type is not Limited";
            errors.push(FieldError::forbidden("spec.limited.limitResponse.queuing", why));
        }
        "Queue" if !queuing => {
            let why = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(FieldError::required("spec.limited.limitResponse.queuing", why));
        }
        "Queue" => {
            for key in ["queueLengthLimit", "queues", "handSize"] {
                if response["queuing"][key].as_i64().is_some_and(|number| number <= 0) {
                    let field = format!("spec.limited.limitResponse.queuing.{key}");
                    errors.push(FieldError::invalid(field, &response["queuing"][key], "must be positive"));
                }
            }
            let number = |key: &str| response["queuing"][key].as_i64().unwrap_or(0);
            if number("handSize") > number("queues") {
                let why = format!("should not be greater than queues ({})", number("queues"));
                let field = "spec.limited.limitResponse.queuing.handSize";
                errors.push(FieldError::invalid(field, &response["queuing"]["handSize"], &why));
            }
        }
        _ => required_one_of(&response["type"], "spec.limited.limitResponse.type", &["Queue", "Reject"], errors),
    }
}
