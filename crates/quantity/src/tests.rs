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
    check("-1", "-1");
    check("01", "01");
    check("5.", "5.");
    check("-0.5", "-500m");
    check("512", "512");
    check("1000", "1k");
    check("1500", "1500");
    check("1000k", "1M");
    check("2000000k", "2G");
    check("12e6", "12e6");
    check("100e1", "1e3");
    check("100e-3", "100e-3");
    check("1e3", "1e3");
    check("1E3", "1E3");
    check("2e9", "2e9");
    check("4E", "4E");
    check("1000E", "1");
    check("1Ki", "1Ki");
    check("1Gi", "1Gi");
    check("5Gi", "5Gi");
    check("1000Mi", "1000Mi");
    check("1024Mi", "1Gi");
    check("2048Mi", "2Gi");
    check("1536Mi", "1536Mi");
    check("0.5Gi", "512Mi");
    check("1.5Gi", "1536Mi");
    check("1.1Ki", "1126400m");
    check("512Ki", "512Ki");
    check("8Ki", "8Ki");
    check("0.0005Ki", "512m");
    check("0.5Ki", "512");
    check("16Ei", "9223372036854775807");
    check("1n", "1n");
    check("0.1n", "1n");
    check("0.1m", "100u");
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
    let check = |given: &str, expect: ParseError| assert_eq!(Quantity::parse(given).err(), Some(expect), "{given:?}");
    check("", ParseError::Format);
    check("x", ParseError::Format);
    check("1x", ParseError::Format);
    check("abc", ParseError::Format);
    check("--1", ParseError::Suffix);
    check("1 Gi", ParseError::Format);
    check(" 1", ParseError::Format);
    check("1.2.3", ParseError::Format);
    check("1Zi", ParseError::Format);
    check("1KiB", ParseError::Format);
    check("1ki", ParseError::Suffix);
    check("1mm", ParseError::Suffix);
    check("1e", ParseError::Suffix);
    check("1ei", ParseError::Suffix);
    check("1é", ParseError::Format);
    check("Pi", ParseError::Number);
    check("-Ei", ParseError::Number);
    assert_eq!(Quantity::parse_or_zero("1 Gi"), Quantity::ZERO);
}

#[test]
fn sums_keep_the_format_of_the_first_term() {
    let check = |terms: &[&str], expect: &str| {
        let mut sum = Quantity::ZERO;
        terms.iter().for_each(|term| sum += &quantity(term));
        assert_eq!(sum.to_string(), expect, "{terms:?}");
    };
    check(&[], "0");
    check(&["+1"], "1");
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
fn differences_keep_the_format_of_the_first_term() {
    let check = |a: &str, b: &str, expect: &str| {
        let mut difference = quantity(a);
        difference -= &quantity(b);
        assert_eq!(difference.to_string(), expect, "{a} - {b}");
    };
    check("1", "400m", "600m");
    check("1Gi", "512Mi", "512Mi");
    check("0", "1Gi", "-1Gi");
    check("1Gi", "1G", "73741824");
    check("+1", "0", "1");
}

#[test]
fn products_and_whole_numbers() {
    let check = |text: &str, factor: i64, product: &str, whole: i64| {
        let mut amount = quantity(text);
        amount *= factor;
        assert_eq!((amount.to_string().as_str(), amount.value()), (product, whole), "{text} * {factor}");
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
fn thousandths_are_rounded_up() {
    let check = |text: &str, milli: i64| assert_eq!(quantity(text).milli_value(), milli, "{text}");
    check("1", 1000);
    check("500m", 500);
    check("0.5", 500);
    check(".5", 500);
    check("1.5", 1500);
    check("2k", 2_000_000);
    check("1Ki", 1_024_000);
    check("1e3", 1_000_000);
    check("1E3", 1_000_000);
    check("100n", 1);
    check("0", 0);
    check("1.5Gi", 1_610_612_736_000);
    check("-1", -1000);
    check("1e99", i64::MAX);
}

#[test]
fn quotients_are_rounded_up() {
    let check = |amount: &str, divisor: &str, expect: i64| {
        assert_eq!(quantity(amount).ceil_div(&quantity(divisor)), expect, "{amount} / {divisor}");
    };
    check("2Gi", "1Mi", 2048);
    check("2Gi", "1", 2_147_483_648);
    check("1500m", "1", 2);
    check("1", "1m", 1000);
    check("2Gi", "0", 0);
    check("2Gi", "-1", 0);
    check("1e100", "1", i64::MAX);
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
    assert!(quantity("1n").is_positive() && quantity("-1n").is_negative() && quantity("0Gi").is_zero());
}

proptest! {
    #[test]
    fn no_text_panics(text in "[-+]?[0-9.]{0,45}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,11}|.{0,40}") {
        if let Ok(mut amount) = Quantity::parse(&text) {
            let _ = (amount.to_string(), amount.value(), amount.milli_value(), amount.as_f64());
            let _ = (amount.ceil_div(&quantity("7m")), quantity("7m").ceil_div(&amount));
            amount += &quantity("1Gi");
            amount *= i64::MIN;
            amount -= &quantity("1e30");
            let _ = amount.to_string();
        }
    }

    #[test]
    fn canonical_text_parses_to_the_same_amount(coefficient in any::<i32>(), suffix in "(m|k|M|Ki|Mi|Gi|)") {
        let amount = quantity(&format!("{coefficient}{suffix}"));
        prop_assert_eq!(&quantity(&amount.to_string()), &amount);
    }

    #[test]
    fn canonical_text_is_a_fixed_point(
        text in "[-+]?[0-9]{0,20}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|e3|e-3)?",
    ) {
        if let Ok(quantity) = Quantity::parse(&text) {
            let once = quantity.to_string();
            prop_assert_eq!(Quantity::parse(&once).map(|again| again.to_string()), Ok(once));
        }
    }
}
