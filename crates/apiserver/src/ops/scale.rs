//! The scale subresource.

use serde_json::{Value, json};

use super::{Cluster, Target, WriteOptions, conversion};
use crate::error::{ApiError, Named};
use crate::registry::{Resource, ScalePaths};

impl Cluster {
    /// Returns the scale of an object.
    pub fn scale(&self, target: Target<'_>, options: &WriteOptions) -> Result<Value, ApiError> {
        let entry = self.get(target)?;
        scale_of(target.resource, &conversion::served(target.resource, entry.value(), options)?)
    }

    /// Updates an object through its scale; `change` maps the old scale to the new one.
    pub fn rescale(
        &self,
        target: Target<'_>,
        options: &WriteOptions,
        change: impl Fn(Value) -> Result<Value, ApiError>,
    ) -> Result<Value, ApiError> {
        let paths = paths(target.resource).ok_or_else(ApiError::no_such_path)?;
        let mut scaled = Value::Null;
        let written = self.modify(target, None, options, |object| {
            let scale = change(scale_of(target.resource, object)?)?;
            let errors = crate::registry::scale_errors(&scale);
            if !errors.is_empty() {
                let named = Named { group: "autoscaling", what: "Scale", name: target.name };
                return Err(ApiError::invalid(named, &errors));
            }
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            let mut new = object.clone();
            set(&mut new, &paths.replicas, replicas.into());
            if let Some(metadata) = new["metadata"].as_object_mut() {
                match scale["metadata"]["resourceVersion"].as_str() {
                    Some(version) => metadata.insert("resourceVersion".into(), version.into()),
                    None => metadata.remove("resourceVersion"),
                };
            }
            scaled = new.clone();
            Ok(new)
        })?;
        scaled["metadata"]["resourceVersion"] = written.entry.revision.to_string().into();
        scale_of(target.resource, &scaled)
    }
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for key in pointer.trim_start_matches('/').split('/') {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key];
    }
    *place = value;
}

fn paths(resource: &Resource) -> Option<ScalePaths> {
    match resource.custom() {
        Some(custom) => custom.scale.clone(),
        None => {
            Some(ScalePaths { replicas: "/spec/replicas".into(), status: "/status/replicas".into(), selector: None })
        }
    }
}

fn scale_of(resource: &Resource, object: &Value) -> Result<Value, ApiError> {
    let paths = paths(resource).ok_or_else(ApiError::no_such_path)?;
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let metadata = &object["metadata"];
    let mut scale = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {},
        "spec": {},
        "status": {"replicas": number(&paths.status)},
    });
    if number(&paths.replicas) != 0 {
        scale["spec"]["replicas"] = number(&paths.replicas).into();
    }
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !metadata[key].is_null() {
            scale["metadata"][key] = metadata[key].clone();
        }
    }
    let selector = match &paths.selector {
        Some(pointer) => object.pointer(pointer).and_then(Value::as_str).map(str::to_owned),
        None => selector_text(&object["spec"]["selector"]),
    };
    if let Some(selector) = selector {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}

fn selector_text(selector: &Value) -> Option<String> {
    let selector = selector.as_object()?;
    // The selector of a ReplicationController is a plain map.
    let plain = !selector.contains_key("matchLabels") && !selector.contains_key("matchExpressions");
    let labels = if plain { Some(selector) } else { selector.get("matchLabels").and_then(Value::as_object) };
    let equal = labels.into_iter().flatten().map(|(key, value)| (key.as_str(), "=", vec![text(value)]));
    let expressions = selector.get("matchExpressions").filter(|_| !plain).and_then(Value::as_array);
    let expressed = expressions.into_iter().flatten().map(|expression| {
        let values = expression["values"].as_array().into_iter().flatten().map(text).collect();
        (text(&expression["key"]), text(&expression["operator"]), values)
    });
    let mut terms: Vec<_> = equal.chain(expressed).collect();
    terms.sort_by_key(|(key, _, _)| *key);
    let shown: Vec<String> = terms.into_iter().map(|(key, operator, values)| term(key, operator, values)).collect();
    Some(shown.join(","))
}

/// Returns one requirement as selectors in text form have it.
fn term(key: &str, operator: &str, mut values: Vec<&str>) -> String {
    values.sort_unstable();
    match operator {
        "In" => format!("{key} in ({})", values.join(",")),
        "NotIn" => format!("{key} notin ({})", values.join(",")),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        equal => format!("{key}{equal}{}", values.join(",")),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_shown_as_text() {
        let check = |selector: Value, expect: Option<&str>| {
            assert_eq!(selector_text(&selector).as_deref(), expect, "{selector}");
            // What is shown selects the same.
            let Some(text) = expect.filter(|_| selector.get("matchExpressions").is_some()) else { return };
            let read = crate::selector::parse_labels(text).expect("a selector");
            let mut meant = crate::selector::LabelRule::from_object(&selector);
            meant.sort_by_key(|rule| format!("{rule:?}"));
            let mut read: Vec<_> = read.into_iter().collect();
            read.sort_by_key(|rule| format!("{rule:?}"));
            assert_eq!(read, meant, "{selector}");
        };
        check(Value::Null, None);
        check(json!({"b": "c", "a": "b"}), Some("a=b,b=c"));
        check(json!({"matchLabels": {"a": "b"}}), Some("a=b"));
        check(
            json!({"matchLabels": {"b": "c"}, "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "a", "operator": "NotIn", "values": ["x"]},
                {"key": "c", "operator": "Exists"}, {"key": "d", "operator": "DoesNotExist"}]}),
            Some("a notin (x),b=c,c,!d,tier in (a,b)"),
        );
        check(json!({"matchExpressions": [{"key": "c", "operator": "Exists"}]}), Some("c"));
    }
}
