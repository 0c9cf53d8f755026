//! Bodies in Kubernetes' protobuf encoding, read into JSON.
//!
//! Go clients send built-in kinds this way: `kubectl create namespace` does, and every controller-runtime
//! operator. They all take JSON answers, so nothing is ever written in this form. `fields.txt` holds the field
//! numbers of the published API types (k8s.io/api 0.36), one message per line:
//!
//! ```text
//!   core.Volume name=1:s volumeSource=2>core.VolumeSource
//! ```
//!
//! `:` one value, `?` a scalar whose zero is meant, `*` a list, `%` a map by name, `>` fields of the parent
//! itself; `s b i d y` are string, bool, integer, double and bytes.

use std::collections::HashMap;
use std::sync::OnceLock;

use base64::Engine;
use serde_json::{Map, Value, json};

static TABLE: &str = include_str!("fields.txt");

/// How a protobuf body begins.
const MAGIC: &[u8] = b"k8s\0";
/// No API type nests deeper; the schema in a CRD takes two messages for each level of a list.
const MAX_DEPTH: usize = 120;

/// Decodes a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body
        .strip_prefix(MAGIC)
        .ok_or("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")?;
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Wire(envelope) {
        match field? {
            (1, Piece::Bytes(bytes)) => {
                for field in Wire(bytes) {
                    match field? {
                        (1, Piece::Bytes(bytes)) => version = text(bytes)?,
                        (2, Piece::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Piece::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let package = match (version.split_once('/'), kind.as_str()) {
        (_, "DeleteOptions") => "meta",
        (None, _) => "core",
        (Some((group, _)), _) => group.split('.').next().unwrap_or(""),
    };
    let name = format!("{package}.{kind}");
    if !table().contains_key(name.as_str()) {
        return Err(format!("no kind {kind:?} is registered for version {version:?}"));
    }
    let mut object = message(&name, raw, 0)?;
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    Ok(object)
}

struct Field {
    name: &'static str,
    many: Many,
    kind: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    One,
    /// One scalar that is encoded even if it is zero.
    Meant,
    List,
    Map,
    Inline,
}

type Fields = HashMap<u64, Field>;

fn table() -> &'static HashMap<&'static str, Fields> {
    static PARSED: OnceLock<HashMap<&'static str, Fields>> = OnceLock::new();
    PARSED.get_or_init(|| {
        TABLE
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                let name = words.next()?;
                Some((name, words.filter_map(parse_field).collect()))
            })
            .collect()
    })
}

fn parse_field(word: &'static str) -> Option<(u64, Field)> {
    let (name, rest) = word.split_once('=')?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, rest) = rest.split_at(end);
    let many = match rest.as_bytes().first()? {
        b':' => Many::One,
        b'?' => Many::Meant,
        b'*' => Many::List,
        b'%' => Many::Map,
        b'>' => Many::Inline,
        _ => return None,
    };
    Some((number.parse().ok()?, Field { name, many, kind: &rest[1..] }))
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err("the message nests too deeply".into());
    }
    if let Some(special) = special(name, bytes, depth)? {
        return Ok(special);
    }
    let Some(fields) = table().get(name) else { return Ok(json!({})) };
    let mut object = Map::new();
    for piece in Wire(bytes) {
        let (number, piece) = piece?;
        let Some(field) = fields.get(&number) else { continue };
        match field.many {
            Many::One | Many::Meant => {
                let value = single(field.kind, &piece, depth)?;
                if field.many == Many::Meant || !is_zero(&value) {
                    object.insert(field.name.into(), value);
                }
            }
            Many::List => {
                let value = single(field.kind, &piece, depth)?;
                if let Value::Array(list) = object.entry(field.name).or_insert_with(|| json!([])) {
                    list.push(value);
                }
            }
            Many::Map => {
                let (key, value) = entry(field.kind, &piece, depth)?;
                if let Value::Object(map) = object.entry(field.name).or_insert_with(|| json!({})) {
                    map.insert(key, value);
                }
            }
            Many::Inline => {
                if let Value::Object(inner) = single(field.kind, &piece, depth)? {
                    object.extend(inner);
                }
            }
        }
    }
    Ok(Value::Object(object))
}

/// Returns what Go leaves out of JSON.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

fn single(kind: &str, piece: &Piece<'_>, depth: usize) -> Result<Value, String> {
    Ok(match (kind, piece) {
        ("s", Piece::Bytes(bytes)) => text(bytes)?.into(),
        ("b", Piece::Number(number)) => (*number != 0).into(),
        ("i", Piece::Number(number)) => number.cast_signed().into(),
        ("d", Piece::Number(number)) => double(f64::from_bits(*number)),
        ("y", Piece::Bytes(bytes)) => base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        (name, Piece::Bytes(bytes)) => message(name, bytes, depth + 1)?,
        _ => return Err(format!("a field of type {kind} is encoded wrongly")),
    })
}

/// Returns a double as Go writes it in JSON: without a fraction if it has none.
fn double(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() < 1e15 {
        true => (number as i64).into(),
        false => number.into(),
    }
}

fn entry(kind: &str, piece: &Piece<'_>, depth: usize) -> Result<(String, Value), String> {
    let Piece::Bytes(bytes) = piece else { return Err("a map is encoded wrongly".into()) };
    let (mut key, mut value) = (String::new(), if kind == "s" || kind == "y" { json!("") } else { json!({}) });
    for piece in Wire(bytes) {
        match piece? {
            (1, Piece::Bytes(bytes)) => key = text(bytes)?,
            (2, piece) => value = single(kind, &piece, depth)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Types whose JSON is not an object of their fields.
fn special(name: &str, bytes: &[u8], depth: usize) -> Result<Option<Value>, String> {
    let mut numbers = [0_u64; 4];
    let mut texts = [&[][..]; 4];
    let known = matches!(
        name,
        "meta.Time"
            | "meta.MicroTime"
            | "resource.Quantity"
            | "intstr.IntOrString"
            | "meta.FieldsV1"
            | "runtime.RawExtension"
    );
    if name.ends_with(".ExtraValue") {
        let items: Result<Vec<Value>, String> = Wire(bytes)
            .map(|piece| match piece? {
                (_, Piece::Bytes(bytes)) => Ok(text(bytes)?.into()),
                _ => Err("an extra value is encoded wrongly".into()),
            })
            .collect();
        return Ok(Some(items?.into()));
    }
    if name.starts_with("apiextensions.JSON") {
        return schema_union(name, bytes, depth);
    }
    if !known {
        return Ok(None);
    }
    for piece in Wire(bytes) {
        match piece? {
            (number @ 1..=3, Piece::Number(value)) => numbers[number as usize] = value,
            (number @ 1..=3, Piece::Bytes(value)) => texts[number as usize] = value,
            _ => {}
        }
    }
    Ok(Some(match name {
        "meta.Time" | "meta.MicroTime" if bytes.is_empty() => Value::Null,
        "meta.Time" | "meta.MicroTime" => {
            let (second, nanos) = (numbers[1].cast_signed(), i32::try_from(numbers[2]).unwrap_or(0));
            // The zero time of Go stands for "no time".
            match jiff::Timestamp::new(second, nanos) {
                Ok(time) if second > -62_135_596_800 => time.to_string().into(),
                _ => Value::Null,
            }
        }
        "resource.Quantity" => match text(texts[1])?.as_str() {
            "" => "0".into(),
            quantity => quantity.into(),
        },
        "intstr.IntOrString" if numbers[1] == 0 => i64::from(numbers[2] as i32).into(),
        "intstr.IntOrString" => text(texts[3])?.into(),
        _ => serde_json::from_slice(texts[1]).unwrap_or(Value::Null),
    }))
}

/// The types in a CRD's schema that are one of two things in JSON.
fn schema_union(name: &str, bytes: &[u8], depth: usize) -> Result<Option<Value>, String> {
    let (mut schema, mut list, mut allows) = (None, Vec::new(), false);
    let is_schema = |number: u64| match name {
        "apiextensions.JSONSchemaPropsOrBool" => number == 2,
        _ => number == 1,
    };
    match name {
        "apiextensions.JSON" => {}
        "apiextensions.JSONSchemaPropsOrArray"
        | "apiextensions.JSONSchemaPropsOrBool"
        | "apiextensions.JSONSchemaPropsOrStringArray" => {}
        _ => return Ok(None),
    }
    for piece in Wire(bytes) {
        match piece? {
            (1, Piece::Bytes(raw)) if name == "apiextensions.JSON" => {
                return Ok(Some(serde_json::from_slice(raw).unwrap_or(Value::Null)));
            }
            (number, Piece::Bytes(raw)) if is_schema(number) => {
                schema = Some(message("apiextensions.JSONSchemaProps", raw, depth + 1)?);
            }
            (2, Piece::Bytes(raw)) if name == "apiextensions.JSONSchemaPropsOrStringArray" => {
                list.push(text(raw)?.into());
            }
            (2, Piece::Bytes(raw)) => list.push(message("apiextensions.JSONSchemaProps", raw, depth + 1)?),
            (1, Piece::Number(number)) => allows = number != 0,
            _ => {}
        }
    }
    Ok(Some(match (schema, name) {
        (Some(schema), _) => schema,
        (None, "apiextensions.JSONSchemaPropsOrBool") => allows.into(),
        (None, "apiextensions.JSON") => Value::Null,
        (None, _) => list.into(),
    }))
}

fn text(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a string is not UTF-8".into())
}

enum Piece<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message as they come: number and content.
struct Wire<'a>(&'a [u8]);

impl<'a> Iterator for Wire<'a> {
    type Item = Result<(u64, Piece<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let piece = self.read().ok_or_else(|| "unexpected EOF".to_owned());
        if piece.is_err() {
            self.0 = &[];
        }
        Some(piece)
    }
}

impl<'a> Wire<'a> {
    fn read(&mut self) -> Option<(u64, Piece<'a>)> {
        let tag = self.varint()?;
        let piece = match tag & 7 {
            0 => Piece::Number(self.varint()?),
            1 => Piece::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Piece::Bytes(self.take(length)?)
            }
            5 => Piece::Number(u64::from(u32::from_le_bytes(self.take(4)?.try_into().ok()?))),
            _ => return None,
        };
        Some((tag >> 3, piece))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let tag = u16::from(number) << 3 | 2;
        let tag = if tag < 128 { vec![tag as u8] } else { vec![tag as u8 | 128, (tag >> 7) as u8] };
        [&tag[..], &[u8::try_from(content.len()).expect("short")], content].concat()
    }

    fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &types), field(2, raw)].concat()
    }

    #[test]
    fn a_namespace_is_read() {
        let label = [field(1, b"a"), field(2, b"b")].concat();
        let metadata = [field(1, b"demo"), field(2, b""), field(11, &label), field(8, b"")].concat();
        let raw = [field(1, &metadata), field(2, b""), field(3, b"")].concat();
        let expect = json!({"apiVersion": "v1", "kind": "Namespace", "spec": {}, "status": {},
            "metadata": {"name": "demo", "labels": {"a": "b"}}});
        assert_eq!(decode(&envelope("v1", "Namespace", &raw)), Ok(expect));
    }

    #[test]
    fn embedded_structs_lie_in_their_parent() {
        let volume = [field(1, b"v"), field(2, &field(3, b""))].concat();
        let value = message("core.Volume", &volume, 0).expect("valid");
        assert_eq!(value["name"], "v");
        assert_eq!(value.as_object().map(Map::len), Some(2), "{value}");
    }

    #[test]
    fn a_definition_is_read_with_its_schema() {
        let string = field(5, b"string");
        let list = [field(5, b"array"), field(24, &field(1, &string))].concat();
        let map = [field(5, b"object"), field(30, &field(2, &string))].concat();
        let entry = |name: &str, schema: &[u8]| field(29, &[field(1, name.as_bytes()), field(2, schema)].concat());
        let schema = [field(5, b"object"), entry("l", &list), entry("m", &map)].concat();
        let value = message("apiextensions.JSONSchemaProps", &schema, 0).expect("valid");
        let string = json!({"type": "string"});
        assert_eq!(
            value,
            json!({"type": "object", "properties": {"l": {"type": "array", "items": string},
                "m": {"type": "object", "additionalProperties": string}}})
        );
        let raw = field(1, &field(1, b"things.x.io"));
        let definition = decode(&envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw));
        assert_eq!(definition.expect("known")["metadata"]["name"], "things.x.io");
    }

    #[test]
    fn every_type_in_the_table_is_known() {
        for (name, fields) in table() {
            for field in fields.values().filter(|field| field.kind.len() > 1) {
                let known =
                    table().contains_key(field.kind) || special(field.kind, &[], 0).is_ok_and(|found| found.is_some());
                assert!(known, "{name}.{}: {}", field.name, field.kind);
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(raw in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&raw);
            let _ = message("core.Pod", &raw, 0);
        }
    }
}
