//! Objects as CEL sees them: typed by their schema, with field names escaped where CEL could not write them.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use kube_cel::cel::Value as CelValue;
use kube_cel::cel::functions::time;
use kube_cel::cel::objects::{Key, Map as CelMap};
use serde_json::{Map, Number, Value};

use super::formats::Format;
use super::node::{Node, Type};

/// Converts a value for `self` and `oldSelf`. Of a resource's metadata only the names are visible.
pub(crate) fn convert(value: &Value, node: &Node, resource_root: bool) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(b) => CelValue::Bool(*b),
        Value::Number(n) => number(n, node.kind),
        Value::String(text) => string(text, node),
        Value::Array(items) => {
            let items = items.iter().map(|item| match &node.items {
                Some(schema) => convert(item, schema, schema.embedded),
                None => untyped(item),
            });
            CelValue::List(Arc::new(items.collect()))
        }
        Value::Object(map) => object(map, node, resource_root),
    }
}

fn object(map: &Map<String, Value>, node: &Node, resource_root: bool) -> CelValue {
    let mut out = HashMap::with_capacity(map.len());
    for (name, value) in map {
        let (key, value) = match (resource_root, name.as_str()) {
            (true, "apiVersion" | "kind") => (name.clone(), untyped(value)),
            (true, "metadata") => (name.clone(), names_of(value)),
            _ => match (node.property(name), node.additional_schema()) {
                (Some(property), _) => (escape(name), convert(value, property, property.embedded)),
                (None, Some(values)) => (name.clone(), convert(value, values, values.embedded)),
                (None, None) => (escape(name), untyped(value)),
            },
        };
        out.insert(Key::String(Arc::new(key)), value);
    }
    CelValue::Map(CelMap { map: Arc::new(out) })
}

fn names_of(metadata: &Value) -> CelValue {
    let names = ["name", "generateName"].into_iter().filter_map(|name| {
        let value = metadata.get(name)?;
        Some((Key::String(Arc::new(name.to_owned())), untyped(value)))
    });
    CelValue::Map(CelMap { map: Arc::new(names.collect()) })
}

fn number(n: &Number, kind: Option<Type>) -> CelValue {
    let float = n.as_f64().unwrap_or(f64::NAN);
    match (kind, n.as_i64()) {
        (Some(Type::Number), _) => CelValue::Float(float),
        (_, Some(int)) => CelValue::Int(int),
        (Some(Type::Integer), None) if float.fract() == 0.0 => CelValue::Int(float as i64),
        _ => CelValue::Float(float),
    }
}

/// Strings of some formats are values of their own type; what does not parse stays a string.
fn string(text: &str, node: &Node) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_owned()));
    let format = node.checks.as_deref().and_then(|checks| checks.format.as_ref());
    match format.map(|(format, _)| format) {
        Some(Format::DateTime) => time::timestamp(Arc::new(text.to_owned())).unwrap_or_else(|_| plain()),
        Some(Format::Date) => time::timestamp(Arc::new(format!("{text}T00:00:00Z"))).unwrap_or_else(|_| plain()),
        Some(Format::Duration) => time::duration(Arc::new(text.to_owned())).unwrap_or_else(|_| plain()),
        Some(Format::Byte) => match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(bytes) => CelValue::Bytes(Arc::new(bytes)),
            Err(_) => plain(),
        },
        _ => plain(),
    }
}

pub(crate) fn untyped(value: &Value) -> CelValue {
    convert(value, &Node::default(), false)
}

/// `namespace` as `__namespace__`, `a-b` as `a__dash__b`: names that a CEL expression can write.
fn escape(name: &str) -> String {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}
