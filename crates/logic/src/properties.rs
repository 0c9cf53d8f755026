//! How often property tests try.

use proptest::test_runner::Config;

/// As often as `PROPTEST_CASES` says, or else as is usual for a property that costs this much.
#[expect(clippy::disallowed_methods, reason = "proptest's own switch, and no decision hangs on it")]
pub(crate) fn tries(usual: u32) -> Config {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default(),
        None => Config::with_cases(usual),
    }
}
