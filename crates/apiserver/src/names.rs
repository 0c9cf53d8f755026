//! Validation of names, labels and annotations, with Kubernetes' messages.

use serde_json::{Map, Value};

use crate::schema::FieldError;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                          alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
                          'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                         '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                         for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                         with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                     and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
                     '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const WITH_PREFIX: &str = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";

/// The naming rule of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// An RFC 1123 subdomain: most kinds.
    Subdomain,
    /// An RFC 1123 label: namespaces and host names.
    Label,
    /// An RFC 1035 label: services.
    Label1035,
    /// A path segment: roles and role bindings.
    Path,
}

impl NameRule {
    /// Returns why a name is invalid, or `None`.
    pub fn refuse(self, name: &str) -> Option<String> {
        match self {
            NameRule::Subdomain => subdomain(name),
            NameRule::Label => label(name),
            NameRule::Label1035 => label_1035(name),
            NameRule::Path => path_segment(name),
        }
    }
}

fn too_long(text: &str, limit: usize) -> Option<String> {
    (text.len() > limit).then(|| format!("must be no more than {limit} characters"))
}

/// Returns why a text is not an RFC 1123 label.
pub(crate) fn label(text: &str) -> Option<String> {
    too_long(text, 63).or_else(|| match (is_label(text), text.split('.').all(is_label)) {
        (true, _) => None,
        (false, true) => Some("must not contain dots".to_owned()),
        (false, false) => Some(LABEL.to_owned()),
    })
}

fn label_1035(text: &str) -> Option<String> {
    let fits = is_label(text) && text.starts_with(|letter: char| letter.is_ascii_lowercase());
    too_long(text, 63).or_else(|| (!fits).then(|| LABEL_1035.to_owned()))
}

/// Returns why a text is not an RFC 1123 subdomain.
pub(crate) fn subdomain(text: &str) -> Option<String> {
    too_long(text, 253).or_else(|| (!text.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned()))
}

fn path_segment(text: &str) -> Option<String> {
    if text == "." || text == ".." {
        return Some(format!("may not be '{text}'"));
    }
    ["/", "%"].iter().find(|bad| text.contains(**bad)).map(|bad| format!("may not contain '{bad}'"))
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}

fn is_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric();
    text.bytes().all(|byte| inner(byte) || b"-_.".contains(&byte))
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}

/// Returns the first reason why a text is not a label key.
pub(crate) fn label_key(key: &str) -> Option<String> {
    label_key_faults(key).into_iter().next()
}

/// Returns every reason why a text is not a label key.
pub(crate) fn label_key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.split_once('/') {
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!("{}{}", QUALIFIED.replacen("name part", "a qualified name", 1), WITH_PREFIX)];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".into());
            } else if let Some(why) = subdomain(prefix) {
                faults.push(format!("prefix part {why}"));
            }
            name
        }
        None => key,
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 characters".into());
    }
    if !is_word(name) {
        faults.push(QUALIFIED.to_owned());
    }
    faults
}

/// Returns why a text is not a label value.
pub(crate) fn label_value(value: &str) -> Option<String> {
    if value.is_empty() {
        return None;
    }
    too_long(value, 63).or_else(|| (!is_word(value)).then(|| VALUE.to_owned()))
}

/// Validates a map of labels.
pub(crate) fn check_labels(labels: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels {
        let faults = label_key_faults(key);
        errors.extend(faults.iter().map(|why| FieldError::invalid(path, &key.as_str().into(), why)));
        if let Some(why) = value.as_str().and_then(label_value) {
            errors.push(FieldError::invalid(path, value, &why));
        }
    }
}

/// Validates an object's metadata.
pub(crate) fn check_metadata(metadata: &Value, rule: NameRule, namespaced: bool, errors: &mut Vec<FieldError>) {
    let text = |key: &str| metadata[key].as_str().unwrap_or("");
    if !text("generateName").is_empty() {
        // The suffix is letters and digits, so a trailing dash is fine there.
        let base = text("generateName").trim_end_matches('-');
        if let Some(why) = rule.refuse(base) {
            errors.push(FieldError::invalid("metadata.generateName", &metadata["generateName"], &why));
        }
    }
    if text("name").is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if let Some(why) = rule.refuse(text("name")) {
        errors.push(FieldError::invalid("metadata.name", &metadata["name"], &why));
    }
    if namespaced && text("namespace").is_empty() {
        errors.push(FieldError::required("metadata.namespace", ""));
    }
    if let Some(labels) = metadata["labels"].as_object() {
        check_labels(labels, "metadata.labels", errors);
    }
    check_annotations(metadata, errors);
    check_owners(metadata, errors);
    for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
        let faults = label_key_faults(finalizer.as_str().unwrap_or(""));
        errors.extend(faults.iter().map(|why| FieldError::invalid("metadata.finalizers", finalizer, why)));
    }
}

/// Validates the finalizers of a built-in kind: standard or qualified names only.
pub(crate) fn check_finalizers(metadata: &Value, errors: &mut Vec<FieldError>) {
    for (index, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let name = finalizer.as_str().unwrap_or("");
        if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{index}]"), finalizer, why));
        }
    }
}

fn check_annotations(metadata: &Value, errors: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        let faults = label_key_faults(&key.to_lowercase());
        errors.extend(faults.iter().map(|why| FieldError::invalid("metadata.annotations", &key.as_str().into(), why)));
    }
    if size > 256 << 10 {
        errors.push(FieldError::too_long("metadata.annotations", 256 << 10));
    }
}

fn check_owners(metadata: &Value, errors: &mut Vec<FieldError>) {
    let mut controller: Option<&Value> = None;
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        let path = "metadata.ownerReferences";
        for key in ["apiVersion", "kind", "name", "uid"] {
            if owner[key].as_str().unwrap_or("").is_empty() {
                let (field, detail) = match key {
                    "apiVersion" => (format!("{path}.apiVersion"), "version must not be empty"),
                    "kind" => (format!("{path}.kind"), "must not be empty"),
                    "name" => (format!("{path}.name"), "must not be empty"),
                    _ => (format!("{path}.uid"), "must not be empty"),
                };
                errors.push(FieldError::invalid(field, &"".into(), detail));
            }
        }
        if owner["apiVersion"] == "v1" && owner["kind"] == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, owner, why));
        }
        if owner["controller"] == true {
            if let Some(first) = controller {
                let name = |value: &Value| value["name"].as_str().unwrap_or("").to_owned();
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                    name(first),
                    name(owner)
                );
                errors.push(FieldError::invalid("metadata.ownerReferences", &owner["name"], &why));
            }
            controller = Some(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_by_rule() {
        let check = |rule: NameRule, name: &str, fine: bool| {
            assert_eq!(rule.refuse(name).is_none(), fine, "{rule:?} {name}");
        };
        check(NameRule::Subdomain, "a.b-c", true);
        check(NameRule::Subdomain, "a..b", false);
        check(NameRule::Subdomain, "A", false);
        check(NameRule::Subdomain, &"a".repeat(254), false);
        check(NameRule::Label, "1a", true);
        check(NameRule::Label, "a.b", false);
        check(NameRule::Label1035, "1a", false);
        check(NameRule::Path, "system:node", true);
        check(NameRule::Path, "a/b", false);
    }

    #[test]
    fn label_keys_and_values_are_checked() {
        assert!(label_key("ray.io/cluster").is_none());
        assert!(label_key("a/b/c").is_some());
        assert!(label_key("/b").is_some());
        assert!(label_key("a b").is_some());
        assert!(label_value("").is_none());
        assert!(label_value("-a").is_some());
        assert!(label_value(&"a".repeat(64)).is_some());
    }
}
