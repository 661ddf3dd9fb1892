//! Cutting work in two when somebody is idle.

use crate::queue::Queue;
use std::ops::Range;

/// Takes the second half of `range` away, cut at a multiple of `grain`; `None` when what is left is
/// too little to share.
pub fn split_half(range: &mut Range<u64>, grain: u64) -> Option<Range<u64>> {
    let middle = (range.start + (range.end - range.start) / 2).div_ceil(grain) * grain;
    if middle <= range.start || middle >= range.end {
        return None;
    }
    let given = middle..range.end;
    range.end = middle;
    Some(given)
}

impl<T> Queue<T> {
    /// Gives away what a thread that works through `range` need not do itself, as the item that
    /// `task` makes of it: all of it if more than `long` items wait, so that a walk goes down
    /// before it goes on; half of it, or what there is, if somebody is idle.
    pub fn spare(&self, range: &mut Range<u64>, long: usize, task: impl FnOnce(Range<u64>) -> T) {
        if range.is_empty() {
            // The last name: nothing to share.
        } else if self.waiting() > long {
            self.push(task(std::mem::replace(range, 0..0)));
        } else if self.hungry() {
            self.push_last(task(
                split_half(range, 1).unwrap_or_else(|| std::mem::replace(range, 0..0)),
            ));
        }
    }
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
            assert_eq!(
                given.map_or(kept.end, |g| if g.start == kept.end { g.end } else { 0 }),
                range.end
            );
        }
    }
}
