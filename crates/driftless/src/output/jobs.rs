//! Output of `driftless jobs` and `driftless submit`.

use crate::command::submit::PlannedSubmission;
use crate::output::json;
use crate::output::mirror::line;
use crate::output::table::aligned;
use crate::units::{show_bytes, show_time};
use driftless_gateway::{CopyKeeping, JobInfo, JobNodeInfo, ResultInfo};
use driftless_model::{escape, escape_text};
use serde::Serialize;
use std::ffi::OsString;

/// Columns of the table that have numbers.
const NUMBERS: [usize; 2] = [3, 4];
/// Sources of one job that a table shows.
const SOURCES_MAX: usize = 2;
/// Causes of failed nodes of one job that are printed.
const CAUSES_MAX: usize = 4;

/// Prints jobs.
pub fn jobs(jobs: &[JobInfo], is_json: bool) {
    if is_json {
        return jobs
            .iter()
            .for_each(|job| line(&json::line(&JobLine::of(job))));
    }
    if jobs.is_empty() {
        return line("no jobs");
    }
    let header = ["JOB", "USER", "STAGE", "READY", "SIZE", "DATA"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(jobs.iter().map(row));
    let table = aligned(&rows, |at| NUMBERS.contains(&at));
    table.lines().for_each(line);
    for job in jobs {
        if let Some(fault) = &job.fault {
            line(&format!("{}: {}", number(job), escape_text(fault)));
        }
        let nodes = job.nodes.iter().map(|one| (&one.node, &one.fault));
        failed_nodes(job, "", nodes);
        let results = job.results.iter().map(|one| (&one.node, &one.fault));
        failed_nodes(job, "results of ", results);
    }
}

/// Prints each cause with the first node that failed for it, and how many others did.
fn failed_nodes<'a>(
    job: &JobInfo,
    before: &str,
    nodes: impl Iterator<Item = (&'a String, &'a Option<String>)>,
) {
    let faults = nodes.filter_map(|(node, fault)| Some((node.as_str(), fault.as_deref()?)));
    for told in failure_lines(faults) {
        line(&format!("{}: {before}{told}", number(job)));
    }
}

/// Returns a line for each of the first causes. The last line counts the nodes with other causes.
fn failure_lines<'a>(faults: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let (mut causes, mut others) = (Vec::<(&str, &str, usize)>::new(), 0);
    for (node, fault) in faults {
        let has_room = causes.len() < CAUSES_MAX;
        match causes.iter_mut().find(|(_, known, _)| *known == fault) {
            Some((_, _, more)) => *more += 1,
            None if has_room => causes.push((node, fault, 0)),
            None => others += 1,
        }
    }
    let told = causes.into_iter().map(|(node, fault, more)| {
        let (node, fault) = (escape_text(node), escape_text(fault));
        match more {
            0 => format!("{node}: {fault}"),
            more => format!("{node}: {fault} ({more} more {})", plural(more, "node")),
        }
    });
    let mut lines: Vec<String> = told.collect();
    if others > 0 {
        let nodes = plural(others, "node");
        lines.push(format!("{others} more {nodes} with other causes"));
    }
    lines
}

/// Returns a noun for a count.
fn plural(count: usize, noun: &str) -> String {
    match count {
        1 => noun.to_owned(),
        _ => format!("{noun}s"),
    }
}

/// Returns the number of a job, or its mark before it has one.
fn number(job: &JobInfo) -> String {
    escape_text(job.number.as_deref().unwrap_or(&job.mark))
}

fn row(job: &JobInfo) -> Vec<String> {
    let is_ready = |node: &&JobNodeInfo| node.state == "ready";
    let ready = job.nodes.iter().filter(is_ready).count();
    let sources = job.sources.iter().take(SOURCES_MAX);
    let sources: Vec<String> = sources.map(|path| escape(path)).collect();
    let more = match job.sources.len().saturating_sub(SOURCES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    vec![
        number(job),
        escape_text(&job.owner),
        job.stage.clone(),
        format!("{ready}/{}", job.nodes.len()),
        job.bytes.map_or_else(|| "-".into(), show_bytes),
        format!("{}{more}", sources.join(", ")),
    ]
}

/// Prints the results of jobs.
pub fn results(jobs: &[JobInfo], is_json: bool) {
    if is_json {
        return jobs
            .iter()
            .for_each(|job| line(&json::line(&ResultsLine::of(job))));
    }
    if jobs.is_empty() {
        return line("no jobs with results");
    }
    let header = ["JOB", "STAGE", "NODE", "ENTRIES", "SIZE", "TO"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for job in jobs {
        let to = job.pattern.as_deref().map_or_else(String::new, escape);
        let cells = |node: &str, entries: String, size: String| {
            let node = escape_text(node);
            vec![
                number(job),
                job.stage.clone(),
                node,
                entries,
                size,
                to.clone(),
            ]
        };
        if job.results.is_empty() {
            rows.push(cells("-", "0".into(), "-".into()));
        }
        let row =
            |one: &ResultInfo| cells(&one.node, one.entries.to_string(), show_bytes(one.bytes));
        rows.extend(job.results.iter().map(row));
    }
    let table = aligned(&rows, |at| NUMBERS.contains(&at));
    table.lines().for_each(line);
    for (job, one) in jobs
        .iter()
        .flat_map(|job| job.results.iter().map(move |one| (job, one)))
    {
        if one.earlier_runs > 0 {
            let (node, count) = (escape_text(&one.node), one.earlier_runs);
            let tasks = plural(usize::try_from(count).unwrap_or(usize::MAX), "task");
            line(&format!(
                "{}: {node}: {count} {tasks} ran later on other nodes as well; the results of their earlier runs are in \"earlier-runs/{node}\"",
                number(job)
            ));
        }
        if let Some(fault) = fault_line(job, one) {
            line(&escape_text(&fault));
        }
    }
}

/// Returns the message about results of a node that did not arrive, not escaped.
pub fn fault_line(job: &JobInfo, one: &ResultInfo) -> Option<String> {
    let number = job.number.as_deref().unwrap_or(&job.mark);
    let fault = one.fault.as_deref()?;
    Some(format!("{number}: {}: {fault}", one.node))
}

/// Results of a job as a line of JSON.
#[derive(Serialize)]
struct ResultsLine<'a> {
    job: Option<&'a str>,
    stage: &'a str,
    to: Option<String>,
    nodes: Vec<ResultLine<'a>>,
}

/// Results of a node in JSON.
#[derive(Serialize)]
struct ResultLine<'a> {
    node: &'a str,
    entries: u64,
    bytes: u64,
    earlier_runs: u64,
    fault: Option<&'a str>,
}

impl<'a> ResultsLine<'a> {
    fn of(job: &'a JobInfo) -> Self {
        let line = |one: &'a ResultInfo| ResultLine {
            node: &one.node,
            entries: one.entries,
            bytes: one.bytes,
            earlier_runs: one.earlier_runs,
            fault: one.fault.as_deref(),
        };
        ResultsLine {
            job: job.number.as_deref(),
            stage: &job.stage,
            to: job.pattern.as_deref().map(escape),
            nodes: job.results.iter().map(line).collect(),
        }
    }
}

/// A job as a line of JSON.
#[derive(Serialize)]
struct JobLine<'a> {
    job: Option<&'a str>,
    mark: &'a str,
    user: &'a str,
    stage: &'a str,
    sources: Vec<String>,
    release: &'a str,
    set: Option<&'a str>,
    bytes: Option<u64>,
    nodes: Vec<NodeLine<'a>>,
    fault: Option<&'a str>,
    made: u64,
    changed: u64,
}

/// A node of a job in JSON.
#[derive(Serialize)]
struct NodeLine<'a> {
    node: &'a str,
    state: &'a str,
    fault: Option<&'a str>,
}

impl<'a> JobLine<'a> {
    fn of(job: &'a JobInfo) -> Self {
        let node = |node: &'a JobNodeInfo| NodeLine {
            node: &node.node,
            state: &node.state,
            fault: node.fault.as_deref(),
        };
        JobLine {
            job: job.number.as_deref(),
            mark: &job.mark,
            user: &job.owner,
            stage: &job.stage,
            sources: job.sources.iter().map(|path| escape(path)).collect(),
            release: &job.policy,
            set: job.set.as_deref(),
            bytes: job.bytes,
            nodes: job.nodes.iter().map(node).collect(),
            fault: job.fault.as_deref(),
            made: job.made,
            changed: job.changed,
        }
    }
}

/// Prints a job that would be submitted.
pub fn planned(planned: &PlannedSubmission, command: &[OsString]) {
    if let Some(kind) = planned.named_kind() {
        line(&format!("batch system: {kind}"));
    }
    let words = command.iter().map(|word| word.to_string_lossy());
    let words: Vec<String> = words.map(|word| escape_text(&word)).collect();
    line(&format!("command: {}", shell_words::join(words)));
    for path in &planned.request.sources {
        line(&format!("data: {}", escape(path)));
    }
    if let Some(pattern) = &planned.request.results {
        line(&format!("results: {}", escape(pattern)));
    }
    if let Some(nodes) = &planned.request.nodes {
        line(&format!("nodes: {}", escape_text(nodes)));
    }
    line(&format!("release: {}", planned.request.policy.need));
    if let Some(seconds) = planned.request.policy.seconds_max {
        line(&format!("deadline: {}", show_time(seconds)));
    }
    match planned.request.keeping {
        CopyKeeping::Purge => {}
        CopyKeeping::Stay => line("copies: stay after the job"),
        CopyKeeping::Seconds(seconds) => {
            line(&format!("copies: stay for {}", show_time(seconds)));
        }
    }
    line("dry run: no job was submitted");
}

#[cfg(test)]
mod tests {
    use super::failure_lines;

    #[test]
    fn each_cause_has_a_line() {
        let lines = |faults: &[(&str, &str)]| failure_lines(faults.iter().copied());
        assert_eq!(lines(&[("n1", "a"), ("n2", "a")]), ["n1: a (1 more node)"]);
        assert_eq!(
            lines(&[("n1", "a"), ("n2", "b"), ("n3", "a"), ("n4", "a")]),
            ["n1: a (2 more nodes)", "n2: b"]
        );
        let many = [("n1", "a"), ("n2", "b"), ("n3", "c"), ("n4", "d")];
        let many = [&many[..], &[("n5", "e")]].concat();
        let last = lines(&many).pop();
        assert_eq!(last.as_deref(), Some("1 more node with other causes"));
    }
}
