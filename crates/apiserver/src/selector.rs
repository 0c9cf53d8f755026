//! Label and field selectors: parsing what clients send, and deciding what matches.

use serde_json::Value;

use crate::store::Entry;

/// What a list or a watch is limited to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Only objects in this namespace.
    pub namespace: Option<Box<str>>,
    /// Conditions on labels; all must hold.
    pub labels: Vec<LabelRule>,
    /// Conditions on fields; all must hold.
    pub fields: Vec<FieldRule>,
}

/// One condition on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRule {
    key: Box<str>,
    test: LabelTest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelTest {
    In(Vec<Box<str>>),
    NotIn(Vec<Box<str>>),
    Exists,
    Missing,
    Above(i64),
    Below(i64),
}

/// One condition on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRule {
    /// The path as the client wrote it, e.g. `spec.nodeName`.
    pub path: Box<str>,
    value: Box<str>,
    equal: bool,
}

impl Selection {
    /// Returns whether an object is meant.
    pub fn matches(&self, entry: &Entry) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == entry.key.namespace)
            && self.labels.iter().all(|rule| rule.matches(entry.label(&rule.key)))
            && self.fields_match(entry)
    }

    /// Returns whether nothing but the namespace decides.
    pub fn is_plain(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the only name that can match, if a field selector names one.
    pub fn name(&self) -> Option<&str> {
        self.fields.iter().find(|rule| rule.equal && &*rule.path == "metadata.name").map(|rule| &*rule.value)
    }

    /// Returns whether fields beyond name and namespace decide, which versions of a kind may call differently.
    pub(crate) fn reads_content(&self) -> bool {
        self.fields.iter().any(FieldRule::reads_content)
    }

    /// Returns the selection without the conditions on such fields.
    pub(crate) fn without_content(&self) -> Selection {
        let mut selection = self.clone();
        selection.fields.retain(|rule| !rule.reads_content());
        selection
    }

    fn fields_match(&self, entry: &Entry) -> bool {
        let mut parsed = None;
        self.fields.iter().all(|rule| match &*rule.path {
            "metadata.name" => (*rule.value == *entry.key.name) == rule.equal,
            "metadata.namespace" => (*rule.value == *entry.key.namespace) == rule.equal,
            path => {
                let value = parsed.get_or_insert_with(|| entry.shared_value());
                (field_text(value, path) == *rule.value) == rule.equal
            }
        })
    }
}

impl FieldRule {
    fn reads_content(&self) -> bool {
        !matches!(&*self.path, "metadata.name" | "metadata.namespace")
    }
}

/// Returns the text of a field for comparison; absent fields are empty.
fn field_text(value: &Value, path: &str) -> String {
    let path = if path == "involvedObject" { "" } else { path };
    let found = path.split('.').try_fold(value, |value, key| value.get(key));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None if path == "spec.unschedulable" => "false".into(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

impl LabelRule {
    fn matches(&self, found: Option<&str>) -> bool {
        let number = || found.and_then(|text| text.parse::<i64>().ok());
        match &self.test {
            LabelTest::In(values) => found.is_some_and(|found| values.iter().any(|value| **value == *found)),
            LabelTest::NotIn(values) => !found.is_some_and(|found| values.iter().any(|value| **value == *found)),
            LabelTest::Exists => found.is_some(),
            LabelTest::Missing => found.is_none(),
            LabelTest::Above(bound) => number().is_some_and(|number| number > *bound),
            LabelTest::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }

    /// Returns the rules of a `LabelSelector` object: `matchLabels` and `matchExpressions`.
    pub fn from_object(selector: &Value) -> Vec<LabelRule> {
        let equals = selector["matchLabels"].as_object().into_iter().flatten().map(|(key, value)| LabelRule {
            key: key.as_str().into(),
            test: LabelTest::In(vec![value.as_str().unwrap_or("").into()]),
        });
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten().filter_map(|expression| {
            let values = || -> Vec<Box<str>> {
                let values = expression["values"].as_array().into_iter().flatten();
                values.filter_map(Value::as_str).map(Into::into).collect()
            };
            let test = match expression["operator"].as_str()? {
                "In" => LabelTest::In(values()),
                "NotIn" => LabelTest::NotIn(values()),
                "Exists" => LabelTest::Exists,
                "DoesNotExist" => LabelTest::Missing,
                _ => return None,
            };
            Some(LabelRule { key: expression["key"].as_str()?.into(), test })
        });
        equals.chain(expressions).collect()
    }

    /// Returns the rules of a plain map of labels, as a Service's selector.
    pub fn from_map(labels: &Value) -> Vec<LabelRule> {
        LabelRule::from_object(&serde_json::json!({"matchLabels": labels}))
    }
}

/// Returns whether an object with these labels passes all rules.
pub fn labels_match(rules: &[LabelRule], entry: &Entry) -> bool {
    rules.iter().all(|rule| rule.matches(entry.label(&rule.key)))
}

/// Returns whether a plain map of labels passes all rules.
pub fn map_matches(rules: &[LabelRule], labels: &Value) -> bool {
    rules.iter().all(|rule| rule.matches(labels[&*rule.key].as_str()))
}

/// Reads a field selector: `a=b,c!=d`, with `\` escaping.
pub fn parse_fields(text: &str) -> Result<Vec<FieldRule>, String> {
    let mut rules = Vec::new();
    for term in split_escaped(text, ',') {
        if term.is_empty() {
            continue;
        }
        let (path, value, equal) = if let Some((path, value)) = term.split_once("!=") {
            (path, value, false)
        } else if let Some((path, value)) = term.split_once("==") {
            (path, value, true)
        } else if let Some((path, value)) = term.split_once('=') {
            (path, value, true)
        } else {
            return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
        };
        rules.push(FieldRule { path: path.trim().into(), value: unescape(value).into(), equal });
    }
    Ok(rules)
}

fn split_escaped(text: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for letter in text.chars() {
        if letter == separator && !escaped {
            parts.push(String::new());
            continue;
        }
        escaped = letter == '\\' && !escaped;
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
    }
    plain
}

/// Reads a label selector: `a=b,c in (d,e),!f,g,h!=i,j>1`.
pub fn parse_labels(text: &str) -> Result<Vec<LabelRule>, String> {
    let mut tokens = Tokens { rest: text };
    let mut rules = Vec::new();
    if tokens.peek().is_none() {
        return Ok(rules);
    }
    loop {
        rules.push(parse_rule(&mut tokens).map_err(|why| format!("unable to parse requirement: {why}"))?);
        match tokens.next() {
            None => return Ok(rules),
            Some(",") => {}
            Some(other) => {
                return Err(format!("unable to parse requirement: found '{other}', expected: ',' or 'end of string'"));
            }
        }
    }
}

fn parse_rule(tokens: &mut Tokens<'_>) -> Result<LabelRule, String> {
    let negated = tokens.peek() == Some("!");
    if negated {
        tokens.next();
    }
    let key = tokens.next().ok_or("found '', expected: !, identifier, or 'end of string'")?;
    if !is_word(key) {
        return Err(format!("found '{key}', expected: !, identifier, or 'end of string'"));
    }
    check_key(key)?;
    let rule = |test| LabelRule { key: key.into(), test };
    if negated {
        return Ok(rule(LabelTest::Missing));
    }
    let operator = match tokens.peek() {
        None | Some(",") => return Ok(rule(LabelTest::Exists)),
        Some(operator) => operator,
    };
    tokens.next();
    let test = match operator {
        "=" | "==" => LabelTest::In(vec![one_value(tokens, key)?]),
        "!=" => LabelTest::NotIn(vec![one_value(tokens, key)?]),
        "in" => LabelTest::In(values(tokens, key)?),
        "notin" => LabelTest::NotIn(values(tokens, key)?),
        ">" | "<" => {
            let value = one_value(tokens, key)?;
            let bound = value.parse().map_err(|_| {
                format!(
                    "values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                )
            })?;
            if operator == ">" { LabelTest::Above(bound) } else { LabelTest::Below(bound) }
        }
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    Ok(rule(test))
}

fn one_value(tokens: &mut Tokens<'_>, key: &str) -> Result<Box<str>, String> {
    match tokens.peek() {
        None | Some(",") => Ok("".into()),
        Some(value) if is_word(value) => {
            tokens.next();
            check_value(key, value)?;
            Ok(value.into())
        }
        Some(other) => Err(format!("found '{other}', expected: identifier")),
    }
}

fn values(tokens: &mut Tokens<'_>, key: &str) -> Result<Vec<Box<str>>, String> {
    match tokens.next() {
        Some("(") => {}
        other => return Err(format!("found '{}' expected: '('", other.unwrap_or(""))),
    }
    let mut values = Vec::new();
    loop {
        values.push(one_value_in_set(tokens, key)?);
        match tokens.next() {
            Some(",") => {}
            Some(")") => return Ok(values),
            other => return Err(format!("found '{}', expected: ',' or ')'", other.unwrap_or(""))),
        }
    }
}

fn one_value_in_set(tokens: &mut Tokens<'_>, key: &str) -> Result<Box<str>, String> {
    match tokens.peek() {
        Some(")" | ",") => Ok("".into()),
        _ => one_value(tokens, key),
    }
}

fn check_key(key: &str) -> Result<(), String> {
    crate::names::label_key(key).map_or(Ok(()), |why| Err(format!("<nil>: Invalid value: {key:?}: {why}")))
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    let found = crate::names::label_value(value);
    found.map_or(Ok(()), |why| Err(format!("values[0][{key}]: Invalid value: {value:?}: {why}")))
}

fn is_word(token: &str) -> bool {
    !matches!(token, "!" | "=" | "==" | "!=" | "(" | ")" | "," | "<" | ">")
}

struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Option<&'a str> {
        Tokens { rest: self.rest }.next()
    }

    fn next(&mut self) -> Option<&'a str> {
        let text = self.rest.trim_start();
        let symbols = ["==", "!=", "=", "!", "(", ")", ",", "<", ">"];
        let length = match symbols.iter().find(|symbol| text.starts_with(**symbol)) {
            Some(symbol) => symbol.len(),
            None => {
                text.find(|letter: char| letter.is_whitespace() || "=!(),<>".contains(letter)).unwrap_or(text.len())
            }
        };
        let (token, rest) = text.split_at(length);
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::store::ObjectKey;

    fn entry() -> Entry {
        let value = json!({"metadata": {"name": "a", "namespace": "n", "labels": {"app": "x", "n": "3", "empty": ""}},
            "spec": {"nodeName": "m"}});
        Entry::new(1, Arc::new(ObjectKey::new("n", "a")), value)
    }

    #[test]
    fn label_selectors_match_as_documented() {
        let check = |text: &str, expect: bool| {
            let labels = parse_labels(text).expect(text);
            assert_eq!(labels_match(&labels, &entry()), expect, "{text}");
        };
        check("", true);
        check("app=x", true);
        check("app==x, n", true);
        check("app!=x", false);
        check("other!=x", true);
        check("app in (y, x)", true);
        check("app notin (x)", false);
        check("other notin (x)", true);
        check("!other", true);
        check("!app", false);
        check("n>2,n<4", true);
        check("empty=", true);
        check("empty in (,a)", true);
    }

    #[test]
    fn malformed_selectors_are_rejected() {
        for text in ["=x", "a=b=c", "a in x", "a in (x", "a,,b", "a b", "a>x", "!", "-a=b", "a=&"] {
            assert!(parse_labels(text).is_err(), "{text}");
        }
        assert!(parse_fields("metadata.name").is_err());
    }

    #[test]
    fn field_selectors_match_as_documented() {
        let check = |text: &str, expect: bool| {
            let selection = Selection { fields: parse_fields(text).expect(text), ..Selection::default() };
            assert_eq!(selection.matches(&entry()), expect, "{text}");
        };
        check("metadata.name=a,metadata.namespace==n", true);
        check("metadata.name!=a", false);
        check("spec.nodeName=m", true);
        check("spec.nodeName!=", true);
        check("status.phase=", true);
        check(r"metadata.name=a\,b", false);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parsers(text in ".{0,60}") {
            let _ = parse_labels(&text);
            let _ = parse_fields(&text);
        }
    }
}
