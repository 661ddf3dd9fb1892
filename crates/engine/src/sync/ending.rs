//! How a run ends: what was done is made durable, told, and said in the replica's mark.

use crate::options::Options;
use crate::sync::run::Run;
use crate::tally::Counts;
use crate::trees::error::RunError;
use crate::trees::filling::filled_by;
use driftless_model::{Class, Durability, RelPath};
use driftless_reconcile::{Ending, lacks_change_time};
use std::collections::BTreeSet;
use std::time::Duration;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All entries were accounted for.
    Complete,
    /// It was asked to stop.
    Stopped,
    /// The disk did not keep what it was given.
    Lost,
    /// The connection to a host was lost: which, and why.
    CutOff(String),
    /// The plan of deletes was refused; all else was done.
    Refused(String),
    /// The plan of deletes was lost; all else was done.
    NoPlan(String),
}

/// What a run did.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Counters.
    pub counts: Counts,
    /// How long it took.
    pub elapsed: Duration,
    /// How it ended.
    pub end: End,
    /// Paths below the source on which file systems are mounted.
    pub mounts: BTreeSet<RelPath>,
}

impl Summary {
    /// Of a run that did nothing before its end.
    pub fn of_nothing(elapsed: Duration, end: End) -> Summary {
        Summary {
            counts: Counts::default(),
            elapsed,
            end,
            mounts: BTreeSet::new(),
        }
    }
}

/// The end of a run that failed after a connection was lost: the loss is the reason, and the error
/// only followed from it.
pub fn or_cut_off<T>(
    done: Result<T, RunError>,
    options: &Options,
    ended: impl FnOnce(End) -> T,
) -> Result<T, RunError> {
    match (done, options.lost()) {
        (Err(_), Some(loss)) => Ok(ended(End::CutOff(loss.why))),
        (done, _) => done,
    }
}

/// Makes durable what the run did, says in the replica's mark how it came to its end, and sums up.
pub fn end_run(run: &Run<'_>, end: End) -> Summary {
    make_durable(run);
    let summary = sum_up(run, end);
    if let Some(ledger) = &run.ledger {
        ledger.lock().flush();
    }
    if let Some(changes) = &run.changes {
        let ending = ending(run, changes.scope(), (&summary.end, &summary.counts));
        changes.end(run.options, &ending, run.monitor);
        if run.options.applies() && !changes.is_refused() {
            run.settle_nested(&ending);
        }
    }
    summary
}

/// What the run did; `end` is how it ended unless it was cut short.
pub fn sum_up(run: &Run<'_>, end: End) -> Summary {
    let end = match run.cut_off() {
        Some(why) => End::CutOff(why),
        None if run.is_lost() => End::Lost,
        None if run.stopped() => End::Stopped,
        None => end,
    };
    Summary {
        counts: run.tally.counts(),
        elapsed: run.started.elapsed(),
        end,
        mounts: run.mounts.take(),
    }
}

/// What the end of a run says of what is on the replica.
pub fn ending(
    run: &Run<'_>,
    scope: driftless_reconcile::Scope,
    (end, counts): (&End, &Counts),
) -> Ending {
    let is_flushed = !matches!(end, End::Lost | End::CutOff(_));
    let leaves = run.options.policy.durability == Durability::None;
    let is_complete = is_complete(end, counts);
    let is_all = is_complete
        && *end == End::Complete
        && counts.only_on_replica == 0
        && counts.skipped() == 0;
    let has_ended = *end == End::Complete && run.options.applies();
    let changes = run.changes.as_ref().filter(|_| has_ended);
    let known = changes.map(|changes| changes.filled());
    let filled = known.and_then(|known| filled_by(run.options, &run.roots, known));
    // An entry that vanished from the source still stands on the replica, unless deletes remove it.
    let is_clear = counts.kept_in_doubt == 0
        && !hides_changes(run, counts)
        && (run.options.policy.delete || counts.skipped_vanished == 0);
    Ending {
        scope,
        is_flushed: is_flushed && !leaves,
        is_left: is_flushed && leaves,
        is_complete,
        is_all,
        filled,
        is_clear,
    }
}

/// Whether it cannot be told when entries that only the replica has were changed. Where there are
/// change times, the root has one that is later than the time that was set.
fn hides_changes(run: &Run<'_>, counts: &Counts) -> bool {
    let root = run.roots.1.as_ref().filter(|_| counts.only_on_replica > 0);
    root.is_some_and(|root| root.meta().is_ok_and(|meta| lacks_change_time(&meta)))
}

/// Whether everything that was to be looked at was looked at, and is equal.
fn is_complete(end: &End, counts: &Counts) -> bool {
    let has_ended = matches!(end, End::Complete | End::Refused(_) | End::NoPlan(_));
    has_ended && counts.failed == 0 && counts.problems() == counts.problems_partly
}

/// One syncfs(2) for each file system of the replica, also when this run changed nothing: an
/// earlier one may have been killed before its own. A failure means that nothing is known of what
/// was written.
pub fn make_durable(run: &Run<'_>) {
    if !run.options.applies() || run.options.policy.durability == Durability::None {
        return;
    }
    let others = run.file_systems.lock();
    for dir in run.roots.1.iter().chain(others.values()) {
        match dir.sync_all() {
            Err(fault) if !fault.is_cut_off() => {
                run.problem(RelPath::root(), fault, Class::Stop);
                run.lose();
            }
            _ => {}
        }
    }
}
