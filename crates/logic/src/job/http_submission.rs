//! What HTTPMode posts to the dashboard.

use crate::go::yaml;
use crate::job::runtime_env;
use manta_api::RayJobSpec;
use serde_json::{Map, Value};

/// Returns the body of `POST /api/jobs/`; fields without content are left out, save for the entrypoint.
pub fn request(spec: &RayJobSpec, job_id: &str) -> Result<Value, String> {
    let mut body = Map::new();
    let mut add = |key: &str, value: Value| {
        if !is_empty(&value) {
            body.insert(key.to_owned(), value);
        }
    };
    if let Some(text) = spec.runtime_env_yaml.as_deref() {
        add("runtime_env", runtime_env::parse(text)?);
    }
    add(
        "metadata",
        spec.metadata.iter().flatten().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect(),
    );
    if let Some(text) = spec.entrypoint_resources.as_deref().filter(|text| !text.is_empty()) {
        add("entrypoint_resources", resources(text)?);
    }
    add("submission_id", job_id.into());
    add("entrypoint_num_cpus", number(spec.entrypoint_num_cpus));
    add("entrypoint_num_gpus", number(spec.entrypoint_num_gpus));
    body.insert("entrypoint".to_owned(), spec.entrypoint.clone().unwrap_or_default().into());
    Ok(Value::Object(body))
}

/// Custom resources: an object of numbers.
pub fn resources(text: &str) -> Result<Value, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("entrypointResources is no JSON: {error}"))?;
    let Value::Object(resources) = value else {
        return Err("entrypointResources must be a JSON object of numbers".to_owned());
    };
    match resources.iter().find(|(_, amount)| !amount.is_number()) {
        Some((name, amount)) => Err(format!(
            "json: cannot unmarshal {} into Go value of type float32: entrypointResources.{name} must be a number",
            yaml::json_kind(amount)
        )),
        None => Ok(Value::Object(resources)),
    }
}

fn number(value: Option<f64>) -> Value {
    match value.filter(|number| *number != 0.0) {
        // As Go sends a whole number.
        Some(whole) if whole.fract() == 0.0 && whole.abs() < 1e9 => (whole as i64).into(),
        Some(number) => number.into(),
        None => Value::Null,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_fields_that_are_set_are_sent() {
        let spec = RayJobSpec::default();
        assert_eq!(request(&spec, "id"), Ok(json!({"entrypoint": "", "submission_id": "id"})));
        let spec = RayJobSpec {
            entrypoint: Some(" python x.py ".into()),
            runtime_env_yaml: Some("env_vars: {A: 'b'}\npip: [requests]\n".into()),
            metadata: Some([("team".to_owned(), "x".to_owned())].into()),
            entrypoint_resources: Some(r#"{"tpu": 2}"#.into()),
            entrypoint_num_cpus: Some(1.5),
            entrypoint_num_gpus: Some(1.0),
            ..RayJobSpec::default()
        };
        let expect = json!({
            "entrypoint": " python x.py ", "submission_id": "id", "metadata": {"team": "x"},
            "runtime_env": {"env_vars": {"A": "b"}, "pip": ["requests"]},
            "entrypoint_resources": {"tpu": 2}, "entrypoint_num_cpus": 1.5, "entrypoint_num_gpus": 1,
        });
        assert_eq!(request(&spec, "id"), Ok(expect));
    }

    #[test]
    fn resources_are_an_object_of_numbers() {
        assert_eq!(resources(r#"{"r1": 0.1}"#), Ok(json!({"r1": 0.1})));
        assert!(resources(r#"{"r1": "string"}"#).unwrap_err().starts_with("json: cannot unmarshal string"));
        assert!(resources("[1]").is_err() && resources("{").is_err());
    }
}
