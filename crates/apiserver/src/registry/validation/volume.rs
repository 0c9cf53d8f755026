//! Validation of volumes: PersistentVolumes, claims, and the volumes and mounts of pods.

use serde_json::{Value, json};

use super::immutable;
use crate::names;
use crate::schema::FieldError;

/// The fields of a PersistentVolume's spec that are not its source.
const NOT_SOURCES: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Validates PersistentVolumes; their source is immutable.
pub(in crate::registry) fn persistent_volume(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    access_modes(spec, errors);
    if spec["capacity"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    let sources = source_of(new);
    match sources.as_object().map_or(0, serde_json::Map::len) {
        0 => errors.push(FieldError::required("spec", "must specify a volume type")),
        1 => {}
        _ => errors.push(FieldError::forbidden("spec", "may not specify more than 1 volume type")),
    }
    let path = &spec["hostPath"]["path"];
    if !spec["hostPath"].is_null() {
        host_path(path, "spec.hostPath.path", errors);
    }
    let policies = ["Delete", "Recycle", "Retain"];
    let policy = &spec["persistentVolumeReclaimPolicy"];
    if !policies.contains(&policy.as_str().unwrap_or("")) {
        errors.push(FieldError::not_supported("spec.persistentVolumeReclaimPolicy", policy, &policies));
    }
    if let Some(old) = old {
        if source_of(old) != sources {
            let why = "spec.persistentvolumesource is immutable after creation";
            errors.push(FieldError::forbidden("spec.persistentvolumesource", why));
        }
        immutable(new, Some(old), "/spec/volumeMode", errors);
    }
}

fn source_of(volume: &Value) -> Value {
    let fields = volume["spec"].as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| !NOT_SOURCES.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Validates claims: the spec is immutable except for the requested storage, and a volume once bound.
pub(in crate::registry) fn claim(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    access_modes(&new["spec"], errors);
    if new["spec"]["resources"]["requests"]["storage"].is_null() {
        errors.push(FieldError::required("spec.resources[storage]", ""));
    }
    let Some(old) = old else { return };
    let frozen = |value: &Value| {
        let mut spec = value["spec"].clone();
        let mut mutable = vec!["resources", "storageClassName", "volumeAttributesClassName"];
        if old["spec"]["volumeName"].is_null() {
            mutable.push("volumeName");
        }
        for key in mutable {
            spec.as_object_mut().map(|spec| spec.remove(key));
        }
        spec
    };
    if frozen(new) != frozen(old) {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", why));
    }
}

fn access_modes(spec: &Value, errors: &mut Vec<FieldError>) {
    let modes: Vec<&Value> = spec["accessModes"].as_array().into_iter().flatten().collect();
    if modes.is_empty() {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    for mode in modes {
        if !ACCESS_MODES.contains(&mode.as_str().unwrap_or("")) {
            errors.push(FieldError::not_supported("spec.accessModes", mode, ACCESS_MODES));
        }
    }
}

/// Validates the volumes of a pod; returns their names.
pub(super) fn pod_volumes<'a>(spec: &'a Value, path: &str, errors: &mut Vec<FieldError>) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let field = format!("{path}.volumes[{index}]");
        let name = volume["name"].as_str().unwrap_or("");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{field}.name"), &json!(name)));
        } else if let Some(why) = names::label(name) {
            errors.push(FieldError::invalid(format!("{field}.name"), &json!(name), &why));
        }
        seen.push(name);
        source(volume, &field, errors);
    }
    seen
}

fn source(volume: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let sources = volume.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
    for (kind, _) in sources.skip(1) {
        let why = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(format!("{field}.{kind}"), why));
    }
    if let Some(claim) = volume.get("persistentVolumeClaim") {
        let path = format!("{field}.persistentVolumeClaim.claimName");
        let name = claim["claimName"].as_str().unwrap_or("");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if let Some(why) = names::subdomain(name) {
            errors.push(FieldError::invalid(path, &claim["claimName"], &why));
        }
    }
    if let Some(host) = volume.get("hostPath") {
        host_path(&host["path"], &format!("{field}.hostPath.path"), errors);
    }
    for (kind, required) in [("secret", "secretName"), ("configMap", "name")] {
        if let Some(source) = volume.get(kind) {
            if source[required].as_str().unwrap_or("").is_empty() {
                errors.push(FieldError::required(format!("{field}.{kind}.{required}"), ""));
            }
            projected_items(source, &format!("{field}.{kind}"), errors);
        }
    }
    if let Some(source) = volume.get("downwardAPI") {
        projected_items(source, &format!("{field}.downwardAPI"), errors);
    }
    for (index, source) in volume["projected"]["sources"].as_array().into_iter().flatten().enumerate() {
        for (kind, source) in source.as_object().into_iter().flatten() {
            let path = format!("{field}.projected.sources[{index}].{kind}");
            projected_items(source, &path, errors);
            if kind == "serviceAccountToken" {
                token_source(source, &path, errors);
            }
        }
    }
}

fn token_source(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let seconds = &source["expirationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
        let why = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), seconds, why));
    }
    if seconds.as_i64().is_some_and(|seconds| seconds > 1 << 32) {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), seconds, why));
    }
    local_path(&source["path"], &format!("{path}.path"), errors);
}

fn projected_items(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, item) in source["items"].as_array().into_iter().flatten().enumerate() {
        local_path(&item["path"], &format!("{path}.items[{index}].path"), errors);
    }
}

/// Validates a path inside of a volume: relative, without `..`.
fn local_path(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let text = value.as_str().unwrap_or("");
    if text.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else {
        relative_path(value, field, errors);
        if text.starts_with("..") && text != ".." && !text.starts_with("../") {
            errors.push(FieldError::invalid(field, value, "must not start with '..'"));
        }
    }
}

fn relative_path(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let text = value.as_str().unwrap_or("");
    if text.starts_with('/') {
        errors.push(FieldError::invalid(field, value, "must be a relative path"));
    }
    if has_parent_step(text) {
        errors.push(FieldError::invalid(field, value, "must not contain '..'"));
    }
}

fn host_path(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let text = value.as_str().unwrap_or("");
    if text.is_empty() {
        errors.push(FieldError::required(field, ""));
    } else if has_parent_step(text) {
        errors.push(FieldError::invalid(field, value, "must not contain '..'"));
    }
}

fn has_parent_step(path: &str) -> bool {
    path.split('/').any(|step| step == "..")
}

/// Validates the mounts of a container.
pub(super) fn mounts(container: &Value, path: &str, volumes: &[&str], errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, mount) in container["volumeMounts"].as_array().into_iter().flatten().enumerate() {
        let field = format!("{path}.volumeMounts[{index}]");
        let name = mount["name"].as_str().unwrap_or("");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else if !volumes.contains(&name) {
            errors.push(FieldError::not_found(format!("{field}.name"), &mount["name"]));
        }
        let target = mount["mountPath"].as_str().unwrap_or("");
        if target.is_empty() {
            errors.push(FieldError::required(format!("{field}.mountPath"), ""));
        } else if seen.contains(&target) {
            errors.push(FieldError::invalid(format!("{field}.mountPath"), &mount["mountPath"], "must be unique"));
        }
        seen.push(target);
        for key in ["subPath", "subPathExpr"] {
            if mount[key].is_string() {
                relative_path(&mount[key], &format!("{field}.{key}"), errors);
            }
        }
        if mount["subPath"].is_string() && mount["subPathExpr"].is_string() {
            let why = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(format!("{field}.subPathExpr"), &mount["subPathExpr"], why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(errors: &[FieldError], expect: &str) {
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "), expect);
    }

    #[test]
    fn the_source_of_a_volume_is_immutable() {
        let volume = |path: &str, policy: &str| {
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": policy, "hostPath": {"path": path}}})
        };
        let mut errors = Vec::new();
        persistent_volume(&volume("/a", "Retain"), Some(&volume("/a", "Delete")), &mut errors);
        check(&errors, "");
        persistent_volume(&volume("/home", "Delete"), Some(&volume("/a", "Delete")), &mut errors);
        let expect = "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation";
        check(&errors, expect);
    }

    #[test]
    fn a_bound_claim_keeps_its_volume() {
        let claim = |volume: Value| {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}},
                "volumeName": volume}})
        };
        for (old, new, fine) in [(Value::Null, json!("a"), true), (json!("a"), json!("b"), false)] {
            let mut errors = Vec::new();
            super::claim(&claim(new), Some(&claim(old)), &mut errors);
            assert_eq!(errors.is_empty(), fine, "{errors:?}");
        }
    }

    #[test]
    fn volumes_of_pods_stay_inside_of_their_bounds() {
        let of = |volume: Value| {
            let mut errors = Vec::new();
            let mut volume = volume;
            volume["name"] = "v".into();
            pod_volumes(&json!({"volumes": [volume]}), "spec", &mut errors);
            errors.iter().map(|error| error.field.trim_start_matches("spec.volumes[0].").to_owned()).collect::<Vec<_>>()
        };
        assert!(of(json!({"persistentVolumeClaim": {"claimName": "data-0.x"}})).is_empty());
        assert_eq!(
            of(json!({"persistentVolumeClaim": {"claimName": "/home/victim"}})),
            ["persistentVolumeClaim.claimName"]
        );
        assert_eq!(of(json!({"persistentVolumeClaim": {"claimName": "../x"}})), ["persistentVolumeClaim.claimName"]);
        assert_eq!(of(json!({"hostPath": {"path": "/a/../b"}})), ["hostPath.path"]);
        assert_eq!(
            of(json!({"secret": {"secretName": "s", "items": [{"key": "k", "path": "../k"}]}})),
            ["secret.items[0].path"]
        );
        assert_eq!(
            of(json!({"configMap": {"name": "s", "items": [{"key": "k", "path": "/k"}]}})),
            ["configMap.items[0].path"]
        );
        assert_eq!(
            of(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "a/../../b"}}]}})),
            ["projected.sources[0].serviceAccountToken.path"]
        );
    }

    #[test]
    fn mounts_are_unique_and_below_their_volume() {
        let of = |mounts: Value| {
            let mut errors = Vec::new();
            super::mounts(&json!({"volumeMounts": mounts}), "c", &["v"], &mut errors);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let twice = json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]);
        assert_eq!(of(twice), r#"c.volumeMounts[1].mountPath: Invalid value: "/a": must be unique"#);
        let above = json!([{"name": "v", "mountPath": "/a", "subPath": "../b"}]);
        assert_eq!(of(above), r#"c.volumeMounts[0].subPath: Invalid value: "../b": must not contain '..'"#);
    }
}
