//! Percentiles of samples.

/// Returns the smallest sample that at least this share of all samples does not exceed; None without samples.
pub(super) fn percentile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (samples, share, expect) in [
            (&[][..], 0.5, None),
            (&[7.0], 0.5, Some(7.0)),
            (&[7.0], 0.99, Some(7.0)),
            (&[1.0, 3.0, 2.0], 0.5, Some(2.0)),
            (&[1.0, 2.0], 0.5, Some(1.0)),
            (&hundred, 0.5, Some(50.0)),
            (&hundred, 0.99, Some(99.0)),
            (&hundred, 1.0, Some(100.0)),
            (&hundred, 0.0, Some(1.0)),
        ] {
            assert_eq!(percentile(samples, share), expect, "{samples:?} {share}");
        }
    }
}
