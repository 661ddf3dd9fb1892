//! Axes of the plots of reports and audits: marks at round values of their unit, so that a reader
//! can compare two plots without a calculation.

use crate::units::{show_bytes, show_count};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use std::ops::Range;

/// Most marks on one axis.
const MARKS_MAX: f64 = 6.0;
/// The shortest time on a logarithmic axis, in seconds.
pub const SHORTEST: f64 = 0.001;

/// Room above the highest value, as a factor of the height.
const HEADROOM: f64 = 1.15;

/// Steps between the marks of an axis of times, in seconds.
const TIME_STEPS: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0,
    43_200.0,
];
/// Marks of a logarithmic axis of times, in seconds.
const LOG_MARKS: [f64; 10] = [
    0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36_000.0, 360_000.0,
];

/// One axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The lowest value.
    pub floor: f64,
    /// The highest value.
    pub top: f64,
    /// The values that have a mark and a label.
    pub marks: Vec<f64>,
    /// Formats the label of a mark.
    pub label: fn(f64) -> String,
}

impl Axis {
    /// Returns an axis of bytes up to `highest`, with marks at binary multiples.
    pub fn bytes(highest: f64) -> Axis {
        let unit = 1024f64.powf((highest.max(1.0).ln() / 1024f64.ln()).floor());
        Axis::linear(highest, decimal_step(highest / unit) * unit, bytes_label)
    }

    /// Returns an axis of whole numbers up to `highest`.
    pub fn counts(highest: f64) -> Axis {
        Axis::linear(highest, decimal_step(highest).max(1.0), |count| {
            show_count(count as u64)
        })
    }

    /// Returns an axis of times up to `highest` seconds.
    pub fn times(highest: f64) -> Axis {
        let days = || (highest / MARKS_MAX / 86_400.0).ceil() * 86_400.0;
        let fits = |step: &f64| highest / step <= MARKS_MAX;
        let step = TIME_STEPS.into_iter().find(fits).unwrap_or_else(days);
        Axis::linear(highest, step, time_label)
    }

    /// Returns an axis for decimal logarithms of times, up to that of `highest` seconds.
    pub fn logarithms_of_times(highest: f64) -> Axis {
        let next = LOG_MARKS.into_iter().find(|mark| *mark > highest);
        let top = next.unwrap_or(highest * 2.0);
        Axis {
            floor: SHORTEST.log10(),
            top: top.log10(),
            marks: LOG_MARKS
                .into_iter()
                .filter(|mark| *mark <= top)
                .map(f64::log10)
                .collect(),
            label: |power| time_label(10f64.powf(power)),
        }
    }

    fn linear(highest: f64, step: f64, label: fn(f64) -> String) -> Axis {
        let top = (highest * HEADROOM).max(step);
        Axis {
            floor: 0.0,
            top,
            marks: (0..=(top / step) as u32)
                .map(|at| f64::from(at) * step)
                .collect(),
            label,
        }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.floor..self.top
    }
}

/// Formats bytes without digits that are zero: `1 MiB`, `1.50 MiB`.
pub fn bytes_label(bytes: f64) -> String {
    show_bytes(bytes as u64).replace(".00 ", " ")
}

/// Formats a time in its two largest units: `1 h 30 min`; below a second, in milliseconds.
pub fn time_label(seconds: f64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let milliseconds = (seconds.max(0.0) * 1000.0).round() as u64;
    let whole = milliseconds / 1000;
    let Some(at) = UNITS.iter().position(|(unit, _)| whole >= *unit) else {
        return format!("{milliseconds} ms");
    };
    let (unit, word) = UNITS[at];
    let first = format!("{} {word}", whole / unit);
    let next = UNITS.get(at + 1).filter(|(next, _)| whole % unit >= *next);
    next.map_or(first.clone(), |(next, word)| {
        format!("{first} {} {word}", whole % unit / next)
    })
}

/// Returns the smallest step of 1, 2 or 5 times a power of ten that needs at most [`MARKS_MAX`]
/// marks up to `highest`.
fn decimal_step(highest: f64) -> f64 {
    let least = (highest / MARKS_MAX).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<String> {
        axis.marks.iter().map(|mark| (axis.label)(*mark)).collect()
    }

    #[test]
    fn marks_stand_at_round_values() {
        let cases = [
            (Axis::counts(3.0), vec!["0", "1", "2", "3"]),
            (Axis::counts(0.0), vec!["0", "1"]),
            (Axis::counts(1234.0), vec!["0", "500", "1,000"]),
            (Axis::times(0.0), vec!["0 ms", "1 s"]),
            (
                Axis::times(600.0),
                vec!["0 ms", "2 min", "4 min", "6 min", "8 min", "10 min"],
            ),
            (
                Axis::times(6.0 * 3600.0),
                vec!["0 ms", "1 h", "2 h", "3 h", "4 h", "5 h", "6 h"],
            ),
            (
                Axis::bytes(3.0 * 1024.0 * 1024.0 * 1024.0),
                vec![
                    "0 B", "512 MiB", "1 GiB", "1.50 GiB", "2 GiB", "2.50 GiB", "3 GiB",
                ],
            ),
            (
                Axis::bytes(800_000_000.0),
                vec!["0 B", "200 MiB", "400 MiB", "600 MiB", "800 MiB"],
            ),
        ];
        for (axis, wanted) in cases {
            assert_eq!(labels(&axis), wanted);
        }
    }

    #[test]
    fn logarithmic_marks_differ_from_each_other() {
        for highest in [0.001, 0.5, 59.0, 400.0, 90_000.0, 1e7] {
            let axis = Axis::logarithms_of_times(highest);
            let mut told = labels(&axis);
            let count = told.len();
            told.dedup();
            assert_eq!(told.len(), count, "{told:?}");
            assert!(axis.top >= highest.log10() && count >= 2, "{highest}");
        }
    }
}
