//! Validation of where a pod may run: tolerations, affinity, spreading, and its surroundings there.

use serde_json::{Value, json};

use super::fields::{address, indexed, label_name, one_of, required_one_of, selector, text};
use crate::names;
use crate::schema::FieldError;

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates everything about the placement of a pod.
pub(super) fn placement(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    affinity(&spec["affinity"], &format!("{path}.affinity"), errors);
    for (index, gate) in indexed(&spec["readinessGates"]) {
        label_name(&gate["conditionType"], &format!("{path}.readinessGates[{index}].conditionType"), errors);
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, gate) in indexed(&spec["schedulingGates"]) {
        let field = format!("{path}.schedulingGates[{index}]");
        label_name(&gate["name"], &field, errors);
        if seen.contains(&text(&gate["name"])) {
            errors.push(FieldError::duplicate(field, &gate["name"]));
        }
        seen.push(text(&gate["name"]));
    }
    for (index, constraint) in indexed(&spec["topologySpreadConstraints"]) {
        spread(constraint, &format!("{path}.topologySpreadConstraints[{index}]"), errors);
    }
    tolerations(&spec["tolerations"], &format!("{path}.tolerations"), errors);
}

fn tolerations(list: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, toleration) in indexed(list) {
        let field = format!("{path}[{index}]");
        let (key, operator) = (text(&toleration["key"]), text(&toleration["operator"]));
        if !key.is_empty() {
            label_name(&toleration["key"], &format!("{field}.key"), errors);
        } else if operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(format!("{field}.operator"), &json!(operator), why));
        }
        if !toleration["tolerationSeconds"].is_null() && toleration["effect"] != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(format!("{field}.effect"), &json!(text(&toleration["effect"])), why));
        }
        match operator {
            "" | "Equal" => {
                if let Some(why) = names::label_value(text(&toleration["value"])) {
                    errors.push(FieldError::invalid(format!("{field}.operator"), &toleration["value"], &why));
                }
            }
            "Exists" if !text(&toleration["value"]).is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(format!("{field}.operator"), &toleration["value"], why));
            }
            "Exists" => {}
            _ => {
                let field = format!("{field}.operator");
                errors.push(FieldError::not_supported(field, &toleration["operator"], &["Equal", "Exists"]));
            }
        }
        if !text(&toleration["effect"]).is_empty() {
            one_of(&toleration["effect"], format!("{field}.effect"), EFFECTS, errors);
        }
    }
}

/// Validates the taints of a node.
pub(super) fn taints(list: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (index, taint) in indexed(list) {
        let field = format!("{path}[{index}]");
        label_name(&taint["key"], &format!("{field}.key"), errors);
        if let Some(why) = names::label_value(text(&taint["value"])) {
            errors.push(FieldError::invalid(format!("{field}.value"), &taint["value"], &why));
        }
        required_one_of(&taint["effect"], format!("{field}.effect"), EFFECTS, errors);
        let key = (text(&taint["key"]), text(&taint["effect"]));
        if seen.contains(&key) {
            let mut error = FieldError::duplicate(field, taint);
            error.body.push_str(": taints must be unique by key and effect pair");
            errors.push(error);
        }
        seen.push(key);
    }
}

fn spread(constraint: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if constraint["maxSkew"].as_i64().unwrap_or(0) <= 0 {
        let skew = json!(constraint["maxSkew"].as_i64().unwrap_or(0));
        errors.push(FieldError::invalid(format!("{path}.maxSkew"), &skew, "must be greater than zero"));
    }
    match text(&constraint["topologyKey"]) {
        "" => errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty")),
        _ => label_name(&constraint["topologyKey"], &format!("{path}.topologyKey"), errors),
    }
    let actions = ["DoNotSchedule", "ScheduleAnyway"];
    if !actions.contains(&text(&constraint["whenUnsatisfiable"])) {
        let field = format!("{path}.whenUnsatisfiable");
        errors.push(FieldError::not_supported(field, &constraint["whenUnsatisfiable"], &actions));
    }
    selector(&constraint["labelSelector"], &format!("{path}.labelSelector"), errors);
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn affinity(affinity: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let node = &affinity["nodeAffinity"];
    if !node[REQUIRED].is_null() {
        node_selector(&node[REQUIRED], &format!("{path}.nodeAffinity.{REQUIRED}"), errors);
    }
    for (index, term) in indexed(&node[PREFERRED]) {
        let field = format!("{path}.nodeAffinity.{PREFERRED}[{index}]");
        weight(term, &field, errors);
        node_term(&term["preference"], &format!("{field}.preference"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in indexed(&affinity[kind][REQUIRED]) {
            pod_term(term, &format!("{path}.{kind}.{REQUIRED}[{index}]"), errors);
        }
        for (index, term) in indexed(&affinity[kind][PREFERRED]) {
            let field = format!("{path}.{kind}.{PREFERRED}[{index}]");
            weight(term, &field, errors);
            pod_term(&term["podAffinityTerm"], &format!("{field}.podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !(1..=100).contains(&term["weight"].as_i64().unwrap_or(0)) {
        let weight = json!(term["weight"].as_i64().unwrap_or(0));
        errors.push(FieldError::invalid(format!("{path}.weight"), &weight, "must be in the range 1-100"));
    }
}

/// Validates a selector of nodes.
pub(super) fn node_selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if selector["nodeSelectorTerms"].as_array().is_none_or(Vec::is_empty) {
        let why = "must have at least one node selector term";
        errors.push(FieldError::required(format!("{path}.nodeSelectorTerms"), why));
    }
    for (index, term) in indexed(&selector["nodeSelectorTerms"]) {
        node_term(term, &format!("{path}.nodeSelectorTerms[{index}]"), errors);
    }
}

fn node_term(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, requirement) in indexed(&term["matchExpressions"]) {
        let field = format!("{path}.matchExpressions[{index}]");
        let given = requirement["values"].as_array().map_or(0, Vec::len);
        match text(&requirement["operator"]) {
            "In" | "NotIn" if given == 0 => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{field}.values"), why));
            }
            "Exists" | "DoesNotExist" if given > 0 => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{field}.values"), why));
            }
            "Gt" | "Lt" if given != 1 => {
                let why = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.push(FieldError::required(format!("{field}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{field}.operator"), &requirement["operator"], why));
            }
        }
        label_name(&requirement["key"], &format!("{field}.key"), errors);
        for (number, value) in indexed(&requirement["values"]) {
            if let Some(why) = names::label_value(text(value)) {
                errors.push(FieldError::invalid(format!("{field}.values[{number}]"), value, &why));
            }
        }
    }
}

fn pod_term(term: &Value, path: &str, errors: &mut Vec<FieldError>) {
    selector(&term["labelSelector"], &format!("{path}.labelSelector"), errors);
    selector(&term["namespaceSelector"], &format!("{path}.namespaceSelector"), errors);
    if text(&term["topologyKey"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
    }
    label_name(&json!(text(&term["topologyKey"])), &format!("{path}.topologyKey"), errors);
}

/// Validates the name resolution of a pod.
pub(super) fn name_resolution(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (config, field) = (&spec["dnsConfig"], format!("{path}.dnsConfig"));
    let servers = config["nameservers"].as_array().map_or(0, Vec::len);
    if spec["dnsPolicy"] == "None" && servers == 0 {
        let (field, why) = match config.is_null() {
            true => (field, "must provide `dnsConfig` when `dnsPolicy` is None"),
            false => {
                (format!("{field}.nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
            }
        };
        return errors.push(FieldError::required(field, why));
    }
    if servers > 3 {
        let why = "must not have more than 3 nameservers";
        errors.push(FieldError::invalid(format!("{field}.nameservers"), &config["nameservers"], why));
    }
    for (index, server) in indexed(&config["nameservers"]) {
        address(server, &format!("{field}.nameservers[{index}]"), errors);
    }
    for (index, search) in indexed(&config["searches"]) {
        let plain = text(search).trim_end_matches('.').replace('_', "-");
        if let Some(why) = names::subdomain(&plain).filter(|_| search != ".") {
            let why = why.replacen(
                "lower case alphanumeric characters, '-' or '.'",
                "lower case alphanumeric characters, '_', '-' or '.'",
                1,
            );
            errors.push(FieldError::invalid(format!("{field}.searches[{index}]"), search, &why));
        }
    }
    for (index, option) in indexed(&config["options"]) {
        if text(&option["name"]).is_empty() {
            errors.push(FieldError::required(format!("{field}.options[{index}]"), "must not be empty"));
        }
    }
    for (index, alias) in indexed(&spec["hostAliases"]) {
        let field = format!("{path}.hostAliases[{index}]");
        address(&alias["ip"], &format!("{field}.ip"), errors);
        for (number, name) in indexed(&alias["hostnames"]) {
            if let Some(why) = names::subdomain(text(name)) {
                errors.push(FieldError::invalid(format!("{field}.hostnames[{number}]"), name, &why));
            }
        }
    }
}
