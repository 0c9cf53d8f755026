//! Conversion of events between `v1` and `events.k8s.io/v1`.
//!
//! They are stored as `v1`; the other group has the same fields under other names.

use serde_json::Value;

use super::builtin::View;

/// Field names in `v1`, and in `events.k8s.io/v1`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// `events.k8s.io/v1` as it shows the events of `v1`.
pub(super) const VIEW: View = View { table: "events", to_stored, to_served };

/// Converts from `events.k8s.io/v1` to the stored form.
fn to_stored(value: &mut Value) {
    rename(value, |(stored, shown)| (*shown, *stored));
    value["apiVersion"] = "v1".into();
}

/// Converts from the stored form to `events.k8s.io/v1`.
fn to_served(value: &mut Value) {
    rename(value, |(stored, shown)| (*stored, *shown));
    value["apiVersion"] = "events.k8s.io/v1".into();
    for key in ["reportingController", "reportingInstance"] {
        if value[key] == ""
            && let Some(object) = value.as_object_mut()
        {
            object.remove(key);
        }
    }
}

fn rename(value: &mut Value, names: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(object) = value.as_object_mut() else { return };
    for (from, to) in NAMES.iter().map(names) {
        if let Some(found) = object.remove(from) {
            object.insert(to.into(), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_convert_between_both_groups() {
        let shown =
            json!({"apiVersion": "events.k8s.io/v1", "note": "hello", "regarding": {"name": "a"}, "reason": "R"});
        let mut value = shown.clone();
        to_stored(&mut value);
        assert_eq!(value["message"], "hello");
        assert_eq!(value["involvedObject"]["name"], "a");
        to_served(&mut value);
        assert_eq!(value, shown);
    }
}
