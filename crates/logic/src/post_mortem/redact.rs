//! Removes secrets from evidence.
//!
//! Evidence has no room for environment values and tokens, but programs print them. The values that the object's own spec sets,
//! and what looks like a credential, are replaced in every text.

use crate::explain::{Evidence, Unreadable};
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

/// What stands in place of a secret.
const REDACTED: &str = "[redacted]";
/// Shorter values, such as `1` or `true`, would make logs unreadable and are no secrets.
const MIN_CHARS: usize = 6;

/// What credentials look like, and what stands in their place: `Authorization` headers, the user's part of URLs, and values
/// of variables whose names say so.
static CREDENTIALS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r#"(?i)(authorization["']?\s*[=:]\s*["']?(?:[a-z][a-z0-9-]*[ \t]+)?)([^\s"',;]{6,})"#, "${1}[redacted]"),
        (r#"([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'<>]+@"#, "${1}[redacted]@"),
        (
            r#"(?i)(bearer\s+|(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)["']?\s*[=:]\s*["']?)([^\s"',;&]{6,})"#,
            "${1}[redacted]",
        ),
    ];
    patterns.into_iter().filter_map(|(pattern, with)| Some((Regex::new(pattern).ok()?, with))).collect()
});

/// Returns the environment values and other secrets that a Ray object's spec sets, the longest first.
pub fn secrets_in(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(object.get("spec").unwrap_or(&Value::Null), &mut found);
    // Logs are kept line by line.
    let lines: Vec<String> = found.iter().flat_map(|value| value.lines()).map(|line| line.trim().to_owned()).collect();
    found.extend(lines);
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
                    ("redis-password" | "redis-username", Value::String(parameter)) => found.push(parameter.clone()),
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

/// Returns the evidence without anything that programs print, because a source of secrets could not be read.
pub fn withhold(evidence: &Evidence, unreadable: &Unreadable) -> Evidence {
    let mut kept = redact(evidence, &[]);
    kept.logs.clear();
    kept.replaced.clear();
    for pod in &mut kept.pods {
        let status = &mut pod.status;
        for container in status.container_statuses.iter_mut().chain(&mut status.init_container_statuses) {
            for ended in [&mut container.state.terminated, &mut container.last_state.terminated].into_iter().flatten() {
                ended.message.clear();
            }
        }
    }
    let mut value = serde_json::to_value(kept).unwrap_or_default();
    // Drivers and Serve applications print into the messages of statuses.
    for key in ["job", "service", "ray"] {
        value.get_mut(key).into_iter().for_each(withhold_messages);
    }
    let mut kept: Evidence = serde_json::from_value(value).unwrap_or_default();
    kept.unreadable.retain(|known| known.what != unreadable.what);
    let why = format!("{}; logs and messages are left out, because their secrets are not known", unreadable.why);
    kept.unreadable.push(Unreadable { why, ..unreadable.clone() });
    kept
}

fn withhold_messages(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(withhold_messages),
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                match field {
                    Value::String(text) if key == "message" && !text.is_empty() => *text = REDACTED.to_owned(),
                    field => withhold_messages(field),
                }
            }
        }
        _ => {}
    }
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
    CREDENTIALS.iter().fold(text, |text, (pattern, with)| pattern.replace_all(&text, *with).into_owned())
}
