//! Quantities (`500m`, `1.5Gi`, `1e3`) and their canonical form.
//!
//! The value is kept as a whole number of nano-units, which is the finest step Kubernetes keeps.

use std::cmp::Ordering;

/// A parsed quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Exponent,
    Binary,
}

const NANO: i128 = 1_000_000_000;
/// Nothing greater than this, in whole units, is kept: `2^63-1`.
const MAX: i128 = i64::MAX as i128 * NANO;

impl Quantity {
    /// Reads a quantity; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Quantity> {
        let (sign, digits) = match text.as_bytes().first()? {
            b'-' => (-1, &text[1..]),
            b'+' => (1, &text[1..]),
            _ => (1, text),
        };
        let end = digits.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(digits.len());
        let (number, suffix) = digits.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (format, ten, two) = scale(suffix)?;
        let mantissa = format!("{whole}{fraction}");
        let trimmed = mantissa.trim_start_matches('0');
        let exponent = ten + 9 - i32::try_from(fraction.len()).ok()?;
        let nanos = if trimmed.is_empty() { 0 } else { shifted(trimmed, exponent, two)? };
        Some(Quantity { nanos: sign * nanos, format })
    }

    /// The text that the API server gives back for a quantity.
    pub fn canonical(&self) -> String {
        let Quantity { nanos, format } = *self;
        if nanos == 0 {
            return "0".into();
        }
        let small = nanos.abs() < 1024 * NANO;
        if format == Format::Binary && !small && nanos % NANO == 0 {
            let (mut value, mut step) = (nanos / NANO, 0);
            while value % 1024 == 0 && step < 6 {
                (value, step) = (value / 1024, step + 1);
            }
            return format!("{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step]);
        }
        let (mut value, mut exponent) = (nanos, -9);
        while value % 1000 == 0 && exponent < 18 {
            (value, exponent) = (value / 1000, exponent + 3);
        }
        match (format, exponent) {
            (_, 0) => value.to_string(),
            (Format::Exponent, _) => format!("{value}e{exponent}"),
            _ => format!("{value}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][((exponent + 9) / 3) as usize]),
        }
    }

    /// The value rounded up to whole units.
    pub fn units(&self) -> i64 {
        let (whole, rest) = (self.nanos.div_euclid(NANO), self.nanos.rem_euclid(NANO));
        i64::try_from(whole + i128::from(rest != 0)).unwrap_or(i64::MAX)
    }

    /// Whether the value is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether the value is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

/// Digits times a power of ten and a power of 1024, rounded up to a whole number and capped.
fn shifted(digits: &str, exponent: i32, two: u32) -> Option<i128> {
    if digits.len() > 60 {
        return None;
    }
    let mut value: i128 = 0;
    let mut dropped = false;
    // Keep what fits into an i128 comfortably; more digits than that are beyond the cap or below a nano.
    let kept = digits.len().min(27);
    for digit in digits.bytes().take(kept) {
        value = value * 10 + i128::from(digit - b'0');
    }
    let mut exponent = exponent + i32::try_from(digits.len() - kept).ok()?;
    dropped |= digits.bytes().skip(kept).any(|digit| digit != b'0');
    for _ in 0..two {
        value = value.checked_mul(1024)?;
    }
    while exponent > 0 {
        if value > MAX {
            return Some(MAX);
        }
        (value, exponent) = (value * 10, exponent - 1);
    }
    while exponent < 0 && value != 0 {
        dropped |= value % 10 != 0;
        (value, exponent) = (value / 10, exponent + 1);
    }
    Some((value + i128::from(dropped)).min(MAX))
}

fn scale(suffix: &str) -> Option<(Format, i32, u32)> {
    Some(match suffix {
        "" => (Format::Decimal, 0, 0),
        "n" => (Format::Decimal, -9, 0),
        "u" => (Format::Decimal, -6, 0),
        "m" => (Format::Decimal, -3, 0),
        "k" => (Format::Decimal, 3, 0),
        "M" => (Format::Decimal, 6, 0),
        "G" => (Format::Decimal, 9, 0),
        "T" => (Format::Decimal, 12, 0),
        "P" => (Format::Decimal, 15, 0),
        "E" => (Format::Decimal, 18, 0),
        "Ki" => (Format::Binary, 0, 1),
        "Mi" => (Format::Binary, 0, 2),
        "Gi" => (Format::Binary, 0, 3),
        "Ti" => (Format::Binary, 0, 4),
        "Pi" => (Format::Binary, 0, 5),
        "Ei" => (Format::Binary, 0, 6),
        other => {
            let power = other.strip_prefix(['e', 'E'])?;
            let power: i32 = power.parse().ok()?;
            (-40..=40).contains(&power).then_some(())?;
            (Format::Exponent, power, 0)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_print_in_canonical_form() {
        let check = |given: &str, expect: &str| {
            assert_eq!(Quantity::parse(given).map(|quantity| quantity.canonical()).as_deref(), Some(expect), "{given}");
        };
        for (given, expect) in [
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("0", "0"),
            ("0Gi", "0"),
            ("1000", "1k"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000Mi", "1000Mi"),
            ("512", "512"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1500", "1500"),
            ("2000000k", "2G"),
            ("-1", "-1"),
            ("+1", "1"),
            (".5", "500m"),
            ("5.", "5"),
            ("0.1m", "100u"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("100e-3", "100e-3"),
            ("1.1Ki", "1126400m"),
            ("2e9", "2e9"),
            ("5Gi", "5Gi"),
        ] {
            check(given, expect);
        }
        for bad in ["", "x", "1x", "1 Gi", "--1", "1.2.3", "1ei", "1e", "Gi"] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn canonical_form_is_a_fixed_point(text in "[-+]?[0-9]{0,20}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|e3|e-3)?") {
            if let Some(quantity) = Quantity::parse(&text) {
                let once = quantity.canonical();
                prop_assert_eq!(Quantity::parse(&once).map(|again| again.canonical()), Some(once));
            }
        }
    }
}
