//! `driftless audit`: what is asked for, what it proves, and the exit code.

mod console;
mod plots;
mod report;

use crate::args::{AuditArgs, ChooseArgs};
use crate::command::config;
use crate::command::reach::{self, Watching};
use crate::exit::Exit;
use crate::output::files::refuse_within_trees;
use crate::output::html;
use crate::output::product::Product;
use crate::signals::{self, Signals};
use clap::ArgMatches;
use console::Console;
use driftless_audit::{Audit, AuditOptions};
use driftless_engine::{Counts, End, Mode, Options, RunError, now};
use driftless_session::{Before, Connections, Earlier, Passed, repeat};
use driftless_verify::{samples_needed, upper_bound};
use std::time::Duration;

impl AuditArgs {
    fn samples(&self) -> u64 {
        let for_fraction = || {
            self.fraction
                .map(|fraction| samples_needed(self.confidence, fraction))
        };
        self.samples
            .or_else(for_fraction)
            .expect("one of them is required")
    }

    /// Which entries are chosen, in the words of the other commands.
    pub fn choose(&self) -> ChooseArgs {
        ChooseArgs {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            filter_from: self.filter_from.clone(),
            files_from: None,
            from0: false,
            one_file_system: self.one_file_system,
            min_size: None,
            max_size: None,
        }
    }

    fn options(&self, matches: &ArgMatches) -> Result<AuditOptions, String> {
        // It changes nothing.
        let run = Options {
            mode: Mode::Compare,
            ..config::audit(self, matches)?
        };
        let seed = self.seed.unwrap_or_else(|| fastrand::u32(..).into());
        let grace = Duration::from_secs(self.grace);
        Ok(AuditOptions {
            run,
            samples: self.samples(),
            seed,
            started: now(),
            grace,
            census: self.report.is_some(),
        })
    }
}

/// Runs an audit; returns the exit code.
pub fn run(args: &AuditArgs, matches: &ArgMatches) -> Exit {
    let outputs = [
        ("--log", args.log.as_deref()),
        ("--report", args.report.as_deref()),
    ];
    let checked = args
        .options(matches)
        .and_then(|options| refuse_within_trees(&outputs, &options.run).map(|()| options));
    let mut options = match checked {
        Ok(options) => options,
        Err(error) => return refuse(&error, Exit::Usage),
    };
    let signals = signals::watch();
    let reached = reach::connect(&mut options.run, &args.reach, &signals);
    let opened = Console::new(args, &options).and_then(|console| {
        let report = args
            .report
            .as_deref()
            .map(|path| Product::begin(path, html::FORM))
            .transpose()?;
        Ok((console, report))
    });
    let (console, report_file) = match opened {
        Ok(opened) => opened,
        Err(error) => return refuse(&error, Exit::CouldNotRun),
    };
    let mut connections = match reached {
        Ok(connections) => connections,
        Err((code, error)) => return console.failed(&error, code),
    };
    console.start();
    let audit = match audit(&options, &mut connections, &console, &signals) {
        Ok(audit) => audit,
        Err(error) => return console.failed(&error.to_string(), Exit::CouldNotRun),
    };
    let proof = Proof::of(&audit, args.confidence);
    let mut code = Exit::of_audit(&audit, signals.number());
    if let Some(file) = report_file.filter(|_| audit.complete)
        && let Err(error) = html::write(file, &report::page(args, &options, &audit, &proof))
    {
        code = refuse(&error, Exit::CouldNotRun);
    }
    console.end(&audit, &proof, code)
}

/// Audits, from the beginning whenever a connection was lost: the seed draws the same sample.
/// The reader of the audit finds in `cut_off` why it could not go on.
fn audit(
    options: &AuditOptions,
    connections: &mut Connections,
    console: &Console,
    signals: &Signals,
) -> Result<Audit, RunError> {
    console.output().remember();
    let pass = |run: &mut Options, before: &Before<'_>| {
        let mut audit = driftless_audit::audit(
            &AuditOptions {
                run: run.clone(),
                ..options.clone()
            },
            console,
            &signals.stop,
        )?;
        audit.elapsed = before.began.elapsed();
        let end = audit.cut_off.clone().map_or(End::Complete, End::CutOff);
        Ok(Passed {
            counts: Counts {
                seen: audit.entries,
                ..Counts::default()
            },
            end,
            result: audit,
        })
    };
    let (mut run, watching) = (
        options.run.clone(),
        Watching {
            output: console.output(),
            signals,
        },
    );
    let passed = repeat(
        (&mut run, connections),
        &watching,
        (&mut Earlier::default(), false),
        pass,
    )?;
    let cut_off = if let End::CutOff(why) = passed.end {
        Some(why)
    } else {
        None
    };
    Ok(Audit {
        cut_off,
        ..passed.result
    })
}

fn refuse(error: &str, code: Exit) -> Exit {
    eprintln!("driftless: {error}");
    code
}

/// What an audit proves of all entries.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// The fraction of all entries that differ at most; `None` if nothing is proven.
    pub bound: Option<f64>,
    /// Every entry was compared: the fraction is exact, and nothing is left to chance.
    pub exact: bool,
    /// The same in a sentence.
    pub sentence: String,
}

impl Proof {
    /// What follows from what was found, with this confidence.
    pub fn of(audit: &Audit, confidence: f64) -> Proof {
        use crate::units::{show_count, show_share};
        let (drift, settled, entries) = (audit.drift, audit.settled(), audit.entries);
        let nothing = |sentence: &str| Proof {
            bound: None,
            exact: false,
            sentence: sentence.into(),
        };
        if audit.cut_off.is_some() {
            return nothing("the connection was lost, so nothing is proven");
        }
        if !audit.complete {
            return nothing("the audit was stopped, so it proves nothing");
        }
        if settled == 0 {
            return nothing("nothing could be compared, so nothing is proven");
        }
        let (verb, all) = (
            if drift == 1 { "differs" } else { "differ" },
            show_count(entries),
        );
        if settled == entries {
            let bound = drift as f64 / entries as f64;
            let sentence = match drift {
                _ if entries == 1 => format!(
                    "the only entry was compared, and {}",
                    if drift == 0 {
                        "does not differ"
                    } else {
                        "differs"
                    }
                ),
                0 => format!("all {all} entries were compared, and none differs"),
                _ => format!(
                    "all {all} entries were compared, and {} {verb}: {}",
                    show_count(drift),
                    show_share(bound)
                ),
            };
            return Proof {
                bound: Some(bound),
                exact: true,
                sentence,
            };
        }
        let bound = upper_bound(drift, settled, confidence);
        let sentence = format!(
            "{} of {} sampled entries {verb}: with {} confidence at most {} of all {all} entries do",
            show_count(drift),
            show_count(settled),
            show_share(confidence),
            show_share(bound),
        );
        Proof {
            bound: Some(bound),
            exact: false,
            sentence,
        }
    }

    /// Returns the result in a line, for readers who decide and do not calculate.
    pub fn verdict(&self, audit: &Audit, confidence: f64) -> String {
        use crate::units::{show_count, show_counted, show_share};
        let entries = show_counted(audit.entries, "entry", "entries");
        let verb = if audit.drift == 1 {
            "differs"
        } else {
            "differ"
        };
        match self.bound {
            None => format!("not passed: {}", self.sentence),
            Some(_) if audit.drift > 0 => {
                let compared = show_counted(audit.settled(), "compared entry", "compared entries");
                format!(
                    "not passed: {} of {compared} {verb}",
                    show_count(audit.drift)
                )
            }
            Some(_) if audit.problems > 0 => format!(
                "not passed: {}, so not everything could be compared",
                show_counted(audit.problems, "problem", "problems")
            ),
            Some(_) if self.exact => format!("passed: none of {entries} differs"),
            Some(bound) => format!(
                "passed: at most {} of {entries} differ ({} confidence)",
                show_share(bound),
                show_share(confidence)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit(entries: u64, same: u64, drift: u64) -> Audit {
        Audit {
            entries,
            sampled: same + drift,
            same,
            drift,
            recent: 0,
            vanished: 0,
            failed: 0,
            problems: 0,
            mismatches: Vec::new(),
            census: Vec::new(),
            elapsed: Duration::ZERO,
            complete: true,
            cut_off: None,
        }
    }

    #[test]
    fn the_sentence_says_what_the_sample_proves() {
        let cases = [
            (
                audit(1_234_567, 29_956, 0),
                0.95,
                "0 of 29,956 sampled entries differ: with 95 % confidence at most 0.01 % of all 1,234,567 entries do",
            ),
            (
                audit(1_234_567, 47_440, 1),
                0.95,
                "1 of 47,441 sampled entries differs: with 95 % confidence at most 0.01 % of all 1,234,567 entries do",
            ),
            (
                audit(2000, 100, 0),
                0.999,
                "0 of 100 sampled entries differ: with 99.9 % confidence at most 6.7 % of all 2,000 entries do",
            ),
            (
                audit(2000, 1980, 20),
                0.95,
                "all 2,000 entries were compared, and 20 differ: 1 %",
            ),
            (
                audit(2000, 2000, 0),
                0.95,
                "all 2,000 entries were compared, and none differs",
            ),
            (
                audit(10, 0, 0),
                0.95,
                "nothing could be compared, so nothing is proven",
            ),
        ];
        for (audit, confidence, sentence) in cases {
            assert_eq!(Proof::of(&audit, confidence).sentence, sentence);
        }
    }

    #[test]
    fn the_verdict_says_whether_the_replica_passed() {
        let problems = Audit {
            problems: 2,
            ..audit(2000, 100, 0)
        };
        for (audit, verdict) in [
            (
                audit(2000, 100, 0),
                "passed: at most 3 % of 2,000 entries differ (95 % confidence)",
            ),
            (
                audit(2000, 2000, 0),
                "passed: none of 2,000 entries differs",
            ),
            (
                audit(2000, 99, 1),
                "not passed: 1 of 100 compared entries differs",
            ),
            (
                problems,
                "not passed: 2 problems, so not everything could be compared",
            ),
            (
                audit(10, 0, 0),
                "not passed: nothing could be compared, so nothing is proven",
            ),
        ] {
            let proof = Proof::of(&audit, 0.95);
            assert_eq!(proof.verdict(&audit, 0.95), verdict);
        }
    }

    #[test]
    fn the_exit_code_says_the_gravest_thing_that_is_certain() {
        let clean = audit(10, 10, 0);
        let problems = Audit {
            problems: 1,
            ..clean.clone()
        };
        let both = Audit {
            drift: 1,
            ..problems.clone()
        };
        let recent = Audit {
            recent: 1,
            ..clean.clone()
        };
        let stopped = Audit {
            complete: false,
            ..both.clone()
        };
        assert_eq!(
            [clean, problems, both, recent, stopped].map(|audit| Exit::of_audit(&audit, 2).code()),
            [0, 3, 4, 0, 130]
        );
    }
}
