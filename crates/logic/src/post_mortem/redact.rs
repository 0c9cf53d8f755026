//! Removes secrets from evidence.
//!
//! Evidence has no room for environment values and tokens, but programs print them. The values that the object's own spec sets,
//! and what looks like a credential, are replaced in every text.

use crate::explain::Evidence;
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

/// What stands in place of a secret.
const REDACTED: &str = "[redacted]";
/// Shorter values, such as `1` or `true`, would make logs unreadable and are no secrets.
const MIN_CHARS: usize = 6;

static CREDENTIALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let pattern = r#"(?i)(bearer\s+|(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)["']?\s*[=:]\s*["']?)([^\s"',;&]{6,})"#;
    Regex::new(pattern).ok()
});

/// Returns the environment values and other secrets that a Ray object's spec sets, the longest first.
pub fn secrets_in(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(object.get("spec").unwrap_or(&Value::Null), &mut found);
    found.retain(|value| value.chars().count() >= MIN_CHARS);
    found.sort_by_key(|value| (std::cmp::Reverse(value.len()), value.clone()));
    found.dedup();
    found
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => {
            for (key, field) in fields {
                match (key.as_str(), field) {
                    ("env", Value::Array(variables)) => {
                        let values = variables.iter().filter_map(|variable| variable.get("value")?.as_str());
                        found.extend(values.map(str::to_owned));
                    }
                    ("redisPassword" | "redisUsername", credential) => {
                        found.extend(credential.get("value").and_then(Value::as_str).map(str::to_owned));
                    }
                    ("runtimeEnvYAML" | "serveConfigV2", Value::String(text)) => found.extend(env_vars(text)),
                    _ => collect(field, found),
                }
            }
        }
        _ => {}
    }
}

/// Returns the values of all `env_vars` in a YAML document.
fn env_vars(text: &str) -> Vec<String> {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            Value::Object(fields) => {
                for (key, field) in fields {
                    match field {
                        Value::Object(variables) if key == "env_vars" => {
                            found.extend(variables.values().filter_map(Value::as_str).map(str::to_owned));
                        }
                        _ => walk(field, found),
                    }
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    // Text that is no YAML sets no variable.
    walk(&serde_saphyr::from_str(text).unwrap_or(Value::Null), &mut found);
    found
}

/// Returns the evidence without these values, and without what looks like a credential.
pub fn redact(evidence: &Evidence, secrets: &[String]) -> Evidence {
    let mut value = serde_json::to_value(evidence).unwrap_or_default();
    redact_texts(&mut value, secrets);
    // Replaced texts are still texts, so this cannot fail; nothing is safer than something unredacted.
    serde_json::from_value(value).unwrap_or_default()
}

fn redact_texts(value: &mut Value, secrets: &[String]) {
    match value {
        Value::String(text) => *text = redact_text(text, secrets),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_texts(item, secrets)),
        // Names, phases and times are the API server's own; what programs print is under these keys.
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                let is_prose = ["message", "lines", "why", "autoscaler", "reason"].contains(&key.as_str());
                if is_prose || field.is_object() || field.is_array() {
                    redact_texts(field, secrets);
                }
            }
        }
        _ => {}
    }
}

fn redact_text(text: &str, secrets: &[String]) -> String {
    let mut text = text.to_owned();
    for secret in secrets {
        if text.contains(secret.as_str()) {
            text = text.replace(secret.as_str(), REDACTED);
        }
    }
    match CREDENTIALS.as_ref() {
        Some(credentials) => credentials.replace_all(&text, format!("${{1}}{REDACTED}")).into_owned(),
        None => text,
    }
}
