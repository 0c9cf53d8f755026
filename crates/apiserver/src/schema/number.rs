//! Numbers as Go writes them.

use serde_json::Value;

/// `2.0` is written `2`: one who reads the object back sees no fraction.
pub(crate) fn write_whole_floats_as_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|f| number.is_f64() && f.fract() == 0.0);
            // Only what fits keeps its digits; a larger one stays the float it is.
            if let Some(float) = whole.filter(|f| *f >= i64::MIN as f64 && *f < i64::MAX as f64) {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole_floats_as_integers),
        Value::Object(map) => map.values_mut().for_each(write_whole_floats_as_integers),
        _ => {}
    }
}
