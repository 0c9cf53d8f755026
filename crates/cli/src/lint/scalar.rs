//! Resolves plain YAML scalars as kubectl does.
//!
//! kubectl reads YAML 1.1, where `yes` and `off` are booleans and `0777` is octal. The API server sees the result, so
//! the linter must see the same.

use serde_json::{Number, Value};

/// Returns the value of a scalar without quotes and tag.
pub(crate) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    let is_numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    let number = if is_numeric { integer(text).or_else(|| float(text)) } else { None };
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn integer(text: &str) -> Option<Number> {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        Some("0o" | "0O") => (8, &digits[2..]),
        Some("0b" | "0B") => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    // A second sign is not part of a number.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return i64::try_from(-i128::from(magnitude)).ok().map(Number::from);
    }
    Some(Number::from(magnitude))
}

fn float(text: &str) -> Option<Number> {
    let plain = text.replace('_', "");
    let shape = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let is_float = shape.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b))
        && shape.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if !is_float {
        return None;
    }
    plain.parse().ok().and_then(Number::from_f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_resolve_as_in_kubectl() {
        let check = |text: &str, expect: Value| assert_eq!(resolve(text), expect, "{text}");
        check("", json!(null));
        check("~", json!(null));
        check("yes", json!(true));
        check("Off", json!(false));
        check("yEs", json!("yEs"));
        check("12", json!(12));
        check("-12", json!(-12));
        check("+12", json!(12));
        check("0777", json!(511));
        check("08", json!(8.0));
        check("0x1F", json!(31));
        check("0b101", json!(5));
        check("1_000", json!(1000));
        check("1.5", json!(1.5));
        check(".5", json!(0.5));
        check("1e3", json!(1000.0));
        check("1.2.3", json!("1.2.3"));
        check("2.9.0", json!("2.9.0"));
        check("--1", json!("--1"));
        check("-", json!("-"));
        check(".", json!("."));
        check("500m", json!("500m"));
        check("2024-01-01", json!("2024-01-01"));
        check("18446744073709551615", json!(18_446_744_073_709_551_615_u64));
        check("18446744073709551616", json!(18_446_744_073_709_551_616.0));
        check("-9223372036854775809", json!(-9_223_372_036_854_775_809.0));
        check(".inf", json!(".inf"));
    }
}
