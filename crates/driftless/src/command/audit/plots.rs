//! The plots of a report: how many of the sampled entries fall into each class of size and of age,
//! and how they stand.
//!
//! Classes are powers of two, and so is what the eye has to compare: counts stand on a logarithmic
//! axis, or one that differs would not be seen beside ten thousand that do not.

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

/// A class: how many were sampled, are recent, differ.
type Class = [u64; 3];

/// The plot of regular files by size, as SVG.
pub fn by_size(census: &[Sampled]) -> String {
    let files = census.iter().filter(|entry| entry.kind == Kind::File);
    let classes = classes(files.map(|entry| (class_of(entry.size), entry.standing)));
    plot(&classes, "size of regular files", &size_label)
}

/// The plot of all entries by age, `now` being the beginning of the audit, as SVG.
pub fn by_age(census: &[Sampled], now: Stamp) -> String {
    let age = |entry: &Sampled| u64::try_from(now.sec.saturating_sub(entry.mtime.sec)).unwrap_or(0);
    let classes = classes(
        census
            .iter()
            .map(|entry| (class_of(age(entry)), entry.standing)),
    );
    plot(&classes, "time since the last modification", &age_label)
}

/// 0 for 0, else one more than the binary logarithm.
fn class_of(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

/// The smallest number of a class.
fn class_start(class: usize) -> u64 {
    if class == 0 { 0 } else { 1 << (class - 1) }
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

fn plot(classes: &[Class], title: &str, label: &dyn Fn(usize) -> String) -> String {
    let mut svg = String::new();
    // Nothing is written but to memory, so this fails only if the plot cannot be laid out; then
    // there is none.
    if draw(&mut svg, classes, title, label).is_err() {
        String::new()
    } else {
        svg
    }
}

fn draw(
    svg: &mut String,
    classes: &[Class],
    title: &str,
    label: &dyn Fn(usize) -> String,
) -> Result<(), Box<dyn Error>> {
    let highest = classes
        .iter()
        .map(|class| class[0])
        .max()
        .unwrap_or(0)
        .max(1) as f64
        * HEADROOM;
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .margin_right(40)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(
            0.0..classes.len().max(1) as f64,
            (FLOOR..highest).log_scale(),
        )?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(12)
        .y_labels(6)
        .x_label_formatter(&|class| label(*class as usize))
        .y_label_formatter(&|count| format!("{count:.0}"))
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
                (at as f64 + margin, FLOOR),
                ((at + 1) as f64 - margin, class[series] as f64),
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

fn size_label(class: usize) -> String {
    crate::units::show_bytes(class_start(class))
}

/// The beginning of a class of ages, in the largest unit that it holds once.
fn age_label(class: usize) -> String {
    const UNITS: [(u64, &str); 4] = [(31_557_600, "y"), (86_400, "d"), (3600, "h"), (60, "min")];
    let seconds = class_start(class);
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    unit.map_or_else(
        || format!("{seconds} s"),
        |(length, name)| format!("{} {name}", seconds / length),
    )
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
            assert!(class_start(class) <= number);
        }
        assert_eq!(size_label(11), "1.00 KiB");
        assert_eq!(
            [0, 1, 7, 13, 18, 26].map(age_label),
            ["0 s", "1 s", "1 min", "1 h", "1 d", "1 y"]
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
        assert!(
            plot(&classes(entries.into_iter()), "size", &size_label)
                .matches("<rect")
                .count()
                >= 4
        );
        assert!(plot(&[], "size", &size_label).starts_with("<svg"));
    }
}
