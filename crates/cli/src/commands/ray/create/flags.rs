//! What the flags of several commands have in common.

use anyhow::{Context, ensure};
use manta_quantity::Quantity;
use std::collections::BTreeMap;

/// Parses `key=value` pairs of a flag.
pub(in crate::commands) fn key_values(flag: &str, pairs: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pair = |text: &String| {
        let (key, value) =
            text.split_once('=').with_context(|| format!("{flag}: {text} must be formatted as key=value"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    pairs.iter().map(pair).collect()
}

/// Checks that values of flags are quantities and not negative; empty ones are not given.
pub(super) fn check_quantities(values: &[(&str, Option<&str>)]) -> anyhow::Result<()> {
    for (flag, value) in values {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let quantity =
            Quantity::parse(value).map_err(|error| anyhow::anyhow!("{flag} is not a valid resource quantity: {error}"))?;
        ensure!(!quantity.is_negative(), "{flag} cannot be negative");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_checked() {
        let check = |value: &str, expect: Result<(), &str>| {
            let got = check_quantities(&[("head-cpu", Some(value))]).map_err(|error| error.to_string());
            match expect {
                Ok(()) => assert_eq!(got, Ok(()), "{value}"),
                Err(start) => assert!(got.clone().is_err_and(|text| text.starts_with(start)), "{value}: {got:?}"),
            }
        };
        check("2", Ok(()));
        check("500m", Ok(()));
        check("", Ok(()));
        check("-1", Err("head-cpu cannot be negative"));
        check("softmax", Err("head-cpu is not a valid resource quantity: "));
    }

    #[test]
    fn pairs_need_an_equals_sign() {
        let pairs = ["a=b".to_owned(), "c=d=e".to_owned()];
        let expect = BTreeMap::from([("a".to_owned(), "b".to_owned()), ("c".to_owned(), "d=e".to_owned())]);
        assert_eq!(key_values("--labels", &pairs).unwrap(), expect);
        let error = key_values("--labels", &["x".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "--labels: x must be formatted as key=value");
    }
}
