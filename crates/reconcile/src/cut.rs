//! Cutting work in two when somebody is idle.

use std::ops::Range;

/// Takes the second half of `range` away, cut at a multiple of `grain`; `None` when what is left is too little to share.
pub fn split_half(range: &mut Range<u64>, grain: u64) -> Option<Range<u64>> {
    let middle = (range.start + (range.end - range.start) / 2).div_ceil(grain) * grain;
    if middle <= range.start || middle >= range.end {
        return None;
    }
    let given = middle..range.end;
    range.end = middle;
    Some(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_meet_at_the_grain_and_lose_nothing() {
        for (range, grain, expected) in [
            (0..100, 10, Some(50..100)),
            (3..100, 16, Some(64..100)),
            (0..1, 1, None),
            (0..10, 16, None),
            (5..6, 1, None),
            (0..2, 1, Some(1..2)),
        ] {
            let mut kept = range.clone();
            let given = split_half(&mut kept, grain);
            assert_eq!(given, expected, "{range:?} by {grain}");
            assert_eq!(given.map_or(kept.end, |g| if g.start == kept.end { g.end } else { 0 }), range.end);
        }
    }
}
