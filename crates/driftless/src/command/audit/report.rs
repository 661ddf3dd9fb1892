//! The report of an audit: one page of HTML that needs nothing else.
//!
//! Names come from the trees and may be anything, so all text goes through [`escaped`].

use super::Proof;
use super::console::{counts_line, recent_words};
use super::plots::{by_age, by_size};
use crate::args::AuditArgs;
use crate::output::html::{STYLE, escaped};
use crate::output::human::{command_line, details, host_name};
use crate::output::json::path_text;
use crate::units::{show_bytes, show_count, show_counted, show_share};
use driftless_audit::{Audit, AuditOptions, Mismatch};
use driftless_model::event::DifferenceFound;
use driftless_model::{Kind, Stamp, quote};
use std::fmt::Write as _;

/// Mismatches in the table; `--json` and the log have all.
const ROWS_MAX: usize = 10_000;

/// The page.
pub fn page(args: &AuditArgs, options: &AuditOptions, audit: &Audit, proof: &Proof) -> String {
    let mut html =
        String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n");
    let title = format!("Audit of {}", quote(&args.replica));
    let _ = write!(
        html,
        "<title>{0}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escaped(&title)
    );
    let verdict = proof.verdict(audit, args.confidence);
    let _ = writeln!(html, "<p class=\"proof\">{}</p>", escaped(&verdict));
    for line in [&proof.sentence, &counts_line(audit, options.seed)] {
        let _ = writeln!(html, "<p>{}</p>", escaped(line));
    }
    parameters(&mut html, args, options, audit);
    let _ = writeln!(
        html,
        "<h2>What was sampled</h2>\n{}\n{}",
        by_size(&audit.census),
        by_age(&audit.census, options.started)
    );
    mismatches(&mut html, &audit.mismatches, options.started);
    html.push_str("</body>\n</html>\n");
    html
}

fn parameters(html: &mut String, args: &AuditArgs, options: &AuditOptions, audit: &Audit) {
    let files = audit.census.iter().filter(|entry| entry.kind == Kind::File);
    let bytes = files.fold(0u64, |sum, entry| sum.saturating_add(entry.size));
    let rows = [
        ("host", host_name()),
        ("command", command_line(std::env::args_os())),
        ("filters", options.run.policy.filter.to_string()),
        ("source", quote(&args.source)),
        ("replica", quote(&args.replica)),
        ("began", utc(options.started)),
        ("took", format!("{:.1} s", audit.elapsed.as_secs_f64())),
        ("compared", options.run.policy.level.word().to_owned()),
        ("entries of both trees", show_count(audit.entries)),
        ("asked for", asked(args, options)),
        ("seed", options.seed.to_string()),
        ("size of the sampled files", show_bytes(bytes)),
        ("equal", show_count(audit.same)),
        ("different", show_count(audit.drift)),
        (
            "recent",
            format!(
                "{} (changed less than {} s before the audit, or during it; left out of the proof)",
                show_count(audit.recent),
                args.grace
            ),
        ),
        (
            "vanished",
            format!(
                "{} (gone from both sides; left out of the proof)",
                show_count(audit.vanished)
            ),
        ),
        (
            "failed",
            format!(
                "{} (could not be compared; left out of the proof)",
                show_count(audit.failed)
            ),
        ),
        ("problems", show_count(audit.problems)),
        (
            "made by",
            format!("driftless {}", env!("CARGO_PKG_VERSION")),
        ),
    ];
    html.push_str("<h2>The audit</h2>\n<table>\n");
    for (name, value) in rows {
        let _ = writeln!(
            html,
            "<tr><th>{}</th><td>{}</td></tr>",
            escaped(name),
            escaped(&value)
        );
    }
    html.push_str("</table>\n");
}

fn asked(args: &AuditArgs, options: &AuditOptions) -> String {
    let confidence = show_share(args.confidence);
    let samples = show_counted(options.samples, "sample", "samples");
    match args.fraction {
        Some(fraction) => format!(
            "{samples}, to bound {} with {confidence} confidence",
            show_share(fraction)
        ),
        None => format!("{samples}, {confidence} confidence"),
    }
}

fn mismatches(html: &mut String, all: &[Mismatch], started: Stamp) {
    html.push_str("<h2>What differs</h2>\n");
    if all.is_empty() {
        html.push_str("<p>Nothing that was sampled.</p>\n");
        return;
    }
    html.push_str("<table>\n<tr><th>found</th><th>kind</th><th>path</th><th>size</th><th>details</th><th>last changed</th></tr>\n");
    for mismatch in all.iter().take(ROWS_MAX) {
        row(html, mismatch, started);
    }
    html.push_str("</table>\n");
    if all.len() > ROWS_MAX {
        let _ = writeln!(
            html,
            "<p>And {} more.</p>",
            show_count((all.len() - ROWS_MAX) as u64)
        );
    }
}

fn row(html: &mut String, mismatch: &Mismatch, started: Stamp) {
    let Mismatch {
        receipt,
        changed,
        recent,
    } = mismatch;
    let size = if receipt.kind == Kind::File {
        show_bytes(receipt.size)
    } else {
        String::new()
    };
    let found = DifferenceFound::new(receipt, path_text(&receipt.path));
    let mut details = details(&found);
    if *recent {
        details.push(recent_words(*changed, started));
    }
    let _ = writeln!(
        html,
        "<tr><td>{}</td><td>{}</td><td class=\"path\">{}</td><td>{}</td><td class=\"details\">{}</td><td>{}</td></tr>",
        found.found,
        receipt.kind.word(),
        escaped(&receipt.path.to_string()),
        size,
        escaped(&details.join("; ")),
        utc(*changed),
    );
}

/// A moment for a person.
fn utc(stamp: Stamp) -> String {
    driftless_model::moment(stamp.sec)
}
