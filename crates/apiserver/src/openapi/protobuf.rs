//! `/openapi/v2` in protobuf, the form in which Go clients ask for it.
//!
//! The numbers are those of gnostic's `openapi.v2.Document`. Values of any type travel as YAML, of which JSON is a part.

use serde_json::{Map, Value};

/// The media type of the document, and the older name of it, which is no valid media type.
pub(crate) const MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
pub(crate) const OLD_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// Encodes a Swagger 2.0 document.
pub(crate) fn encode(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, &document["swagger"]);
    let mut info = Message::default();
    info.text(1, &document["info"]["title"]);
    info.text(2, &document["info"]["version"]);
    out.message(2, &info);
    out.message(8, &Message::default());
    out.message(9, &named_schemas(&document["definitions"]));
    out.0
}

fn named_schemas(schemas: &Value) -> Message {
    let mut out = Message::default();
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        let mut named = Message::default();
        named.bytes(1, name.as_bytes());
        named.message(2, &self::schema(schema));
        out.message(1, &named);
    }
    out
}

fn schema(schema: &Value) -> Message {
    let empty = Map::new();
    let fields = schema.as_object().unwrap_or(&empty);
    let mut out = Message::default();
    for (key, number) in [("$ref", 1), ("format", 2), ("title", 3), ("description", 4), ("pattern", 13)] {
        out.text(number, &schema[key]);
    }
    for (key, number) in [("multipleOf", 6), ("maximum", 7), ("minimum", 9)] {
        out.double(number, &schema[key]);
    }
    for (key, number) in [("exclusiveMaximum", 8), ("exclusiveMinimum", 10), ("uniqueItems", 16)] {
        out.number(number, u64::from(schema[key] == true));
    }
    let counts = [
        ("maxLength", 11),
        ("minLength", 12),
        ("maxItems", 14),
        ("minItems", 15),
        ("maxProperties", 17),
        ("minProperties", 18),
    ];
    for (key, number) in counts {
        out.number(number, schema[key].as_u64().unwrap_or(0));
    }
    if let Some(default) = fields.get("default") {
        out.message(5, &any(default));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        out.text(19, required);
    }
    for value in schema["enum"].as_array().into_iter().flatten() {
        out.message(20, &any(value));
    }
    match fields.get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            item.number(2, u64::from(*allowed));
            out.message(21, &item);
        }
        Some(below) => out.wrapped(21, &self::schema(below)),
        None => {}
    }
    if schema["type"].is_string() {
        let mut item = Message::default();
        item.text(1, &schema["type"]);
        out.message(22, &item);
    }
    if let Some(items) = fields.get("items") {
        out.wrapped(23, &self::schema(items));
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        out.message(24, &self::schema(part));
    }
    if fields.contains_key("properties") {
        out.message(25, &named_schemas(&schema["properties"]));
    }
    for (key, value) in fields.iter().filter(|(key, _)| key.starts_with("x-")) {
        let mut named = Message::default();
        named.bytes(1, key.as_bytes());
        named.message(2, &any(value));
        out.message(31, &named);
    }
    out
}

fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.bytes(2, value.to_string().as_bytes());
    out
}

/// The bytes of a message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u64, message: &Message) {
        self.bytes(number, &message.0);
    }

    /// A message with the given one as its first field.
    fn wrapped(&mut self, number: u64, message: &Message) {
        let mut outer = Message::default();
        outer.message(1, message);
        self.message(number, &outer);
    }

    fn text(&mut self, number: u64, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn number(&mut self, number: u64, value: u64) {
        if value != 0 {
            self.varint(number << 3);
            self.varint(value);
        }
    }

    fn double(&mut self, number: u64, value: &Value) {
        if let Some(value) = value.as_f64().filter(|value| *value != 0.0) {
            self.varint(number << 3 | 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_small_document_has_the_expected_bytes() {
        let document = json!({"swagger": "2.0", "info": {"title": "K", "version": "1"},
            "definitions": {"A": {"type": "object", "x-a": [1]}}});
        let schema = [&b"\xb2\x01\x08\x0a\x06object"[..], b"\xfa\x01\x0c\x0a\x03x-a\x12\x05\x12\x03[1]"].concat();
        let named = [&b"\x0a\x01A\x12"[..], &[schema.len() as u8], &schema].concat();
        let definitions = [&b"\x0a"[..], &[named.len() as u8], &named].concat();
        let expect =
            [&b"\x0a\x032.0\x12\x06\x0a\x01K\x12\x011\x42\x00\x4a"[..], &[definitions.len() as u8], &definitions]
                .concat();
        assert_eq!(encode(&document), expect);
    }
}
