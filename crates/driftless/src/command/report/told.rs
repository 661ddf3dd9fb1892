//! What `driftless report` prints: tables for a person, or one JSON object for each replica.

use super::facts::{Facts, Hour};
use crate::output::mirror::{at, seconds};
use crate::units::{show_bytes, show_count, show_counted, show_share};
use driftless_mirror::worded::{for_job, shown};
use driftless_model::escape_text;
use driftless_state::mirror::{ProblemRow, RunRow};
use serde_json::{Value, json};
use std::time::Duration;

/// Runs and problems in a table for a person; `--json` and `--html` have more.
const ROWS_MAX: usize = 20;

/// Heads of the table of hours.
pub const HOURS: [&str; 13] = [
    "hour", "changes", "p50", "p95", "p99", "max", ">300 s", ">600 s", "copied", "changed",
    "deleted", "left", "behind",
];
/// Heads of the table of comparisons and cycles.
pub const RUNS: [&str; 8] = [
    "run", "began", "took", "seen", "changed", "deleted", "missed", "end",
];

/// Returns the lines for a person.
pub fn text(facts: &Facts) -> Vec<String> {
    let mut lines = vec![title(facts)];
    for (name, value) in summary(facts) {
        lines.push(format!("  {name:<9} {value}"));
    }
    let hours: Vec<Vec<String>> = facts.hours.iter().map(hour).collect();
    lines.extend(table(&HOURS, &hours));
    let runs = facts.runs.iter().take(ROWS_MAX);
    lines.extend(table(&RUNS, &runs.map(run).collect::<Vec<_>>()));
    if !facts.problems.is_empty() {
        lines.push(String::new());
    }
    let problems = facts.problems.iter().take(ROWS_MAX);
    lines.extend(problems.map(|row| format!("  {}", problem(row))));
    if facts.problems.len() > ROWS_MAX {
        let more = show_count((facts.problems.len() - ROWS_MAX) as u64);
        lines.push(format!("  and {more} more (driftless mirror problems)"));
    }
    // A name of a tree may hold a line feed, which would begin a line of its own.
    lines.iter().map(|line| escape_text(line)).collect()
}

/// What it is about.
pub fn title(facts: &Facts) -> String {
    let about = &facts.job.about;
    let [from, until] = [facts.time.start, facts.time.end]
        .map(Duration::from_secs)
        .map(at);
    let (name, source, replica) = (&about.name, &about.source, &about.replica);
    format!("{name}: {source} -> {replica}, {from} to {until}")
}

/// What is to be known at first sight.
pub fn summary(facts: &Facts) -> Vec<(&'static str, String)> {
    let (row, [p50, p95, p99, max]) = (&facts.sum.row, facts.sum.spans().map(seconds));
    let changes = show_counted(row.files, "change", "changes");
    let (long, longer) = (show_count(row.over_300), show_count(row.over_600));
    let lag = format!(
        "{changes}: p50 {p50}, p95 {p95}, p99 {p99}, max {max}; {long} over 300 s, {longer} over 600 s"
    );
    let (bytes, changed) = (show_bytes(row.bytes), show_count(row.changed));
    let volume = format!(
        "{bytes} copied; {changed} changed, {} deleted",
        show_count(row.deleted)
    );
    let most = &facts.sum.backlog;
    let backlog = format!(
        "at most {} left and {} behind",
        show_counted(most.left, "path", "paths"),
        seconds(most.behind)
    );
    let objective = match facts.share_within_rpo() {
        None => format!("{}; no five minutes have ended yet", seconds(facts.rpo)),
        Some(share) => format!(
            "within {} for {} of the time",
            seconds(facts.rpo),
            show_share(share)
        ),
    };
    let missed = match facts.miss_rate() {
        None => "no changes".to_owned(),
        Some(rate) => format!(
            "{} of {} ({})",
            show_count(facts.missed()),
            show_counted(facts.missed() + row.files, "change", "changes"),
            show_share(rate)
        ),
    };
    let problems = format!(
        "{} now; {}",
        show_count(facts.problems.len() as u64),
        show_counted(row.problems, "failed attempt", "failed attempts")
    );
    vec![
        ("RPO", objective),
        ("lag", lag),
        ("volume", volume),
        ("backlog", backlog),
        ("missed", missed),
        ("problems", problems),
    ]
}

/// A line of the table of hours.
pub fn hour(hour: &Hour) -> Vec<String> {
    let row = &hour.row;
    let began = at(Duration::from_secs(row.hour * 3600));
    let spans = match row.files {
        0 => [(); 4].map(|()| "-".to_owned()),
        _ => hour.spans().map(seconds),
    };
    let counts = [row.over_300, row.over_600].map(show_count);
    let rest = [row.changed, row.deleted, hour.backlog.left].map(show_count);
    let behind = seconds(hour.backlog.behind);
    let first = [began, show_count(row.files)].into_iter();
    let bytes = [show_bytes(row.bytes)];
    first
        .chain(spans)
        .chain(counts)
        .chain(bytes)
        .chain(rest)
        .chain([behind])
        .collect()
}

/// A line of the table of comparisons and cycles.
pub fn run(run: &RunRow) -> Vec<String> {
    let counts = &run.counts;
    let took = run
        .ended
        .map(|ended| seconds(ended.saturating_sub(run.begun)));
    let counts = [counts.seen, counts.changed, counts.deleted, counts.missed].map(show_count);
    let first = [
        run.kind.word().to_owned(),
        at(run.begun),
        took.unwrap_or("-".into()),
    ];
    let end = run.end.clone().unwrap_or_else(|| "at work".into());
    first.into_iter().chain(counts).chain([end]).collect()
}

/// What is wrong with a path.
pub fn problem(row: &ProblemRow) -> String {
    let quarantine = if row.is_quarantined {
        ", in quarantine"
    } else {
        ""
    };
    let first = at(row.first);
    format!(
        "{} (since {first}, {}{quarantine})",
        for_job(&row.problem.to_string()),
        show_counted(row.attempts.into(), "time", "times")
    )
}

/// Returns columns as wide as what is in them; all but the first to the right.
fn table(heads: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let all: Vec<&Vec<String>> = [&heads].into_iter().chain(rows).collect();
    let width = |at: usize| all.iter().map(|row| row[at].chars().count()).max();
    let widths: Vec<usize> = (0..heads.len()).filter_map(width).collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (text, width))| match at {
            0 => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  "))
    };
    [String::new()]
        .into_iter()
        .chain(all.iter().map(line))
        .collect()
}

/// Returns the line for a program.
pub fn json(facts: &Facts) -> String {
    let about = &facts.job.about;
    let value = json!({
        "job": about.name,
        "source": about.source,
        "replica": about.replica,
        "from": facts.time.start,
        "until": facts.time.end,
        "now": facts.now,
        "total": hour_json(&facts.sum),
        "missed": facts.missed(),
        "miss_rate": facts.miss_rate(),
        "rpo_seconds": facts.rpo.as_secs_f64(),
        "share_within_rpo": facts.share_within_rpo(),
        "hours": facts.hours.iter().map(|hour| {
            let mut value = hour_json(hour);
            value["begins"] = (hour.row.hour * 3600).into();
            value
        }).collect::<Vec<_>>(),
        "runs": facts.runs.iter().map(run_json).collect::<Vec<_>>(),
        "problems": facts.problems.iter().map(problem_json).collect::<Vec<_>>(),
    });
    value.to_string()
}

fn hour_json(hour: &Hour) -> Value {
    let (row, spans) = (&hour.row, hour.spans().map(|span| span.as_secs_f64()));
    json!({
        "lag_files": row.files,
        "lag_p50_seconds": spans[0],
        "lag_p95_seconds": spans[1],
        "lag_p99_seconds": spans[2],
        "lag_max_seconds": spans[3],
        "over_300": row.over_300,
        "over_600": row.over_600,
        "bytes_copied": row.bytes,
        "changed": row.changed,
        "deleted": row.deleted,
        "problems": row.problems,
        "left_max": hour.backlog.left,
        "quarantined_max": hour.backlog.quarantined,
        "behind_max_seconds": hour.backlog.behind.as_secs_f64(),
    })
}

fn run_json(run: &RunRow) -> Value {
    json!({
        "kind": run.kind.word(),
        "began": run.begun.as_secs_f64(),
        "ended": run.ended.map(|ended| ended.as_secs_f64()),
        "seen": run.counts.seen,
        "changed": run.counts.changed,
        "deleted": run.counts.deleted,
        "failed": run.counts.failed,
        "bytes_copied": run.counts.bytes,
        "missed": run.counts.missed,
        "end": run.end,
    })
}

fn problem_json(row: &ProblemRow) -> Value {
    json!({
        "path": shown(&row.problem.path),
        "what": for_job(&row.problem.to_string()),
        "first": row.first.as_secs_f64(),
        "last": row.last.as_secs_f64(),
        "times": row.attempts,
        "is_quarantined": row.is_quarantined,
    })
}
