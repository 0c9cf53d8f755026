//! `spec.runtimeEnvYAML` as the JSON that Ray reads.
//!
//! JSON comes out with sorted keys and without blanks, `<`, `>` and `&` escaped, as Go prints it.

use crate::go::yaml;
use serde_json::Value;

/// Returns the environment as a value; a text without content is null.
pub fn parse(text: &str) -> Result<Value, String> {
    yaml::value(text)
}

/// Returns the environment as compact JSON.
pub fn to_json(text: &str) -> Result<String, String> {
    let value = parse(text)?;
    // Keys are sorted, as serde_json keeps objects in a BTreeMap.
    serde_json::to_string(&value).map(|json| escape_html(&json)).map_err(|error| error.to_string())
}

/// JSON with `<`, `>`, `&` and the line separators written as Go does.
pub fn escape_html(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str, json: &str) {
        assert_eq!(to_json(yaml).as_deref(), Ok(json), "{yaml:?}");
    }

    #[test]
    fn yaml_1_1_becomes_sorted_compact_json() {
        check(
            "pip:\n- requests==2.26.0\nenv_vars:\n  counter_name: test\n",
            r#"{"env_vars":{"counter_name":"test"},"pip":["requests==2.26.0"]}"#,
        );
        check(
            "a: yes\nb: off\nc: 010\nd: 1.5\ne: ~\nf: 'yes'",
            r#"{"a":true,"b":false,"c":8,"d":1.5,"e":null,"f":"yes"}"#,
        );
        check("a: 1\na: 2", r#"{"a":2}"#);
        check("1: x\ntrue: z", r#"{"1":"x","true":"z"}"#);
        check("pip: [\"a>2\", \"b&c\"]", r#"{"pip":["a\u003e2","b\u0026c"]}"#);
        check("  \n", "null");
        check("{\"env_vars\": {\"A\": \"ž日😀\"}}", r#"{"env_vars":{"A":"ž日😀"}}"#);
    }

    #[test]
    fn malformed_text_is_an_error() {
        for bad in ["a: [", "\t- x: :", "*unknown"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
