//! The shapes of the built-in types, and decoding into them.
//!
//! A real API server decodes JSON into Go structs: unknown fields vanish, `null` and empty optional fields are
//! not written back, quantities and times come out in canonical form, a wrong type is refused. A `Shape` does
//! the same to a `Value`. Shapes are compiled from the published schemas of the types on first use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use manta_quantity::Quantity;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value};

use crate::schema::Path;

/// The form of a value.
#[derive(Debug)]
enum Shape {
    Any,
    Object(Fields),
    Map(Arc<Shape>),
    List(Arc<Shape>),
    Text,
    Bytes,
    Int32,
    Int64,
    Number,
    Bool,
    IntOrString,
    Quantity,
    Time,
    MicroTime,
    /// A type by name, which is looked up once; types refer to each other in circles.
    Named(Arc<str>, OnceLock<Option<Arc<Shape>>>),
}

#[derive(Debug)]
struct Fields {
    /// The short name of the type, for messages.
    name: Arc<str>,
    fields: HashMap<Box<str>, (Arc<Shape>, Required)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Required {
    Yes,
    No,
}

/// Writes the schema of a type into a generator and returns its reference.
pub(crate) type Describe = fn(&mut SchemaGenerator) -> schemars::Schema;

/// What decoding found.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// Paths of fields that the type does not have; they were dropped.
    pub(crate) unknown: Vec<String>,
}

#[derive(Default)]
struct Known {
    types: HashMap<Arc<str>, Arc<Shape>>,
}

static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();

/// Returns the generator settings under which all built-in schemas are made.
pub(crate) fn settings() -> SchemaSettings {
    let mut settings = SchemaSettings::draft07();
    settings.definitions_path = "/components/schemas".into();
    settings.transforms.clear();
    settings
}

/// Decodes an object as Go would; the error is the message of Go's decoder.
pub(crate) fn decode(describe: Describe, definition: &str, object: &mut Value) -> Result<Decoded, String> {
    let root = root(describe, definition);
    let mut decoded = Decoded::default();
    fit(&root, object, "", &Path::Root, &mut decoded)?;
    Ok(decoded)
}

fn root(describe: Describe, definition: &str) -> Arc<Shape> {
    let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.types.get(definition) {
        return found.clone();
    }
    let mut generator = settings().into_generator();
    describe(&mut generator);
    for (name, schema) in generator.take_definitions(false) {
        if !known.types.contains_key(name.as_str()) {
            let shape = compile(&name, &schema);
            known.types.insert(name.into(), Arc::new(shape));
        }
    }
    known.types.get(definition).cloned().unwrap_or_else(|| Arc::new(Shape::Any))
}

fn named(name: &str) -> Option<Arc<Shape>> {
    KNOWN.get()?.lock().unwrap_or_else(PoisonError::into_inner).types.get(name).cloned()
}

fn compile(name: &str, schema: &Value) -> Shape {
    match name.rsplit("apimachinery.pkg.").next() {
        Some("api.resource.Quantity") => return Shape::Quantity,
        Some("apis.meta.v1.Time") => return Shape::Time,
        Some("apis.meta.v1.MicroTime") => return Shape::MicroTime,
        Some("util.intstr.IntOrString") => return Shape::IntOrString,
        Some("apis.meta.v1.FieldsV1" | "runtime.RawExtension") => return Shape::Any,
        _ => {}
    }
    let short = name.rsplit('.').next().unwrap_or(name);
    if matches!(short, "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray") {
        return Shape::Any;
    }
    shape(short, schema)
}

fn shape(name: &str, schema: &Value) -> Shape {
    if let Some(reference) = reference(schema) {
        return Shape::Named(reference.into(), OnceLock::new());
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return Shape::IntOrString;
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "byte" => Shape::Bytes,
        Some("string") => Shape::Text,
        Some("integer") if schema["format"] == "int32" => Shape::Int32,
        Some("integer") => Shape::Int64,
        Some("number") => Shape::Number,
        Some("boolean") => Shape::Bool,
        Some("array") => Shape::List(Arc::new(shape(name, &schema["items"]))),
        Some("object") if schema["properties"].is_object() => {
            let required: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let fields = schema["properties"].as_object().into_iter().flatten().map(|(key, schema)| {
                let needed = if required.contains(&key.as_str()) { Required::Yes } else { Required::No };
                (key.as_str().into(), (Arc::new(shape(name, schema)), needed))
            });
            Shape::Object(Fields { name: name.into(), fields: fields.collect() })
        }
        Some("object") if schema["additionalProperties"].is_object() => {
            Shape::Map(Arc::new(shape(name, &schema["additionalProperties"])))
        }
        _ => Shape::Any,
    }
}

fn reference(schema: &Value) -> Option<&str> {
    let direct = schema["$ref"].as_str();
    let found = direct.or_else(|| schema["allOf"].as_array()?.first()?["$ref"].as_str())?;
    found.rsplit('/').next()
}

fn fit(shape: &Shape, value: &mut Value, owner: &str, path: &Path<'_>, decoded: &mut Decoded) -> Result<(), String> {
    let wrong = |value: &Value, wanted: &str| Err(wrong_type(value, owner, path, wanted));
    match shape {
        Shape::Any => Ok(()),
        Shape::Named(name, found) => match found.get_or_init(|| named(name)) {
            Some(shape) => fit(shape, value, owner, path, decoded),
            None => Ok(()),
        },
        Shape::Text if value.is_string() => Ok(()),
        Shape::Bool if value.is_boolean() => Ok(()),
        Shape::Int32 if value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) => Ok(()),
        Shape::Int64 if value.is_i64() => Ok(()),
        Shape::Number if value.is_number() => Ok(()),
        Shape::IntOrString if value.is_string() => Ok(()),
        Shape::IntOrString if value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) => Ok(()),
        Shape::Int32 | Shape::Int64 if whole(value).is_some() => {
            *value = Value::from(whole(value));
            fit(shape, value, owner, path, decoded)
        }
        Shape::Text | Shape::Bytes if !value.is_string() => wrong(value, "string"),
        Shape::Bytes => {
            use base64::Engine;
            let text = value.as_str().unwrap_or("");
            // Files that were encoded often bring line ends along; Go passes over them and writes none.
            let joined = text.contains(['\n', '\r']).then(|| text.replace(['\n', '\r'], ""));
            match base64::engine::general_purpose::STANDARD.decode(joined.as_deref().unwrap_or(text)) {
                Ok(_) => {
                    if let Some(joined) = joined {
                        *value = joined.into();
                    }
                    Ok(())
                }
                Err(_) => Err(format!("illegal base64 data at input byte {}", bad_base64(text))),
            }
        }
        Shape::Quantity => {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                other => return wrong(other, "resource.Quantity"),
            };
            let quantity = Quantity::parse(&text).map_err(|error| error.to_string())?;
            *value = quantity.to_string().into();
            Ok(())
        }
        Shape::Time | Shape::MicroTime => {
            let Some(text) = value.as_str() else { return wrong(value, "string") };
            if matches!(shape, Shape::Time) && is_canonical_time(text) {
                return Ok(());
            }
            let Ok(time) = text.parse::<jiff::Timestamp>() else {
                return Err(format!(
                    "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
                ));
            };
            let format = if matches!(shape, Shape::Time) { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S.%6fZ" };
            *value = time.strftime(format).to_string().into();
            Ok(())
        }
        Shape::List(item) => {
            let Value::Array(items) = value else { return wrong(value, "[]") };
            for (index, item_value) in items.iter_mut().enumerate() {
                fit(item, item_value, owner, &path.index(index), decoded)?;
            }
            Ok(())
        }
        Shape::Map(item) => {
            let Value::Object(entries) = value else { return wrong(value, "map[string]") };
            for (key, entry) in entries.iter_mut().filter(|(_, entry)| !entry.is_null()) {
                // Go names the map, not the entry, when a plain value has the wrong type.
                let nested = matches!(**item, Shape::Named(..) | Shape::Object(_));
                let place = if nested { path.key(key) } else { *path };
                fit(item, entry, owner, &place, decoded)?;
            }
            Ok(())
        }
        Shape::Object(fields) => {
            let Value::Object(entries) = value else { return wrong(value, &fields.name) };
            fit_fields(fields, entries, path, decoded)
        }
        Shape::Bool => wrong(value, "bool"),
        Shape::Int32 => wrong(value, "int32"),
        Shape::Int64 => wrong(value, "int64"),
        Shape::Number => wrong(value, "float64"),
        Shape::IntOrString => wrong(value, "intstr.IntOrString"),
        Shape::Text => Ok(()),
    }
}

/// Returns the integer that a float without a fraction stands for.
fn whole(value: &Value) -> Option<i64> {
    let number = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0)?;
    // Floats beyond 2^53 do not name one integer.
    (number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
}

fn fit_fields(
    fields: &Fields,
    entries: &mut Map<String, Value>,
    path: &Path<'_>,
    decoded: &mut Decoded,
) -> Result<(), String> {
    let mut drop = Vec::new();
    for (key, value) in entries.iter_mut() {
        let Some((shape, required)) = fields.fields.get(key.as_str()) else {
            decoded.unknown.push(path.field(key).show_dotted());
            drop.push(key.clone());
            continue;
        };
        if value.is_null() {
            drop.push(key.clone());
            continue;
        }
        fit(shape, value, &fields.name, &path.field(key), decoded)?;
        if *required == Required::No && is_unset(key, shape, value, &fields.name) {
            drop.push(key.clone());
        }
    }
    for key in drop {
        entries.remove(&key);
    }
    Ok(())
}

/// Optional text fields where the empty string is a value, because Go has a pointer there.
const EMPTY_TEXT: &[&str] = &[
    "storageClassName",
    "timeZone",
    "runtimeClassName",
    "ingressClassName",
    "volumeAttributesClassName",
    "appProtocol",
    "loadBalancerClass",
    "preemptionPolicy",
    "holderIdentity",
    "apiGroup",
    "hostname",
    "nodeName",
    "zone",
    "service",
    "fsGroupChangePolicy",
    "scope",
    "matchPolicy",
    "failurePolicy",
    "sideEffects",
    "hostnameOverride",
    "recursiveReadOnly",
];
/// Optional flags and numbers that Go does not write when they are false or zero.
const ZERO: &[&str] = &[
    "stdin",
    "stdinOnce",
    "tty",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "readOnly",
    "publishNotReadyAddresses",
    "unschedulable",
    "paused",
    "hostPort",
    "initialDelaySeconds",
    "nodePort",
    "minReadySeconds",
    "healthCheckNodePort",
];
const ZERO_PROBE: &[&str] = &["timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];

/// Returns whether Go would not write an optional field with this value.
fn is_unset(key: &str, shape: &Shape, value: &Value, owner: &str) -> bool {
    match value {
        Value::Array(items) => items.is_empty() && matches!(shape, Shape::List(_)),
        Value::Object(entries) => entries.is_empty() && matches!(shape, Shape::Map(_)),
        Value::String(text) => {
            text.is_empty()
                && matches!(shape, Shape::Text | Shape::Bytes)
                && !EMPTY_TEXT.contains(&key)
                && (key, owner) != ("type", "HostPathVolumeSource")
        }
        Value::Bool(false) => ZERO.contains(&key),
        Value::Number(number) if number.as_i64() == Some(0) => {
            ZERO.contains(&key) || (owner == "Probe" && ZERO_PROBE.contains(&key))
        }
        _ => false,
    }
}

/// Returns whether a time is written as it is stored; the last days of months are looked at more closely by the parser.
fn is_canonical_time(text: &str) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let fits = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    let within = |from: usize, lowest: &str, highest: &str| (lowest..=highest).contains(&&text[from..from + 2]);
    text.len() == FORM.len()
        && text.bytes().zip(FORM).all(fits)
        && within(5, "01", "12")
        && within(8, "01", "28")
        && within(11, "00", "23")
        && within(14, "00", "59")
        && within(17, "00", "59")
}

fn bad_base64(text: &str) -> usize {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    text.bytes().position(|byte| !fine(byte)).unwrap_or(text.len() - text.len() % 4)
}

fn wrong_type(value: &Value, owner: &str, path: &Path<'_>, wanted: &str) -> String {
    let given = match value {
        Value::String(_) => "string".to_owned(),
        Value::Number(number) if wanted.starts_with("int") => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
        Value::Null => "null".to_owned(),
    };
    let field: String = strip_indices(&path.show_dotted());
    format!("json: cannot unmarshal {given} into Go struct field {owner}.{field} of type {wanted}")
}

fn strip_indices(path: &str) -> String {
    let mut depth = 0;
    path.chars()
        .filter(|letter| {
            depth += i32::from(*letter == '[');
            let keep = depth == 0;
            depth -= i32::from(*letter == ']');
            keep
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn check(mut given: Value, expect: Result<(Value, &[&str]), &str>) {
        let got = decode(|generator| generator.subschema_for::<Pod>(), "io.k8s.api.core.v1.Pod", &mut given);
        match (got, expect) {
            (Ok(decoded), Ok((value, unknown))) => {
                assert_eq!(given, value);
                assert_eq!(decoded.unknown, unknown);
            }
            (Err(got), Err(expect)) => assert_eq!(got, expect),
            (got, expect) => panic!("got {got:?}, expected {expect:?}"),
        }
    }

    #[test]
    fn bodies_decode_as_in_go() {
        check(
            json!({"spec": {"nope": 1, "nodeSelector": {}, "containers": [
                {"name": "a", "args": [], "stdin": false, "bad": {}, "env": [{"name": "E", "value": ""}],
                 "resources": {"limits": {"cpu": "1000m", "memory": 1024}}}]}}),
            Ok((
                json!({"spec": {"containers": [{"name": "a", "env": [{"name": "E"}],
                    "resources": {"limits": {"cpu": "1", "memory": "1024"}}}]}}),
                &["spec.containers[0].bad", "spec.nope"],
            )),
        );
        check(
            json!({"metadata": {"creationTimestamp": "2024-01-01T01:00:00.5+01:00"}}),
            Ok((json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"}}), &[])),
        );
    }

    #[test]
    fn wrong_types_are_refused_in_the_words_of_go() {
        check(
            json!({"spec": {"containers": [{"name": 1}]}}),
            Err("json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string"),
        );
        check(
            json!({"spec": {"containers": {}}}),
            Err("json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []"),
        );
        check(
            json!({"spec": {"priority": 3_000_000_000_i64}}),
            Err("json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32"),
        );
        check(
            json!({"spec": {"activeDeadlineSeconds": u64::MAX}}),
            Err("json: cannot unmarshal number 18446744073709551615 into Go struct field \
                 PodSpec.spec.activeDeadlineSeconds of type int64"),
        );
    }
}
