//! What a run prints: for a person at a terminal, for a program (JSON), and into a log.
//!
//! Problems and changes are written as they come; a person gets the list of problems again at the end, up to a bound.

use crate::args::OutputArgs;
use crate::earlier::Earlier;
use crate::exit::Exit;
use crate::own;
use crate::standing::{Standing, parts};
use crate::units::{log_time, show_bytes, show_count, show_counted, show_entries, show_time};
use crate::unkept::Firsts;
use driftless_engine::{Counts, End, Monitor, Options, Progress, Summary};
use driftless_lock::Mutex;
use driftless_model::{Action, Class, Problem, Receipt, RelPath, Unkept, What, cause, escape, escape_json, escape_text, quote};
use driftless_tree::Endpoint;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// Problems that are listed at the end; a log has all of them.
const LISTED_MAX: usize = 100;
/// Ranges of one file that are printed for a person.
const SHOWN_RANGES_MAX: usize = 20;
/// Lines that are known to have been told, at most: 16 bytes each. More are told again when a connection was lost.
const TOLD_MAX: usize = 1 << 19;
/// Between two progress objects of `--json`.
const JSON_PROGRESS: Duration = Duration::from_secs(1);

/// What is being done, as far as it matters for what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Making the replica equal.
    Sync,
    /// Saying what would be done.
    DryRun,
    /// Saying what differs.
    Verify,
}

/// Writes what happens.
pub struct Output {
    json: bool,
    quiet: bool,
    verbose: bool,
    strict: bool,
    task: Task,
    standing: Standing,
    log: Option<Mutex<BufWriter<File>>>,
    listed: Mutex<Listed>,
    reported: Mutex<Instant>,
    told: Mutex<Option<Told>>,
    firsts: Mutex<Firsts>,
    /// The first failure to write what is printed, and that to write the log.
    unwritten: Mutex<[Option<String>; 2]>,
}

/// Problems for the list at the end.
#[derive(Default)]
struct Listed {
    total: u64,
    /// A line for each, but for those of properties that are not kept: of these one for each kind, and how many more there are.
    lines: Vec<(String, u64)>,
    /// The line of each such kind.
    kinds: HashMap<String, usize>,
}

impl Listed {
    fn add(&mut self, problem: &Problem, line: String) {
        self.total += 1;
        let kind = (problem.class == Class::Partly).then(|| format!("{}: {}", problem.act.on(problem.side), problem.cause));
        match kind.as_ref().and_then(|kind| self.kinds.get(kind)) {
            Some(number) => self.lines[*number].1 += 1,
            None if self.lines.len() < LISTED_MAX => {
                self.kinds.extend(kind.map(|kind| (kind, self.lines.len())));
                self.lines.push((line, 0));
            }
            None => {}
        }
    }

    /// How many problems no line speaks of.
    fn unlisted(&self) -> u64 {
        self.total - self.lines.iter().map(|(_, more)| 1 + more).sum::<u64>()
    }
}

/// What was told in passes through the trees that a lost connection ended; the next pass finds it again.
#[derive(Default)]
struct Told {
    pass: u64,
    lines: HashMap<u64, u64>,
}

impl Told {
    /// Notes a line; whether an earlier pass told it.
    fn knows(&mut self, line: &str) -> bool {
        let key = self.lines.hasher().hash_one(line);
        match self.lines.get(&key) {
            Some(pass) => *pass < self.pass,
            None => {
                if self.lines.len() < TOLD_MAX {
                    self.lines.insert(key, self.pass);
                }
                false
            }
        }
    }
}

/// How a run ended, for a program.
fn end_words(end: &End) -> (&'static str, Option<&str>) {
    match end {
        End::Complete => ("complete", None),
        End::Stopped => ("stopped", None),
        End::Lost => ("lost", None),
        End::CutOff(why) => ("cut_off", Some(why)),
        End::Refused(why) => ("refused", Some(why)),
        End::NoPlan(why) => ("no_plan", Some(why)),
    }
}

/// A path as JSON.
pub fn path_fields(path: &RelPath) -> Value {
    if path.is_root() { json!({ "path": "." }) } else { bytes_field("path", OsStr::from_bytes(path.as_bytes())) }
}

/// A root as JSON.
pub fn root_field(name: &str, root: &Endpoint) -> Value {
    bytes_field(name, OsStr::from_bytes(&root.to_bytes()))
}

/// Any bytes as JSON: escaped text, and the bytes in base64 where the text does not say all.
pub fn bytes_field(name: &str, value: &OsStr) -> Value {
    use base64::prelude::{BASE64_STANDARD, Engine};
    let (bytes, text) = (value.as_bytes(), escape(value.as_bytes()));
    if text.as_bytes() == bytes {
        return json!({ name: text });
    }
    json!({ name: text, format!("{name}_base64"): BASE64_STANDARD.encode(bytes) })
}

/// All fields of both objects.
pub fn joined(mut object: Value, more: Value) -> Value {
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
        "failed": counts.failed, "problems": counts.problems(), "deleted": counts.deleted, "respelt": counts.respelt,
        "only_on_replica": counts.only_on_replica,
        "bytes_copied": counts.bytes_copied, "bytes_resumed": counts.bytes_resumed, "bytes_compared": counts.bytes_compared,
        "unkept_owners": counts.unkept_owners, "unkept_privileges": counts.unkept_privileges, "unkept_flags": counts.unkept_flags, "unkept_acls": counts.unkept_acls,
        "known_equal": counts.known_equal, "oldest_note_seconds": counts.oldest_note_seconds, "mismatched": counts.mismatched,
        "times_cut": counts.times_cut_fine + counts.times_cut_seconds, "times_cut_to_seconds": counts.times_cut_seconds,
    })
}

impl Output {
    /// Opens the log, if there is one, and prepares the terminal.
    pub fn new(args: &OutputArgs, task: Task) -> Result<Self, String> {
        Ok(Output {
            json: args.json,
            quiet: args.quiet,
            verbose: args.verbose,
            strict: args.strict,
            task,
            standing: Standing::new(args.progress, args.json || args.quiet),
            log: args.log.as_deref().map(open_log).transpose()?,
            listed: Mutex::default(),
            reported: Mutex::new(Instant::now()),
            told: Mutex::default(),
            firsts: Mutex::default(),
            unwritten: Mutex::default(),
        })
    }

    /// Whether what is not kept, and only counted, ends with the exit code of problems.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Prints a line.
    pub fn print(&self, line: &str) {
        self.print_whole(&escape_text(line));
    }

    fn print_whole(&self, line: &str) {
        let write = || writeln!(io::stdout().lock(), "{line}");
        match self.standing.aside(write) {
            // Nobody reads any more: whoever closed the pipe has what he wanted.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            done => self.keep_failure(0, done, "standard output"),
        }
    }

    /// The run itself goes on: what could not be written is told at its end.
    fn keep_failure(&self, which: usize, done: io::Result<()>, place: &str) {
        if let Err(error) = done {
            self.unwritten.lock()[which].get_or_insert_with(|| format!("cannot write to {place}: {}", cause(&error)));
        }
    }

    /// Tells what could not be written, and the exit code that follows: a log, and what a dry run, a comparison or a program asked for
    /// by --json is told, are no less than what was asked for.
    pub fn final_code(&self, code: Exit) -> Exit {
        let [printed, logged] = std::mem::take(&mut *self.unwritten.lock());
        let matters = self.json || self.task != Task::Sync;
        let fails = logged.is_some() || printed.is_some() && matters;
        for failure in printed.into_iter().chain(logged) {
            eprintln!("driftless: {failure}");
        }
        if fails && code == Exit::Equal { Exit::CouldNotRun } else { code }
    }

    /// Prints an object.
    pub fn print_json(&self, object: Value) {
        self.print_whole(&escape_json(&object.to_string()));
    }

    /// Writes a line into the log, if there is one.
    pub fn write_log(&self, line: &str) {
        if let Some(log) = &self.log {
            let done = writeln!(log.lock(), "{} {}", log_time(), escape_text(line));
            self.keep_failure(1, done, "the log");
        }
    }

    /// The run begins.
    pub fn start(&self, options: &Options) {
        self.write_log(&format!("start    {} -> {}", options.source, options.replica));
        if self.json {
            let roots = joined(root_field("source", &options.source), root_field("replica", &options.replica));
            self.print_json(joined(json!({ "event": "start", "dry_run": options.dry_run, "level": options.level }), roots));
        }
    }

    /// Something that whoever watches should know; the run goes on.
    pub fn note(&self, text: &str) {
        if self.json {
            self.print_json(json!({ "event": "note", "message": text }));
        }
        self.write_log(&format!("note     {text}"));
        let write = || eprintln!("driftless: {text}");
        self.standing.aside(write);
    }

    /// The run did not begin.
    pub fn failed(&self, error: &str, code: Exit) {
        self.clear_bar();
        if self.json {
            self.print_json(json!({ "event": "error", "message": error, "exit_code": code.code() }));
        }
        self.write_log(&format!("error {error}"));
        eprintln!("driftless: {error}");
    }

    /// From now on it is kept in mind what was told, so that it is not told again after a connection was lost.
    pub fn remember(&self) {
        *self.told.lock() = Some(Told::default());
    }

    fn was_told(&self, line: &str) -> bool {
        self.told.lock().as_mut().is_some_and(|told| told.knows(line))
    }

    /// A message for a person, and for the log.
    fn say(&self, line: &str) {
        self.write_log(line);
        let write = || eprintln!("driftless: {line}");
        if !self.quiet {
            self.standing.aside(write);
        }
    }

    /// A connection was lost, so long after the beginning, and for so long it is tried to make it again.
    pub fn line_lost(&self, why: &str, (elapsed, patience): (Duration, Duration)) {
        if self.json {
            self.print_json(json!({ "event": "connection_lost", "reason": why, "seconds": elapsed.as_secs_f64() }));
        }
        self.say(&lost_words(why, patience));
    }

    /// The connection to a host was made again after so long.
    pub fn line_made(&self, host: &str, after: Duration) {
        let seconds = after.as_secs_f64();
        if self.json {
            self.print_json(json!({ "event": "connected_again", "host": host, "seconds": seconds }));
        }
        self.say(&made_words(host, after));
    }

    /// The trees are gone through once more: problems hold if they are found again.
    pub fn begin_again(&self) {
        *self.listed.lock() = Default::default();
        if let Some(told) = self.told.lock().as_mut() {
            told.pass += 1;
        }
    }

    /// The run is over. Returns the exit code.
    pub fn end(&self, summary: &Summary, earlier: &Earlier, code: Exit) -> Exit {
        self.clear_bar();
        let line = self.summary_line(summary, earlier);
        self.write_log(&format!("end      exit code {}; {line}", code.code()));
        self.flush_log();
        if self.json {
            let fields = counts_fields(&summary.counts);
            let seconds = summary.elapsed.as_secs_f64();
            let (end, reason) = end_words(&summary.end);
            let object = json!({
                "event": "summary", "exit_code": code.code(), "seconds": seconds, "end": end, "reason": reason,
                "connections_lost": earlier.lost, "changed_before": earlier.changed + summary.counts.changed_before,
            });
            self.print_json(joined(object, fields));
        } else if !self.quiet {
            self.print(&line);
            self.print_unkept(&summary.counts);
        }
        self.list_problems();
        self.print_end(summary);
        self.final_code(code)
    }

    /// Writes the log out.
    pub fn flush_log(&self) {
        if let Some(log) = &self.log {
            let done = log.lock().flush();
            self.keep_failure(1, done, "the log");
        }
    }

    /// Shows how far it is, if somebody watches; the share is not always known. What matters most comes first in `parts`.
    pub fn show_progress(&self, share: Option<f64>, parts: &[String]) {
        self.standing.show(share, parts);
    }

    /// Leaves the terminal as it was.
    pub fn clear_bar(&self) {
        self.standing.clear();
    }

    fn summary_line(&self, summary: &Summary, earlier: &Earlier) -> String {
        let c = &summary.counts;
        let seconds = summary.elapsed.as_secs_f64();
        let (same, made, gone, respelt) = match self.task {
            Task::Sync => ("same", "changed", "deleted", "respelt"),
            Task::DryRun => ("same", "to change", "to delete", "to respell"),
            Task::Verify => ("equal", "different", "only on the replica", "differ in the spelling of their names"),
        };
        let mut line = format!("{}: {} {same}, {} {made}", show_entries(c.seen), show_count(c.same), show_count(c.changed));
        for (count, word) in [(c.skipped(), "skipped"), (c.failed, "failed")] {
            if count > 0 {
                line.push_str(&format!(", {} {word}", show_count(count)));
            }
        }
        for (count, word) in [(c.deleted, gone), (c.respelt, respelt)] {
            if count > 0 {
                line.push_str(&format!("; {} {word}", show_count(count)));
            }
        }
        if c.only_on_replica > 0 {
            line.push_str(&format!("; {} only on the replica, kept", show_count(c.only_on_replica)));
        }
        let (done, bytes) = self.moved(c);
        if self.task != Task::DryRun {
            let rate = (bytes as f64 / seconds.max(0.001)) as u64;
            let rate = if bytes > 0 { format!(" ({}/s)", show_bytes(rate)) } else { String::new() };
            line.push_str(&format!("; {done} {} in {seconds:.2} s{rate}", show_bytes(bytes)));
        }
        line + &remarks(c, earlier)
    }

    /// What is not kept, and counts as no problem.
    fn print_unkept(&self, c: &Counts) {
        for line in self.firsts.lock().lines(c) {
            eprintln!("driftless: not kept here: {line}");
        }
    }

    /// What is done with content, and with how many bytes of it so far.
    fn moved(&self, c: &Counts) -> (&'static str, u64) {
        if self.task == Task::Verify { ("compared", c.bytes_compared) } else { ("copied", c.bytes_copied) }
    }

    /// Lists the problems of the run for a person.
    pub fn list_problems(&self) {
        let listed = self.listed.lock();
        if listed.total == 0 {
            return;
        }
        eprintln!("driftless: {}:", show_counted(listed.total, "problem", "problems"));
        for (line, others) in &listed.lines {
            let others = if *others == 0 { String::new() } else { format!("; the same for {} more", show_count(*others)) };
            eprintln!("  {line}{others}");
        }
        if listed.unlisted() > 0 {
            eprintln!("  and {} more (--log FILE keeps all)", show_count(listed.unlisted()));
        }
    }

    fn print_end(&self, summary: &Summary) {
        match &summary.end {
            End::Complete => {}
            End::Stopped => eprintln!(
                "driftless: stopped; what was finished is kept, of large files up to their last checkpoint. To go on, run again: {}",
                command_line(std::env::args_os())
            ),
            End::CutOff(why) => eprintln!("driftless: the connection was lost: {why}; what was finished is kept, run again to go on"),
            End::Lost => eprintln!("driftless: the replica's disk did not keep what was written; check it, then run again"),
            End::Refused(why) | End::NoPlan(why) => eprintln!("driftless: {why}; all else was done"),
        }
    }
}

/// What is out of the ordinary.
fn remarks(c: &Counts, earlier: &Earlier) -> String {
    let mut remarks = String::new();
    let [from, by] = if earlier.lost > 0 { ["before"; 2] } else { ["from an interrupted run", "by an interrupted run"] };
    if c.bytes_resumed > 0 {
        remarks.push_str(&format!("; {} were there {from}", show_bytes(c.bytes_resumed)));
    }
    if c.known_equal > 0 {
        let ago = if earlier.lost > 0 { String::new() } else { format!(", {} ago at most", show_time(c.oldest_note_seconds)) };
        let files = show_counted(c.known_equal, "file", "files");
        remarks.push_str(&format!("; the content of {files} was compared {by}{ago}"));
    }
    if earlier.lost > 0 {
        let times = if earlier.lost == 1 { "once".into() } else { format!("{} times", show_count(earlier.lost)) };
        remarks.push_str(&format!("; the connection was lost {times}"));
    }
    if earlier.changed > 0 {
        remarks.push_str(&format!(", and {} changed before that", show_counted(earlier.changed, "was", "were")));
    }
    if c.changed_before > 0 {
        remarks.push_str(&format!("; {} changed before, and looked at once more", show_counted(c.changed_before, "was", "were")));
    }
    for (count, kept) in [(c.times_cut_seconds, "to the second"), (c.times_cut_fine, "not to the nanosecond")] {
        if count > 0 {
            let times = show_counted(count, "time was compared as the replica keeps it", "times were compared as the replica keeps them");
            remarks.push_str(&format!("; {times}, {kept}"));
        }
    }
    if c.mismatched > 0 {
        let times = show_counted(c.mismatched, "time", "times");
        remarks.push_str(&format!("; {times} what was read back was not what had been written"));
    }
    remarks
}

/// A command as a shell takes it.
pub fn command_line(words: impl IntoIterator<Item = OsString>) -> String {
    words.into_iter().map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
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

/// The log is the user's own file, not part of a replicated tree.
#[allow(clippy::disallowed_methods)]
fn open_log(path: &std::path::Path) -> Result<Mutex<BufWriter<File>>, String> {
    let file = OpenOptions::new().append(true).create(true).mode(own::file_mode()).open(path);
    let file = file.map_err(|error| format!("{}: cannot open the log: {}", quote(path), cause(&error)))?;
    Ok(Mutex::new(BufWriter::new(file)))
}

/// `differs  file     a/b  mode: 0644, replica 0600; content: bytes 0-4095`.
pub fn difference(receipt: &Receipt) -> String {
    let details = details(receipt);
    let details = if details.is_empty() { String::new() } else { format!("  {}", details.join("; ")) };
    format!("{:<8} {:<8} {}{details}", found(receipt.action), receipt.kind.word(), receipt.path)
}

/// What differs, each property with both values.
pub fn details(receipt: &Receipt) -> Vec<String> {
    let shown = |value: &str| if value.is_empty() { "\"\"".into() } else { value.to_owned() };
    let values = receipt.values.iter();
    let mut details: Vec<String> =
        values.map(|value| format!("{}: {}, replica {}", value.property, shown(&value.source), shown(&value.replica))).collect();
    if receipt.what.has(What::LINKS) {
        details.push("links: another group of hard links".into());
    }
    if receipt.what.has(What::CONTENT) && receipt.ranges.is_empty() {
        details.push("content: the replica's cannot be read".into());
    } else if receipt.what.has(What::CONTENT) {
        let ranges: Vec<String> = receipt.ranges.iter().take(SHOWN_RANGES_MAX).map(|r| format!("{}-{}", r.start, r.end - 1)).collect();
        let more = if receipt.ranges.len() > SHOWN_RANGES_MAX { " and more" } else { "" };
        details.push(format!("content: bytes {}{more}", ranges.join(" ")));
    }
    details
}

/// What a verification found, in a word.
pub fn found(action: Action) -> &'static str {
    match action {
        Action::Create => "missing",
        Action::Delete => "extra",
        _ => "differs",
    }
}

/// What differs, for a program.
pub fn difference_fields(receipt: &Receipt) -> Value {
    let ranges: Vec<[u64; 2]> = receipt.ranges.iter().map(|range| [range.start, range.end]).collect();
    json!({
        "event": "difference", "found": found(receipt.action), "kind": receipt.kind, "what": receipt.what.words(),
        "size": receipt.size, "values": receipt.values, "ranges": ranges,
    })
}

fn change_fields(receipt: &Receipt) -> Value {
    let (kind, action, what) = (receipt.kind, receipt.action, receipt.what.words());
    json!({ "event": "change", "kind": kind, "action": action, "what": what, "size": receipt.size })
}

/// `create  file  a/b`, and behind it what differed.
fn itemised(receipt: &Receipt) -> String {
    let what = receipt.what.words().join(",");
    let what = if what.is_empty() { what } else { format!("  ({what})") };
    format!("{:<8} {:<8} {}{what}", receipt.action.word(), receipt.kind.word(), receipt.path)
}

impl Monitor for Output {
    fn wants_receipts(&self) -> bool {
        self.json || self.verbose || self.log.is_some() || (self.task != Task::Sync && !self.quiet)
    }

    fn wants_values(&self) -> bool {
        self.task == Task::Verify && self.wants_receipts()
    }

    fn receipt(&self, receipt: &Receipt) {
        let verifies = self.task == Task::Verify;
        let line = if verifies { difference(receipt) } else { itemised(receipt) };
        // What is really done is told as often as it is done.
        if self.task != Task::Sync && self.was_told(&line) {
            return;
        }
        self.write_log(&line);
        if self.json {
            let fields = if verifies { difference_fields(receipt) } else { change_fields(receipt) };
            self.print_json(joined(fields, path_fields(&receipt.path)));
        } else if !self.quiet && (self.verbose || self.task != Task::Sync) {
            self.print(&line);
        }
    }

    fn unkept(&self, what: Unkept, path: &RelPath) {
        self.firsts.lock().add(what, path);
        if self.json && !self.was_told(&format!("unkept {path} {what:?}")) {
            self.print_json(joined(json!({ "event": "unkept", "what": what.words() }), path_fields(path)));
        }
    }

    fn problem(&self, problem: &Problem) {
        let line = problem.to_string();
        let is_new = !self.was_told(&line);
        if is_new {
            self.write_log(&format!("problem  {line}"));
        }
        if self.json && is_new {
            let object = json!({
                "event": "problem", "side": problem.side, "act": problem.act.words(), "cause": problem.cause,
                "class": problem.class, "follows": problem.class.follows(),
            });
            self.print_json(joined(object, path_fields(&problem.path)));
        }
        self.listed.lock().add(problem, line);
    }

    fn look_again(&self) {
        self.begin_again();
    }

    fn note(&self, text: &str) {
        Output::note(self, text);
    }

    fn progress(&self, progress: &Progress) {
        let (share, left) = (progress.counts.walked_share(), self.standing.seconds_left(progress));
        self.show_progress(Some(share), &parts(progress, left, self.moved(&progress.counts)));
        if self.json {
            let mut reported = self.reported.lock();
            if reported.elapsed() >= JSON_PROGRESS {
                *reported = Instant::now();
                let seconds = progress.elapsed.as_secs_f64();
                let object = json!({ "event": "progress", "seconds": seconds, "share": share, "eta_seconds": left });
                self.print_json(joined(object, counts_fields(&progress.counts)));
            }
        }
    }
}

/// The words for a line that was lost and is to be made again.
pub fn lost_words(why: &str, patience: Duration) -> String {
    format!("the connection was lost: {why}; trying for {} s to connect again", patience.as_secs())
}

/// The words for one that was made again.
pub fn made_words(host: &str, after: Duration) -> String {
    format!("{host}: connected again after {:.1} s; going on", after.as_secs_f64())
}
