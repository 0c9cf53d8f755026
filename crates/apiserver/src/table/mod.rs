//! Tables for `kubectl get`: which columns a kind has, and what stands in them.

mod builtin;
mod json_path;
mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::Resource;

/// A column: name, type, format, priority (0 is always shown, 1 with `-o wide`).
struct Column {
    name: &'static str,
    kind: &'static str,
    priority: u8,
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: "string", priority: 0 }
}

const fn number(name: &'static str) -> Column {
    Column { name, kind: "integer", priority: 0 }
}

const fn date(name: &'static str) -> Column {
    Column { name, kind: "date", priority: 0 }
}

const fn wide(name: &'static str) -> Column {
    Column { name, kind: "string", priority: 1 }
}

/// Returns an empty table with the columns of a kind.
pub(crate) fn table(resource: &Resource, _now: Timestamp) -> Value {
    let mut columns = vec![json!({"name": "Name", "type": "string", "format": "name", "priority": 0,
        "description": "Name must be unique within a namespace."})];
    if &*resource.table == "events" {
        // Nobody looks for events by name: theirs stands last, with `-o wide` only.
        columns.clear();
    }
    match resource.custom() {
        Some(custom) => {
            let listed: Vec<&Value> = custom.columns.as_array().into_iter().flatten().collect();
            for column in &listed {
                columns.push(json!({
                    "name": column["name"],
                    "type": column["type"],
                    "format": column["format"].as_str().unwrap_or(""),
                    "description": column["description"].as_str().unwrap_or(""),
                    "priority": column["priority"].as_i64().unwrap_or(0),
                }));
            }
            if listed.is_empty() {
                columns.push(json!({"name": "Age", "type": "date", "format": "", "description": "", "priority": 0}));
            }
        }
        None => {
            let known = builtin::columns(&resource.plural);
            for column in known {
                columns.push(json!({"name": column.name, "type": column.kind, "format": "", "description": "",
                    "priority": column.priority}));
            }
        }
    }
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns, "rows": []})
}

/// Returns one object's row.
pub(crate) fn row(resource: &Resource, value: &Value, now: Timestamp) -> Value {
    let mut cells = match &*resource.table {
        "events" => Vec::new(),
        _ => vec![value["metadata"]["name"].clone()],
    };
    match resource.custom() {
        Some(custom) => {
            let listed: Vec<&Value> = custom.columns.as_array().into_iter().flatten().collect();
            cells.extend(listed.iter().map(|column| custom_cell(column, value, now)));
            if listed.is_empty() {
                cells.push(age(&value["metadata"]["creationTimestamp"], now).into());
            }
        }
        None => cells.extend(builtin::cells(&resource.plural, value, now)),
    }
    let object =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]});
    json!({"cells": cells, "object": object})
}

fn custom_cell(column: &Value, value: &Value, now: Timestamp) -> Value {
    let path = column["jsonPath"].as_str().unwrap_or("");
    let found = json_path::find(value, path);
    let Some(first) = found.first() else { return Value::Null };
    match column["type"].as_str() {
        Some("date") => match first.as_str() {
            Some(_) => age(first, now).into(),
            None => Value::Null,
        },
        Some("integer") => first.as_i64().map_or(Value::Null, Value::from),
        Some("number") => first.as_f64().map_or(Value::Null, Value::from),
        Some("boolean") => first.as_bool().map_or(Value::Null, Value::from),
        _ => found.iter().map(|one| plain(one)).collect::<Vec<_>>().join(",").into(),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns how long ago a time was, as kubectl prints it: `5s`, `3m20s`, `2d4h`.
fn age(time: &Value, now: Timestamp) -> String {
    let Some(then) = time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else { return "<unknown>".into() };
    human(now.as_second() - then.as_second())
}

/// Returns a duration in its two most telling units, rounded as kubectl does.
fn human(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |major: i64, unit: &str, minor: i64, small: &str| match minor {
        0 => format!("{major}{unit}"),
        minor => format!("{major}{unit}{minor}{small}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => pair(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if years < 8 => pair(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        for (seconds, expect) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (599, "9m59s"),
            (600, "10m"),
            (10799, "179m"),
            (10800, "3h"),
            (11000, "3h3m"),
            (172_799, "47h"),
            (172_800, "2d"),
            (691_200, "8d"),
            (-5, "<invalid>"),
        ] {
            assert_eq!(human(seconds), expect, "{seconds}");
        }
    }
}
