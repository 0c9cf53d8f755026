//! What a service must look like.

use serde_json::Value;

use crate::schema::FieldError;

/// Validates a service.
pub(in crate::registry) fn service(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let headless = spec["clusterIP"] == "None";
    let ports: Vec<&Value> = spec["ports"].as_array().into_iter().flatten().collect();
    if ports.is_empty() && !headless && spec["type"] != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        if ports.len() > 1 && port["name"].as_str().unwrap_or("").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let number = port["port"].as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{path}.port"), &number.into(), why));
        }
        let same = |other: &&Value| other["name"] == port["name"] && !port["name"].is_null();
        if ports[..index].iter().any(same) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &port["name"]));
        }
        let clash = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
        if ports[..index].iter().any(clash) {
            errors.push(FieldError::duplicate(path, port));
        }
    }
    let supported = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !supported.contains(&spec["type"].as_str().unwrap_or("")) {
        errors.push(FieldError::not_supported("spec.type", &spec["type"], &supported));
    }
    let kept = |value: &Value| value["spec"]["type"] != "ExternalName" && !value["spec"]["clusterIP"].is_null();
    if let Some(old) = old.filter(|old| kept(old) && kept(new))
        && old["spec"]["clusterIP"] != spec["clusterIP"]
    {
        let given = serde_json::json!([spec["clusterIP"]]);
        errors.push(FieldError::invalid("spec.clusterIPs[0]", &given, "may not change once set"));
    }
}
