//! What a run prints: for a person at a terminal, for a program (JSON), and into a log.
//!
//! Problems and changes are written as they come; a person gets the list of problems again at the end, up to a bound.

use crate::cli::SyncArgs;
use crate::units::{show_bytes, show_count};
use driftless_engine::{Counts, End, Monitor, Options, Progress, RunError, Summary};
use driftless_model::{Problem, Receipt, RelPath, cause, escape};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Problems that are listed at the end; a log has all of them.
const LISTED_MAX: usize = 100;
/// Between two progress objects of `--json`.
const JSON_PROGRESS: Duration = Duration::from_secs(1);

/// Writes what happens.
pub struct Output {
    json: bool,
    quiet: bool,
    verbose: bool,
    dry_run: bool,
    bar: Option<ProgressBar>,
    log: Option<Mutex<BufWriter<File>>>,
    listed: Mutex<(Vec<String>, u64)>,
    reported: Mutex<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a run ended, for a program.
fn end_words(end: &End) -> (&'static str, Option<&str>) {
    match end {
        End::Complete => ("complete", None),
        End::Stopped => ("stopped", None),
        End::Lost => ("lost", None),
        End::Refused(why) => ("refused", Some(why)),
        End::NoPlan(why) => ("no_plan", Some(why)),
    }
}

/// A path as JSON.
fn path_fields(path: &RelPath) -> Value {
    if path.is_root() { json!({ "path": "." }) } else { bytes_field("path", OsStr::from_bytes(path.as_bytes())) }
}

/// Any bytes as JSON: escaped text, and the bytes in base64 where the text does not say all.
fn bytes_field(name: &str, value: &OsStr) -> Value {
    use base64::prelude::{BASE64_STANDARD, Engine};
    let (bytes, text) = (value.as_bytes(), escape(value.as_bytes()));
    if text.as_bytes() == bytes {
        return json!({ name: text });
    }
    json!({ name: text, format!("{name}_base64"): BASE64_STANDARD.encode(bytes) })
}

fn joined(mut object: Value, more: Value) -> Value {
    if let (Value::Object(fields), Value::Object(more)) = (&mut object, more) {
        fields.extend(more);
    }
    object
}

fn counts_fields(counts: &Counts) -> Value {
    json!({
        "seen": counts.seen, "same": counts.same, "changed": counts.changed, "skipped": counts.skipped(),
        "skipped_filtered": counts.skipped_filtered, "skipped_kind": counts.skipped_kind,
        "skipped_other_file_system": counts.skipped_other_fs, "skipped_vanished": counts.skipped_vanished,
        "failed": counts.failed, "problems": counts.problems(), "deleted": counts.deleted,
        "bytes_copied": counts.bytes_copied, "bytes_resumed": counts.bytes_resumed,
    })
}

impl Output {
    /// Opens the log, if there is one, and prepares the terminal.
    pub fn new(args: &SyncArgs) -> Result<Self, String> {
        let show_bar = !args.json && !args.quiet && io::stderr().is_terminal();
        Ok(Output {
            json: args.json,
            quiet: args.quiet,
            verbose: args.verbose,
            dry_run: args.dry_run,
            bar: show_bar.then(new_bar),
            log: args.log.as_deref().map(open_log).transpose()?,
            listed: Mutex::default(),
            reported: Mutex::new(Instant::now()),
        })
    }

    fn print(&self, line: &str) {
        let write = || writeln!(io::stdout().lock(), "{line}");
        let done = match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        };
        // Nobody reads any more (a closed pipe): the run itself is what matters.
        let _ = done;
    }

    fn print_json(&self, object: Value) {
        self.print(&object.to_string());
    }

    fn write_log(&self, line: &str) {
        if let Some(log) = &self.log {
            let _a_full_disk_must_not_end_the_run = writeln!(lock(log), "{line}");
        }
    }

    /// The run begins.
    pub fn start(&self, options: &Options) {
        if self.json {
            let roots = joined(bytes_field("source", options.source.as_os_str()), bytes_field("replica", options.replica.as_os_str()));
            self.print_json(joined(json!({ "event": "start", "dry_run": options.dry_run }), roots));
        }
    }

    /// The run did not begin.
    pub fn refused(&self, error: &RunError, code: u8) {
        self.clear_bar();
        if self.json {
            self.print_json(json!({ "event": "error", "message": error.to_string(), "exit_code": code }));
        }
        self.write_log(&format!("error {error}"));
        eprintln!("driftless: {error}");
    }

    /// The run is over.
    pub fn end(&self, summary: &Summary, code: u8) {
        self.clear_bar();
        if let Some(log) = &self.log {
            let _ = lock(log).flush();
        }
        if self.json {
            let fields = counts_fields(&summary.counts);
            let seconds = summary.elapsed.as_secs_f64();
            let (end, reason) = end_words(&summary.end);
            let object = json!({ "event": "summary", "exit_code": code, "seconds": seconds, "end": end, "reason": reason });
            self.print_json(joined(object, fields));
        } else if !self.quiet {
            self.print_summary(summary);
        }
        self.list_problems();
        self.print_end(summary);
    }

    fn clear_bar(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn print_summary(&self, summary: &Summary) {
        let c = &summary.counts;
        let seconds = summary.elapsed.as_secs_f64();
        let (made, gone, copied) = if self.dry_run { ("to change", "to delete", "") } else { ("changed", "deleted", "copied ") };
        let noun = if c.seen == 1 { "entry" } else { "entries" };
        let mut line = format!("{} {noun}: {} same, {} {made}", show_count(c.seen), show_count(c.same), show_count(c.changed));
        for (count, word) in [(c.skipped(), "skipped"), (c.failed, "failed")] {
            if count > 0 {
                line.push_str(&format!(", {} {word}", show_count(count)));
            }
        }
        if c.deleted > 0 {
            line.push_str(&format!("; {} {gone}", show_count(c.deleted)));
        }
        if !self.dry_run {
            let rate = (c.bytes_copied as f64 / seconds.max(0.001)) as u64;
            line.push_str(&format!("; {copied}{} in {seconds:.2} s ({}/s)", show_bytes(c.bytes_copied), show_bytes(rate)));
        }
        if c.bytes_resumed > 0 {
            line.push_str(&format!("; {} were there from an interrupted run", show_bytes(c.bytes_resumed)));
        }
        self.print(&line);
    }

    fn list_problems(&self) {
        let (lines, total) = &*lock(&self.listed);
        if *total == 0 {
            return;
        }
        eprintln!("driftless: {} {}:", show_count(*total), if *total == 1 { "problem" } else { "problems" });
        lines.iter().for_each(|line| eprintln!("  {line}"));
        let more = total - lines.len() as u64;
        if more > 0 {
            eprintln!("  and {} more (--log FILE keeps all)", show_count(more));
        }
    }

    fn print_end(&self, summary: &Summary) {
        match &summary.end {
            End::Complete => {}
            End::Stopped => eprintln!(
                "driftless: stopped; what was finished is kept, of large files up to their last checkpoint. To go on, run again: {}",
                std::env::args_os().map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
            ),
            End::Lost => eprintln!("driftless: the replica's disk did not keep what was written; check it, then run again"),
            End::Refused(why) | End::NoPlan(why) => eprintln!("driftless: {why}; all else was done"),
        }
    }
}

/// A word as a shell takes it; bytes that are no text in the form `$'\377'` of bash, zsh and ksh.
fn quoted(word: &OsStr) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if !text.chars().any(char::is_control) => format!("'{}'", text.replace('\'', "'\\''")),
        _ => format!("$'{}'", word.as_bytes().iter().map(|byte| octal(*byte)).collect::<String>()),
    }
}

fn octal(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) { char::from(byte).to_string() } else { format!("\\{byte:03o}") }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{bar:30} {msg}").expect("the template is right");
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// The log is the user's own file, not part of a replicated tree.
#[allow(clippy::disallowed_methods)]
fn open_log(path: &std::path::Path) -> Result<Mutex<BufWriter<File>>, String> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    let file = file.map_err(|error| format!("\"{}\": cannot open the log: {}", escape(path.as_os_str().as_bytes()), cause(&error)))?;
    Ok(Mutex::new(BufWriter::new(file)))
}

/// `create  file  a/b`, and behind it what differed.
fn itemised(receipt: &Receipt) -> String {
    let what = receipt.what.words().join(",");
    let what = if what.is_empty() { what } else { format!("  ({what})") };
    format!("{:<8} {:<8} {}{what}", receipt.action.word(), receipt.kind.word(), receipt.path)
}

impl Monitor for Output {
    fn wants_receipts(&self) -> bool {
        self.json || self.verbose || self.log.is_some() || (self.dry_run && !self.quiet)
    }

    fn receipt(&self, receipt: &Receipt) {
        let line = itemised(receipt);
        self.write_log(&line);
        if self.json {
            let (kind, action, what) = (receipt.kind, receipt.action, receipt.what.words());
            let object = json!({ "event": "change", "kind": kind, "action": action, "what": what, "size": receipt.size });
            self.print_json(joined(object, path_fields(&receipt.path)));
        } else if !self.quiet && (self.verbose || self.dry_run) {
            self.print(&line);
        }
    }

    fn problem(&self, problem: &Problem) {
        let line = problem.to_string();
        self.write_log(&format!("problem  {line}"));
        if self.json {
            let object = json!({
                "event": "problem", "side": problem.side, "act": problem.act, "cause": problem.cause,
                "class": problem.class, "follows": problem.class.follows(),
            });
            self.print_json(joined(object, path_fields(&problem.path)));
        }
        let (lines, total) = &mut *lock(&self.listed);
        *total += 1;
        if lines.len() < LISTED_MAX {
            lines.push(line);
        }
    }

    fn progress(&self, progress: &Progress) {
        if let Some(bar) = &self.bar {
            bar.set_position((progress.counts.walked_share() * 1000.0) as u64);
            bar.set_message(progress_line(progress));
        }
        if self.json {
            let mut reported = lock(&self.reported);
            if reported.elapsed() >= JSON_PROGRESS {
                *reported = Instant::now();
                let (seconds, share) = (progress.elapsed.as_secs_f64(), progress.counts.walked_share());
                let object = json!({ "event": "progress", "seconds": seconds, "share": share, "eta_seconds": eta(progress) });
                self.print_json(joined(object, counts_fields(&progress.counts)));
            }
        }
    }
}

/// Seconds to the end, if the walk is far enough to say: each directory divides its share of the whole equally among its
/// entries (Knuth, "Estimating the efficiency of backtrack programs", 1975), so it is an estimate while the walk runs.
fn eta(progress: &Progress) -> Option<f64> {
    let share = progress.counts.walked_share();
    let elapsed = progress.elapsed.as_secs_f64();
    (share > 0.01 && elapsed > 1.0).then(|| elapsed * (1.0 - share) / share)
}

fn progress_line(progress: &Progress) -> String {
    let c = &progress.counts;
    let seconds = progress.elapsed.as_secs_f64().max(0.001);
    let rate = show_bytes((c.bytes_copied as f64 / seconds) as u64);
    let entries = (c.seen as f64 / seconds) as u64;
    let left = eta(progress).map_or("?".to_string(), |s| HumanDuration(Duration::from_secs_f64(s)).to_string());
    format!(
        "{} entries ({}/s), {} copied ({rate}/s), about {left} left, {} jobs",
        show_count(c.seen),
        show_count(entries),
        show_bytes(c.bytes_copied),
        progress.jobs
    )
}
