//! What an audit prints: for a person at a terminal, for a program (JSON), and into a log.

use super::Proof;
use crate::args::AuditArgs;
use crate::args::OutputArgs;
use crate::exit::Exit;
use crate::output::human::difference;
use crate::output::json::{path_text, roots};
use crate::output::{Output, Task};
use crate::units::{show_count, show_entries};
use driftless_audit::{Audit, AuditMonitor, AuditOptions, AuditStage, Mismatch};
use driftless_engine::Monitor;
use driftless_lock::Mutex;
use driftless_model::event::{AuditEvent, AuditSummary, DifferenceFound};
use driftless_model::{Problem, Stamp};
use std::time::{Duration, Instant};

/// Between two progress objects of `--json`.
const JSON_PROGRESS: Duration = Duration::from_secs(1);

/// Writes how an audit goes.
pub struct Console<'a> {
    args: &'a AuditArgs,
    options: &'a AuditOptions,
    output: Output,
    began: Instant,
    reported: Mutex<Instant>,
}

impl<'a> Console<'a> {
    /// Opens the log, if there is one, and prepares the terminal.
    pub fn new(args: &'a AuditArgs, options: &'a AuditOptions) -> Result<Self, String> {
        let output = OutputArgs {
            json: args.json,
            log: args.log.clone(),
            quiet: args.quiet,
            verbose: false,
            progress: args.progress,
            strict: false,
        };
        let (output, began) = (Output::new(&output, Task::Verify)?, Instant::now());
        Ok(Console {
            args,
            options,
            output,
            began,
            reported: Mutex::new(began),
        })
    }

    /// The audit begins.
    pub fn start(&self) {
        if self.args.json {
            let run = &self.options.run;
            self.output.print_json(&AuditEvent::Start {
                roots: roots(&run.source, &run.replica),
                level: run.policy.level,
                samples: self.options.samples,
                seed: self.options.seed,
                confidence: self.args.confidence,
                fraction: self.args.fraction,
                grace_seconds: self.args.grace,
            });
        }
    }

    /// The audit did not begin.
    pub fn failed(&self, error: &str, code: Exit) -> Exit {
        self.output.failed(error, code);
        code
    }

    /// The audit is over. Returns the exit code.
    pub fn end(&self, audit: &Audit, proof: &Proof, code: Exit) -> Exit {
        self.output.clear_bar();
        for mismatch in &audit.mismatches {
            self.mismatch(mismatch);
        }
        if self.args.json {
            self.output
                .print_json(&summary(audit, proof, self.args.confidence, code));
        } else if !self.args.quiet {
            self.output.print(&counts_line(audit, self.options.seed));
            self.output.print(&proof.sentence);
        }
        self.output.list_problems();
        if let Some(why) = &audit.cut_off {
            eprintln!("driftless: the connection was lost: {why}");
        }
        self.output.flush_log();
        self.output.final_code(code)
    }

    /// Where it is written.
    pub fn output(&self) -> &Output {
        &self.output
    }

    fn mismatch(&self, mismatch: &Mismatch) {
        let line = self.line(mismatch);
        self.output.write_log(&line);
        if self.args.json {
            self.output.print_json(&AuditEvent::Difference {
                found: found(mismatch),
                recent: mismatch.recent,
                changed: mismatch.changed.sec,
            });
        } else {
            self.output.print(&line);
        }
    }

    fn line(&self, mismatch: &Mismatch) -> String {
        let line = difference(&found(mismatch));
        if mismatch.recent {
            format!(
                "{line}  ({})",
                recent_words(mismatch.changed, self.options.started)
            )
        } else {
            line
        }
    }
}

fn found(mismatch: &Mismatch) -> DifferenceFound {
    DifferenceFound::new(&mismatch.receipt, path_text(&mismatch.receipt.path))
}

/// How long before the audit, or that it was during it.
pub fn recent_words(changed: Stamp, started: Stamp) -> String {
    if changed >= started {
        return "recent: changed during the audit".into();
    }
    format!(
        "recent: changed {} s before the audit",
        (started.sec - changed.sec).max(1)
    )
}

/// `100 entries, 10 sampled (seed 7): 8 equal, 1 different, 1 recent; 0.10 s`.
pub fn counts_line(audit: &Audit, seed: u64) -> String {
    let mut line = show_entries(audit.entries);
    line.push_str(&format!(
        ", {} sampled (seed {seed})",
        show_count(audit.sampled)
    ));
    if audit.complete {
        line.push_str(&format!(
            ": {} equal, {} different",
            show_count(audit.same),
            show_count(audit.drift)
        ));
        for (count, word) in [
            (audit.recent, "recent"),
            (audit.vanished, "vanished"),
            (audit.failed, "failed"),
        ] {
            if count > 0 {
                line.push_str(&format!(", {} {word}", show_count(count)));
            }
        }
    }
    line.push_str(&format!("; {:.2} s", audit.elapsed.as_secs_f64()));
    line
}

fn summary(audit: &Audit, proof: &Proof, confidence: f64, code: Exit) -> AuditEvent {
    let end = match audit {
        Audit {
            cut_off: Some(_), ..
        } => "cut_off",
        Audit { complete: true, .. } => "complete",
        _ => "stopped",
    };
    AuditEvent::Summary(AuditSummary {
        exit_code: code.code(),
        seconds: audit.elapsed.as_secs_f64(),
        end,
        reason: audit.cut_off.clone(),
        entries: audit.entries,
        sampled: audit.sampled,
        same: audit.same,
        drift: audit.drift,
        recent: audit.recent,
        vanished: audit.vanished,
        failed: audit.failed,
        problems: audit.problems,
        confidence,
        bound: proof.bound,
        exact: proof.exact,
        proof: proof.sentence.clone(),
    })
}

impl AuditMonitor for Console<'_> {
    fn problem(&self, problem: &Problem) {
        self.output.problem(problem);
    }

    fn progress(&self, stage: AuditStage, entries: u64, of: Option<u64>, jobs: usize) {
        let stage = match stage {
            AuditStage::Counting => "counting",
            AuditStage::Comparing => "comparing",
            AuditStage::Looking => "looking again",
        };
        if self.args.json {
            let mut reported = self.reported.lock();
            if reported.elapsed() >= JSON_PROGRESS {
                *reported = Instant::now();
                let seconds = self.began.elapsed().as_secs_f64();
                self.output.print_json(&AuditEvent::Progress {
                    stage,
                    entries,
                    of,
                    seconds,
                });
            }
        }
        let share = of.map(|of| entries as f64 / of.max(1) as f64);
        let of = of
            .map(|of| format!(" of {}", show_count(of)))
            .unwrap_or_default();
        self.output.show_progress(
            share,
            &[
                format!("{stage}: {}{of} entries", show_count(entries)),
                format!("{jobs} jobs"),
            ],
        );
    }
}
