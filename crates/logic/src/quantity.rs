//! Kubernetes quantities (`500m`, `4Gi`, `1e3`): reading, sums, comparison and canonical print.
//!
//! Prints as Go does, because the text goes into status fields and into the spec hash: a quantity
//! that Go takes for canonical keeps its text, sums take the format of their first summand that is
//! not zero, and binary formats fall back to decimal below 1024 and for fractions.

use std::cmp::Ordering;
use std::fmt;

/// An amount with the format it prints in.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The amount is `coefficient * 10^exponent`.
    coefficient: i128,
    exponent: i32,
    format: Format,
    /// The text as given, where Go keeps it: `1.500` stays `1.500`.
    text: Option<String>,
}

/// How a quantity prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// Why a text is not a quantity; the words are those of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Nothing smaller than this is kept: parts of it round up.
const NANO: i32 = -9;
/// Up to this many digits Go computes with machine integers, and only then keeps the text.
const FAST_DIGITS: usize = 18;

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// Nothing, in decimal format; takes the format of what is added to it.
    pub const ZERO: Self = Self { coefficient: 0, exponent: 0, format: Format::DecimalSi, text: None };

    /// A whole number.
    pub fn from_i64(value: i64, format: Format) -> Self {
        Self { coefficient: value.into(), exponent: 0, format, text: None }
    }

    /// Reads the text of a quantity, without blanks around it.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let parts = Parts::split(text)?;
        let suffix = Suffix::read(parts.suffix)?;
        match suffix {
            Suffix::Decimal { exponent, format } => parse_decimal(text, &parts, exponent, format),
            Suffix::Binary { power } => parse_binary(text, &parts, power),
        }
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.coefficient == 0
    }

    /// The whole number at or above it in size (Go's `Value`), capped at the ends of the range.
    pub fn ceil_i64(&self) -> i64 {
        clamp_i64(self.at_exponent_zero().0)
    }

    /// The nearest floating-point number.
    pub fn as_f64(&self) -> f64 {
        // Reading the text rounds once; multiplying by a power of ten would round twice.
        format!("{}e{}", self.coefficient, self.exponent).parse().unwrap_or(f64::NAN)
    }

    /// The sum. Nothing takes the format of what is added to it.
    pub fn add(&mut self, other: &Self) {
        self.text = None;
        if self.is_zero() {
            self.format = other.format;
        }
        if other.is_zero() {
            return;
        }
        if self.is_zero() {
            (self.coefficient, self.exponent) = (other.coefficient, other.exponent);
            return;
        }
        let (high, low) = if self.exponent >= other.exponent { (&*self, other) } else { (other, &*self) };
        let raised = shift(high.coefficient, high.exponent.saturating_sub(low.exponent));
        let exponent = low.exponent;
        self.coefficient = raised.saturating_add(low.coefficient);
        self.exponent = exponent;
    }

    /// The product with a whole number.
    pub fn mul_i64(&mut self, factor: i64) {
        self.text = None;
        self.coefficient = self.coefficient.saturating_mul(factor.into());
    }

    /// Rounded away from zero to a whole number, and whether that changed nothing.
    fn at_exponent_zero(&self) -> (i128, bool) {
        if self.exponent >= 0 {
            return (shift(self.coefficient, self.exponent), true);
        }
        round_away(self.coefficient, self.exponent.unsigned_abs())
    }
}

/// Negative, zero and positive numbers of the same amount are equal whatever their format.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = self.coefficient.signum().cmp(&other.coefficient.signum());
        if sign != Ordering::Equal || self.is_zero() {
            return sign;
        }
        let low = self.exponent.min(other.exponent);
        let raise = |q: &Self| shift(q.coefficient, q.exponent.saturating_sub(low));
        // Far apart, both would saturate: then the one with the greater exponent has the greater size.
        raise(self).cmp(&raise(other)).then_with(|| {
            let saturated = raise(self).unsigned_abs() >= i128::MAX.unsigned_abs();
            let by_exponent = if saturated { self.exponent.cmp(&other.exponent) } else { Ordering::Equal };
            if self.coefficient < 0 { by_exponent.reverse() } else { by_exponent }
        })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        match (self.format, self.at_exponent_zero()) {
            (Format::BinarySi, (whole, true)) if whole.unsigned_abs() >= 1024 => write_binary(f, whole),
            (Format::DecimalExponent, _) => self.write_decimal(f, Format::DecimalExponent),
            _ => self.write_decimal(f, Format::DecimalSi),
        }
    }
}

impl Quantity {
    /// The shortest coefficient whose exponent is a multiple of three.
    fn write_decimal(&self, f: &mut fmt::Formatter<'_>, format: Format) -> fmt::Result {
        let (mut coefficient, mut exponent) = (self.coefficient, self.exponent);
        while coefficient % 10 == 0 {
            coefficient /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 {
            coefficient = coefficient.saturating_mul(10);
            exponent -= 1;
        }
        if format == Format::DecimalExponent {
            return if exponent == 0 { write!(f, "{coefficient}") } else { write!(f, "{coefficient}e{exponent}") };
        }
        let suffix = DECIMAL_SUFFIXES.iter().find(|(_, e)| *e == exponent).map_or("", |(suffix, _)| suffix);
        write!(f, "{coefficient}{suffix}")
    }
}

fn write_binary(f: &mut fmt::Formatter<'_>, mut whole: i128) -> fmt::Result {
    let mut suffix = "";
    for (next, _) in BINARY_SUFFIXES {
        if whole % 1024 != 0 {
            break;
        }
        whole /= 1024;
        suffix = next;
    }
    write!(f, "{whole}{suffix}")
}

/// A text cut into sign, digits and suffix.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros; `0` where there are none.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there is any digit at all.
    given: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
        let (whole, rest) = split_digits(rest);
        let whole = if whole.is_empty() { "0" } else { whole };
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let number = &text[..text.len() - suffix.len()];
        let given = number.bytes().any(|b| b.is_ascii_digit());
        Ok(Self { negative, whole, fraction, suffix, given })
    }

    fn digits(&self) -> usize {
        self.whole.len() + self.fraction.len()
    }

    /// Whether the digits, point aside, end in three zeros.
    fn ends_in_thousands(&self) -> bool {
        self.whole.bytes().chain(self.fraction.bytes()).rev().take(3).filter(|digit| *digit == b'0').count() == 3
    }

    /// A suffix alone counts as zero where Go computes with machine integers, but not beyond.
    fn need_digits(&self) -> Result<(), QuantityError> {
        if self.given { Ok(()) } else { Err(QuantityError::Number) }
    }

    /// All digits as one number; digits beyond what 128 bits hold are rounded up into an exponent.
    fn coefficient(&self) -> Result<(i128, i32), QuantityError> {
        let (mut coefficient, mut dropped, mut rest) = (0_i128, 0_i32, false);
        for digit in self.whole.bytes().chain(self.fraction.bytes()) {
            let digit = i128::from(digit - b'0');
            match coefficient.checked_mul(10).and_then(|c| c.checked_add(digit)) {
                Some(next) if dropped == 0 => coefficient = next,
                _ => {
                    dropped = dropped.saturating_add(1);
                    rest |= digit != 0;
                }
            }
        }
        let fraction = i32::try_from(self.fraction.len()).map_err(|_| QuantityError::Number)?;
        Ok((coefficient.saturating_add(rest.into()), dropped.saturating_sub(fraction)))
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len())
}

enum Suffix {
    Decimal { exponent: i32, format: Format },
    Binary { power: u32 },
}

impl Suffix {
    fn read(suffix: &str) -> Result<Self, QuantityError> {
        if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
            return Ok(Suffix::Decimal { exponent: *exponent, format: Format::DecimalSi });
        }
        if let Some((_, power)) = BINARY_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
            return Ok(Suffix::Binary { power: *power });
        }
        let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse().ok());
        let exponent = exponent.ok_or(QuantityError::Suffix)?;
        Ok(Suffix::Decimal { exponent, format: Format::DecimalExponent })
    }
}

fn parse_decimal(text: &str, parts: &Parts<'_>, suffix: i32, format: Format) -> Result<Quantity, QuantityError> {
    let (mut coefficient, shifted) = parts.coefficient()?;
    let mut exponent = suffix.saturating_add(shifted);
    if exponent < NANO {
        coefficient = round_away(coefficient, NANO.abs_diff(exponent)).0;
        exponent = NANO;
    } else if parts.digits() <= FAST_DIGITS {
        // Go takes such a text for canonical, although `2.500` is not.
        let canonical = exponent % 3 == 0 && !parts.ends_in_thousands() && !parts.whole.starts_with('0');
        return Ok(signed(parts, coefficient, exponent, format, canonical.then_some(text)));
    }
    parts.need_digits()?;
    Ok(signed(parts, coefficient, exponent, format, None))
}

fn parse_binary(text: &str, parts: &Parts<'_>, power: u32) -> Result<Quantity, QuantityError> {
    let (coefficient, exponent) = parts.coefficient()?;
    let mut amount = Quantity {
        coefficient: coefficient.saturating_mul(1 << power),
        exponent,
        format: Format::BinarySi,
        text: None,
    };
    let few_digits = parts.digits() + (power as usize * 3 / 10) < 15;
    if parts.fraction.is_empty() && few_digits {
        let canonical = coefficient & 7 != 0;
        return Ok(signed(parts, amount.coefficient, exponent, Format::BinarySi, canonical.then_some(text)));
    }
    parts.need_digits()?;
    if exponent < NANO {
        amount = Quantity {
            coefficient: round_away(amount.coefficient, NANO.abs_diff(exponent)).0,
            exponent: NANO,
            ..amount
        };
    }
    let cap = Quantity::from_i64(i64::MAX, Format::BinarySi);
    if amount > cap {
        amount = cap;
    }
    let format = if amount < Quantity::from_i64(1, Format::DecimalSi) { Format::DecimalSi } else { Format::BinarySi };
    Ok(signed(parts, amount.coefficient, amount.exponent, format, None))
}

fn signed(parts: &Parts<'_>, coefficient: i128, exponent: i32, format: Format, text: Option<&str>) -> Quantity {
    let coefficient = if parts.negative { -coefficient } else { coefficient };
    Quantity { coefficient, exponent, format, text: text.map(str::to_owned) }
}

/// `value * 10^places`, capped.
fn shift(value: i128, places: i32) -> i128 {
    10_i128.checked_pow(places.unsigned_abs()).map_or_else(
        || if value == 0 { 0 } else { i128::MAX.saturating_mul(value.signum()) },
        |power| value.saturating_mul(power),
    )
}

/// `value / 10^places` rounded away from zero, and whether nothing was lost.
fn round_away(value: i128, places: u32) -> (i128, bool) {
    let Some(power) = 10_i128.checked_pow(places) else { return (value.signum(), value == 0) };
    let lost = value % power != 0;
    (value / power + if lost { value.signum() } else { 0 }, !lost)
}

fn clamp_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn quantities_print_as_in_go() {
        let check = |given: &str, expect: &str| assert_eq!(quantity(given).to_string(), expect, "{given}");
        check("0", "0");
        check("0.5", "500m");
        check("1", "1");
        check("1000m", "1");
        check("1500m", "1500m");
        check("1.5", "1500m");
        check("2.500", "2.500");
        check("2.000", "2");
        check("0.500", "500m");
        check("+1", "+1");
        check("01", "01");
        check("-0.5", "-500m");
        check("1000", "1k");
        check("1000k", "1M");
        check("12e6", "12e6");
        check("100e1", "1e3");
        check("1E3", "1E3");
        check("4E", "4E");
        check("2048Mi", "2Gi");
        check("1536Mi", "1536Mi");
        check("0.5Gi", "512Mi");
        check("1.5Gi", "1536Mi");
        check("512Ki", "512Ki");
        check("8Ki", "8Ki");
        check("0.0005Ki", "512m");
        check("0.5Ki", "512");
        check("16Ei", "9223372036854775807");
        check("0.1n", "1n");
        check("1.G", "1.G");
        check(".5", "500m");
        check("5368709120", "5368709120");
        check("10000.5", "10000500m");
        check("1.0000", "1");
        check("0.0", "0");
        check("00", "0");
        check("-0", "0");
        check(".", "0");
        check("Gi", "0");
        check("1.2e3", "1200");
        check("1.25e-2", "12500e-6");
        check("123456789012345678901234567890", "123456789012345678901234567890");
        check("1.000000000001", "1000000001n");
        check("100000Gi", "100000Gi");
        check("3Pi", "3Pi");
        check("1.5e0", "1500e-3");
        check("007Mi", "007Mi");
        check("-7Mi", "-7Mi");
        check("2.50m", "2500u");
        check("12300.000m", "12300m");
        check("1e+3", "1e+3");
        check("0Gi", "0");
        check("89000.0e-2", "890");
        check("+10.00E2", "1e3");
    }

    #[test]
    fn other_texts_are_refused() {
        let check =
            |given: &str, expect: QuantityError| assert_eq!(Quantity::parse(given).err(), Some(expect), "{given:?}");
        check("", QuantityError::Format);
        check("abc", QuantityError::Format);
        check("1 Gi", QuantityError::Format);
        check("1.2.3", QuantityError::Format);
        check("1Zi", QuantityError::Format);
        check("1KiB", QuantityError::Format);
        check("1ki", QuantityError::Suffix);
        check("1mm", QuantityError::Suffix);
        check("1e", QuantityError::Suffix);
        check("1é", QuantityError::Format);
        check("Pi", QuantityError::Number);
        check("-Ei", QuantityError::Number);
    }

    #[test]
    fn sums_keep_the_format_of_the_first() {
        let check = |summands: &[&str], expect: &str| {
            let mut sum = Quantity::ZERO;
            summands.iter().for_each(|summand| sum.add(&quantity(summand)));
            assert_eq!(sum.to_string(), expect, "{summands:?}");
        };
        check(&[], "0");
        check(&["1", "500m"], "1500m");
        check(&["500m", "500m"], "1");
        check(&["1Gi", "1Gi"], "2Gi");
        check(&["0", "1Gi", "512Mi"], "1536Mi");
        check(&["2Gi", "1500M"], "3647483648");
        check(&["1500M", "2Gi"], "3647483648");
        check(&["1G", "1Gi"], "2073741824");
        check(&["1Gi", "0.5"], "1073741824500m");
        check(&["1e3", "1"], "1001");
    }

    #[test]
    fn products_and_whole_numbers() {
        let check = |text: &str, factor: i64, product: &str, whole: i64| {
            let mut amount = quantity(text);
            amount.mul_i64(factor);
            assert_eq!((amount.to_string().as_str(), amount.ceil_i64()), (product, whole), "{text} * {factor}");
        };
        check("500m", 3, "1500m", 2);
        check("1Gi", 4, "4Gi", 4 << 30);
        check("1", 0, "0", 0);
        check("1m", 1, "1m", 1);
        check("-1500m", 1, "-1500m", -2);
        check("1e100", 1, "10e99", i64::MAX);
        check("1e-100", 1, "1e-9", 1);
    }

    #[test]
    fn quantities_compare_by_amount() {
        let check = |a: &str, b: &str, expect: Ordering| assert_eq!(quantity(a).cmp(&quantity(b)), expect, "{a} {b}");
        check("1", "1000m", Ordering::Equal);
        check("1Gi", "1G", Ordering::Greater);
        check("-1", "1m", Ordering::Less);
        check("1e1000", "1e999", Ordering::Greater);
        check("-1e1000", "-1e999", Ordering::Less);
        check("0", "0.0", Ordering::Equal);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-+]?[0-9.]{0,45}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,11}") {
            if let Ok(mut amount) = Quantity::parse(&text) {
                let _ = (amount.to_string(), amount.ceil_i64());
                amount.add(&quantity("1Gi"));
                amount.mul_i64(i64::MIN);
                let _ = amount.to_string();
            }
        }

        #[test]
        fn canonical_text_reads_back(coefficient in any::<i32>(), suffix in "(m|k|M|Ki|Mi|Gi|)") {
            let amount = quantity(&format!("{coefficient}{suffix}"));
            prop_assert_eq!(&quantity(&amount.to_string()), &amount);
        }
    }
}
