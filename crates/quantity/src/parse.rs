//! Parsing of quantities, with the rules and the error messages of Go.

use crate::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, Format, Quantity, round_away};

/// The reason why a text is not a quantity, in the words of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The exponent of the smallest unit: fractions of a nano are rounded up.
const NANO: i32 = -9;
/// Go computes with machine integers up to this many digits, and prints the text unchanged only then.
const FAST_DIGITS: usize = 18;

pub(crate) fn parse(text: &str) -> Result<Quantity, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Format);
    }
    let parts = Parts::split(text)?;
    match Suffix::parse(parts.suffix)? {
        Suffix::Decimal { exponent, format } => parse_decimal(text, &parts, exponent, format),
        Suffix::Binary { power } => parse_binary(text, &parts, power),
    }
}

/// A text split into sign, digits and suffix.
struct Parts<'a> {
    negative: bool,
    /// The digits before the point without leading zeros, or `0`.
    whole: &'a str,
    /// The digits after the point.
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there is any digit at all.
    has_digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, ParseError> {
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
            return Err(ParseError::Format);
        }
        let number = &text[..text.len() - suffix.len()];
        let has_digits = number.bytes().any(|b| b.is_ascii_digit());
        Ok(Self { negative, whole, fraction, suffix, has_digits })
    }

    fn digits(&self) -> usize {
        self.whole.len() + self.fraction.len()
    }

    /// Returns whether the digits, without the point, end in three zeros.
    fn ends_in_thousands(&self) -> bool {
        self.whole.bytes().chain(self.fraction.bytes()).rev().take(3).filter(|digit| *digit == b'0').count() == 3
    }

    /// Refuses a suffix without digits; Go reads it as zero where it computes with machine integers.
    fn require_digits(&self) -> Result<(), ParseError> {
        if self.has_digits { Ok(()) } else { Err(ParseError::Number) }
    }

    /// Returns all digits as one number and its exponent; digits beyond 128 bits are rounded up.
    fn coefficient(&self) -> Result<(i128, i32), ParseError> {
        let (mut coefficient, mut dropped, mut inexact) = (0_i128, 0_i32, false);
        for digit in self.whole.bytes().chain(self.fraction.bytes()) {
            let digit = i128::from(digit - b'0');
            match coefficient.checked_mul(10).and_then(|c| c.checked_add(digit)) {
                Some(next) if dropped == 0 => coefficient = next,
                _ => {
                    dropped = dropped.saturating_add(1);
                    inexact |= digit != 0;
                }
            }
        }
        let fraction = i32::try_from(self.fraction.len()).map_err(|_| ParseError::Number)?;
        Ok((coefficient.saturating_add(inexact.into()), dropped.saturating_sub(fraction)))
    }

    fn quantity(&self, coefficient: i128, exponent: i32, format: Format, text: Option<&str>) -> Quantity {
        let coefficient = if self.negative { -coefficient } else { coefficient };
        Quantity { coefficient, exponent, format, text: text.map(Into::into) }
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
    fn parse(suffix: &str) -> Result<Self, ParseError> {
        if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
            return Ok(Suffix::Decimal { exponent: *exponent, format: Format::DecimalSi });
        }
        if let Some((_, power)) = BINARY_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
            return Ok(Suffix::Binary { power: *power });
        }
        let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse().ok());
        let exponent = exponent.ok_or(ParseError::Suffix)?;
        Ok(Suffix::Decimal { exponent, format: Format::DecimalExponent })
    }
}

fn parse_decimal(text: &str, parts: &Parts<'_>, suffix: i32, format: Format) -> Result<Quantity, ParseError> {
    let (mut coefficient, shifted) = parts.coefficient()?;
    let mut exponent = suffix.saturating_add(shifted);
    if exponent < NANO {
        coefficient = round_away(coefficient, NANO.saturating_sub(exponent)).0;
        exponent = NANO;
    } else if parts.digits() <= FAST_DIGITS {
        // Go takes such a text for canonical, although `2.500` is not.
        let canonical = exponent % 3 == 0 && !parts.ends_in_thousands() && !parts.whole.starts_with('0');
        return Ok(parts.quantity(coefficient, exponent, format, canonical.then_some(text)));
    }
    parts.require_digits()?;
    Ok(parts.quantity(coefficient, exponent, format, None))
}

fn parse_binary(text: &str, parts: &Parts<'_>, power: u32) -> Result<Quantity, ParseError> {
    let (digits, mut exponent) = parts.coefficient()?;
    let mut coefficient = digits.saturating_mul(1 << power);
    let few_digits = parts.digits() + (power as usize * 3 / 10) < 15;
    if parts.fraction.is_empty() && few_digits {
        let canonical = digits & 7 != 0;
        return Ok(parts.quantity(coefficient, exponent, Format::BinarySi, canonical.then_some(text)));
    }
    parts.require_digits()?;
    if exponent < NANO {
        coefficient = round_away(coefficient, NANO.saturating_sub(exponent)).0;
        exponent = NANO;
    }
    let amount = Quantity { coefficient, exponent, ..Quantity::ZERO }.min(i64::MAX.into());
    let format = if amount < Quantity::from(1) { Format::DecimalSi } else { Format::BinarySi };
    Ok(parts.quantity(amount.coefficient, amount.exponent, format, None))
}
