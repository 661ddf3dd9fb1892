//! Content that a node holds, in the forms of messages.

use driftless_planner::{RANGES_MAX, UnitRange, UnitSet};
use driftless_store::{Catalogue, SetReceiver, UNIT_BYTES};

/// Bytes of the window at least, so that a unit on its way to the disk is in memory.
pub(crate) const WINDOW_BYTES_MIN: u64 = 16 << 20;

/// Returns the units that may wait for the disk: half of the window.
pub(crate) fn queued_units(window_bytes: u64) -> usize {
    let units = window_bytes / 2 / u64::from(UNIT_BYTES);
    usize::try_from(units.max(1)).unwrap_or(usize::MAX)
}

/// Returns numbers as ranges, each without its end.
pub(crate) fn ranges_of(numbers: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end == *number => *end = end.saturating_add(1),
            _ => ranges.push((*number, number.saturating_add(1))),
        }
    }
    ranges
}

/// Returns the units of an unfinished copy.
pub(crate) fn present_units(receiver: &SetReceiver) -> UnitSet {
    let lacking = receiver.present().lacking(RANGES_MAX);
    // Units behind the last range that was returned are unknown, and arrive again.
    let known = match lacking.last() {
        Some(last) if lacking.len() >= RANGES_MAX => last.end,
        _ => receiver.present().units(),
    };
    let ranges = lacking.iter().map(|range| UnitRange {
        start: range.start,
        end: range.end,
    });
    let lacking = UnitSet::try_from(ranges.collect::<Vec<_>>()).unwrap_or_default();
    UnitSet::first(known).subtract(&lacking)
}

/// Returns the bytes of units.
pub(crate) fn bytes_of(set: &UnitSet, catalogue: &Catalogue) -> u64 {
    let units = set.ranges().flat_map(|range| range.start..range.end);
    let bytes = units.map(|unit| u64::from(catalogue.unit_bytes(unit)));
    bytes.fold(0, u64::saturating_add)
}

/// Returns a set within the bound of a message.
pub(crate) fn bounded_set(mut set: UnitSet) -> UnitSet {
    set.truncate();
    set
}
