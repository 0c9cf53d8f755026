//! Validation of volumes: PersistentVolumes, claims, and the volumes and mounts of pods.

use serde_json::{Value, json};

use super::container::{field_reference, resource_reference};
use super::fields::{indexed, named, one_of, quantity, required, selector, text};
use super::{immutable, scheduling};
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
    if !spec["hostPath"].is_null() {
        host_path(&spec["hostPath"], "spec.hostPath", errors);
    }
    for (name, amount) in spec["capacity"].as_object().into_iter().flatten() {
        let field = format!("spec.capacity[{name}]");
        if name != "storage" {
            errors.push(FieldError::not_supported("spec.capacity", &json!(name), &["storage"]));
        } else if quantity(amount).is_some_and(|amount| !amount.is_positive()) {
            errors.push(FieldError::invalid(field, amount, "must be greater than zero"));
        }
    }
    one_of(&spec["volumeMode"], "spec.volumeMode", &["Block", "Filesystem"], errors);
    named(&spec["storageClassName"], "spec.storageClassName", names::subdomain, errors);
    if !spec["nodeAffinity"].is_null() {
        match spec["nodeAffinity"]["required"].is_null() {
            true => errors
                .push(FieldError::required("spec.nodeAffinity.required", "must specify required node constraints")),
            false => scheduling::node_selector(&spec["nodeAffinity"]["required"], "spec.nodeAffinity.required", errors),
        }
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
    let (spec, storage) = (&new["spec"], &new["spec"]["resources"]["requests"]["storage"]);
    match quantity(storage) {
        None => errors.push(FieldError::required("spec.resources[storage]", "")),
        Some(amount) if !amount.is_positive() => {
            errors.push(FieldError::invalid("spec.resources[storage]", storage, "must be greater than zero"));
        }
        Some(_) => {}
    }
    selector(&spec["selector"], "spec.selector", errors);
    one_of(&spec["volumeMode"], "spec.volumeMode", &["Block", "Filesystem"], errors);
    named(&spec["storageClassName"], "spec.storageClassName", names::subdomain, errors);
    let Some(old) = old else { return };
    let is_bound = old["status"]["phase"] == "Bound";
    // Two of them are set once, by whoever knows them first.
    let settable = ["volumeName", "storageClassName"].into_iter().filter(|key| old["spec"][*key].is_null());
    let mutable: Vec<&str> = settable.chain(["volumeAttributesClassName"]).collect();
    let frozen = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        for key in &mutable {
            spec.as_object_mut().map(|spec| spec.remove(*key));
        }
        if let Some(requests) =
            spec.pointer_mut("/resources/requests").and_then(Value::as_object_mut).filter(|_| is_bound)
        {
            requests.remove("storage");
        }
        spec
    };
    if frozen(new) != frozen(old) {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", why));
    }
    let (earlier, held) = (&old["spec"]["resources"]["requests"]["storage"], &old["status"]["capacity"]["storage"]);
    let amount = quantity(storage);
    if amount < quantity(earlier) && amount <= quantity(held) {
        let why = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", why));
    }
}

fn access_modes(spec: &Value, errors: &mut Vec<FieldError>) {
    let modes: Vec<&Value> = spec["accessModes"].as_array().into_iter().flatten().collect();
    let count = modes.len();
    if modes.is_empty() {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    for mode in modes {
        if !ACCESS_MODES.contains(&mode.as_str().unwrap_or("")) {
            errors.push(FieldError::not_supported("spec.accessModes", mode, ACCESS_MODES));
        }
    }
    if count > 1
        && spec["accessModes"].as_array().is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteOncePod"))
    {
        let why = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden("spec.accessModes", why));
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
        let name = text(&claim["claimName"]);
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if let Some(why) = names::subdomain(name) {
            errors.push(FieldError::invalid(path, &claim["claimName"], &why));
        }
    }
    if let Some(host) = volume.get("hostPath") {
        host_path(host, &format!("{field}.hostPath"), errors);
    }
    if quantity(&volume["emptyDir"]["sizeLimit"]).is_some_and(|limit| limit.is_negative()) {
        let why = "SizeLimit field must be a valid resource quantity";
        errors.push(FieldError::forbidden(format!("{field}.emptyDir.sizeLimit"), why));
    }
    for (kind, name) in [("secret", "secretName"), ("configMap", "name")] {
        if let Some(source) = volume.get(kind) {
            required(&source[name], format!("{field}.{kind}.{name}"), errors);
            mode(&source["defaultMode"], &format!("{field}.{kind}.defaultMode"), errors);
            projected_items(source, &format!("{field}.{kind}"), errors);
        }
    }
    if let Some(source) = volume.get("downwardAPI") {
        mode(&source["defaultMode"], &format!("{field}.downwardAPI.defaultMode"), errors);
        downward_items(source, &format!("{field}.downwardAPI"), errors);
    }
    if let Some(source) = volume.get("nfs") {
        required(&source["server"], format!("{field}.nfs.server"), errors);
        required(&source["path"], format!("{field}.nfs.path"), errors);
        if !text(&source["path"]).is_empty() && !text(&source["path"]).starts_with('/') {
            errors.push(FieldError::invalid(format!("{field}.nfs.path"), &source["path"], "must be an absolute path"));
        }
    }
    if let Some(source) = volume.get("csi") {
        required(&source["driver"], format!("{field}.csi.driver"), errors);
    }
    if let Some(projected) = volume.get("projected") {
        projected_sources(projected, &format!("{field}.projected"), errors);
    }
}

fn projected_sources(projected: &Value, field: &str, errors: &mut Vec<FieldError>) {
    mode(&projected["defaultMode"], &format!("{field}.defaultMode"), errors);
    for (index, source) in indexed(&projected["sources"]) {
        let given: Vec<(&String, &Value)> = source.as_object().into_iter().flatten().collect();
        for (kind, source) in &given {
            let path = format!("{field}.sources[{index}].{kind}");
            match kind.as_str() {
                "secret" | "configMap" => {
                    required(&source["name"], format!("{path}.name"), errors);
                    projected_items(source, &path, errors);
                }
                "downwardAPI" => downward_items(source, &path, errors),
                "serviceAccountToken" => token_source(source, &path, field, errors),
                _ => {}
            }
        }
        if given.len() > 1 {
            let why = "may not specify more than 1 volume type";
            errors.push(FieldError::forbidden(format!("{field}.sources[{index}]"), why));
        }
    }
}

fn mode(value: &Value, field: &str, errors: &mut Vec<FieldError>) {
    if value.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(field, value, why));
    }
}

/// The fields of a pod that a file may show.
const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

fn downward_items(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (_, item) in indexed(&source["items"]) {
        if text(&item["path"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.path"), ""));
        }
        if !text(&item["path"]).is_empty() {
            local_path(&item["path"], &format!("{path}.path"), errors);
        }
        let (pod, container) = (&item["fieldRef"], &item["resourceFieldRef"]);
        match (pod.is_object(), container.is_object()) {
            (true, true) => {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, &json!("resource"), why));
            }
            (true, false) => field_reference(pod, &format!("{path}.fieldRef"), FILE_FIELDS, errors),
            (false, true) => resource_reference(container, &format!("{path}.resourceFieldRef"), true, errors),
            (false, false) => {
                errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required"));
            }
        }
    }
}

fn token_source(source: &Value, path: &str, projected: &str, errors: &mut Vec<FieldError>) {
    let seconds = &source["expirationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds < 600) {
        let why = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), seconds, why));
    }
    if seconds.as_i64().is_some_and(|seconds| seconds > 1 << 32) {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), seconds, why));
    }
    // The real server names the projection, not the source, and so does this one.
    local_path(&source["path"], &format!("{projected}.path"), errors);
}

fn projected_items(source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, item) in indexed(&source["items"]) {
        required(&item["key"], format!("{path}.items[{index}].key"), errors);
        local_path(&item["path"], &format!("{path}.items[{index}].path"), errors);
        mode(&item["mode"], &format!("{path}.items[{index}].mode"), errors);
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

fn host_path(source: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let path = text(&source["path"]);
    if path.is_empty() {
        errors.push(FieldError::required(format!("{field}.path"), ""));
    } else if has_parent_step(path) {
        errors.push(FieldError::invalid(format!("{field}.path"), &source["path"], "must not contain '..'"));
    }
    let types = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    one_of(&source["type"], format!("{field}.type"), &types, errors);
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
        let modes = ["Bidirectional", "HostToContainer", "None"];
        let propagation = &mount["mountPropagation"];
        one_of(propagation, format!("{path}.volumeMounts.mountPropagation"), &modes, errors);
        if propagation == "Bidirectional" && container["securityContext"]["privileged"] != true {
            let why = "Bidirectional mount propagation is available only to privileged containers";
            errors.push(FieldError::forbidden(format!("{path}.volumeMounts.mountPropagation"), why));
        }
        recursive_read_only(mount, &format!("{path}.volumeMounts.recursiveReadOnly"), errors);
        for key in ["subPath", "subPathExpr"] {
            if mount[key].is_string() {
                relative_path(&mount[key], &format!("{path}.volumeMounts.{key}"), errors);
            }
        }
        if mount["subPath"].is_string() && mount["subPathExpr"].is_string() {
            let why = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(format!("{field}.subPathExpr"), &mount["subPathExpr"], why));
        }
    }
}

fn recursive_read_only(mount: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let wanted = &mount["recursiveReadOnly"];
    one_of(wanted, field, &["Disabled", "Enabled", "IfPossible"], errors);
    if !(wanted == "Enabled" || wanted == "IfPossible") {
        return;
    }
    if mount["readOnly"] != true {
        errors.push(FieldError::forbidden(field, "may only be specified when readOnly is true"));
    }
    if !matches!(text(&mount["mountPropagation"]), "" | "None") {
        let why = "may only be specified when mountPropagation is None or not specified";
        errors.push(FieldError::forbidden(field, why));
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
    fn a_bound_claim_keeps_its_volume_its_class_and_its_size() {
        let check = |phase: &str, old: Value, new: Value, expect: &str| {
            let claim = |changes: &Value| {
                let mut claim = json!({"spec": {"accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "2Gi"}}}, "status": {"phase": phase}});
                if phase == "Bound" {
                    claim["status"]["capacity"] = json!({"storage": "2Gi"});
                }
                for (pointer, value) in changes.as_object().expect("changes") {
                    match pointer.as_str() {
                        "storage" => claim["spec"]["resources"]["requests"]["storage"] = value.clone(),
                        key => claim["spec"][key] = value.clone(),
                    }
                }
                claim
            };
            let mut errors = Vec::new();
            super::claim(&claim(&new), Some(&claim(&old)), &mut errors);
            let got: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(got.join(" "), expect, "{phase} {old} {new}: {errors:?}");
        };
        check("Pending", json!({"volumeName": null}), json!({"volumeName": "a"}), "");
        check("Pending", json!({"volumeName": "a"}), json!({"volumeName": "b"}), "spec");
        check("Pending", json!({}), json!({"storageClassName": "a"}), "");
        check("Pending", json!({"storageClassName": "a"}), json!({"storageClassName": "b"}), "spec");
        check("Pending", json!({"storageClassName": "a"}), json!({}), "spec");
        check("Pending", json!({}), json!({"storage": "3Gi"}), "spec");
        check("Bound", json!({}), json!({"storage": "3Gi"}), "");
        check("Bound", json!({}), json!({"storage": "1Gi"}), "spec.resources.requests.storage");
        check("Bound", json!({"storage": "4Gi"}), json!({"storage": "3Gi"}), "");
        check("Bound", json!({"storage": "4Gi"}), json!({"storage": "2048Mi"}), "spec.resources.requests.storage");
        check("Bound", json!({}), json!({"volumeAttributesClassName": "a"}), "");
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
            ["projected.path"]
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
        assert_eq!(of(above), r#"c.volumeMounts.subPath: Invalid value: "../b": must not contain '..'"#);
    }
}
