//! What a program that runs for long says of itself, on standard error: lines for a person, or JSON
//! for a collector of logs.
//!
//! Events of other libraries are left out: what they say of a connection is said by ours, in the
//! words of our documents.

use crate::args::{LogArgs, LogFormat};
use std::fmt::{self, Write as _};
use std::io;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The beginning of the names of our crates, which is where their events come from.
const OURS: &str = "driftless";

/// Has events of the program `name` written to standard error, as the arguments say.
pub fn start(name: &'static str, args: &LogArgs) {
    let level = LevelFilter::from_level(args.log_level.into());
    let wanted = tracing_subscriber::filter::filter_fn(move |event: &Metadata<'_>| {
        event.target().starts_with(OURS) && *event.level() <= level
    });
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .log_internal_errors(false);
    let written = match args.log_format {
        LogFormat::Text => lines.event_format(Line { name }).boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    };
    let _it_was_started_already = tracing_subscriber::registry()
        .with(written.with_filter(wanted))
        .try_init();
}

/// One line for each event: the program, the message, what belongs to it.
struct Line {
    name: &'static str,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static>
    FormatEvent<S, N> for Line
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut words = Words::default();
        event.record(&mut words);
        let line = format!("driftless {}: {}{}", self.name, words.message, words.fields);
        writeln!(out, "{}", driftless_model::escape_text(&line))
    }
}

/// An event in words.
#[derive(Default)]
struct Words {
    message: String,
    /// What else belongs to it, each with a blank before it.
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _a_string_takes_all = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
