//! Validation of webhook configurations, admission policies and requests for certificates.

use serde_json::{Value, json};

use super::fields::{indexed, join, label_name, named, one_of, required, required_one_of, selector, text};
use crate::names;
use crate::schema::{FieldError, expression_error};

/// What an expression of a webhook may refer to.
const WEBHOOK_VARIABLES: &[&str] = &["object", "oldObject", "request"];
/// What an expression of a policy may refer to.
const POLICY_VARIABLES: &[&str] = &["object", "oldObject", "request", "params", "namespaceObject", "variables"];

/// Validates webhook configurations.
pub(in crate::registry) fn webhooks(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mutating = new["kind"] == "MutatingWebhookConfiguration";
    let mut seen: Vec<&str> = Vec::new();
    for (index, hook) in indexed(&new["webhooks"]) {
        let path = format!("webhooks[{index}]");
        let name = text(&hook["name"]);
        qualified_host(&hook["name"], &format!("{path}.name"), errors);
        if seen.contains(&name) && !name.is_empty() {
            errors.push(FieldError::duplicate(format!("{path}.name"), &hook["name"]));
        }
        seen.push(name);
        webhook(hook, &path, mutating, errors);
    }
}

/// Validates a name of at least three labels, as webhooks have.
fn qualified_host(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let name = text(value);
    if name.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if let Some(why) = names::subdomain(name) {
        errors.push(FieldError::invalid(field, value, &why));
    } else if name.split('.').count() < 3 {
        let why = "should be a domain with at least three segments separated by dots";
        errors.push(FieldError::invalid(field, value, why));
    }
}

fn webhook(hook: &Value, path: &str, mutating: bool, errors: &mut Vec<FieldError>) {
    for (index, rule) in indexed(&hook["rules"]) {
        operation_rule(rule, &format!("{path}.rules[{index}]"), true, errors);
    }
    one_of(&hook["failurePolicy"], format!("{path}.failurePolicy"), &["Fail", "Ignore"], errors);
    one_of(&hook["matchPolicy"], format!("{path}.matchPolicy"), &["Equivalent", "Exact"], errors);
    let effects = ["None", "NoneOnDryRun"];
    if text(&hook["sideEffects"]).is_empty() {
        let why = "must specify one of None, NoneOnDryRun";
        errors.push(FieldError::required(format!("{path}.sideEffects"), why));
    } else {
        one_of(&hook["sideEffects"], format!("{path}.sideEffects"), &effects, errors);
    }
    let seconds = &hook["timeoutSeconds"];
    if seconds.as_i64().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.push(FieldError::invalid(format!("{path}.timeoutSeconds"), seconds, why));
    }
    selector(&hook["namespaceSelector"], &format!("{path}.namespaceSelector"), errors);
    selector(&hook["objectSelector"], &format!("{path}.objectSelector"), errors);
    if mutating {
        one_of(&hook["reinvocationPolicy"], format!("{path}.reinvocationPolicy"), &["IfNeeded", "Never"], errors);
    }
    client_config(&hook["clientConfig"], &format!("{path}.clientConfig"), errors);
    conditions(&hook["matchConditions"], &format!("{path}.matchConditions"), WEBHOOK_VARIABLES, errors);
    review_versions(&hook["admissionReviewVersions"], &format!("{path}.admissionReviewVersions"), errors);
}

fn review_versions(versions: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let given: Vec<&str> = versions.as_array().into_iter().flatten().map(text).collect();
    if given.is_empty() {
        return errors.push(FieldError::required(field, "must specify one of v1, v1beta1"));
    }
    for (index, version) in given.iter().enumerate() {
        if given[..index].contains(version) {
            errors.push(FieldError::invalid(format!("{field}[{index}]"), &json!(version), "duplicate version"));
        }
        if let Some(why) = names::NameRule::Label1035.refuse(version) {
            errors.push(FieldError::invalid(format!("{field}[{index}]"), &json!(version), &why));
        }
    }
    if !given.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        let why = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(field, versions, why));
    }
}

/// Validates where a webhook is reached.
pub(super) fn client_config(config: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (url, service) = (&config["url"], &config["service"]);
    if url.is_null() == service.is_null() {
        return errors.push(FieldError::required(path, "exactly one of url or service is required"));
    }
    if let Some(address) = url.as_str() {
        let field = format!("{path}.url");
        let mut fail = |why: &str| errors.push(FieldError::invalid(field.as_str(), url, why));
        let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
        if scheme != "https" {
            fail("'https' is the only allowed URL scheme; desired format: https://host[/path]");
        }
        if rest.split('/').next().is_none_or(str::is_empty) {
            fail("host must be specified; desired format: https://host[/path]");
        }
        if rest.contains('@') {
            fail("user information is not permitted in the URL");
        }
        if rest.contains('#') {
            fail("fragments are not permitted in the URL");
        }
        if rest.contains('?') {
            fail("query parameters are not permitted in the URL");
        }
    } else {
        let field = format!("{path}.service");
        required(&service["name"], format!("{field}.name"), errors);
        required(&service["namespace"], format!("{field}.namespace"), errors);
        if let Some(number) = service["port"].as_i64()
            && !(1..=65535).contains(&number)
        {
            let why = "port is not valid: must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{field}.port"), &service["port"], why));
        }
        service_path(&service["path"], &format!("{field}.path"), errors);
    }
}

/// Validates the path of a webhook behind a service, which follows the port in the URL.
fn service_path(path: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let given = text(path);
    if matches!(given, "" | "/") {
        return;
    }
    let mut fail = |why: &str| errors.push(FieldError::invalid(field, path, why));
    let Some(rest) = given.strip_prefix('/') else { return fail("must start with a '/'") };
    for (index, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            fail(&format!("segment[{index}] may not be empty"));
        } else if let Some(why) = names::subdomain(segment) {
            fail(&format!("segment[{index}]: {why}"));
        }
    }
}

fn starred(list: &Value, field: &str, what: &str, errors: &mut Vec<FieldError>) {
    let given: Vec<&str> = list.as_array().into_iter().flatten().map(text).collect();
    if given.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if given.len() > 1 && given.contains(&"*") {
        let why = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(field, list, &why));
    }
}

fn operation_rule(rule: &Value, path: &str, subresources: bool, errors: &mut Vec<FieldError>) {
    starred(&rule["operations"], &format!("{path}.operations"), "operations", errors);
    for (index, operation) in indexed(&rule["operations"]) {
        let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
        one_of(operation, format!("{path}.operations[{index}]"), &known, errors);
    }
    starred(&rule["apiGroups"], &format!("{path}.apiGroups"), "API groups", errors);
    starred(&rule["apiVersions"], &format!("{path}.apiVersions"), "API versions", errors);
    for (index, version) in indexed(&rule["apiVersions"]) {
        required(version, format!("{path}.apiVersions[{index}]"), errors);
    }
    let (resources, field) = (&rule["resources"], format!("{path}.resources"));
    let given: Vec<&str> = resources.as_array().into_iter().flatten().map(text).collect();
    if given.is_empty() {
        errors.push(FieldError::required(field.as_str(), ""));
    }
    for (index, resource) in given.iter().enumerate() {
        if resource.is_empty() {
            errors.push(FieldError::required(format!("{field}[{index}]"), ""));
        }
    }
    let plain = given.iter().filter(|resource| !resource.contains('/')).count();
    if subresources && given.len() > 1 && given.contains(&"*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(field.as_str(), resources, why));
    } else if plain > 1 && given.contains(&"*") {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(field, resources, why));
    }
    one_of(&rule["scope"], format!("{path}.scope"), &["*", "Cluster", "Namespaced"], errors);
}

fn conditions(list: &Value, path: &str, variables: &[&str], errors: &mut Vec<FieldError>) {
    if list.as_array().is_some_and(|list| list.len() > 64) {
        errors.push(FieldError::too_many(path, list.as_array().map_or(0, Vec::len), 64));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in indexed(list) {
        let field = format!("{path}[{index}]");
        expression(&condition["expression"], &format!("{field}.expression"), "", variables, errors);
        let name = text(&condition["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else {
            label_name(&condition["name"], &format!("{field}.name"), errors);
            if seen.contains(&name) {
                errors.push(FieldError::duplicate(format!("{field}.name"), &condition["name"]));
            }
            seen.push(name);
        }
    }
}

/// Validates an expression that gives a bool.
fn expression(value: &Value, field: &str, missing: &str, variables: &[&str], errors: &mut Vec<FieldError>) {
    if text(value).trim().is_empty() {
        errors.push(FieldError::required(field, missing));
    } else if let Some(why) = expression_error(text(value), variables, true) {
        errors.push(FieldError::invalid(field, value, &why));
    }
}

fn match_resources(matches: &Value, path: &str, errors: &mut Vec<FieldError>) {
    one_of(&matches["matchPolicy"], format!("{path}.matchPolicy"), &["Equivalent", "Exact"], errors);
    selector(&matches["namespaceSelector"], &format!("{path}.namespaceSelector"), errors);
    selector(&matches["objectSelector"], &format!("{path}.objectSelector"), errors);
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in indexed(&matches[list]) {
            operation_rule(rule, &format!("{path}.{list}[{index}]"), true, errors);
        }
    }
}

/// Validates ValidatingAdmissionPolicies.
pub(in crate::registry) fn admission_policy(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    required_one_of(&spec["failurePolicy"], "spec.failurePolicy", &["Fail", "Ignore"], errors);
    if !spec["paramKind"].is_null() {
        for key in ["apiVersion", "kind"] {
            required(&spec["paramKind"][key], format!("spec.paramKind.{key}"), errors);
        }
    }
    let constraints = &spec["matchConstraints"];
    if constraints.is_null() {
        errors.push(FieldError::required("spec.matchConstraints", ""));
    } else {
        match_resources(constraints, "spec.matchConstraints", errors);
        if constraints["resourceRules"].as_array().is_none_or(Vec::is_empty) {
            errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
        }
    }
    conditions(&spec["matchConditions"], "spec.matchConditions", POLICY_VARIABLES, errors);
    for (index, variable) in indexed(&spec["variables"]) {
        let field = format!("spec.variables[{index}]");
        if text(&variable["name"]).is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), "name is not specified"));
        }
        any_expression(&variable["expression"], &format!("{field}.expression"), errors);
    }
    let none = |key: &str| spec[key].as_array().is_none_or(Vec::is_empty);
    if none("validations") && none("auditAnnotations") {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required("spec.validations", why));
        errors.push(FieldError::required("spec.auditAnnotations", why));
    }
    for (index, validation) in indexed(&spec["validations"]) {
        let field = format!("spec.validations[{index}]");
        let missing = "expression is not specified";
        expression(&validation["expression"], &join(&field, "expression"), missing, POLICY_VARIABLES, errors);
        if validation["messageExpression"].is_string() {
            any_expression(&validation["messageExpression"], &join(&field, "messageExpression"), errors);
        }
        let message = &validation["message"];
        if message.is_string() && text(message).trim().is_empty() {
            errors.push(FieldError::invalid(join(&field, "message"), message, "must be non-empty if specified"));
        } else if text(message).contains('\n') {
            errors.push(FieldError::invalid(join(&field, "message"), message, "must not contain line breaks"));
        } else if text(message).is_empty() && text(&validation["expression"]).trim().contains('\n') {
            let why = "message must be specified if expression contains line breaks";
            errors.push(FieldError::required(join(&field, "message"), why));
        }
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
        one_of(&validation["reason"], join(&field, "reason"), &reasons, errors);
    }
    for (index, annotation) in indexed(&spec["auditAnnotations"]) {
        let field = format!("spec.auditAnnotations[{index}].valueExpression");
        any_expression(&annotation["valueExpression"], &field, errors);
    }
}

/// Validates an expression of any type.
fn any_expression(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if text(value).trim().is_empty() {
        errors.push(FieldError::required(field, "expression is not specified"));
    } else if let Some(why) = expression_error(text(value), POLICY_VARIABLES, false) {
        errors.push(FieldError::invalid(field, value, &why));
    }
}

/// Validates the bindings of policies.
pub(in crate::registry) fn admission_binding(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    required(&spec["policyName"], "spec.policyName", errors);
    named(&spec["policyName"], "spec.policyName", names::subdomain, errors);
    let reference = &spec["paramRef"];
    if reference.is_object() {
        if text(&reference["name"]).is_empty() && reference["selector"].is_null() {
            errors.push(FieldError::required("spec.paramRef", "one of name or selector must be specified"));
        } else if !text(&reference["name"]).is_empty() && !reference["selector"].is_null() {
            let why = "name and selector are mutually exclusive";
            errors.push(FieldError::forbidden("spec.paramRef.name", why));
        }
        selector(&reference["selector"], "spec.paramRef.selector", errors);
        let action = &reference["parameterNotFoundAction"];
        required_one_of(action, "spec.paramRef.parameterNotFoundAction", &["Deny", "Allow"], errors);
    }
    if spec["matchResources"].is_object() {
        match_resources(&spec["matchResources"], "spec.matchResources", errors);
    }
    let actions: Vec<&str> = spec["validationActions"].as_array().into_iter().flatten().map(text).collect();
    for (index, action) in indexed(&spec["validationActions"]) {
        one_of(action, format!("spec.validationActions[{index}]"), &["Audit", "Deny", "Warn"], errors);
        if actions[..index].contains(&text(action)) {
            errors.push(FieldError::duplicate(format!("spec.validationActions[{index}]"), action));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        errors.push(FieldError::invalid("spec.validationActions", &spec["validationActions"], why));
    }
    if actions.is_empty() {
        let why = "at least one validation action is required";
        errors.push(FieldError::required("spec.validationActions", why));
    }
}

/// Validates requests for certificates.
pub(in crate::registry) fn signing_request(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    use base64::Engine;
    let spec = &new["spec"];
    if let Some(old) = old {
        if old["spec"] != *spec {
            errors.push(FieldError::invalid("spec", spec, "field is immutable"));
        }
        return;
    }
    let pem = base64::engine::general_purpose::STANDARD.decode(text(&spec["request"])).unwrap_or_default();
    if !String::from_utf8_lossy(&pem).contains("BEGIN CERTIFICATE REQUEST") {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        errors.push(FieldError::invalid("spec.request", &spec["request"], why));
    }
    if spec["usages"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required("spec.usages", ""));
    }
    let signer = &spec["signerName"];
    match text(signer).split_once('/') {
        None if text(signer).is_empty() => errors.push(FieldError::required("spec.signerName", "")),
        None => {
            let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            errors.push(FieldError::invalid("spec.signerName", signer, why));
        }
        Some((domain, _)) => {
            if let Some(why) = names::subdomain(domain) {
                errors.push(FieldError::invalid("spec.signerName", signer, &why));
            }
        }
    }
    if spec["expirationSeconds"].as_i64().is_some_and(|seconds| seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid("spec.expirationSeconds", &spec["expirationSeconds"], why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_webhooks_are_checked() {
        let check = |path: Value, expect: &str| {
            let mut errors = Vec::new();
            service_path(&path, "path", &mut errors);
            let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let fits = if expect.is_empty() { got.is_empty() } else { got.len() == 1 && got[0].contains(expect) };
            assert!(fits, "{path}: {got:?}");
        };
        for path in [Value::Null, json!(""), json!("/"), json!("/validate"), json!("/a/b-c.d/")] {
            check(path, "");
        }
        check(json!("validate"), "must start with a '/'");
        check(json!("//"), "segment[0] may not be empty");
        check(json!("/a//b"), "segment[1] may not be empty");
        check(json!("/a?b"), "segment[0]: a lowercase RFC 1123 subdomain");
    }

    #[test]
    fn expressions_of_policies_are_checked() {
        let check = |expression: &str, fine: bool| {
            let policy = json!({"spec": {"failurePolicy": "Fail", "validations": [{"expression": expression}],
                "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["apps"],
                    "apiVersions": ["v1"], "resources": ["deployments"]}]}}});
            let mut errors = Vec::new();
            admission_policy(&policy, None, &mut errors);
            assert_eq!(errors.is_empty(), fine, "{expression}: {errors:?}");
        };
        check("object.spec.replicas > 1", true);
        check("variables.a && params.b in [1]", true);
        check("object.spec.replicas >", false);
        check("unknown == 1", false);
        check("authorizer.group('').check('get').allowed()", false);
        check("'text'", false);
        check("", false);
    }
}
