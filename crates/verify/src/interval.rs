//! What a sample proves: how many entries are enough, and how many of all may differ at most.
//!
//! Everything here is the one-sided exact interval of Clopper and Pearson ("The use of confidence
//! or fiducial limits illustrated in the case of the binomial", Biometrika 26, 1934): the largest
//! fraction of mismatches in the trees at which a sample would have so few mismatches with a
//! probability of one minus the confidence. It treats draws as independent, which is on the safe
//! side for a sample without replacement from a finite tree.

/// Steps of the bisection: more than an `f64` has bits for a fraction.
const BISECTIONS: u32 = 200;
/// A term smaller than the sum so far by this factor changes no digit of the sum.
const NEGLIGIBLE: f64 = 1e-18;

/// How many entries must be sampled so that, if none of them mismatches, at most `fraction` of all
/// entries do, with `confidence`: ln(1 - confidence) / ln(1 - fraction), rounded up. Both lie
/// strictly between 0 and 1.
pub fn samples_needed(confidence: f64, fraction: f64) -> u64 {
    debug_assert!(
        is_share(confidence) && is_share(fraction),
        "checked at the edge"
    );
    ((-confidence).ln_1p() / (-fraction).ln_1p()).ceil() as u64
}

/// Whether a number lies strictly between 0 and 1.
pub fn is_share(number: f64) -> bool {
    number > 0.0 && number < 1.0
}

/// The largest fraction of all entries that may mismatch, with `confidence`, if `mismatches` of
/// `samples` entries do. `confidence` lies strictly between 0 and 1.
pub fn upper_bound(mismatches: u64, samples: u64, confidence: f64) -> f64 {
    debug_assert!(
        mismatches <= samples && is_share(confidence),
        "checked at the edge"
    );
    if mismatches >= samples {
        return 1.0;
    }
    let doubt = (-confidence).ln_1p();
    if mismatches == 0 {
        return -(doubt / samples as f64).exp_m1();
    }
    let ways = ln_ways(samples, mismatches);
    let (mut low, mut high) = (mismatches as f64 / samples as f64, 1.0);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        let seen = ways + ln_at_most(mismatches, samples, middle);
        *if seen > doubt { &mut low } else { &mut high } = middle;
    }
    high
}

/// The logarithm of the number of ways to choose `few` of `all`.
fn ln_ways(all: u64, few: u64) -> f64 {
    let few = few.min(all - few);
    (1..=few)
        .map(|i| ((all - few + i) as f64 / i as f64).ln())
        .sum()
}

/// The logarithm of the binomial probability of at most `few` mismatches among `all`, without the
/// factor [`ln_ways`] of its last term. The terms are added from the last one down; each is smaller
/// than the one before it as long as `fraction` is above `few` / `all`.
fn ln_at_most(few: u64, all: u64, fraction: f64) -> f64 {
    let odds = (1.0 - fraction) / fraction;
    let (mut term, mut sum) = (1.0, 1.0);
    for i in (1..=few).rev() {
        term *= i as f64 / (all - i + 1) as f64 * odds;
        sum += term;
        if term < sum * NEGLIGIBLE {
            break;
        }
    }
    f64::ln(sum) + few as f64 * fraction.ln() + (all - few) as f64 * (-fraction).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_samples_bound_so_small_a_fraction() {
        // Confidence, fraction, samples: ln(1 - c) / ln(1 - p).
        let cases = [
            (0.95, 1e-2, 299),
            (0.99, 1e-2, 459),
            (0.95, 1e-3, 2_995),
            (0.99, 1e-3, 4_603),
            (0.95, 1e-4, 29_956),
            (0.99, 1e-4, 46_050),
            (0.95, 1e-5, 299_572),
            (0.99, 1e-5, 460_515),
            (0.95, 1e-6, 2_995_731),
            (0.99, 1e-6, 4_605_168),
        ];
        for (confidence, fraction, samples) in cases {
            assert_eq!(
                samples_needed(confidence, fraction),
                samples,
                "{confidence} {fraction}"
            );
            assert!(upper_bound(0, samples, confidence) <= fraction);
            assert!(upper_bound(0, samples - 1, confidence) > fraction);
        }
        assert_eq!(samples_needed(0.95, 1e-300), u64::MAX);
        assert_eq!(samples_needed(0.5, 0.999), 1);
    }

    #[test]
    fn with_mismatches_a_bound_takes_more_samples() {
        // The smallest n for which the sum of the first binomial terms is at most 1 - c, summed
        // with fifty decimal digits.
        let cases = [
            (0.95, 1, 47_437),
            (0.95, 2, 62_956),
            (0.95, 3, 77_535),
            (0.99, 1, 66_381),
            (0.99, 2, 84_057),
            (0.99, 3, 100_448),
        ];
        for (confidence, mismatches, samples) in cases {
            assert!(
                upper_bound(mismatches, samples, confidence) <= 1e-4,
                "{mismatches} {samples}"
            );
            assert!(
                upper_bound(mismatches, samples - 1, confidence) > 1e-4,
                "{mismatches} {samples}"
            );
        }
    }

    #[test]
    fn small_samples_have_the_bounds_that_can_be_worked_out_by_hand() {
        let close = |got: f64, expected: f64| (got - expected).abs() < 1e-12;
        assert!(close(upper_bound(0, 1, 0.95), 0.95));
        assert!(close(upper_bound(0, 2, 0.75), 0.5));
        // One of two: 1 - p^2 = 1 - c.
        assert!(close(upper_bound(1, 2, 0.81), 0.9));
        // Two of three: 1 - p^3 = 1 - c.
        assert!(close(upper_bound(2, 3, 0.729), 0.9));
        assert_eq!(upper_bound(3, 3, 0.95), 1.0);
    }

    #[test]
    fn a_bound_of_many_mismatches_lies_where_the_normal_distribution_has_it() {
        let (mismatches, samples) = (100_000, 1_000_000_u64);
        let expected = 0.1 + 1.644_853_6 * (0.1_f64 * 0.9 / samples as f64).sqrt();
        assert!((upper_bound(mismatches, samples, 0.95) - expected).abs() < 1e-5);
    }
}
