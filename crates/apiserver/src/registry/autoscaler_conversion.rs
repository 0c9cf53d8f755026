//! Conversion of HorizontalPodAutoscalers between `autoscaling/v1` and `autoscaling/v2`.
//!
//! They are stored as `v2`. `v1` knows one metric, the utilization of CPU; what else there is survives in an annotation.

use serde_json::{Map, Value, json};

use super::builtin::View;

/// The annotation with the fields of the spec that `v1` does not have.
const OTHERS: &str = "autoscaling.manta.io/v2-spec";

/// `autoscaling/v1` as it shows the objects of `autoscaling/v2`.
pub(super) const VIEW: View = View { table: "horizontalpodautoscalers.autoscaling", to_stored, to_served };

/// Converts from `v1` to the stored form.
fn to_stored(value: &mut Value) {
    value["apiVersion"] = "autoscaling/v2".into();
    let others = take_annotation(value).and_then(|text| serde_json::from_str::<Map<String, Value>>(&text).ok());
    let mut metrics = Vec::new();
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        if let Some(target) = spec.remove("targetCPUUtilizationPercentage") {
            metrics.push(cpu(target));
        }
        for (key, other) in others.into_iter().flatten() {
            match (key.as_str(), other) {
                ("metrics", Value::Array(other)) => metrics.extend(other),
                ("behavior", other) => {
                    spec.insert(key, other);
                }
                _ => {}
            }
        }
        if !metrics.is_empty() {
            spec.insert("metrics".into(), metrics.into());
        }
    }
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut)
        && let Some(current) = status.remove("currentCPUUtilizationPercentage")
    {
        let metric =
            json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": current}}});
        status.insert("currentMetrics".into(), json!([metric]));
    }
}

/// Converts from the stored form to `v1`.
fn to_served(value: &mut Value) {
    value["apiVersion"] = "autoscaling/v1".into();
    let mut others = Map::new();
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        if let Some(behavior) = spec.remove("behavior") {
            others.insert("behavior".into(), behavior);
        }
        let Some(Value::Array(mut metrics)) = spec.remove("metrics").or_else(|| Some(json!([]))) else { return };
        let utilization = |metric: &Value| metric["resource"]["target"]["averageUtilization"].clone();
        let is_cpu = |metric: &Value| metric["resource"]["name"] == "cpu" && utilization(metric).is_number();
        if let Some(at) = metrics.iter().position(is_cpu) {
            spec.insert("targetCPUUtilizationPercentage".into(), utilization(&metrics.remove(at)));
        }
        if !metrics.is_empty() {
            others.insert("metrics".into(), metrics.into());
        }
    }
    if !others.is_empty() {
        if !value["metadata"]["annotations"].is_object() {
            value["metadata"]["annotations"] = json!({});
        }
        value["metadata"]["annotations"][OTHERS] = Value::Object(others).to_string().into();
    }
    if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("conditions");
        let metrics = status.remove("currentMetrics").unwrap_or_default();
        let current = metrics.as_array().into_iter().flatten().find(|metric| metric["resource"]["name"] == "cpu");
        if let Some(current) = current.map(|metric| metric["resource"]["current"]["averageUtilization"].clone()) {
            status.insert("currentCPUUtilizationPercentage".into(), current);
        }
    }
}

fn cpu(target: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": target});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn take_annotation(value: &mut Value) -> Option<String> {
    let annotations = value.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(OTHERS)?.as_str().map(str::to_owned);
    if annotations.is_empty() {
        value["metadata"].as_object_mut()?.remove("annotations");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autoscalers_convert_between_both_versions() {
        let check = |spec: Value, shown: Value| {
            let stored = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "a"}, "spec": spec});
            let mut value = stored.clone();
            to_served(&mut value);
            assert_eq!(value["apiVersion"], "autoscaling/v1");
            assert_eq!(value["spec"], shown);
            to_stored(&mut value);
            assert_eq!(value, stored);
        };
        let memory =
            json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "Value", "value": "1"}}});
        check(json!({"maxReplicas": 2}), json!({"maxReplicas": 2}));
        check(
            json!({"maxReplicas": 2, "metrics": [cpu(json!(80))]}),
            json!({"maxReplicas": 2, "targetCPUUtilizationPercentage": 80}),
        );
        check(
            json!({"maxReplicas": 2, "metrics": [cpu(json!(80)), memory], "behavior": {"scaleUp": {}}}),
            json!({"maxReplicas": 2, "targetCPUUtilizationPercentage": 80}),
        );
    }

    #[test]
    fn the_status_shows_the_use_of_cpu() {
        let mut value = json!({"status": {"currentCPUUtilizationPercentage": 7, "currentReplicas": 1}});
        to_stored(&mut value);
        assert_eq!(value["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 7);
        to_served(&mut value);
        assert_eq!(value["status"], json!({"currentCPUUtilizationPercentage": 7, "currentReplicas": 1}));
    }
}
