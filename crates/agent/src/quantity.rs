//! Kubernetes quantities ("500m", "2Gi", "1e3") as exact numbers.
//!
//! Held in billionths, which covers every suffix from nano to exa without rounding.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const BILLION: i128 = 1_000_000_000;

/// An amount in billionths of its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Amount(i128);

impl Amount {
    pub const ZERO: Self = Self(0);

    /// A whole number of units.
    pub fn whole(units: i64) -> Self {
        Self(i128::from(units) * BILLION)
    }

    /// Parses a quantity; `None` when Kubernetes would refuse it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits_end = text
            .char_indices()
            .find(|(i, c)| !(c.is_ascii_digit() || *c == '.' || (*i == 0 && (*c == '-' || *c == '+'))))
            .map_or(text.len(), |(i, _)| i);
        let (number, suffix) = text.split_at(digits_end);
        let scale = Scale::parse(suffix)?;
        let (negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (int, frac) = number.split_once('.').unwrap_or((number, ""));
        if int.is_empty() && frac.is_empty() {
            return None;
        }
        let mut mantissa: i128 = 0;
        for c in int.chars().chain(frac.chars()) {
            mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(c.to_digit(10)?))?;
        }
        let value = scale.apply(mantissa, u32::try_from(frac.len()).ok()?)?;
        Some(Self(if negative { -value } else { value }))
    }

    /// Parses an API quantity, reading what cannot be parsed as nothing.
    pub fn of(quantity: Option<&Quantity>) -> Self {
        quantity.and_then(|q| Self::parse(&q.0)).unwrap_or_default()
    }

    /// This amount counted in `divisor`, rounded up as the downward API does.
    pub fn ceil_div(self, divisor: Self) -> i64 {
        if divisor.0 <= 0 {
            return 0;
        }
        let quotient = self.0.div_euclid(divisor.0) + i128::from(self.0.rem_euclid(divisor.0) != 0);
        i64::try_from(quotient).unwrap_or(i64::MAX)
    }

    /// Whole units, rounded up.
    pub fn ceil(self) -> i64 {
        self.ceil_div(Self(BILLION))
    }

    /// Thousandths of a unit, rounded up: the way CPU is counted.
    pub fn milli(self) -> i64 {
        self.ceil_div(Self(BILLION / 1000))
    }
}

impl std::ops::Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

enum Scale {
    Decimal(i32),
    Binary(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "" => Self::Decimal(0),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            exponent => {
                Self::Decimal(exponent.strip_prefix(['e', 'E'])?.parse().ok().filter(|e| (-18..=18).contains(e))?)
            }
        })
    }

    /// `mantissa / 10^decimals` in this scale, in billionths, rounded up.
    fn apply(&self, mantissa: i128, decimals: u32) -> Option<i128> {
        let (times, shift) = match *self {
            Self::Decimal(exponent) => (1, exponent),
            Self::Binary(bits) => (1i128 << bits, 0),
        };
        let power = shift + 9 - i32::try_from(decimals).ok()?;
        let value = mantissa.checked_mul(times)?;
        if power >= 0 {
            return value.checked_mul(10i128.checked_pow(power.unsigned_abs())?);
        }
        let Some(by) = 10i128.checked_pow(power.unsigned_abs()) else { return Some(i128::from(value > 0)) };
        Some(value / by + i128::from(value % by > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, milli) in [
            ("1", 1000),
            ("500m", 500),
            ("0.5", 500),
            (".5", 500),
            ("1.5", 1500),
            ("2k", 2_000_000),
            ("1Ki", 1_024_000),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("100n", 1),
            ("0", 0),
            ("1.5Gi", 1_610_612_736_000),
            ("-1", -1000),
        ] {
            assert_eq!(Amount::parse(text).map(Amount::milli), Some(milli), "{text}");
        }
        for text in ["", "x", "1x", "1.2.3", "Gi", "1e99", "m", "--1"] {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
    }

    #[test]
    fn divisors_round_up() {
        let two_gi = Amount::parse("2Gi").unwrap();
        assert_eq!(two_gi.ceil_div(Amount::parse("1Mi").unwrap()), 2048);
        assert_eq!(two_gi.ceil(), 2_147_483_648);
        assert_eq!(Amount::parse("1500m").unwrap().ceil(), 2);
        assert_eq!(two_gi.ceil_div(Amount::ZERO), 0);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Amount::parse(&text);
        }
    }
}
