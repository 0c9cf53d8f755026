//! Says in plain words what the API server says about values.

use super::yaml::Node;

/// How the pattern of quantities begins in the schemas.
const QUANTITY_PATTERN: &str = "should match '^(\\+|-)?(([0-9]+";

/// The decimal and the binary unit that a wrong one stands for.
const UNITS: [(&str, &str, &str); 5] =
    [("k", "k", "Ki"), ("m", "M", "Mi"), ("g", "G", "Gi"), ("t", "T", "Ti"), ("p", "P", "Pi")];

/// Returns the message about a field without its path, in words that say what to write instead.
pub(crate) fn reword(path: &str, body: &str, value: Option<&Node>) -> String {
    let short = body.replace(&format!("{path} in body "), "");
    if let Some((_, wanted)) = short.split_once("must be of type ") {
        let wanted = wanted.split(':').next().unwrap_or_default();
        return value.map_or(short.clone(), |value| wrong_type(wanted, value));
    }
    match value.and_then(Node::as_str).filter(|_| short.contains(QUANTITY_PATTERN)) {
        Some(text) => format!("\"{text}\" is not a quantity, use {}", quantity_like(text)),
        None => short,
    }
}

/// Returns that a value is of another type than wanted, with a hint.
pub(crate) fn wrong_type(wanted: &str, value: &Node) -> String {
    let article = if wanted.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    // What the schemas call an array, YAML calls a list.
    let wanted = if wanted == "array" { "list" } else { wanted };
    let article = if wanted == "list" { "a" } else { article };
    let text = value.text().unwrap_or_default();
    let hint = match (wanted, value.as_str()) {
        ("string", None) if value.text().is_some() && !text.is_empty() => format!("; put it in quotes: \"{text}\""),
        ("integer", Some(text)) if text.parse::<i64>().is_ok() => "; remove the quotes".to_owned(),
        ("boolean", Some("true" | "false")) => "; remove the quotes".to_owned(),
        _ => String::new(),
    };
    format!("must be {article} {wanted}, not {}{hint}", value.describe())
}

/// Returns quantities that look like a text that is none.
fn quantity_like(text: &str) -> String {
    const FORMS: &str = "a form like 500m, 2 or 4Gi";
    let text: String = text.split_whitespace().collect();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.to_lowercase();
    if number.is_empty() || number.parse::<f64>().is_err() {
        return FORMS.to_owned();
    }
    let is_binary = unit.contains('i');
    let letter = unit.trim_end_matches("bytes").trim_end_matches("byte").trim_end_matches('b').trim_end_matches('i');
    match UNITS.iter().find(|(name, ..)| *name == letter) {
        Some((_, _, binary)) if is_binary => format!("{number}{binary}"),
        Some((_, decimal, binary)) => format!("{number}{decimal} or {number}{binary}"),
        None if letter.is_empty() || ["cpu", "cpus", "core", "cores"].contains(&letter) => number.to_owned(),
        None => FORMS.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_that_people_write_are_corrected() {
        let check = |text: &str, expect: &str| assert_eq!(quantity_like(text), expect, "{text}");
        check("2GB", "2G or 2Gi");
        check("2 GiB", "2Gi");
        check("1.5gb", "1.5G or 1.5Gi");
        check("512MB", "512M or 512Mi");
        check("64kb", "64k or 64Ki");
        check("2 cores", "2");
        check("100 bytes", "100");
        check("lots", "a form like 500m, 2 or 4Gi");
        check("2 apples", "a form like 500m, 2 or 4Gi");
    }
}
