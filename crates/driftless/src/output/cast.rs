//! Output of a cast: progress, events, the outcome of each node; for a person and as JSON.

use crate::args::CastOutputArgs;
use crate::exit::Exit;
use crate::output::json;
use crate::output::progress::Standing;
use crate::output::table::table;
use crate::units::{show_bytes, show_counted, show_entries};
use driftless_cast::{CastEvent, CastMonitor, CastReport, NodeProgress, NodeReport, NodeStage};
use driftless_lock::Mutex;
use driftless_model::{cause, escape_text};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Time between two progress objects of `--json`.
const JSON_PROGRESS: Duration = Duration::from_secs(1);

/// Writer of the events and the outcome of a cast.
pub struct CastOutput {
    is_json: bool,
    is_quiet: bool,
    is_verbose: bool,
    standing: Standing,
    state: Mutex<CastState>,
}

/// State of a cast, as far as its events show it.
struct CastState {
    began: Instant,
    reported: Option<Instant>,
    nodes: usize,
    join_wait: Duration,
    hashed_bytes: u64,
    total_bytes: u64,
    /// Nodes whose failure was printed.
    failed: BTreeSet<String>,
    /// Cause of the first failure of standard output.
    unwritten: Option<String>,
}

/// Object of `--json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum CastLine<'a> {
    Catalogued {
        set: &'a str,
        entries: u32,
        bytes: u64,
        units: u64,
    },
    Connected {
        node: &'a str,
    },
    Unreachable {
        node: &'a str,
        reason: &'a str,
    },
    Ready {
        node: &'a str,
        held_bytes: u64,
    },
    Started {
        nodes: usize,
    },
    Progress {
        seconds: f64,
        nodes: &'a [NodeProgress],
    },
    Lost {
        node: &'a str,
        reason: &'a str,
    },
    StreamFailed {
        node: &'a str,
        peer: &'a str,
        reason: &'a str,
    },
    Demoted {
        node: &'a str,
    },
    Quarantined {
        node: &'a str,
    },
    SourceFailed {
        reason: &'a str,
    },
    Ended(&'a NodeReport),
    Summary {
        exit_code: u8,
        set: &'a str,
        entries: u32,
        bytes: u64,
        seconds: f64,
        nodes_complete: usize,
        nodes_lacking: Vec<&'a str>,
    },
    Error {
        message: &'a str,
        exit_code: u8,
    },
}

impl CastOutput {
    /// Prepares the terminal.
    pub fn new(args: &CastOutputArgs) -> Self {
        CastOutput {
            is_json: args.json,
            is_quiet: args.quiet,
            is_verbose: args.verbose,
            standing: Standing::new(args.progress, args.json || args.quiet),
            state: Mutex::new(CastState {
                began: Instant::now(),
                reported: None,
                nodes: 0,
                join_wait: Duration::ZERO,
                hashed_bytes: 0,
                total_bytes: 0,
                failed: BTreeSet::new(),
                unwritten: None,
            }),
        }
    }

    /// Notes the number of nodes, and the time in which they must have connected.
    pub fn begin(&self, nodes: usize, join_wait: Duration) {
        let mut state = self.state.lock();
        (state.nodes, state.join_wait) = (nodes, join_wait);
    }

    /// Warns a person before the cast begins.
    pub fn warn(&self, line: &str) {
        if !self.is_quiet {
            eprintln!("driftless: {}", escape_text(line));
        }
    }

    /// Reports that the cast did not begin. Returns the exit code.
    pub fn failed(&self, why: &str, code: Exit) -> Exit {
        self.standing.clear();
        let exit_code = code.code();
        self.object(&CastLine::Error {
            message: why,
            exit_code,
        });
        eprintln!("driftless: {why}");
        self.final_code(code)
    }

    /// Prints the outcome of each node. Returns the exit code.
    pub fn end(&self, report: &CastReport, code: Exit) -> Exit {
        self.standing.clear();
        let lacking: Vec<&str> = lacking(report).collect();
        let complete = report.nodes.len().saturating_sub(lacking.len());
        if self.is_json {
            self.object(&CastLine::Summary {
                exit_code: code.code(),
                set: &report.set,
                entries: report.entries,
                bytes: report.bytes,
                seconds: report.seconds,
                nodes_complete: complete,
                nodes_lacking: lacking.clone(),
            });
        } else if !self.is_quiet {
            self.print(&outcomes(&report.nodes));
            self.print(&summary_line(report, complete));
        }
        for node in report.nodes.iter().filter(|node| !node.has_kept_all()) {
            eprintln!("driftless: {}: {}", node.node, unkept_line(node));
        }
        for node in report.nodes.iter().filter(|node| !node.is_complete) {
            self.node_failed(node);
        }
        if !lacking.is_empty() {
            let count = show_counted(lacking.len() as u64, "node lacks", "nodes lack");
            eprintln!("driftless: {count} the data set: {}", lacking.join(", "));
        }
        self.final_code(code)
    }

    /// Reports a failure of standard output. Returns the exit code that follows.
    fn final_code(&self, code: Exit) -> Exit {
        let Some(why) = self.state.lock().unwritten.take() else {
            return code;
        };
        eprintln!("driftless: standard output: cannot write: {why}");
        if code == Exit::Equal {
            Exit::CouldNotRun
        } else {
            code
        }
    }

    fn object(&self, line: &CastLine<'_>) {
        if self.is_json {
            self.write(&json::line(line));
        }
    }

    /// Prints text of one or more lines.
    fn print(&self, text: &str) {
        for line in text.lines() {
            self.write(&escape_text(line));
        }
    }

    fn write(&self, line: &str) {
        let write = || writeln!(io::stdout().lock(), "{line}");
        match self.standing.aside(write) {
            // The reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => {
                let mut state = self.state.lock();
                state.unwritten.get_or_insert_with(|| cause(&error));
            }
            Ok(()) => {}
        }
    }

    /// Reports an event to a person. Failures need no `--verbose`.
    fn say(&self, line: &str, is_detail: bool) {
        let is_wanted = match is_detail {
            true => self.is_verbose,
            false => !self.is_quiet,
        };
        if is_wanted && !self.is_json {
            self.standing.aside(|| eprintln!("driftless: {line}"));
        }
    }

    fn hashed(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.hashed_bytes = state.hashed_bytes.saturating_add(bytes);
        let seconds = state.began.elapsed().as_secs_f64().max(0.001);
        let rate = (state.hashed_bytes as f64 / seconds) as u64;
        let parts = [
            format!("{} hashed", show_bytes(state.hashed_bytes)),
            format!("{}/s", show_bytes(rate)),
        ];
        drop(state);
        self.standing.show(None, &parts);
    }

    fn progress(&self, nodes: &[NodeProgress]) {
        let mut state = self.state.lock();
        let is_due = state
            .reported
            .is_none_or(|reported| reported.elapsed() >= JSON_PROGRESS);
        if is_due {
            state.reported = Some(Instant::now());
        }
        let seconds = state.began.elapsed().as_secs_f64();
        let (all, total) = (state.nodes, state.total_bytes);
        drop(state);
        if self.is_json && is_due {
            self.object(&CastLine::Progress { seconds, nodes });
        }
        let (share, parts) = standing(nodes, all, total);
        self.standing.show(Some(share), &parts);
    }

    /// Prints the reason of a node that failed, once.
    fn node_failed(&self, node: &NodeReport) {
        let is_new = self.state.lock().failed.insert(node.node.clone());
        if is_new {
            let reason = node.reason.as_deref().unwrap_or("no reason is known");
            let line = format!("driftless: {}: {reason}", node.node);
            self.standing.aside(|| eprintln!("{line}"));
        }
    }

    /// Prints an event that has a line in both forms.
    fn node_event(&self, event: &CastEvent) {
        if let Some(line) = object_of(event) {
            self.object(&line);
        }
        let join_wait = self.state.lock().join_wait;
        if let Some((line, is_detail)) = words_of(event, join_wait) {
            self.say(&line, is_detail);
        }
        if let CastEvent::Ended(node) = event
            && !node.is_complete
        {
            self.node_failed(node);
        }
    }
}

impl CastMonitor for CastOutput {
    fn event(&self, event: CastEvent) {
        match &event {
            CastEvent::Hashed { bytes } => self.hashed(*bytes),
            CastEvent::Progress { nodes } => self.progress(nodes),
            CastEvent::Catalogued { bytes, .. } => {
                self.state.lock().total_bytes = *bytes;
                self.node_event(&event);
            }
            _ => self.node_event(&event),
        }
    }
}

/// Returns the object of an event.
fn object_of(event: &CastEvent) -> Option<CastLine<'_>> {
    Some(match event {
        CastEvent::Catalogued {
            set,
            entries,
            bytes,
            units,
        } => CastLine::Catalogued {
            set,
            entries: *entries,
            bytes: *bytes,
            units: *units,
        },
        CastEvent::Connected { node } => CastLine::Connected { node },
        CastEvent::Unreachable { node, cause, .. } => CastLine::Unreachable {
            node,
            reason: cause,
        },
        CastEvent::Ready { node, held_bytes } => CastLine::Ready {
            node,
            held_bytes: *held_bytes,
        },
        CastEvent::Started { nodes } => CastLine::Started { nodes: *nodes },
        CastEvent::Lost { node, cause } => CastLine::Lost {
            node,
            reason: cause,
        },
        CastEvent::StreamFailed { node, peer, cause } => CastLine::StreamFailed {
            node,
            peer,
            reason: cause,
        },
        CastEvent::Demoted { node } => CastLine::Demoted { node },
        CastEvent::Quarantined { node } => CastLine::Quarantined { node },
        CastEvent::SourceFailed { cause } => CastLine::SourceFailed { reason: cause },
        CastEvent::Ended(report) => CastLine::Ended(report),
        _ => return None,
    })
}

/// Returns an event in words, and whether only `--verbose` asks for it.
fn words_of(event: &CastEvent, join_wait: Duration) -> Option<(String, bool)> {
    let detail = |text: String| (text, true);
    let failure = |text: String| (text, false);
    Some(match event {
        CastEvent::Catalogued {
            set,
            entries,
            bytes,
            ..
        } => {
            let (entries, bytes) = (show_entries(u64::from(*entries)), show_bytes(*bytes));
            detail(format!("data set {set}: {entries}, {bytes}"))
        }
        CastEvent::Connected { node } => detail(format!("{node}: connected")),
        CastEvent::Unreachable {
            node,
            cause,
            is_first,
        } => {
            let seconds = join_wait.as_secs_f64();
            let again = format!("trying again for {seconds} s (--join-wait)");
            match is_first {
                true => failure(format!("{node}: {cause}; {again}")),
                false => detail(format!("{node}: {cause}; trying again")),
            }
        }
        CastEvent::Ready { node, held_bytes } => {
            detail(format!("{node}: ready, holds {}", show_bytes(*held_bytes)))
        }
        CastEvent::Started { nodes } => {
            let nodes = show_counted(*nodes as u64, "node is ready", "nodes are ready");
            detail(format!("distribution begins: {nodes}"))
        }
        CastEvent::Lost { node, cause } => failure(format!("{node}: connection lost: {cause}")),
        CastEvent::StreamFailed { node, peer, cause } => {
            detail(format!("{node}: connection to {peer} failed: {cause}"))
        }
        CastEvent::Demoted { node } => failure(format!(
            "{node}: slow; the chain goes on without waiting for it"
        )),
        CastEvent::Quarantined { node } => failure(format!(
            "{node}: sent damaged data to several nodes; it feeds no node any more; check its memory"
        )),
        CastEvent::SourceFailed { cause } => failure(format!("source: {cause}")),
        CastEvent::Ended(report) if report.is_complete => detail(format!(
            "{}: complete after {:.1} s",
            report.node, report.seconds
        )),
        _ => return None,
    })
}

/// Returns the mean share of the nodes, and the progress in words, with the slowest nodes last.
fn standing(nodes: &[NodeProgress], all: usize, total: u64) -> (f64, Vec<String>) {
    let share_of = |node: &NodeProgress| match (node.is_complete, total) {
        (true, _) => 1.0,
        (false, 0) => 0.0,
        (false, total) => (node.bytes as f64 / total as f64).min(1.0),
    };
    let complete = nodes.iter().filter(|node| node.is_complete).count();
    let sum: f64 = nodes.iter().map(share_of).sum();
    let mut parts = vec![format!(
        "{complete} of {} complete",
        show_counted(all as u64, "node", "nodes")
    )];
    let mut working: Vec<&NodeProgress> = nodes.iter().filter(|node| !node.is_complete).collect();
    working.sort_by(|a, b| share_of(a).total_cmp(&share_of(b)));
    parts.extend(working.into_iter().map(|node| {
        let percent = share_of(node) * 100.0;
        let state = match node.stage {
            NodeStage::Absent => "not connected".to_owned(),
            NodeStage::Preparing => "preparing".to_owned(),
            NodeStage::Lost => format!("lost at {percent:.0} %"),
            NodeStage::Failed => "failed".to_owned(),
            _ if node.is_leaf => format!("{percent:.0} % slow"),
            _ => format!("{percent:.0} %"),
        };
        format!("{} {state}", node.node)
    }));
    (sum / (all.max(1) as f64), parts)
}

/// Returns the table of the outcomes.
fn outcomes(nodes: &[NodeReport]) -> String {
    let header = ["NODE", "OUTCOME", "RECEIVED", "HELD", "SECONDS", "SLOW"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(nodes.iter().map(|node| {
        let outcome = if node.is_complete {
            "complete"
        } else {
            "failed"
        };
        vec![
            node.node.clone(),
            outcome.to_owned(),
            show_bytes(node.received_bytes),
            show_bytes(node.held_bytes),
            format!("{:.1}", node.seconds),
            node.demotions.to_string(),
        ]
    }));
    table(&rows)
}

fn summary_line(report: &CastReport, complete: usize) -> String {
    let all = show_counted(report.nodes.len() as u64, "node", "nodes");
    format!(
        "{complete} of {all} complete: data set {}, {}, {}, {:.1} s",
        report.set,
        show_entries(u64::from(report.entries)),
        show_bytes(report.bytes),
        report.seconds
    )
}

/// Returns the metadata that a node did not keep, in words.
fn unkept_line(node: &NodeReport) -> String {
    let owners = show_counted(node.owners_not_kept, "owner", "owners");
    let attributes = show_counted(node.attributes_not_kept, "attribute", "attributes");
    let what = match (node.owners_not_kept, node.attributes_not_kept) {
        (_, 0) => owners,
        (0, _) => attributes,
        _ => format!("{owners} and {attributes}"),
    };
    match &node.first_not_kept {
        Some(first) => format!("{what} not kept, first: {first}"),
        None => format!("{what} not kept"),
    }
}

/// Returns the nodes without the data set.
fn lacking(report: &CastReport) -> impl Iterator<Item = &str> {
    let nodes = report.nodes.iter().filter(|node| !node.is_complete);
    nodes.map(|node| node.node.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_names_the_stage_of_a_node() {
        let nodes = [
            (NodeStage::Absent, "n1 not connected"),
            (NodeStage::Preparing, "n1 preparing"),
            (NodeStage::Receiving, "n1 40 %"),
            (NodeStage::Lost, "n1 lost at 40 %"),
            (NodeStage::Failed, "n1 failed"),
        ];
        for (stage, shown) in nodes {
            let node = NodeProgress {
                node: "n1".into(),
                units: 4,
                bytes: 40,
                stage,
                is_connected: stage == NodeStage::Receiving,
                is_leaf: false,
                feeders: Vec::new(),
                is_complete: false,
            };
            let (_, parts) = standing(&[node], 1, 100);
            assert_eq!(parts, ["0 of 1 node complete", shown]);
        }
    }
}
