//! Numbers for Prometheus: what each is called and means, its text format
//! (prometheus.io/docs/instrumenting/exposition_formats), and a port at which it asks for them.
//!
//! Which numbers there are is said by whoever has them, in tables of [`Metric`]. It is a crate, so
//! that mirrors and agents of nodes answer in the same way and know nothing of each other.
#![deny(missing_docs)]

mod serve;

pub use serve::{check, listen};

use std::fmt::Write;
use std::time::Duration;

/// What kind of number it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It grows until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// One number of each `S`.
pub struct Metric<S> {
    /// Its name.
    pub name: &'static str,
    /// What kind it is.
    pub kind: Kind,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// What it is now; `None` if nothing is known.
    pub value: fn(&S) -> Option<f64>,
}

/// A number that goes up and down.
pub const fn gauge<S>(
    name: &'static str,
    help: &'static str,
    value: fn(&S) -> Option<f64>,
) -> Metric<S> {
    let kind = Kind::Gauge;
    Metric {
        name,
        kind,
        help,
        value,
    }
}

/// A number that grows.
pub const fn counter<S>(
    name: &'static str,
    help: &'static str,
    value: fn(&S) -> Option<f64>,
) -> Metric<S> {
    let kind = Kind::Counter;
    Metric {
        name,
        kind,
        help,
        value,
    }
}

/// A time in seconds, as the value of a number.
pub fn seconds(span: Duration) -> Option<f64> {
    Some(span.as_secs_f64())
}

/// A whole number as a value. Beyond 2^53 it is rounded, as Prometheus itself does.
pub fn whole(number: u64) -> Option<f64> {
    Some(number as f64)
}

/// 1 for yes, 0 for no.
pub fn flag(is: bool) -> Option<f64> {
    Some(f64::from(u8::from(is)))
}

/// Appends the numbers of each of `all`, which stands beside its labels.
pub fn write<S>(text: &mut String, metrics: &[Metric<S>], all: &[(String, &S)]) {
    for metric in metrics {
        head(text, metric.name, metric.help, metric.kind.word());
        for (labels, one) in all {
            if let Some(value) = (metric.value)(one) {
                let _ = writeln!(text, "{}{{{labels}}} {value}", metric.name);
            }
        }
    }
}

/// Appends what a number of a `kind` is.
pub fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Labels with their values, as they stand within braces.
pub fn labels(all: &[(&str, &str)]) -> String {
    let one = |(name, value): &(&str, &str)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{}\"", value.replace('\n', "\\n"))
    };
    all.iter().map(one).collect::<Vec<_>>().join(",")
}

/// What is wrong with the names of numbers, if anything: one stands there twice, or does not say
/// what kind it is.
pub fn misnamed<'n>(all: impl IntoIterator<Item = (&'n str, Kind)>) -> Option<&'n str> {
    let mut names = std::collections::BTreeSet::new();
    let is_wrong = |(name, kind): &(&'n str, Kind)| {
        !names.insert(*name) || name.ends_with("_total") != (*kind == Kind::Counter)
    };
    let mut all = all.into_iter();
    all.find(is_wrong).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_told_and_labels_are_escaped() {
        let metrics: [Metric<u64>; 2] = [
            gauge("a", "One.", |number| whole(*number)),
            counter("b_total", "Another.", |number| {
                flag(true).filter(|_| *number > 1)
            }),
        ];
        let mut text = String::new();
        let all = [
            (labels(&[("x", "a\"b\\c\nd"), ("y", "")]), &1),
            ("z=\"\"".into(), &2),
        ];
        write(&mut text, &metrics, &all);
        let expected = "\
# HELP a One.
# TYPE a gauge
a{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 1
a{z=\"\"} 2
# HELP b_total Another.
# TYPE b_total counter
b_total{z=\"\"} 1
";
        assert_eq!(text, expected);
    }

    #[test]
    fn names_that_stand_twice_or_say_another_kind_are_found() {
        let names = |all: &[(&'static str, Kind)]| misnamed(all.iter().copied());
        assert_eq!(
            names(&[("a", Kind::Gauge), ("b_total", Kind::Counter)]),
            None
        );
        assert_eq!(names(&[("a", Kind::Gauge), ("a", Kind::Gauge)]), Some("a"));
        assert_eq!(names(&[("a", Kind::Counter)]), Some("a"));
        assert_eq!(names(&[("a_total", Kind::Gauge)]), Some("a_total"));
    }
}
