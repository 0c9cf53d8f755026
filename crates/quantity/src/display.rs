//! The text of a quantity.

use crate::{BINARY_SUFFIXES, DECIMAL_SUFFIXES, Format, Quantity};
use std::fmt;

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        match (self.format, self.rescale(0)) {
            (Format::BinarySi, (whole, true)) if whole.unsigned_abs() >= 1024 => write_binary(f, whole),
            _ => write_decimal(f, self),
        }
    }
}

/// Writes the shortest coefficient whose exponent is a multiple of three.
fn write_decimal(f: &mut fmt::Formatter<'_>, quantity: &Quantity) -> fmt::Result {
    let Quantity { mut coefficient, mut exponent, .. } = *quantity;
    while coefficient % 10 == 0 {
        coefficient /= 10;
        exponent += 1;
    }
    while exponent % 3 != 0 {
        coefficient = coefficient.saturating_mul(10);
        exponent -= 1;
    }
    match quantity.format {
        Format::DecimalExponent if exponent != 0 => write!(f, "{coefficient}e{exponent}"),
        _ => {
            // Go prints no suffix beyond `E` either: 1000E is `1`.
            let suffix = DECIMAL_SUFFIXES.iter().find(|(_, e)| *e == exponent).map_or("", |(suffix, _)| suffix);
            write!(f, "{coefficient}{suffix}")
        }
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
