//! Types and value validations of a schema.
//!
//! The order of checks, and the count of checks that went well (which picks the branch of `anyOf` and `oneOf` whose
//! errors are shown), follow Kubernetes' validator, so that the same object gets the same messages.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::correlate::Old;
use super::field_error::FieldError;
use super::go_text;
use super::node::{Additional, Checks, Node, Type};
use super::path::Path;

/// Returns everything wrong with the value, path for path.
pub(crate) fn validate<'a>(value: &'a Value, node: &Node, path: &Path<'_>, old: Old<'a>) -> Vec<FieldError> {
    check(value, node, path, old).errors
}

/// The errors of a subtree, and how many checks were made in it.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    matches: usize,
}

impl Outcome {
    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        self.errors.extend(other.errors);
    }

    fn push(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Drops repetitions: a branch of `allOf` often repeats the schema around it.
    fn dedup(&mut self) {
        let mut seen = HashSet::new();
        self.errors.retain(|error| seen.insert(error.to_string()));
    }

    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

fn check<'a>(value: &'a Value, node: &Node, path: &Path<'_>, old: Old<'a>) -> Outcome {
    let mut result = Outcome::default();
    let checks = node.checks.as_deref();
    let format = checks.and_then(|c| c.format.as_ref());
    if value.is_null() {
        if let Some(error) = check_null(node, path) {
            result.push(error);
        }
        check_enum(value, checks, path, &mut result);
        return forgive_unchanged(result, old);
    }
    if node.kind.is_some() || node.int_or_string || format.is_some() {
        match check_type(value, node, path) {
            Some(error) => result.push(error),
            None => result.matches += 1,
        }
        result.matches += 1;
    }
    if let Some(checks) = checks {
        check_branches(value, checks, path, &mut result, old);
    }
    result.matches += 2;
    match value {
        Value::String(text) => {
            if let Some(checks) = checks {
                check_string(text, checks, path, &mut result);
            }
            result.matches += 1 + usize::from(format.is_some());
        }
        Value::Number(_) => {
            if let Some(checks) = checks {
                check_number(value, checks, path, &mut result);
            }
            result.matches += 2;
        }
        Value::Array(items) => {
            check_items(items, node, path, &mut result, old);
            result.matches += 2;
        }
        _ => {}
    }
    check_enum(value, checks, path, &mut result);
    result.matches += 1;
    if let Value::Object(map) = value {
        check_object(map, node, path, &mut result, old);
        result.matches += 1;
    }
    result.matches += 1;
    if checks.is_some_and(Checks::has_branches) {
        result.dedup();
    }
    forgive_unchanged(result, old)
}

fn forgive_unchanged(mut result: Outcome, old: Old<'_>) -> Outcome {
    if !result.is_valid() && old.is_unchanged() {
        result.errors.clear();
    }
    result
}

fn expected_types(node: &Node) -> &'static str {
    if node.int_or_string { "integer,string" } else { node.kind.map_or("", Type::name) }
}

fn wrong_type(path: &Path<'_>, expected: &str, found: &str) -> FieldError {
    let detail = format!("{} in body must be of type {expected}: {}", path.show_dotted(), go_text::quote(found));
    FieldError::type_invalid(field(path), &json!(found), &detail)
}

fn check_null(node: &Node, path: &Path<'_>) -> Option<FieldError> {
    let typed = node.kind.is_some() || node.int_or_string;
    (typed && !node.nullable).then(|| wrong_type(path, expected_types(node), "null"))
}

fn check_type(value: &Value, node: &Node, path: &Path<'_>) -> Option<FieldError> {
    let (found, found_format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(n) if n.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let wants = |t: Type| node.kind == Some(t) || (node.int_or_string && matches!(t, Type::Integer | Type::String));
    let whole = value.as_f64().is_some_and(|f| f.fract() == 0.0 && f.abs() < 9_007_199_254_740_992.0);
    let matches = Type::from_name(found).is_some_and(wants)
        || (found == "number" && whole && wants(Type::Integer))
        || (found == "integer" && wants(Type::Number));
    if matches {
        return None;
    }
    if let Some((_, format)) = node.checks.as_deref().and_then(|c| c.format.as_ref()) {
        match value {
            // The format is checked later, with its own message.
            Value::String(_) | Value::Array(_) if !wants(Type::Number) && !wants(Type::Integer) => return None,
            Value::String(_) | Value::Array(_) => {}
            _ => return Some(wrong_type(path, format, found_format)),
        }
    }
    Some(wrong_type(path, expected_types(node), found))
}

fn check_string(text: &str, checks: &Checks, path: &Path<'_>, result: &mut Outcome) {
    let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let invalid = |detail: String| {
        FieldError::invalid(field(path), &json!(text), &format!("{} in body {detail}", path.show_dotted()))
    };
    // Only the first of these is reported.
    let error = match checks {
        Checks { max_length: Some(max), .. } if length() > *max => Some(FieldError::too_long(field(path), *max)),
        Checks { min_length: Some(min), .. } if length() < *min => {
            Some(invalid(format!("should be at least {min} chars long")))
        }
        Checks { pattern: Some((regex, pattern)), .. } if !regex.is_match(text) => {
            Some(invalid(format!("should match '{pattern}'")))
        }
        _ => None,
    };
    if let Some(error) = error {
        result.push(error);
    }
    if let Some((format, name)) = &checks.format
        && !format.accepts(text)
    {
        result.push(wrong_type(path, name, text));
    }
}

fn check_number(value: &Value, checks: &Checks, path: &Path<'_>, result: &mut Outcome) {
    let number = value.as_f64().unwrap_or(f64::NAN);
    let integer = value.as_i64();
    // A bound on an integer is cut to an integer first, as in Kubernetes.
    let limit = |bound: f64| if integer.is_some() { bound.trunc() } else { bound };
    let below = |bound: f64, exclusive: bool| match integer {
        Some(n) => n < bound as i64 || (exclusive && n == bound as i64),
        None => number < bound || (exclusive && number == bound),
    };
    let above = |bound: f64, exclusive: bool| match integer {
        Some(n) => n > bound as i64 || (exclusive && n == bound as i64),
        None => number > bound || (exclusive && number == bound),
    };
    let mut invalid = |detail: String| {
        let detail = format!("{} in body {detail}", path.show_dotted());
        result.push(FieldError::invalid(field(path), value, &detail));
    };
    if let Some(factor) = checks.multiple_of {
        if limit(factor) <= 0.0 {
            invalid(format!("should be a multiple of a positive number, not {}", go_text::float(factor)));
        } else if !is_multiple(number, integer, factor) {
            invalid(format!("should be a multiple of {}", go_text::float(limit(factor))));
        }
    }
    if let Some(minimum) = checks.minimum
        && below(minimum, checks.exclusive_minimum)
    {
        let or_equal = if checks.exclusive_minimum { "" } else { " or equal to" };
        invalid(format!("should be greater than{or_equal} {}", go_text::float(limit(minimum))));
    }
    if let Some(maximum) = checks.maximum
        && above(maximum, checks.exclusive_maximum)
    {
        let or_equal = if checks.exclusive_maximum { "" } else { " or equal to" };
        invalid(format!("should be less than{or_equal} {}", go_text::float(limit(maximum))));
    }
}

fn is_multiple(number: f64, integer: Option<i64>, factor: f64) -> bool {
    match integer {
        Some(n) => n % (factor.trunc() as i64).max(1) == 0,
        None => {
            let times = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
            (times - times.round()).abs() < 1e-9
        }
    }
}

fn check_items<'a>(items: &'a [Value], node: &Node, path: &Path<'_>, result: &mut Outcome, old: Old<'a>) {
    if let Some(schema) = &node.items {
        for (i, item) in items.iter().enumerate() {
            result.merge(check(item, schema, &path.index(i), old.item(node, i, item)));
        }
    }
    let Some(checks) = node.checks.as_deref() else { return };
    let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(min) = checks.min_items.filter(|min| count < *min) {
        let detail = format!("{} in body should have at least {min} items", path.show_dotted());
        result.push(FieldError::invalid(field(path), &json!(count), &detail));
    }
    if let Some(max) = checks.max_items.filter(|max| count > *max) {
        result.push(FieldError::too_many(field(path), items.len(), max));
    }
}

fn check_object<'a>(map: &'a Map<String, Value>, node: &Node, path: &Path<'_>, result: &mut Outcome, old: Old<'a>) {
    let checks = node.checks.as_deref();
    let count = i64::try_from(map.len()).unwrap_or(i64::MAX);
    if let Some(min) = checks.and_then(|c| c.min_properties).filter(|min| count < *min) {
        let detail = format!("{} in body should have at least {min} properties", path.show_dotted());
        result.push(FieldError::invalid(field(path), &json!(count), &detail));
    }
    if let Some(max) = checks.and_then(|c| c.max_properties).filter(|max| count > *max) {
        result.push(FieldError::too_many(field(path), map.len(), max));
    }
    for (key, value) in map {
        if let Some(property) = node.property(key) {
            result.merge(check(value, property, &path.field(key), old.field(key, value)));
            continue;
        }
        match &node.additional {
            Some(Additional::Schema(values)) => {
                result.merge(check(value, values, &path.field(key), old.field(key, value)));
            }
            Some(Additional::Forbidden) => {
                let detail = format!("{}.{key} in body is a forbidden property", path.show_dotted());
                result.push(FieldError::invalid(field(path), &json!(key), &detail));
            }
            _ => {}
        }
    }
    for name in checks.map_or(&[][..], |c| &c.required) {
        if !map.contains_key(name) {
            result.push(FieldError::required(path.field(name).show_dotted(), ""));
        }
    }
}

fn check_enum(value: &Value, checks: Option<&Checks>, path: &Path<'_>, result: &mut Outcome) {
    let Some(allowed) = checks.and_then(|c| c.allowed.as_ref()) else { return };
    let same = |a: &Value| a == value || (a.is_number() && a.as_f64() == value.as_f64());
    // Null is in no enumeration, not even in one that lists it.
    if !value.is_null() && allowed.iter().any(same) {
        return;
    }
    let shown: Vec<String> =
        allowed.iter().map(|a| a.as_str().map_or_else(|| go_text::json(a), str::to_owned)).collect();
    result.push(FieldError::not_supported(field(path), value, &shown));
}

/// `anyOf`, `oneOf`, `allOf` and `not`.
fn check_branches<'a>(value: &'a Value, checks: &Checks, path: &Path<'_>, result: &mut Outcome, old: Old<'a>) {
    let name = || go_text::quote(&path.show_dotted());
    let fail = |result: &mut Outcome, detail: String| {
        result.push(FieldError::invalid(Path::Root.show(), &json!(""), &detail));
    };
    if !checks.any_of.is_empty() {
        let (valid, shown) = choose(value, &checks.any_of, path, old, true);
        if valid == 0 {
            fail(result, format!("{} must validate at least one schema (anyOf)", name()));
        }
        result.merge(shown);
    }
    if !checks.one_of.is_empty() {
        let (valid, shown) = choose(value, &checks.one_of, path, old, false);
        if valid != 1 {
            let found =
                if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
            fail(result, format!("{} must validate one and only one schema (oneOf). {found}", name()));
        }
        if valid < 2 {
            result.merge(shown);
        }
    }
    if !checks.all_of.is_empty() {
        let mut valid = 0;
        for branch in &checks.all_of {
            let outcome = check(value, branch, path, old);
            valid += usize::from(outcome.is_valid());
            result.merge(outcome);
        }
        if valid != checks.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            fail(result, format!("{} must validate all the schemas (allOf){none}", name()));
        }
    }
    if let Some(not) = &checks.not
        && check(value, not, path, old).is_valid()
    {
        fail(result, format!("{} must not validate the schema (not)", name()));
    }
}

/// Returns how many branches are valid, and the outcome to show: the first valid one, else the one that failed latest.
fn choose<'a>(
    value: &'a Value,
    branches: &[Node],
    path: &Path<'_>,
    old: Old<'a>,
    stop_at_first: bool,
) -> (usize, Outcome) {
    let mut valid = 0;
    let mut first_valid = None;
    let mut best: Option<Outcome> = None;
    for branch in branches {
        let outcome = check(value, branch, path, old);
        if outcome.is_valid() {
            valid += 1;
            first_valid.get_or_insert(outcome);
            if stop_at_first {
                break;
            }
        } else if best.as_ref().is_none_or(|b| outcome.matches > b.matches) {
            best = Some(outcome);
        }
    }
    (valid, first_valid.or(best).unwrap_or_default())
}

/// Returns the path of a field error of the schema validator, which never puts keys in brackets.
fn field(path: &Path<'_>) -> String {
    match path {
        Path::Root => path.show(),
        _ => path.show_dotted(),
    }
}
