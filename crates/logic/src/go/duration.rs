//! Durations in the format of Go: `1m30s`, `5m0s`, `1.141062509s`.

use jiff::SignedDuration;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Returns the text of Go's `Duration.String`.
pub fn print(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    // Go's durations have 64 bits; longer ones are capped.
    let nanos = u64::try_from(nanos.unsigned_abs()).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs() + 1);
    let small = match nanos {
        0 => return "0s".to_owned(),
        1..1_000 => Some((0, "ns")),
        1_000..1_000_000 => Some((3, "µs")),
        1_000_000..NANOS_PER_SECOND => Some((6, "ms")),
        _ => None,
    };
    if let Some((digits, unit)) = small {
        return format!("{sign}{}{unit}", decimal(nanos, digits));
    }
    let (minutes, rest) = (nanos / (60 * NANOS_PER_SECOND), nanos % (60 * NANOS_PER_SECOND));
    let seconds = decimal(rest, 9);
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Parses a duration like Go's `ParseDuration`, with its error messages.
pub fn parse(text: &str) -> Result<SignedDuration, String> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let invalid = || format!("time: invalid duration {}", super::quote::quote(text));
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut rest = rest;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (number, after) = split_at(rest, |c| !c.is_ascii_digit() && c != '.');
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let (unit, after) = split_at(after, |c| c.is_ascii_digit() || c == '.');
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {}", super::quote::quote(text)));
        }
        let nanos = unit_nanos(unit).ok_or_else(|| {
            let (unit, text) = (super::quote::quote(unit), super::quote::quote(text));
            format!("time: unknown unit {unit} in duration {text}")
        })?;
        total = term_nanos(whole, fraction, nanos)
            .and_then(|term| total.checked_add(term))
            .filter(|total| *total <= i64::MAX.unsigned_abs() + u64::from(negative))
            .ok_or_else(invalid)?;
        rest = after;
    }
    let nanos = if negative { -i128::from(total) } else { i128::from(total) };
    SignedDuration::try_from_nanos_i128(nanos).ok_or_else(invalid)
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => NANOS_PER_SECOND,
        "m" => 60 * NANOS_PER_SECOND,
        "h" => 3600 * NANOS_PER_SECOND,
        _ => return None,
    })
}

/// Returns one number with its unit; excess digits are dropped.
fn term_nanos(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits = &fraction[..fraction.len().min(18)];
    let fraction = if digits.is_empty() {
        0
    } else {
        let numerator: u128 = digits.parse().ok()?;
        let scale = 10_u128.pow(u32::try_from(digits.len()).ok()?);
        u64::try_from(numerator * u128::from(unit) / scale).ok()?
    };
    whole.checked_mul(unit)?.checked_add(fraction)
}

fn split_at(text: &str, end: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(end).unwrap_or(text.len()))
}

/// Returns `value / 10^digits` without trailing zeros.
fn decimal(value: u64, digits: u32) -> String {
    let power = 10_u64.pow(digits);
    let (whole, fraction) = (value / power, value % power);
    if fraction == 0 {
        return whole.to_string();
    }
    let fraction = format!("{fraction:0width$}", width = digits as usize);
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_print_as_in_go() {
        let check = |nanos: i64, expect: &str| assert_eq!(print(SignedDuration::from_nanos(nanos)), expect);
        check(0, "0s");
        check(1, "1ns");
        check(1_500, "1.5µs");
        check(2_000_000, "2ms");
        check(1_141_062_509, "1.141062509s");
        check(90_000_000_000, "1m30s");
        check(300_000_000_000, "5m0s");
        check(3_600_000_000_000, "1h0m0s");
        check(-90_000_000_000, "-1m30s");
        check(i64::MIN, "-2562047h47m16.854775808s");
    }

    #[test]
    fn durations_parse_as_in_go() {
        let check = |text: &str, expect: Result<i64, &str>| {
            let expect = expect.map(SignedDuration::from_nanos).map_err(str::to_owned);
            assert_eq!(parse(text), expect, "{text:?}");
        };
        check("0", Ok(0));
        check("-0", Ok(0));
        check("5m", Ok(300_000_000_000));
        check("1.5h", Ok(5_400_000_000_000));
        check("-5m", Ok(-300_000_000_000));
        check("+1h30m0.5s", Ok(5_400_500_000_000));
        check(".5s", Ok(500_000_000));
        check("1.s", Ok(1_000_000_000));
        check("1µs", Ok(1_000));
        check("0.0000000000000000000001s", Ok(0));
        check("", Err("time: invalid duration \"\""));
        check("x", Err("time: invalid duration \"x\""));
        check("300", Err("time: missing unit in duration \"300\""));
        check("5d", Err("time: unknown unit \"d\" in duration \"5d\""));
        check("1..5s", Err("time: invalid duration \"1..5s\""));
        check("9999999999h", Err("time: invalid duration \"9999999999h\""));
        check("-9223372036854775808ns", Ok(i64::MIN));
        check("9223372036854775808ns", Err("time: invalid duration \"9223372036854775808ns\""));
    }

    proptest! {
        #[test]
        fn durations_read_back(nanos in any::<i64>()) {
            let duration = SignedDuration::from_nanos(nanos);
            prop_assert_eq!(parse(&print(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "[-+]?[0-9.a-zµ]{0,30}") {
            let _ = parse(&text);
        }
    }
}
