//! Parsing of YAML inside specs (`runtimeEnvYAML`, `serveConfigV2`) with the rules and error messages of Go.
//!
//! These are YAML 1.1: bare `yes`, `no`, `on` and `off` are booleans, and `010` is eight. Keys become strings. The last
//! of several equal keys wins, and only the first document counts.

mod errors;

use super::quote::quote;
use errors::Mistake;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options};
use std::fmt;

/// Parses a mapping; an empty text has none. `go_type` is the type in the error message.
pub fn mapping(text: &str, go_type: &str) -> Result<Option<Map<String, Value>>, String> {
    match value(text)? {
        Value::Null => Ok(None),
        Value::Object(mapping) => Ok(Some(mapping)),
        other => {
            let kind = json_kind(&other);
            Err(format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of type \
                 {go_type}"
            ))
        }
    }
}

/// Parses a text to JSON.
pub fn value(text: &str) -> Result<Value, String> {
    let documents: Result<Vec<Yaml>, _> = serde_saphyr::from_str_multiple_with_options(text, options());
    match documents {
        Ok(documents) => Ok(documents.into_iter().next().map_or(Value::Null, |Yaml(value)| value)),
        Err(error) => {
            let error = error.without_snippet();
            let (line, column) = error.location().map_or((0, 0), |place| (place.line(), place.column()));
            let (line, column) = (line as usize, column as usize);
            let explained = Mistake { text, error: &error.to_string(), line, column }.explain();
            Err(format!("error converting YAML to JSON: {explained}"))
        }
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// Returns the name of a value's type in Go's JSON decoder.
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns a value as Go's `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}:{}", quote(key), go_syntax(value))).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", entries.join(", "))
        }
    }
}

/// A YAML node with resolved scalars.
struct Yaml(Value);

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor).map(Yaml)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML node")
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }
    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }
    /// Converts whole numbers to integers: `1.0` becomes `1`.
    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() <= EXACT {
            return Ok((value as i64).into());
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that JSON cannot hold"))
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Yaml(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut mapping = Map::new();
        while let Some((Yaml(key), Yaml(value))) = entries.next_entry()? {
            let key = match key {
                Value::String(key) => key,
                Value::Null => {
                    let value = go_syntax(&value);
                    let error = format!("unsupported map key of type: %!s(<nil>), key: <nil>, value: {value}");
                    return Err(A::Error::custom(error));
                }
                key @ (Value::Array(_) | Value::Object(_)) => {
                    return Err(A::Error::custom(format!("invalid map key: {}", go_syntax(&key))));
                }
                scalar => scalar.to_string(),
            };
            mapping.insert(key, value);
        }
        Ok(Value::Object(mapping))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn texts_read_as_yaml_1_1() {
        let check = |text: &str, expect: Value| assert_eq!(value(text), Ok(expect), "{text:?}");
        check("", Value::Null);
        check("  \n", Value::Null);
        check("# nothing\n", Value::Null);
        check("pip: [torch]\nenv_vars: {A: '1'}", json!({"pip": ["torch"], "env_vars": {"A": "1"}}));
        check(
            "a: yes\nb: off\nc: y\nd: 'no'\ne: true",
            json!({"a": true, "b": false, "c": true, "d": "no", "e": true}),
        );
        check("a: 010\nb: 1.0\nc: 1.5\nd: -3\ne: 0x10", json!({"a": 8, "b": 1, "c": 1.5, "d": -3, "e": 16}));
        check("a: 1\na: 2", json!({"a": 2}));
        check("1: x\non: z", json!({"1": "x", "true": "z"}));
        check("a: &x {k: 1}\nb: *x\nc: {<<: *x, l: 2}", json!({"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}}));
        check("a: 1\n---\nb: 2", json!({"a": 1}));
        check("a: ~\nb:", json!({"a": null, "b": null}));
        check("a: |\n  x\n  y\n", json!({"a": "x\ny\n"}));
        check("working_dir: https://example.com/a.zip", json!({"working_dir": "https://example.com/a.zip"}));
    }

    #[test]
    fn other_values_are_no_mappings() {
        let check = |text: &str, kind: &str| {
            let expect = format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of type T"
            );
            assert_eq!(mapping(text, "T"), Err(expect));
        };
        check("invalid_yaml_string", "string");
        check("[a]", "array");
        check("1", "number");
        check("yes", "bool");
        assert_eq!(mapping("", "T"), Ok(None));
        assert!(mapping("? [a]\n: 1", "T").is_err());
    }

    #[test]
    fn recorded_values_parse_as_recorded() {
        let text = "proxy_location: EveryNode\nhttp_options: {port: 8000, keep_alive_timeout_s: 1.0}\n\
                    args: {on: yes, ratio: 0.5, 1: one, none: null, big: 12345678901}\nlist: [1, 2.0, three]\n";
        let expect = json!({
            "proxy_location": "EveryNode", "http_options": {"port": 8000, "keep_alive_timeout_s": 1},
            "args": {"true": true, "ratio": 0.5, "1": "one", "none": null, "big": 12_345_678_901_u64},
            "list": [1, 2, "three"],
        });
        assert_eq!(value(text), Ok(expect));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-:a1 \\[\\]{}&*|>~'\"\n]{0,40}") {
            let _ = value(&text);
        }
    }
}
