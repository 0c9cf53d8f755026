//! The group, the names and the versions of a CRD: what it must not take from others.

use std::collections::HashSet;

use serde_json::Value;

use super::fields::{indexed, text};
use crate::names::NameRule;
use crate::registry::is_built_in;
use crate::schema::FieldError;

const APPROVED: &str = "api-approved.kubernetes.io";

/// Validates the group, the names and the versions of a CRD.
///
/// What does not change is not checked again, so that a CRD from before these checks can still be deleted.
pub(in crate::registry) fn names(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if old.is_none() {
        group(new, errors);
    }
    if old.is_none_or(|old| old["spec"]["names"] != new["spec"]["names"]) {
        labels(&new["spec"]["names"], errors);
    }
    approval(new, old, errors);
    if old.is_none_or(has_unique_versions) && !has_unique_versions(new) {
        let why = "must contain unique version names";
        errors.push(FieldError::invalid("spec.versions", &new["spec"]["versions"], why));
    }
}

fn group(definition: &Value, errors: &mut Vec<FieldError>) {
    let spec = &definition["spec"];
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    if group.is_empty() {
        return;
    }
    if let Some(why) = NameRule::Subdomain.refuse(group) {
        errors.push(FieldError::invalid("spec.group", &spec["group"], &why));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid("spec.group", &spec["group"], "should be a domain with at least one dot"));
    } else if is_built_in(group, plural) {
        let why = format!("{plural}.{group} is a built-in resource; choose another group or plural");
        errors.push(FieldError::forbidden("spec.names.plural", &why));
    }
}

/// Validates that the names fit into paths.
fn labels(names: &Value, errors: &mut Vec<FieldError>) {
    let mut check = |field: String, value: &Value, prefix: &str| {
        let name = text(value).to_lowercase();
        let name = if prefix.is_empty() { text(value) } else { &name };
        if let Some(why) = Some(name).filter(|name| !name.is_empty()).and_then(|name| NameRule::Label1035.refuse(name))
        {
            errors.push(FieldError::invalid(field, value, &format!("{prefix}{why}")));
        }
    };
    for key in ["plural", "singular"] {
        check(format!("spec.names.{key}"), &names[key], "");
    }
    for key in ["kind", "listKind"] {
        check(format!("spec.names.{key}"), &names[key], "may have mixed case, but should otherwise match: ");
    }
    for list in ["shortNames", "categories"] {
        for (index, name) in indexed(&names[list]) {
            check(format!("spec.names.{list}[{index}]"), name, "");
        }
    }
    if !text(&names["kind"]).is_empty() && names["kind"] == names["listKind"] {
        let why = "kind and listKind may not be the same";
        errors.push(FieldError::invalid("spec.names.listKind", &names["listKind"], why));
    }
}

/// Validates that somebody stands for a CRD in one of Kubernetes' own groups.
fn approval(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let group = text(&new["spec"]["group"]);
    let is_protected =
        |owner: &str| group == owner || group.strip_suffix(owner).is_some_and(|rest| rest.ends_with('.'));
    if !(is_protected("k8s.io") || is_protected("kubernetes.io")) {
        return;
    }
    let annotation = |definition: &Value| definition["metadata"]["annotations"][APPROVED].clone();
    let given = annotation(new);
    let state = approval_state(text(&given));
    // A CRD from before this check stays as it is.
    if old.is_some_and(|old| approval_state(text(&annotation(old))) == state) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVED}]");
    let why = format!("protected groups must have approval annotation {APPROVED:?}");
    let link = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state {
        Approval::Given => {}
        Approval::Missing => errors.push(FieldError::required(field, &format!("{why}, {link}"))),
        Approval::Invalid => {
            let why = format!("{why} with either a URL or a reason starting with \"unapproved\", {link}");
            errors.push(FieldError::invalid(field, &given, &why));
        }
    }
}

#[derive(PartialEq, Eq)]
enum Approval {
    Missing,
    Invalid,
    Given,
}

fn approval_state(annotation: &str) -> Approval {
    let is_url = || annotation.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
    match annotation {
        "" => Approval::Missing,
        reason if reason.starts_with("unapproved") || is_url() => Approval::Given,
        _ => Approval::Invalid,
    }
}

fn has_unique_versions(definition: &Value) -> bool {
    let mut seen = HashSet::new();
    indexed(&definition["spec"]["versions"]).all(|(_, version)| seen.insert(text(&version["name"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(plural: &str, group: &str) -> Value {
        json!({"metadata": {"name": format!("{plural}.{group}")}, "spec": {"group": group,
            "names": {"plural": plural, "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1"}, {"name": "v2"}]}})
    }

    fn check(new: &Value, old: Option<&Value>, expect: &str) {
        let mut errors = Vec::new();
        names(new, old, &mut errors);
        let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let fits = if expect.is_empty() { got.is_empty() } else { got.len() == 1 && got[0].contains(expect) };
        assert!(fits, "{got:?} instead of {expect:?} for {new}");
    }

    #[test]
    fn a_definition_takes_no_built_in_resource() {
        check(&definition("things", "example.com"), None, "");
        check(&definition("jobs", "batch"), None, "spec.group: Invalid value: \"batch\": should be a domain");
        check(&definition("jobs", "batch."), None, "spec.group: Invalid value");
        check(&definition("leases.coordination", "example.com"), None, "spec.names.plural: Invalid value");
        let mut lease = definition("leases", "coordination.k8s.io");
        lease["metadata"]["annotations"][APPROVED] = json!("https://example.com/approved");
        check(&lease, None, "spec.names.plural: Forbidden: leases.coordination.k8s.io is a built-in resource");
        check(&lease, Some(&lease), "");
    }

    #[test]
    fn the_groups_of_kubernetes_need_an_approval() {
        let given = |annotation: &str| {
            let mut definition = definition("things", "example.k8s.io");
            definition["metadata"]["annotations"][APPROVED] = json!(annotation);
            definition
        };
        let missing =
            "Required value: protected groups must have approval annotation \"api-approved.kubernetes.io\", see";
        check(&definition("things", "example.k8s.io"), None, missing);
        check(&definition("things", "kubernetes.io"), None, missing);
        check(&definition("things", "example.x-k8s.io"), None, "");
        check(&given("https://github.com/kubernetes/kubernetes/pull/1"), None, "");
        check(&given("unapproved, experimental"), None, "");
        check(&given("yes"), None, "with either a URL or a reason starting with \"unapproved\"");
        check(&given("yes"), Some(&given("no")), "");
        check(&given(""), Some(&given("unapproved")), missing);
    }

    #[test]
    fn versions_and_names_are_checked() {
        let with = |pointer: &str, value: Value| {
            let mut definition = definition("things", "example.com");
            *definition.pointer_mut(pointer).expect("a field") = value;
            definition
        };
        let twice = with("/spec/versions/1/name", json!("v1"));
        check(&twice, None, "must contain unique version names");
        check(&twice, Some(&definition("things", "example.com")), "must contain unique version names");
        check(&twice, Some(&twice), "");
        check(&with("/spec/names/kind", json!("My Thing")), None, "may have mixed case, but should otherwise match");
        check(&with("/spec/names/listKind", json!("Thing")), None, "kind and listKind may not be the same");
    }
}
