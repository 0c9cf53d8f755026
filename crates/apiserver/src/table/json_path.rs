//! The part of JSONPath that printer columns use.
//!
//! `.a.b`, `.a[0]`, `.a[*].b`, `.a[?(@.type=="Ready")].status`, `['a.b']`, and `\.` for a dot inside a name.

use serde_json::Value;

/// Returns the values at a path; none if there are none, or if the path makes no sense.
pub(super) fn find<'a>(root: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![root];
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    while !rest.is_empty() {
        let Some((step, after)) = next_step(rest) else { return Vec::new() };
        found = found.into_iter().flat_map(|value| step.take(value)).collect();
        rest = after;
    }
    found
}

enum Step {
    Key(String),
    Index(i64),
    Every,
    Where(String, String),
}

impl Step {
    fn take<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Key(key), Value::Object(map)) => map.get(key).into_iter().collect(),
            (Step::Every, Value::Array(items)) => items.iter().collect(),
            (Step::Every, Value::Object(map)) => map.values().collect(),
            (Step::Index(index), Value::Array(items)) => {
                let length = items.len() as i64;
                let index = if *index < 0 { length + index } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            (Step::Where(path, wanted), Value::Array(items)) => items
                .iter()
                .filter(|item| find(item, path).first().is_some_and(|found| super::plain(found) == *wanted))
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn next_step(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let end = closing(rest)?;
        let (inner, after) = (rest[..end].trim(), &rest[end + 1..]);
        let quoted = |mark: char| inner.strip_prefix(mark).and_then(|inner| inner.strip_suffix(mark));
        let step = if inner == "*" {
            Step::Every
        } else if let Some(key) = quoted('\'').or_else(|| quoted('"')) {
            Step::Key(key.to_owned())
        } else if let Some(filter) = inner.strip_prefix("?(").and_then(|inner| inner.strip_suffix(')')) {
            let (path, wanted) = filter.split_once("==")?;
            let path = path.trim().strip_prefix('@')?;
            Step::Where(path.to_owned(), wanted.trim().trim_matches(['"', '\'']).to_owned())
        } else {
            Step::Index(inner.parse().ok()?)
        };
        return Some((step, after));
    }
    let rest = text.strip_prefix('.').unwrap_or(text);
    if rest.is_empty() {
        return None;
    }
    let mut key = String::new();
    let mut letters = rest.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => key.extend(letters.next().map(|(_, letter)| letter)),
            '.' | '[' => return step_of(key, &rest[at..]),
            letter => key.push(letter),
        }
    }
    step_of(key, "")
}

fn step_of(key: String, rest: &str) -> Option<(Step, &str)> {
    match key.as_str() {
        "" if rest.starts_with('[') => next_step(rest),
        "" => None,
        "*" => Some((Step::Every, rest)),
        _ => Some((Step::Key(key), rest)),
    }
}

/// Returns the end of a bracket, past brackets and quotes inside it.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(mark), _) if mark == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_printer_columns_are_found() {
        let value = json!({"a": {"b.c": 1, "list": [{"type": "X", "status": "1"}, {"type": "Ready", "status": "2"}]}});
        let check = |path: &str, expect: Value| assert_eq!(json!(find(&value, path)), expect, "{path}");
        check(".a.list[0].type", json!(["X"]));
        check(".a.list[-1].type", json!(["Ready"]));
        check(".a.list[*].status", json!(["1", "2"]));
        check(r#".a.list[?(@.type=="Ready")].status"#, json!(["2"]));
        check(r".a.b\.c", json!([1]));
        check("['a']['b.c']", json!([1]));
        check(".a.none", json!([]));
        check(".", json!([]));
    }

    proptest! {
        #[test]
        fn no_path_breaks_it(path in "[.a\\[\\]*?(@=\"')\\\\0-9-]{0,20}") {
            let _ = find(&json!({"a": [{"a": 1}]}), &path);
        }
    }
}
