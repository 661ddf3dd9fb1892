//! The plots of a report: how many of the sampled entries fall into each class of size and of age,
//! and how they stand.
//!
//! Classes are powers of two, and so is what the eye has to compare: counts stand on a logarithmic
//! axis, or one that differs would not be seen beside ten thousand that do not.

use crate::command::report::axis::{Axis, bytes_label, time_label};
use crate::units::show_count;
use driftless_audit::{Sampled, Standing};
use driftless_model::{Kind, Stamp};
use plotters::prelude::*;
use std::error::Error;

const WIDTH: u32 = 860;
const HEIGHT: u32 = 300;
/// Colours that people tell apart whatever their eyes (Okabe and Ito, "Color universal design",
/// 2008).
const SERIES: [(&str, RGBColor); 3] = [
    ("sampled", RGBColor(153, 170, 187)),
    ("recent", RGBColor(230, 159, 0)),
    ("differ", RGBColor(213, 94, 0)),
];
/// Where the bars begin: a little below a count of one.
const FLOOR: f64 = 0.6;

/// The axis goes so far beyond the highest bar that the legend has room.
const HEADROOM: f64 = 20.0;

const KIB: f64 = 1024.0;
/// Sizes with a mark.
const SIZES: [f64; 9] = [
    32.0,
    KIB,
    32.0 * KIB,
    KIB * KIB,
    32.0 * KIB * KIB,
    KIB * KIB * KIB,
    32.0 * KIB * KIB * KIB,
    KIB * KIB * KIB * KIB,
    32.0 * KIB * KIB * KIB * KIB,
];
const DAY: f64 = 86_400.0;
/// Ages with a mark, in seconds: a minute, an hour, a day, and so on to twenty years.
const AGES: [f64; 8] = [
    1.0,
    60.0,
    3600.0,
    DAY,
    30.0 * DAY,
    YEAR,
    5.0 * YEAR,
    20.0 * YEAR,
];
const YEAR: f64 = 365.25 * DAY;

/// A class: how many were sampled, are recent, differ.
type Class = [u64; 3];

/// The plot of regular files by size, as SVG.
pub fn by_size(census: &[Sampled]) -> String {
    let files = census.iter().filter(|entry| entry.kind == Kind::File);
    let classes = classes(files.map(|entry| (class_of(entry.size), entry.standing)));
    let axis = axis_of_classes(classes.len(), &SIZES, |at| bytes_label(value_at(at)));
    plot(&classes, "size of regular files", &axis)
}

/// The plot of all entries by age, `now` being the beginning of the audit, as SVG.
pub fn by_age(census: &[Sampled], now: Stamp) -> String {
    let age = |entry: &Sampled| u64::try_from(now.sec.saturating_sub(entry.mtime.sec)).unwrap_or(0);
    let classes = classes(
        census
            .iter()
            .map(|entry| (class_of(age(entry)), entry.standing)),
    );
    let axis = axis_of_classes(classes.len(), &AGES, |at| age_label(value_at(at)));
    plot(&classes, "time since the last modification", &axis)
}

/// 0 for 0, else one more than the binary logarithm.
fn class_of(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

/// Returns the place of a number on the axis of the classes, where each class is as wide as one.
fn place_of(number: f64) -> f64 {
    number.log2() + 1.0
}

/// Returns the number at a place on the axis of the classes.
fn value_at(place: f64) -> f64 {
    if place < 1.0 {
        0.0
    } else {
        (place - 1.0).exp2().round()
    }
}

/// Returns the axis of so many classes, with marks at zero and at round numbers.
fn axis_of_classes(classes: usize, round: &[f64], label: fn(f64) -> String) -> Axis {
    let top = classes.max(1) as f64;
    let places = round.iter().map(|number| place_of(*number));
    Axis {
        floor: 0.0,
        top,
        marks: std::iter::once(0.0)
            .chain(places.filter(|place| *place <= top))
            .collect(),
        label,
    }
}

/// Returns the axis of counts up to `highest`, which is logarithmic, with marks at powers of ten.
fn axis_of_counts(highest: u64) -> Axis {
    let top = (highest.max(1) as f64 * HEADROOM).log10();
    Axis {
        floor: FLOOR.log10(),
        top,
        marks: (0..=top as u32).map(f64::from).collect(),
        label: |power| show_count(10f64.powf(power).round() as u64),
    }
}

fn classes(entries: impl Iterator<Item = (usize, Standing)>) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    for (class, standing) in entries {
        if classes.len() <= class {
            classes.resize(class + 1, [0; 3]);
        }
        classes[class][0] += 1;
        match standing {
            Standing::Same => {}
            Standing::Recent => classes[class][1] += 1,
            Standing::Drift => classes[class][2] += 1,
        }
    }
    classes
}

fn plot(classes: &[Class], title: &str, axis: &Axis) -> String {
    let mut svg = String::new();
    // Nothing is written but to memory, so this fails only if the plot cannot be laid out; then
    // there is none.
    if draw(&mut svg, classes, title, axis).is_err() {
        String::new()
    } else {
        svg
    }
}

fn draw(
    svg: &mut String,
    classes: &[Class],
    title: &str,
    axis: &Axis,
) -> Result<(), Box<dyn Error>> {
    let highest = classes.iter().map(|class| class[0]).max();
    let counts = axis_of_counts(highest.unwrap_or(0));
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .margin_right(40)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(axis.clone(), counts.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(axis.marks.len())
        .y_labels(counts.marks.len())
        .x_label_formatter(&|place| (axis.label)(*place))
        .y_label_formatter(&|count| (counts.label)(*count))
        .x_desc(title)
        .y_desc("entries")
        .draw()?;
    for (series, (name, colour)) in SERIES.iter().enumerate() {
        let margin = 0.05 + 0.15 * series as f64;
        let counted = classes
            .iter()
            .enumerate()
            .filter(|(_, class)| class[series] > 0);
        let bar = |(at, class): (usize, &Class)| {
            let corners = [
                (at as f64 + margin, counts.floor),
                ((at + 1) as f64 - margin, (class[series] as f64).log10()),
            ];
            Rectangle::new(corners, colour.filled())
        };
        let legend = |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled());
        chart
            .draw_series(counted.map(bar))?
            .label(*name)
            .legend(legend);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    area.present()?;
    Ok(())
}

/// Formats an age: in years from one year on.
fn age_label(seconds: f64) -> String {
    match seconds {
        ..1.0 => "0 s".into(),
        ..YEAR => time_label(seconds),
        _ => format!("{:.0} y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        let cases = [
            (0, 0),
            (1, 1),
            (2, 2),
            (3, 2),
            (4, 3),
            (1023, 10),
            (1024, 11),
            (u64::MAX, 64),
        ];
        for (number, class) in cases {
            assert_eq!(class_of(number), class, "{number}");
        }
        assert_eq!([32.0, 1024.0].map(place_of), [6.0, 11.0]);
    }

    #[test]
    fn marks_stand_at_round_values() {
        let labels = |axis: Axis| {
            let labels = axis.marks.iter().map(|mark| (axis.label)(*mark));
            labels.collect::<Vec<_>>()
        };
        let sizes = axis_of_classes(22, &SIZES, |at| bytes_label(value_at(at)));
        assert_eq!(labels(sizes), ["0 B", "32 B", "1 KiB", "32 KiB", "1 MiB"]);
        let ages = axis_of_classes(31, &AGES, |at| age_label(value_at(at)));
        assert_eq!(
            labels(ages),
            [
                "0 s", "1 s", "1 min", "1 h", "1 d", "30 d", "1 y", "5 y", "20 y"
            ]
        );
        assert_eq!(
            labels(axis_of_counts(900)),
            ["1", "10", "100", "1,000", "10,000"]
        );
    }

    #[test]
    fn each_bar_is_as_wide_as_its_standing() {
        let entries = [
            (1, Standing::Same),
            (1, Standing::Drift),
            (3, Standing::Recent),
        ];
        assert_eq!(
            classes(entries.into_iter()),
            [[0, 0, 0], [2, 0, 1], [0, 0, 0], [1, 1, 0]]
        );
        let axis = axis_of_classes(4, &SIZES, bytes_label);
        assert!(
            plot(&classes(entries.into_iter()), "size", &axis)
                .matches("<rect")
                .count()
                >= 4
        );
        assert!(plot(&[], "size", &axis).starts_with("<svg"));
    }
}
