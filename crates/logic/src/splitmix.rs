//! SplitMix64, a small generator of pseudo-random numbers: enough for names and simulations, not for secrets.

/// Advances the state and returns the next number.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        let mut state = 1_234_567;
        assert_eq!(super::next(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(super::next(&mut state), 3_203_168_211_198_807_973);
    }
}
