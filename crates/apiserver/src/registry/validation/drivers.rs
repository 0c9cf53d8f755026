//! Validation of what describes the drivers of nodes: RuntimeClasses, CSIDrivers, CSINodes, VolumeAttachments.

use serde_json::Value;

use super::fields::{indexed, label_name, one_of, required, text};
use super::immutable;
use crate::names;
use crate::schema::FieldError;

/// Validates a runtime class.
pub(in crate::registry) fn runtime_class(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let Some(why) = names::label(text(&new["handler"])) {
        errors.push(FieldError::invalid("handler", &new["handler"], &why));
    }
    if let Some(labels) = new["scheduling"]["nodeSelector"].as_object() {
        names::check_labels(labels, "scheduling.nodeSelector", errors);
    }
    immutable(new, old, "/handler", errors);
}

/// Validates a CSI driver.
pub(in crate::registry) fn csi_driver(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    one_of(&spec["fsGroupPolicy"], "spec.fsGroupPolicy", &policies, errors);
    for (_, mode) in indexed(&spec["volumeLifecycleModes"]) {
        one_of(mode, "spec.volumeLifecycleModes", &["Persistent", "Ephemeral"], errors);
    }
}

/// The longest name of a CSI driver.
const MAX_DRIVER_NAME: usize = 63;
/// The longest name of a node as its driver calls it.
const MAX_NODE_ID: usize = 256;

fn driver_name(name: &Value, field: &str, errors: &mut Vec<FieldError>) {
    let given = text(name);
    if given.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
    if given.len() > MAX_DRIVER_NAME {
        errors.push(FieldError::too_long(field, MAX_DRIVER_NAME as i64));
    }
    if let Some(why) = names::subdomain(&given.to_lowercase()) {
        errors.push(FieldError::invalid(field, name, &why));
    }
}

/// Validates what a node says of its CSI drivers.
pub(in crate::registry) fn csi_node(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, driver) in indexed(&new["spec"]["drivers"]) {
        let path = format!("spec.drivers[{index}]");
        driver_name(&driver["name"], &format!("{path}.name"), errors);
        let name = text(&driver["name"]);
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &driver["name"]));
        }
        seen.push(name);
        required(&driver["nodeID"], format!("{path}.nodeID"), errors);
        if text(&driver["nodeID"]).len() > MAX_NODE_ID {
            let why = "must be 256 characters or less";
            errors.push(FieldError::invalid(format!("{path}.nodeID"), &driver["nodeID"], why));
        }
        if driver["allocatable"]["count"].as_i64().is_some_and(|count| count < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{path}.allocatable.count"), &driver["allocatable"]["count"], why));
        }
        for (at, key) in indexed(&driver["topologyKeys"]) {
            if text(key).is_empty() {
                errors.push(FieldError::required(path.as_str(), ""));
            }
            label_name(key, &path, errors);
            if indexed(&driver["topologyKeys"]).any(|(other, known)| other < at && known == key) {
                errors.push(FieldError::duplicate(path.as_str(), key));
            }
        }
    }
}

/// Validates a volume attachment.
pub(in crate::registry) fn volume_attachment(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    driver_name(&spec["attacher"], "spec.attacher", errors);
    if let Some(why) = names::subdomain(text(&spec["nodeName"])) {
        errors.push(FieldError::invalid("spec.nodeName", &spec["nodeName"], &why));
    }
    let (volume, inline) = (&spec["source"]["persistentVolumeName"], &spec["source"]["inlineVolumeSpec"]);
    match (volume.is_null(), inline.is_null()) {
        (true, true) => {
            let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            errors.push(FieldError::required("spec.source", why));
        }
        (false, false) => {
            let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
            errors.push(FieldError::forbidden("spec.source", why));
        }
        (false, true) if text(volume).is_empty() => {
            let why = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required("spec.source.persistentVolumeName", why));
        }
        _ => {}
    }
    immutable(new, old, "/spec", errors);
}
