//! The report as a page of HTML that needs nothing else.
//!
//! Names come from jobs and trees and may be anything, so all text goes through [`escaped`].

use super::facts::Facts;
use super::plots;
use super::told::{HOURS, RUNS, hour, problem, run, summary, title};
use crate::output::html::{STYLE, escaped};
use crate::output::human::{command_line, host_name};
use crate::units::show_count;
use driftless_engine::now;
use driftless_model::{Filter, escape_text, moment};
use std::fmt::Write;

/// Runs and problems in a table.
const ROWS_MAX: usize = 1000;

/// Returns the page about the replicas of a job with these filters.
pub fn page(all: &[Facts], filter: &Filter) -> String {
    let name = all.first().map_or("", |facts| &*facts.job.about.name);
    let name = escaped(&format!("Mirror {}", escape_text(name)));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
    );
    all.iter().for_each(|facts| replica(&mut html, facts));
    let version = env!("CARGO_PKG_VERSION");
    let _ = write!(
        html,
        "<p>Made by driftless {version} on {} at {}; times are universal.</p>\n<p>Command: {}<br/>Filters: {}</p>\n</body>\n</html>\n",
        escaped(&host_name()),
        moment(now().sec),
        shown(&command_line(std::env::args_os())),
        escaped(&filter.to_string())
    );
    html
}

fn replica(html: &mut String, facts: &Facts) {
    let _ = writeln!(
        html,
        "<p class=\"proof\">{}</p>\n<table>",
        shown(&title(facts))
    );
    for (name, value) in summary(facts) {
        let _ = writeln!(html, "<tr><th>{name}</th><td>{}</td></tr>", shown(&value));
    }
    html.push_str("</table>\n");
    for (name, plot) in [
        (
            "Lag: how long changes took to the replica",
            plots::lag(facts),
        ),
        ("Volume", plots::volume(facts)),
        ("Backlog: paths that were left to do", plots::backlog(facts)),
        ("How far behind the replica was", plots::behind(facts)),
        ("Problems that were met", plots::problems(facts)),
    ] {
        let _ = writeln!(html, "<h2>{name}</h2>\n{plot}");
    }
    table(html, "By hour", &HOURS, facts.hours.iter().map(hour));
    let runs = facts.runs.iter().take(ROWS_MAX);
    table(html, "Full scans and cycles", &RUNS, runs.map(run));
    let problems = facts.problems.iter().take(ROWS_MAX);
    let problems = problems.map(|row| vec![problem(row)]);
    table(html, "What is wrong now", &["path"], problems);
    if let Some(more) = facts
        .problems
        .len()
        .checked_sub(ROWS_MAX)
        .filter(|more| *more > 0)
    {
        let _ = writeln!(html, "<p>And {} more.</p>", show_count(more as u64));
    }
}

fn table(html: &mut String, name: &str, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(html, "<h2>{name}</h2>");
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        html.push_str("<p>None.</p>\n");
        return;
    }
    let class = |at: usize| if at == 0 { "" } else { " class=\"number\"" };
    html.push_str("<table>\n<tr>");
    for (at, head) in heads.iter().enumerate() {
        let _ = write!(html, "<th{}>{}</th>", class(at), escaped(head));
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let _ = write!(html, "<td{}>{}</td>", class(at), shown(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
}

/// Text from outside as it stands on the page.
fn shown(text: &str) -> String {
    escaped(&escape_text(text))
}
