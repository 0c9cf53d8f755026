//! Kubernetes quantities (`500m`, `4Gi`, `1e3`): parsing, arithmetic, comparison and canonical text.
//!
//! The text is the one that Go's `resource.Quantity` prints, because it ends up in API responses, in
//! status fields and in the hash of a spec. Go keeps a text that it takes for canonical, a sum has the
//! format of its first term that is not zero, and the binary format falls back to decimal below 1024
//! and for fractions.

mod display;
mod parse;

pub use parse::ParseError;

use std::cmp::Ordering;
use std::ops::{AddAssign, MulAssign, Neg, SubAssign};

/// An amount, and the format in which it prints.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The amount is `coefficient * 10^exponent`.
    coefficient: i128,
    exponent: i32,
    format: Format,
    /// The text that was parsed, where Go prints it unchanged: `2.500` stays `2.500`.
    text: Option<Box<str>>,
}

/// The notation of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

const MILLI: i32 = -3;

impl Quantity {
    /// Zero, which takes the format of the first quantity that is added to it.
    pub const ZERO: Self = Self { coefficient: 0, exponent: 0, format: Format::DecimalSi, text: None };

    /// Parses a quantity; blanks around it are an error.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }

    /// Parses a quantity and reads any other text as zero.
    pub fn parse_or_zero(text: &str) -> Self {
        Self::parse(text).unwrap_or_default()
    }

    /// Returns whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.coefficient == 0
    }

    /// Returns whether the amount is below zero.
    pub fn is_negative(&self) -> bool {
        self.coefficient < 0
    }

    /// Returns whether the amount is above zero.
    pub fn is_positive(&self) -> bool {
        self.coefficient > 0
    }

    /// Returns the amount in whole units, rounded away from zero and capped at the range of `i64`.
    pub fn value(&self) -> i64 {
        clamp_i64(self.rescale(0).0)
    }

    /// Returns the amount in thousandths, rounded away from zero and capped at the range of `i64`.
    pub fn milli_value(&self) -> i64 {
        clamp_i64(self.rescale(MILLI).0)
    }

    /// Returns how many times `divisor` the amount is, rounded up; 0 for a divisor that is not positive.
    pub fn ceil_div(&self, divisor: &Self) -> i64 {
        if !divisor.is_positive() {
            return 0;
        }
        let (amount, divisor, _) = align(self, divisor);
        clamp_i64(amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0))
    }

    /// Returns the nearest floating-point number.
    pub fn as_f64(&self) -> f64 {
        // Parsing the text rounds once; multiplying by a power of ten would round twice.
        format!("{}e{}", self.coefficient, self.exponent).parse().unwrap_or(f64::NAN)
    }

    /// Returns the amount in units of `10^exponent`, rounded away from zero, and whether that is exact.
    fn rescale(&self, exponent: i32) -> (i128, bool) {
        let places = self.exponent.saturating_sub(exponent);
        if places >= 0 { (shift(self.coefficient, places), true) } else { round_away(self.coefficient, -places) }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        Self { coefficient: value.into(), ..Self::ZERO }
    }
}

impl AddAssign<&Self> for Quantity {
    fn add_assign(&mut self, other: &Self) {
        self.text = None;
        if self.is_zero() {
            *self = Self { text: None, ..other.clone() };
        } else if !other.is_zero() {
            let (own, other, exponent) = align(self, other);
            (self.coefficient, self.exponent) = (own.saturating_add(other), exponent);
        }
    }
}

impl SubAssign<&Self> for Quantity {
    fn sub_assign(&mut self, other: &Self) {
        *self += &-other.clone();
    }
}

impl MulAssign<i64> for Quantity {
    fn mul_assign(&mut self, factor: i64) {
        self.text = None;
        self.coefficient = self.coefficient.saturating_mul(factor.into());
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { coefficient: self.coefficient.saturating_neg(), text: None, ..self }
    }
}

/// Quantities of the same amount are equal whatever their format.
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
        let (own, others, _) = align(self, other);
        own.cmp(&others).then_with(|| {
            // Both are capped when the exponents are far apart: the greater exponent is the greater size.
            let capped = own.unsigned_abs() >= i128::MAX.unsigned_abs();
            let by_exponent = if capped { self.exponent.cmp(&other.exponent) } else { Ordering::Equal };
            if self.is_negative() { by_exponent.reverse() } else { by_exponent }
        })
    }
}

/// Returns the coefficients of two quantities for the smaller of their exponents, and that exponent.
fn align(a: &Quantity, b: &Quantity) -> (i128, i128, i32) {
    let exponent = a.exponent.min(b.exponent);
    let raise = |quantity: &Quantity| shift(quantity.coefficient, quantity.exponent.saturating_sub(exponent));
    (raise(a), raise(b), exponent)
}

/// Returns `value * 10^places`, capped.
fn shift(value: i128, places: i32) -> i128 {
    10_i128.checked_pow(places.unsigned_abs()).map_or_else(
        || if value == 0 { 0 } else { i128::MAX.saturating_mul(value.signum()) },
        |power| value.saturating_mul(power),
    )
}

/// Returns `value / 10^places` rounded away from zero, and whether that is exact.
fn round_away(value: i128, places: i32) -> (i128, bool) {
    let Some(power) = 10_i128.checked_pow(places.unsigned_abs()) else { return (value.signum(), value == 0) };
    let exact = value % power == 0;
    (value / power + if exact { 0 } else { value.signum() }, exact)
}

fn clamp_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests;
