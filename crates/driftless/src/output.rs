//! What a run prints: for a person at a terminal, for a program (JSON), and into a log.
//!
//! Problems and changes are written as they come; a person gets the list of problems again at the
//! end, up to a bound.

pub mod cast;
pub mod diagnostics;
pub mod doctor;
pub mod files;
pub mod html;
pub mod human;
pub mod jobs;
pub mod json;
mod listed;
mod log;
pub mod mirror;
pub mod node;
pub mod product;
pub mod progress;
pub mod put;
mod table;
mod told;
pub mod trash;
mod unkept;
pub mod watch;

use crate::args::OutputArgs;
use crate::exit::Exit;
use driftless_engine::{Counts, Monitor, Options, Progress, Summary};
use driftless_lock::Mutex;
use driftless_model::event::{
    ChangeMade, DifferenceFound, Event, ProblemMet, ProgressMade, RunSummary, Start,
};
use driftless_model::{Problem, Receipt, RelPath, Unkept, cause, escape_text};
use driftless_session::Earlier;
use listed::Listed;
use log::Log;
use progress::{Standing, parts};
use serde::Serialize;
use std::io::{self, Write};
use std::time::{Duration, Instant};
use told::Told;
use unkept::Firsts;

/// Between two progress objects of `--json`.
const JSON_PROGRESS: Duration = Duration::from_secs(1);

/// What is being done, as far as it matters for what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Making the replica equal.
    Sync,
    /// Making a deposit: what a person reads goes to standard error.
    Put,
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
    log: Option<Log>,
    listed: Mutex<Listed>,
    reported: Mutex<Instant>,
    told: Mutex<Option<Told>>,
    firsts: Mutex<Firsts>,
    /// The first failure to write what is printed, and that to write the log.
    unwritten: Mutex<[Option<String>; 2]>,
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
            log: args.log.as_deref().map(Log::open).transpose()?,
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
            self.unwritten.lock()[which]
                .get_or_insert_with(|| format!("cannot write to {place}: {}", cause(&error)));
        }
    }

    /// Tells what could not be written, and the exit code that follows: a log, and what a dry run,
    /// a comparison or a program asked for by --json is told, are no less than what was asked for.
    pub fn final_code(&self, code: Exit) -> Exit {
        let [printed, logged] = std::mem::take(&mut *self.unwritten.lock());
        let matters = self.json || !matches!(self.task, Task::Sync | Task::Put);
        let fails = logged.is_some() || printed.is_some() && matters;
        for failure in printed.into_iter().chain(logged) {
            eprintln!("driftless: {failure}");
        }
        if fails && code == Exit::Equal {
            Exit::CouldNotRun
        } else {
            code
        }
    }

    /// Prints an object.
    pub fn print_json(&self, object: &impl Serialize) {
        self.print_whole(&json::line(object));
    }

    /// Tells a program of an event, if one listens.
    fn tell(&self, event: &Event) {
        if self.json {
            self.print_json(event);
        }
    }

    /// Writes a line into the log, if there is one.
    pub fn write_log(&self, line: &str) {
        if let Some(log) = &self.log {
            let done = log.write(line);
            self.keep_failure(1, done, "the log");
        }
    }

    /// The run begins.
    pub fn start(&self, options: &Options) {
        self.write_log(&format!(
            "start    {} -> {}",
            options.source, options.replica
        ));
        let roots = json::roots(&options.source, &options.replica);
        self.tell(&Event::Start(Start {
            roots,
            dry_run: !options.applies(),
            level: options.policy.level,
        }));
    }

    /// Something that the monitor should know; the run goes on.
    pub fn note(&self, text: &str) {
        self.tell(&Event::Note {
            message: text.to_owned(),
        });
        self.write_log(&format!("note     {text}"));
        let write = || eprintln!("driftless: {text}");
        self.standing.aside(write);
    }

    /// The run did not begin.
    pub fn failed(&self, error: &str, code: Exit) {
        self.clear_bar();
        self.tell(&Event::Error {
            message: error.to_owned(),
            exit_code: code.code(),
        });
        self.write_log(&format!("error {error}"));
        eprintln!("driftless: {error}");
    }

    /// From now on it is kept in mind what was told, so that it is not told again after a
    /// connection was lost.
    pub fn remember(&self) {
        *self.told.lock() = Some(Told::default());
    }

    fn was_told(&self, line: &str) -> bool {
        self.told
            .lock()
            .as_mut()
            .is_some_and(|told| told.knows(line))
    }

    /// Returns whether a person reads each change, or each difference: those are what a comparison is
    /// asked for, also where only problems are to be printed.
    fn prints_receipts(&self) -> bool {
        match self.task {
            Task::Sync | Task::Put => self.verbose,
            Task::DryRun => !self.quiet,
            Task::Verify => true,
        }
    }

    /// A message for a person, and for the log.
    fn say(&self, line: &str) {
        self.write_log(line);
        let write = || eprintln!("driftless: {line}");
        if !self.quiet {
            self.standing.aside(write);
        }
    }

    /// A connection was lost, so long after the beginning, and for so long it is tried to make it
    /// again.
    pub fn line_lost(&self, why: &str, (elapsed, patience): (Duration, Duration)) {
        self.tell(&Event::ConnectionLost {
            reason: why.to_owned(),
            seconds: elapsed.as_secs_f64(),
        });
        self.say(&driftless_session::lost_words(why, patience));
    }

    /// The connection to a host was made again after so long.
    pub fn line_made(&self, host: &str, after: Duration) {
        self.tell(&Event::ConnectedAgain {
            host: host.to_owned(),
            seconds: after.as_secs_f64(),
        });
        self.say(&driftless_session::made_words(host, after));
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
        let line = human::summary_line(self.task, summary, earlier);
        self.write_log(&format!("end      exit code {}; {line}", code.code()));
        self.flush_log();
        if self.json {
            self.tell(&Event::Summary(run_summary(summary, earlier, code)));
        } else if !self.quiet {
            match self.task {
                Task::Put => eprintln!("driftless: {line}"),
                _ => self.print(&line),
            }
            self.print_unkept(&summary.counts);
        }
        self.list_problems();
        human::print_end(summary);
        self.final_code(code)
    }

    /// Writes the log out.
    pub fn flush_log(&self) {
        if let Some(log) = &self.log {
            let done = log.flush();
            self.keep_failure(1, done, "the log");
        }
    }

    /// Shows how far it is, if somebody watches; the share is not always known. What matters most
    /// comes first in `parts`.
    pub fn show_progress(&self, share: Option<f64>, parts: &[String]) {
        self.standing.show(share, parts);
    }

    /// Leaves the terminal as it was.
    pub fn clear_bar(&self) {
        self.standing.clear();
    }

    /// What is not kept, and counts as no problem.
    fn print_unkept(&self, c: &Counts) {
        for line in self.firsts.lock().lines(c) {
            eprintln!("driftless: not kept here: {line}");
        }
    }

    /// Lists the problems of the run for a person.
    pub fn list_problems(&self) {
        self.listed.lock().print();
    }
}

impl Monitor for Output {
    fn wants_receipts(&self) -> bool {
        self.json || self.log.is_some() || self.prints_receipts()
    }

    fn wants_values(&self) -> bool {
        self.task == Task::Verify && self.wants_receipts()
    }

    fn receipt(&self, receipt: &Receipt) {
        let path = json::path_text(&receipt.path);
        let (event, line) = if self.task == Task::Verify {
            let found = DifferenceFound::new(receipt, path);
            let line = human::difference(&found);
            (Event::Difference(found), line)
        } else {
            let change = ChangeMade::new(receipt, path);
            let line = human::change(&change);
            (Event::Change(change), line)
        };
        // What is really done is told as often as it is done.
        if self.task != Task::Sync && self.was_told(&line) {
            return;
        }
        self.write_log(&line);
        if self.json {
            self.tell(&event);
        } else if self.prints_receipts() {
            self.print(&line);
        }
    }

    fn unkept(&self, what: Unkept, path: &RelPath) {
        self.firsts.lock().add(what, path);
        if self.json && !self.was_told(&format!("unkept {path} {what:?}")) {
            self.tell(&Event::Unkept {
                path: json::path_text(path),
                what,
            });
        }
    }

    fn problem(&self, problem: &Problem) {
        let met = ProblemMet::new(problem, json::path_text(&problem.path));
        let line = human::problem(&met);
        self.listed.lock().add(&met, line.clone());
        if !self.was_told(&line) {
            self.write_log(&format!("problem  {line}"));
            self.tell(&Event::Problem(met));
        }
    }

    fn look_again(&self) {
        self.begin_again();
    }

    fn note(&self, text: &str) {
        Output::note(self, text);
    }

    fn progress(&self, progress: &Progress) {
        let (share, left) = (
            progress.counts.walked_share(),
            self.standing.seconds_left(progress),
        );
        self.show_progress(
            Some(share),
            &parts(progress, left, human::moved(self.task, &progress.counts)),
        );
        if self.json {
            let mut reported = self.reported.lock();
            if reported.elapsed() >= JSON_PROGRESS {
                *reported = Instant::now();
                let seconds = progress.elapsed.as_secs_f64();
                let counters = json::counters(&progress.counts);
                self.tell(&Event::Progress(ProgressMade {
                    seconds,
                    share,
                    eta_seconds: left,
                    counters,
                }));
            }
        }
    }
}

fn run_summary(summary: &Summary, earlier: &Earlier, code: Exit) -> RunSummary {
    let (end, reason) = json::end_words(&summary.end);
    RunSummary {
        exit_code: code.code(),
        seconds: summary.elapsed.as_secs_f64(),
        end,
        reason: reason.map(str::to_owned),
        connections_lost: earlier.lost,
        changed_before: earlier.changed + summary.counts.changed_before,
        counters: json::counters(&summary.counts),
    }
}
