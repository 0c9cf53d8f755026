//! Checks of single fields that many kinds share.

use manta_quantity::Quantity;
use serde_json::{Value, json};

use crate::names;
use crate::schema::FieldError;

const PORT_NAME: &str = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";

/// Returns a text field, or an empty text.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// Returns the items of a list, with their indexes.
pub(super) fn indexed(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

/// Validates that number fields are not negative.
pub(super) fn non_negative(object: &Value, keys: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    for key in keys {
        if object[*key].as_i64().is_some_and(|number| number < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(join(path, key), &object[*key], why));
        }
    }
}

/// Returns a field below a path, which may be empty.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Validates that a field is one of some values, or absent.
pub(super) fn one_of(value: &Value, field: impl Into<String>, supported: &[&str], errors: &mut Vec<FieldError>) {
    if !value.is_null() && !supported.contains(&text(value)) {
        errors.push(FieldError::not_supported(field, value, supported));
    }
}

/// Validates that a field is one of some values; an absent or empty one is missing.
pub(super) fn required_one_of(
    value: &Value,
    field: impl Into<String>,
    supported: &[&str],
    errors: &mut Vec<FieldError>,
) {
    match text(value) {
        "" => errors.push(FieldError::required(field, "")),
        given if !supported.contains(&given) => errors.push(FieldError::not_supported(field, value, supported)),
        _ => {}
    }
}

/// Validates that a text is not empty.
pub(super) fn required(value: &Value, field: impl Into<String>, errors: &mut Vec<FieldError>) {
    if text(value).is_empty() {
        errors.push(FieldError::required(field, ""));
    }
}

/// Validates a label key where a name is expected.
pub(super) fn label_name(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let faults = names::label_key_faults(text(value));
    errors.extend(faults.iter().map(|why| FieldError::invalid(field, value, why)));
}

/// Validates a text that is not empty by a rule for names.
pub(super) fn named(
    value: &Value,
    field: impl Into<String>,
    rule: fn(&str) -> Option<String>,
    errors: &mut Vec<FieldError>,
) {
    if let Some(why) = Some(text(value)).filter(|name| !name.is_empty()).and_then(rule) {
        errors.push(FieldError::invalid(field, value, &why));
    }
}

/// Returns every reason why a text is not the name of a port.
pub(super) fn port_name_faults(name: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push("must be no more than 15 characters");
    }
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        faults.push(PORT_NAME);
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen");
    }
    faults
}

/// Validates a port number.
pub(super) fn port_number(value: &Value, field: impl Into<String>, errors: &mut Vec<FieldError>) {
    if !(1..=65535).contains(&value.as_i64().unwrap_or(0)) {
        let number = value.as_i64().unwrap_or(0);
        errors.push(FieldError::invalid(field, &json!(number), "must be between 1 and 65535, inclusive"));
    }
}

/// Validates a port number or the name of a port.
pub(super) fn port(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    match value.as_str() {
        Some(name) => {
            errors.extend(port_name_faults(name).into_iter().map(|why| FieldError::invalid(field, value, why)));
        }
        None => port_number(value, field, errors),
    }
}

/// Validates an IP address.
pub(super) fn address(value: &Value, field: &str, errors: &mut Vec<FieldError>) -> Option<std::net::IpAddr> {
    let parsed = text(value).parse().ok();
    if parsed.is_none() {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(field, value, why));
    }
    parsed
}

/// Validates a range of addresses.
pub(super) fn cidr(value: &Value, field: &str, errors: &mut Vec<FieldError>) -> Option<(std::net::IpAddr, u8)> {
    let parsed = parse_cidr(text(value));
    if parsed.is_none() {
        let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        errors.push(FieldError::invalid(field, value, why));
    }
    parsed
}

fn parse_cidr(text: &str) -> Option<(std::net::IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let (address, bits) = (address.parse::<std::net::IpAddr>().ok()?, bits.parse::<u8>().ok()?);
    (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
}

/// Returns a quantity field.
pub(super) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => number.as_i64().map(Quantity::from),
        _ => None,
    }
}

/// Validates a number or a percentage: not negative, and a percentage of the form `25%`.
pub(super) fn number_or_percent(value: &Value, field: &str, most: Option<i64>, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(share) => {
            let percent = share.strip_suffix('%').and_then(|digits| digits.parse::<i64>().ok());
            match percent {
                Some(percent) if percent >= 0 => {
                    if most.is_some_and(|most| percent > most) {
                        errors.push(FieldError::invalid(field, value, "must not be greater than 100%"));
                    }
                }
                _ => {
                    let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                               '93%', regex used for validation is '[0-9]+%')";
                    errors.push(FieldError::invalid(field, value, why));
                }
            }
        }
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            errors.push(FieldError::invalid(field, value, "must be greater than or equal to 0"));
        }
        _ => {}
    }
}

/// Validates a label selector.
pub(super) fn selector(selector: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(labels) = selector["matchLabels"].as_object() {
        names::check_labels(labels, &join(path, "matchLabels"), errors);
    }
    for (index, term) in indexed(&selector["matchExpressions"]) {
        let field = join(path, &format!("matchExpressions[{index}]"));
        let given = term["values"].as_array().map_or(0, Vec::len);
        match text(&term["operator"]) {
            "In" | "NotIn" if given == 0 => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{field}.values"), why));
            }
            "Exists" | "DoesNotExist" if given > 0 => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{field}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let why = "not a valid selector operator";
                errors.push(FieldError::invalid(format!("{field}.operator"), &term["operator"], why));
            }
        }
        label_name(&term["key"], &format!("{field}.key"), errors);
        for (number, value) in indexed(&term["values"]) {
            if let Some(why) = names::label_value(text(value)) {
                errors.push(FieldError::invalid(format!("{field}.values[{number}]"), value, &why));
            }
        }
    }
}

/// Returns whether a selector has neither labels nor expressions.
pub(super) fn is_empty_selector(selector: &Value) -> bool {
    selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty)
        && selector["matchExpressions"].as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_names_are_checked() {
        for (name, faults) in
            [("http", 0), ("a-1", 0), ("80", 1), ("UP", 2), ("much-too-long-name", 1), ("-a", 1), ("a--b", 1)]
        {
            assert_eq!(port_name_faults(name).len(), faults, "{name}");
        }
    }

    #[test]
    fn percentages_are_checked() {
        for (value, fine) in
            [(json!("25%"), true), (json!(1), true), (json!(-1), false), (json!("x"), false), (json!("150%"), false)]
        {
            let mut errors = Vec::new();
            number_or_percent(&value, "f", Some(100), &mut errors);
            assert_eq!(errors.is_empty(), fine, "{value}");
        }
    }

    #[test]
    fn ranges_of_addresses_are_parsed() {
        assert!(parse_cidr("10.0.0.0/8").is_some() && parse_cidr("::/0").is_some());
        assert!(parse_cidr("10.0.0.0/33").is_none() && parse_cidr("10.0.0.0").is_none());
    }
}
