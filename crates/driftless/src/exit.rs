//! How a command ends, for the process that started it: the same codes for all commands, what they
//! mean, and which one follows from what happened.

use driftless_audit::Audit;
use driftless_cast::{CastReport, CheckSummary};
use driftless_engine::{End, Options, RunError, Summary};
use driftless_session::ConnectError;
use driftless_state::StateError;
use std::process::ExitCode;

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Equal,
    CouldNotRun,
    Usage,
    Problems,
    Different,
    Changing,
    Behind,
    NoQueue,
    Locked,
    State,
    Refused,
    Bug,
    /// A signal asked for the end, by its number.
    Signal(u8),
}

/// Codes of `gateway`, and their meanings.
const GATEWAY_CODES: [(Exit, &str); 4] = [
    (Exit::CouldNotRun, "failed: the gateway could not start"),
    (Exit::Usage, Exit::Usage.meaning()),
    (Exit::Locked, "another gateway serves the socket"),
    (Exit::Signal(0), Exit::Signal(0).meaning()),
];
/// Codes of `ftps`, and their meanings.
const FTPS_CODES: [(Exit, &str); 3] = [
    (
        Exit::CouldNotRun,
        "failed: the server could not start, or the program has no FTPS",
    ),
    (Exit::Usage, Exit::Usage.meaning()),
    (Exit::Signal(0), Exit::Signal(0).meaning()),
];
/// Codes of `jobs`, and their meanings.
const JOBS_CODES: [(Exit, &str); 3] = [
    (Exit::Equal, "the jobs are listed"),
    (
        Exit::CouldNotRun,
        "failed: no gateway answers, or it refuses",
    ),
    (Exit::Usage, Exit::Usage.meaning()),
];
/// Codes of `put`, and their meanings.
const PUT_CODES: [(Exit, &str); 9] = [
    (
        Exit::Equal,
        "the deposit is complete and on disk, or removed",
    ),
    (
        Exit::CouldNotRun,
        "failed: no gateway answers, or a file could not be written",
    ),
    (Exit::Usage, Exit::Usage.meaning()),
    (
        Exit::Problems,
        "some paths could not be copied, or no such deposit",
    ),
    (Exit::Changing, "some paths kept changing or vanished"),
    (Exit::Locked, "another process makes a deposit of this name"),
    (Exit::Refused, "a deposit of this name exists"),
    (Exit::Bug, Exit::Bug.meaning()),
    (
        Exit::Signal(0),
        "ended by signal N; the same command continues the copy",
    ),
];
/// Codes of `results`, and their meanings.
const RESULTS_CODES: [(Exit, &str); 5] = [
    (
        Exit::Equal,
        "the results are listed; with --wait: all have arrived",
    ),
    (
        Exit::CouldNotRun,
        "failed: no gateway answers, or it refuses",
    ),
    (Exit::Usage, Exit::Usage.meaning()),
    (
        Exit::Problems,
        "the gateway knows no such job, or results could not be collected",
    ),
    (Exit::Signal(0), Exit::Signal(0).meaning()),
];
/// Codes of `submit`, and their meanings.
const SUBMIT_CODES: [(Exit, &str); 4] = [
    (Exit::Equal, "the job was submitted"),
    (
        Exit::CouldNotRun,
        "failed: no gateway answers or it refuses, or the command of the batch system failed",
    ),
    (Exit::Usage, Exit::Usage.meaning()),
    (
        Exit::Problems,
        "a job was or may have been submitted; the gateway looks for it",
    ),
];
/// Codes of `cast` and their meanings, as docs/cast.md has them.
const CAST_CODES: [(Exit, &str); 8] = [
    (Exit::Equal, "each node has the data set"),
    (
        Exit::CouldNotRun,
        "failed: the cast could not start, or not write its output",
    ),
    (Exit::Usage, Exit::Usage.meaning()),
    (
        Exit::Problems,
        "a node lacks the data set; with --strict: or some of its metadata",
    ),
    (
        Exit::Locked,
        "another process uses the store of this host (--dir)",
    ),
    (
        Exit::Refused,
        "a source lies in this store, or this store in a source",
    ),
    (Exit::Bug, Exit::Bug.meaning()),
    (
        Exit::Signal(0),
        "ended by signal N; the same command continues the cast",
    ),
];

/// Codes of `node` and its commands.
const NODE_CODES: [(Exit, &str); 8] = [
    (Exit::Equal, "success"),
    (Exit::CouldNotRun, Exit::CouldNotRun.meaning()),
    (Exit::Usage, Exit::Usage.meaning()),
    (
        Exit::Problems,
        "purge: something stays; verify: a copy was not checked; no such copy",
    ),
    (Exit::Different, "verify: a copy is damaged"),
    (
        Exit::Locked,
        "another process uses the store, or all copies to purge",
    ),
    (Exit::Bug, Exit::Bug.meaning()),
    (Exit::Signal(0), Exit::Signal(0).meaning()),
];

/// Codes of `doctor`.
const DOCTOR_CODES: [(Exit, &str); 6] = [
    (Exit::Equal, "all nodes were measured"),
    (Exit::CouldNotRun, Exit::CouldNotRun.meaning()),
    (Exit::Usage, Exit::Usage.meaning()),
    (
        Exit::Problems,
        "a node was not reached, or a measurement failed",
    ),
    (Exit::Bug, Exit::Bug.meaning()),
    (Exit::Signal(0), Exit::Signal(0).meaning()),
];

impl Exit {
    /// All codes but those of signals.
    const OF_ITSELF: [Exit; 12] = [
        Exit::Equal,
        Exit::CouldNotRun,
        Exit::Usage,
        Exit::Problems,
        Exit::Different,
        Exit::Changing,
        Exit::Behind,
        Exit::NoQueue,
        Exit::Locked,
        Exit::State,
        Exit::Refused,
        Exit::Bug,
    ];

    /// What the process exits with.
    pub fn code(self) -> u8 {
        match self {
            Exit::Equal => 0,
            Exit::CouldNotRun => 1,
            Exit::Usage => 2,
            Exit::Problems => 3,
            Exit::Different => 4,
            Exit::Changing => 5,
            Exit::Behind => 6,
            Exit::NoQueue => 10,
            Exit::Locked => 11,
            Exit::State => 12,
            Exit::Refused => 13,
            Exit::Bug => 70,
            // As a shell says it of a process that a signal has ended (POSIX, "Exit Status for
            // Commands").
            Exit::Signal(number) => 128 + number,
        }
    }

    /// Returns the end that another process reported by its code.
    pub fn of_code(code: u8) -> Exit {
        let mut all = Exit::OF_ITSELF.into_iter();
        all.find(|exit| exit.code() == code)
            .unwrap_or(Exit::CouldNotRun)
    }

    const fn meaning(self) -> &'static str {
        match self {
            Exit::Equal => "success: the copy is complete and on disk; verify: both are identical",
            Exit::CouldNotRun => "failed: could not start, or could not finish",
            Exit::Usage => "wrong usage",
            Exit::Problems => "finished, but some paths or nodes failed",
            Exit::Different => "differences were found",
            Exit::Changing => "finished, but some paths kept changing or vanished",
            Exit::Behind => {
                "a mirror is behind its rpo, its replica is active, or --timeout is over"
            }
            Exit::NoQueue => "the movers or the broker cannot be reached",
            Exit::Locked => "another process has locked the replica, the job or the store",
            Exit::State => "the state of a run or mirror is damaged, or a newer version wrote it",
            Exit::Refused => "a guard refused to start, or to delete",
            Exit::Bug => "internal error: a bug in driftless",
            Exit::Signal(_) => "ended by signal N, after a clean stop",
        }
    }

    /// All codes and what they mean, for help and manual.
    pub fn table() -> impl Iterator<Item = (String, &'static str)> {
        let of_itself = Exit::OF_ITSELF
            .into_iter()
            .map(|exit| (exit.code().to_string(), exit.meaning()));
        of_itself.chain([("128+N".to_owned(), Exit::Signal(0).meaning())])
    }

    /// Returns the codes of a command and their meanings: all codes, if the command has no own list.
    pub fn table_of(command: &str) -> Vec<(String, &'static str)> {
        let own: &[(Exit, &'static str)] = match command {
            "cast" => &CAST_CODES,
            "node" => &NODE_CODES,
            "doctor" => &DOCTOR_CODES,
            "submit" => &SUBMIT_CODES,
            "results" => &RESULTS_CODES,
            "put" => &PUT_CODES,
            "jobs" => &JOBS_CODES,
            "ftps" => &FTPS_CODES,
            "gateway" => &GATEWAY_CODES,
            _ => return Exit::table().collect(),
        };
        let row = |(exit, meaning): &(Exit, &'static str)| match exit {
            Exit::Signal(_) => ("128+N".to_owned(), *meaning),
            exit => (exit.code().to_string(), *meaning),
        };
        own.iter().map(row).collect()
    }
}

/// Which code follows from what happened. `signal` is the number of the signal that asked for the
/// end, 0 if none did.
impl Exit {
    /// The end of a run of the engine. `strict`: what is not kept, and only counted, is a problem.
    pub fn of_run(summary: &Summary, (options, strict): (&Options, bool), signal: u8) -> Exit {
        let counts = &summary.counts;
        match summary.end {
            End::Stopped => Exit::Signal(signal),
            End::Lost | End::CutOff(_) | End::NoPlan(_) => Exit::CouldNotRun,
            End::Refused(_) => Exit::Refused,
            End::Complete if !counts.adds_up() => Exit::Bug,
            End::Complete
                if options.compares() && counts.changed + counts.deleted + counts.respelt > 0 =>
            {
                Exit::Different
            }
            End::Complete
                if counts.problems() == 0
                    && counts.failed == 0
                    && strict
                    && counts.unkept() > 0 =>
            {
                Exit::Problems
            }
            End::Complete if counts.problems() == 0 && counts.failed == 0 => Exit::Equal,
            End::Complete if counts.problems() == counts.problems_changing => Exit::Changing,
            End::Complete => Exit::Problems,
        }
    }

    /// A run that the engine did not begin.
    pub fn of_error(error: &RunError) -> Exit {
        match error {
            RunError::Locked { .. } | RunError::Unlocked(_) | RunError::Overtaken(_) => {
                Exit::Locked
            }
            RunError::NoMovers(_) => Exit::NoQueue,
            RunError::Refused(_) | RunError::Active { .. } | RunError::Ring { .. } => Exit::Refused,
            _ => Exit::CouldNotRun,
        }
    }

    /// The end of an audit. Differences come before problems: what was found is certain.
    pub fn of_audit(audit: &Audit, signal: u8) -> Exit {
        match audit {
            Audit {
                cut_off: Some(_), ..
            } => Exit::CouldNotRun,
            Audit {
                complete: false, ..
            } => Exit::Signal(signal),
            Audit { drift: 1.., .. } => Exit::Different,
            Audit { problems: 1.., .. } => Exit::Problems,
            _ => Exit::Equal,
        }
    }

    /// The end of a mover that did nothing wrong.
    pub fn of_mover(signal: u8) -> Exit {
        if signal > 0 {
            Exit::Signal(signal)
        } else {
            Exit::Equal
        }
    }

    /// A host that was not reached. Who has asked with a signal not to wait for it gets the code of
    /// that signal.
    pub fn of_connection(error: &ConnectError, signal: u8) -> Exit {
        match error {
            ConnectError::Usage(_) => Exit::Usage,
            ConnectError::Refused(_) => Exit::Refused,
            ConnectError::Unreached(_) if signal > 0 => Exit::Signal(signal),
            ConnectError::Unreached(_) => Exit::CouldNotRun,
        }
    }

    /// Returns the end of a cast. `is_strict`: metadata that a node did not keep are a problem.
    pub fn of_cast(report: &CastReport, is_strict: bool, signal: u8) -> Exit {
        let has_lost = report.nodes.iter().any(|node| !node.has_kept_all());
        match report {
            report if report.is_stopped => Exit::Signal(signal),
            report if !report.is_complete() => Exit::Problems,
            _ if is_strict && has_lost => Exit::Problems,
            _ => Exit::Equal,
        }
    }

    /// Returns the end of a cast or a node that could not begin.
    pub fn of_cast_error(error: &driftless_cast::Error, signal: u8) -> Exit {
        use driftless_cast::Error;
        match error {
            _ if signal > 0 => Exit::Signal(signal),
            Error::Overlap { .. } => Exit::Refused,
            Error::Settings(_) | Error::Plan(_) => Exit::Usage,
            busy if busy.is_busy() => Exit::Locked,
            _ => Exit::CouldNotRun,
        }
    }

    /// A client of a gateway, or a gateway, that failed.
    pub fn of_gateway_error(error: &driftless_gateway::Error) -> Exit {
        use driftless_gateway::Error;
        match error {
            Error::Batch(driftless_batch::BatchError::Arguments(_)) => Exit::Usage,
            error if error.may_have_submitted() => Exit::Problems,
            Error::Taken(_) => Exit::Locked,
            Error::Deposit(error) => Exit::of_deposit_error(error),
            _ => Exit::CouldNotRun,
        }
    }

    /// A deposit that failed.
    pub fn of_deposit_error(error: &driftless_deposit::DepositError) -> Exit {
        use driftless_deposit::DepositError;
        match error {
            DepositError::Name(_) => Exit::Usage,
            DepositError::Missing(_) => Exit::Problems,
            DepositError::Busy(_) => Exit::Locked,
            DepositError::Exists(_) => Exit::Refused,
            error if error.is_full() => Exit::Problems,
            _ => Exit::CouldNotRun,
        }
    }

    /// A question to a node that failed.
    pub fn of_admin_error(error: &driftless_cast::AdminError) -> Exit {
        match error {
            driftless_cast::AdminError::NoCopy(_) => Exit::Problems,
            busy if busy.is_busy() => Exit::Locked,
            _ => Exit::CouldNotRun,
        }
    }

    /// Returns the end of a verification of copies. Damage comes before copies that were not checked.
    pub fn of_checks(checks: &[CheckSummary]) -> Exit {
        let is_damaged = |check: &CheckSummary| !check.is_sound && check.fault.is_none();
        match checks {
            checks if checks.iter().any(is_damaged) => Exit::Different,
            checks if checks.iter().any(|check| check.fault.is_some()) => Exit::Problems,
            _ => Exit::Equal,
        }
    }

    /// A record of a job, or the state of a mirror, that cannot be used.
    pub fn of_record(error: &StateError) -> Exit {
        match error {
            StateError::Failed { .. } | StateError::Unready { .. } => Exit::CouldNotRun,
            StateError::OtherTrees { .. } => Exit::Refused,
            StateError::Damaged { .. } | StateError::Newer { .. } | StateError::Foreign { .. } => {
                Exit::State
            }
        }
    }

    /// A queue that movers cannot be met at.
    pub fn of_queue(error: &driftless_queue::Error) -> Exit {
        use driftless_queue::Error;
        match error {
            Error::Taken { .. } => Exit::Locked,
            Error::Url { .. }
            | Error::PasswordInUrl
            | Error::NoPassword
            | Error::Name { .. }
            | Error::Credentials { .. } => Exit::Usage,
            _ => Exit::NoQueue,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;
    use crate::args::exit_codes_of;
    use driftless_cast::CheckSummary;

    /// Columns of a terminal that is not resized.
    const COLUMNS: usize = 80;

    #[test]
    fn exit_codes_fit_a_terminal() {
        let list = ["", "cast", "node", "doctor", "put"]
            .map(exit_codes_of)
            .join("\n");
        let wide: Vec<&str> = list
            .lines()
            .filter(|line| line.chars().count() > COLUMNS)
            .collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }

    #[test]
    fn cast_lists_no_code_of_a_mirror() {
        let list = ["cast", "node", "doctor"].map(exit_codes_of).join("\n");
        assert!(!list.contains("rpo") && !list.contains("broker"), "{list}");
        assert!(exit_codes_of("sync").contains("rpo"));
    }

    #[test]
    fn copy_that_was_not_checked_is_not_damaged() {
        let check = |is_sound: bool, fault: Option<&str>| CheckSummary {
            is_sound,
            fault: fault.map(Into::into),
            ..CheckSummary::default()
        };
        let (sound, damaged) = (check(true, None), check(false, None));
        let unchecked = check(false, Some("mount its file system"));
        for (checks, code) in [
            (vec![sound.clone()], Exit::Equal),
            (vec![sound.clone(), unchecked.clone()], Exit::Problems),
            (vec![unchecked, damaged, sound], Exit::Different),
        ] {
            assert_eq!(Exit::of_checks(&checks), code, "{checks:?}");
        }
    }
}
