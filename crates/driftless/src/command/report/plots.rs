//! The plots of a report, over the hours of its time, as SVG.

use super::axis::{Axis, SHORTEST};
use super::facts::{Facts, Hour};
use driftless_state::mirror::BacklogRow;
use plotters::prelude::*;
use std::error::Error;

const WIDTH: u32 = 860;
const HEIGHT: u32 = 240;
/// Colours that people tell apart whatever their eyes (Okabe and Ito, "Color universal design",
/// 2008).
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
];
/// Where stretches are not known, lines are broken: hours without one.
const GAP_HOURS: f64 = 0.25;

/// What is drawn: its name, and points by hour.
type Series = (&'static str, Vec<(f64, f64)>);

/// How it is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A bar for each hour.
    Bars,
    /// A point for each hour, joined by lines.
    Points,
    /// Lines with breaks.
    Lines,
}

/// How long changes took, by the hour.
pub fn lag(facts: &Facts) -> String {
    let names = ["p50", "p95", "p99", "max"];
    let series = names.into_iter().enumerate().map(|(at, name)| {
        let measured = facts.hours.iter().filter(|hour| hour.row.files > 0);
        let point = |hour: &Hour| {
            let span = hour.spans()[at].as_secs_f64();
            (middle(facts, hour), span.max(SHORTEST).log10())
        };
        (name, measured.map(point).collect())
    });
    let series: Vec<Series> = series.collect();
    let longest = 10f64.powf(highest(&series).unwrap_or(SHORTEST.log10()));
    plot(
        facts,
        &series,
        Form::Points,
        &Axis::logarithms_of_times(longest),
    )
}

/// Bytes by the hour.
pub fn volume(facts: &Facts) -> String {
    let series = [("copied", by_hour(facts, |hour| hour.row.bytes))];
    let most = highest(&series).unwrap_or_default();
    plot(facts, &series, Form::Bars, &Axis::bytes(most))
}

/// Paths that were left.
pub fn backlog(facts: &Facts) -> String {
    let left = by_stretch(facts, |row| row.left as f64);
    let quarantined = by_stretch(facts, |row| row.quarantined as f64);
    let series = [("left", left), ("in quarantine", quarantined)];
    let most = highest(&series).unwrap_or_default();
    plot(facts, &series, Form::Lines, &Axis::counts(most))
}

/// How far behind the replica was.
pub fn behind(facts: &Facts) -> String {
    let series = [("behind", by_stretch(facts, |row| row.behind.as_secs_f64()))];
    let most = highest(&series).unwrap_or_default();
    plot(facts, &series, Form::Lines, &Axis::times(most))
}

/// Problems by the hour.
pub fn problems(facts: &Facts) -> String {
    let series = [("problems", by_hour(facts, |hour| hour.row.problems))];
    let most = highest(&series).unwrap_or_default();
    plot(facts, &series, Form::Bars, &Axis::counts(most))
}

/// Returns the highest value of all series, or `None` if they have no points.
fn highest(series: &[Series]) -> Option<f64> {
    let values = series.iter().flat_map(|(_, points)| points);
    values.map(|(_, value)| *value).reduce(f64::max)
}

fn by_hour(facts: &Facts, value: impl Fn(&Hour) -> u64) -> Vec<(f64, f64)> {
    let hours = facts.hours.iter();
    hours
        .map(|hour| (middle(facts, hour), value(hour) as f64))
        .collect()
}

/// Hours from the beginning to the middle of an hour.
fn middle(facts: &Facts, hour: &Hour) -> f64 {
    (hour.row.hour - facts.time.start / 3600) as f64 + 0.5
}

fn by_stretch(facts: &Facts, value: impl Fn(&BacklogRow) -> f64) -> Vec<(f64, f64)> {
    let length = BacklogRow::LENGTH.as_secs();
    let at = |row: &BacklogRow| (row.stretch * length - facts.time.start) as f64 / 3600.0;
    facts
        .backlog
        .iter()
        .map(|row| (at(row), value(row)))
        .collect()
}

fn plot(facts: &Facts, series: &[Series], form: Form, axis: &Axis) -> String {
    if highest(series).is_none() {
        return "<p>Nothing was measured.</p>".into();
    }
    let mut svg = String::new();
    // Nothing is written but to memory, so this fails only if the plot cannot be laid out; then
    // there is none.
    match draw(&mut svg, facts, series, (form, axis)) {
        Ok(()) => svg,
        Err(_) => String::new(),
    }
}

fn draw(
    svg: &mut String,
    facts: &Facts,
    series: &[Series],
    (form, axis): (Form, &Axis),
) -> Result<(), Box<dyn Error>> {
    let length = (facts.time.end - facts.time.start) as f64 / 3600.0;
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .margin_right(40)
        .x_label_area_size(30)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..length, axis.clone())?;
    let start = facts.time.start;
    let clock = |hours: &f64| {
        let moment = start + (hours * 3600.0).round() as u64;
        format!("{:02}:{:02}", moment / 3600 % 24, moment / 60 % 60)
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(13)
        .y_labels(axis.marks.len())
        .x_label_formatter(&clock)
        .y_label_formatter(&|value| (axis.label)(*value))
        .draw()?;
    for ((name, points), colour) in series.iter().zip(COLOURS) {
        let legend = move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled());
        match form {
            Form::Bars => {
                let bar = |(x, y): &(f64, f64)| {
                    Rectangle::new([(x - 0.4, axis.floor), (x + 0.4, *y)], colour.filled())
                };
                chart
                    .draw_series(points.iter().map(bar))?
                    .label(*name)
                    .legend(legend);
            }
            Form::Points => {
                let dots = points.iter().map(|at| Circle::new(*at, 3, colour.filled()));
                chart.draw_series(dots)?.label(*name).legend(legend);
                chart.draw_series(
                    unbroken(points, 1.5).map(|part| PathElement::new(part, colour)),
                )?;
            }
            Form::Lines => {
                let lines = unbroken(points, GAP_HOURS);
                let lines = lines.map(|part| PathElement::new(part, colour.stroke_width(2)));
                chart.draw_series(lines)?.label(*name).legend(legend);
            }
        }
    }
    if series.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .draw()?;
    }
    area.present()?;
    Ok(())
}

/// Points that follow each other closely, together; one alone is drawn as a short line.
fn unbroken(points: &[(f64, f64)], gap: f64) -> impl Iterator<Item = Vec<(f64, f64)>> {
    let parts = points.chunk_by(move |one, next| next.0 - one.0 <= gap);
    parts.map(|part| match part {
        [(x, y)] => vec![(*x, *y), (x + 1.0 / 12.0, *y)],
        part => part.to_vec(),
    })
}
