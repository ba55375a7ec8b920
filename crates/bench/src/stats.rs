//! Median and spread of a few measurements.

/// The middle value; the mean of the two in the middle for an even number.
///
/// # Panics
/// If there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "something was measured");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

/// Median absolute deviation: half of the values are no further from the median.
///
/// # Panics
/// If there are none.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median(&distances)
}

/// Robust standard deviations from the median, and the part of it, that a value must be away to be an outlier.
const OUTLIER_DEVIATIONS: f64 = 3.0 * 1.4826;
const OUTLIER_PART: f64 = 0.05;

/// Whether `value` is far from the others.
pub(crate) fn is_outlier(value: f64, values: &[f64]) -> bool {
    let middle = median(values);
    let far = (value - middle).abs();
    values.len() >= 3 && far > deviation(values) * OUTLIER_DEVIATIONS && far > middle.abs() * OUTLIER_PART
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_slow_run_moves_neither_median_nor_spread() {
        assert_eq!((median(&[2.0]), deviation(&[2.0])), (2.0, 0.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[1.0, 1.1, 90.0]), 1.1);
        assert!((deviation(&[1.0, 1.1, 90.0]) - 0.1).abs() < 1e-9);
    }

    /// The third read of the published zstd row, 15, 13, 28.
    #[test]
    fn the_published_outlier_is_one() {
        let reads = [15.0, 13.0, 28.0];
        assert_eq!(reads.map(|read| is_outlier(read, &reads)), [false, false, true]);
        assert!(![22.0, 21.0, 23.0].iter().any(|run| is_outlier(*run, &[22.0, 21.0, 23.0])));
        assert!(!is_outlier(1.01, &[1.0, 1.0, 1.01]), "a hundredth is nothing");
    }

    proptest! {
        #[test]
        fn the_median_lies_within_the_values(values in proptest::collection::vec(0.0..1e6, 1..40)) {
            let middle = median(&values);
            prop_assert!(values.iter().any(|v| *v <= middle) && values.iter().any(|v| *v >= middle));
            let below = values.iter().filter(|v| **v < middle).count();
            prop_assert!(below <= values.len() / 2);
            prop_assert!(deviation(&values) >= 0.0);
        }
    }
}
