//! What follows when a connection is lost: it is made again, and the trees are looked at once more.
//!
//! Nothing is replayed. A pass that was cut off is over, with its plan of deletes; the next one
//! finds equal what was done, and goes on with large files from their notes. What the user sees is
//! one run: entries are accounted for by the last pass, which meets all of them, and what the
//! passes before it changed, deleted and copied is added up beside that. The roots must be the
//! directories that the first pass found: a pass that finds another one changes nothing, and the
//! run ends.

use crate::connect::Connections;
use crate::earlier::Earlier;
use crate::met_mounts::MetMounts;
use crate::patience::Trouble;
use driftless_engine::{
    Counts, Differing, DirectoryPlace, End, MachineClock, Monitor, Options, Progress, RunError,
    Summary,
};
use driftless_model::{DirectoryId, Meta, Problem, Receipt, RelPath, Unkept};
use driftless_remote::ReachError;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Hears of connections that are lost and made again, and says when to give up because the run was
/// asked to stop.
pub trait Witness {
    /// Whether the run is to stop.
    fn is_stopped(&self) -> bool;
    /// A connection was lost, `elapsed` after the beginning of the run, which tries for `patience`
    /// to make it again.
    fn connection_lost(&self, why: &str, elapsed: Duration, patience: Duration);
    /// The connection to a host stands again, so long after it was lost.
    fn connection_made(&self, host: &str, after: Duration);
    /// Something that the monitor should know.
    fn note(&self, text: &str);
    /// The trees are gone through once more.
    fn begin_again(&self) {}
}

/// The words for a connection that was lost and is to be made again.
pub fn lost_words(why: &str, patience: Duration) -> String {
    format!(
        "the connection was lost: {why}; trying for {} s to connect again",
        patience.as_secs()
    )
}

/// The words for one that was made again.
pub fn made_words(host: &str, after: Duration) -> String {
    format!(
        "{host}: connected again after {:.1} s; going on",
        after.as_secs_f64()
    )
}

/// What one pass came to.
pub struct Passed<T> {
    /// Its result.
    pub result: T,
    /// What it did.
    pub counts: Counts,
    /// How it ended.
    pub end: End,
}

/// What a pass may want to know of the run that it belongs to.
pub struct Before<'a> {
    /// What the passes before it did.
    pub earlier: &'a Earlier,
    /// When the first of them began.
    pub began: Instant,
    /// The connections that it works over.
    pub connections: &'a Connections,
}

/// Has `pass` carried out until its connections hold, or for as long as the run tries to make them
/// again. `acts` if passes change something, so that what those before the last one did is added up
/// in `earlier`.
///
/// # Errors
/// A pass did not begin.
pub fn repeat<T>(
    (options, connections): (&mut Options, &mut Connections),
    witness: &dyn Witness,
    (earlier, acts): (&mut Earlier, bool),
    mut pass: impl FnMut(&mut Options, &Before<'_>) -> Result<Passed<T>, RunError>,
) -> Result<Passed<T>, RunError> {
    let mounts = MetMounts::begin(options);
    let trees = (&mut *options, connections);
    let done = pass_on(trees, witness, (earlier, acts), |options, before| {
        mounts.expect(options);
        pass(options, before)
    });
    options.mount_notes = mounts.kept().cloned();
    done
}

/// Carries out passes until one is not cut off.
fn pass_on<T>(
    (options, connections): (&mut Options, &mut Connections),
    witness: &dyn Witness,
    (earlier, acts): (&mut Earlier, bool),
    mut pass: impl FnMut(&mut Options, &Before<'_>) -> Result<Passed<T>, RunError>,
) -> Result<Passed<T>, RunError> {
    let mut trouble = Trouble::new(&MachineClock, connections.patience);
    options.first_roots = connections.may_come_again().then(Arc::default);
    let mut cut: Option<Passed<T>> = None;
    loop {
        let before = Before {
            earlier,
            began: trouble.began(),
            connections,
        };
        let passed = match (pass(options, &before), cut.take()) {
            // The other host may take a moment to let go of the lock that the lost connection held.
            (Err(RunError::Locked { .. }), last)
                if earlier.lost > 0 && trouble.wait(&|| witness.is_stopped()) =>
            {
                cut = last;
                continue;
            }
            // The summary of the pass before says what was done.
            (Err(error @ RunError::OtherRoot(_)), Some(last)) => {
                earlier.lost -= 1;
                let end = End::CutOff(error.to_string());
                return Ok(Passed { end, ..last });
            }
            (done, _) => done?,
        };
        connections.tell(|note| witness.note(note));
        if !matches!(passed.end, End::CutOff(_)) {
            return Ok(passed);
        }
        if earlier.add(&passed.counts, acts) {
            trouble.is_over();
        }
        if let Err(end) = mend((options, connections), &mut trouble, witness) {
            // There is no pass after this one.
            earlier.lost -= 1;
            return Ok(Passed { end, ..passed });
        }
        witness.begin_again();
        cut = Some(passed);
    }
}

/// Makes the replica equal, in as many passes as it takes; returns the summary of all, and what
/// those before the last one did.
///
/// # Errors
/// The run did not begin.
pub fn sync(
    (options, connections): (&mut Options, &mut Connections),
    monitor: &dyn Monitor,
    witness: &dyn Witness,
    stop: &AtomicBool,
) -> Result<(Summary, Earlier), RunError> {
    let (mut earlier, acts, deleted_before) = (
        Earlier::default(),
        options.applies(),
        options.deleted_before,
    );
    let pass = |options: &mut Options, before: &Before<'_>| {
        options.deleted_before = deleted_before + before.earlier.deleted();
        let pass = Pass { monitor, before };
        let summary = match driftless_engine::sync(options, &pass, stop) {
            Err(RunError::Locked { .. }) if witness.is_stopped() => of_nothing(),
            // What failed is what nobody waits for any more.
            Err(_) if witness.is_stopped() && before.connections.lost().is_some() => of_nothing(),
            done => done?,
        };
        let was_cut = matches!(summary.end, End::CutOff(_));
        let counts = if was_cut {
            before.earlier.so_far(&summary.counts)
        } else {
            before.earlier.with(&summary.counts)
        };
        let all = Summary {
            counts,
            elapsed: before.began.elapsed(),
            ..summary.clone()
        };
        Ok(Passed {
            result: all,
            counts: summary.counts,
            end: summary.end,
        })
    };
    let passed = match repeat((options, connections), witness, (&mut earlier, acts), pass) {
        // It was asked to stop while it waited for whoever holds the replica.
        Err(RunError::Locked { .. }) if witness.is_stopped() => return Ok((of_nothing(), earlier)),
        done => done?,
    };
    if matches!(passed.result.end, End::CutOff(_)) {
        earlier.leave_out(&passed.result.counts);
    }
    Ok((
        Summary {
            end: passed.end,
            ..passed.result
        },
        earlier,
    ))
}

/// Of a run that was asked to stop before it did anything.
fn of_nothing() -> Summary {
    Summary::of_nothing(Duration::ZERO, End::Stopped)
}

/// Makes all lost connections again. An error is how the run ends instead.
fn mend(
    (options, connections): (&mut Options, &mut Connections),
    trouble: &mut Trouble<'_>,
    witness: &dyn Witness,
) -> Result<(), End> {
    let stopped = || witness.is_stopped();
    if stopped() {
        options
            .lost()
            .iter()
            .for_each(|loss| witness.note(&format!("the connection was given up: {}", loss.why)));
        return Err(End::Stopped);
    }
    let Some(loss) = options.lost() else {
        return Ok(());
    };
    if !loss.is_mendable || connections.patience.is_zero() {
        return Err(End::CutOff(loss.why));
    }
    let lost_at = trouble.now();
    trouble.add();
    witness.connection_lost(&loss.why, lost_at - trouble.began(), connections.patience);
    let mut last = None;
    while let Some(name) = connections.lost().map(str::to_owned) {
        if !trouble.wait(&stopped) {
            return Err(if stopped() {
                End::Stopped
            } else {
                End::CutOff(trouble.words(&loss.why, last))
            });
        }
        let until = trouble.attempt_ends();
        match connections.mend(options, &|| stopped() || trouble.now() >= until) {
            Ok(()) => witness.connection_made(&name, trouble.now() - lost_at),
            Err(error) if !error.may_pass() => {
                return Err(End::CutOff(format!("{}; {error}", loss.why)));
            }
            // The last attempt was cut short because the time was up; the error of the one before
            // says more.
            Err(ReachError::NoAnswer(_)) if last.is_some() => {}
            Err(error) => last = Some(error),
        }
    }
    Ok(())
}

/// Has a monitor of one pass see all of the run. What it is asked, it answers itself.
struct Pass<'a> {
    monitor: &'a dyn Monitor,
    before: &'a Before<'a>,
}

impl Monitor for Pass<'_> {
    fn wants_receipts(&self) -> bool {
        self.monitor.wants_receipts()
    }

    fn wants_values(&self) -> bool {
        self.monitor.wants_values()
    }

    fn receipt(&self, receipt: &Receipt) {
        self.monitor.receipt(receipt);
    }

    fn problem(&self, problem: &Problem) {
        self.monitor.problem(problem);
    }

    fn note(&self, text: &str) {
        // What is known of the replica is known since the first pass.
        if self.before.earlier.lost == 0 {
            self.monitor.note(text);
        }
    }

    fn unkept(&self, what: Unkept, path: &RelPath) {
        self.monitor.unkept(what, path);
    }

    fn linked(&self, path: &dyn Fn() -> RelPath, inode: (u64, u64), names: u64) {
        self.monitor.linked(path, inode, names);
    }

    fn seeks(&self, inode: (u64, u64)) -> bool {
        self.monitor.seeks(inode)
    }

    fn is_unheard(&self, source: &Meta, replica: &Meta) -> bool {
        self.monitor.is_unheard(source, replica)
    }

    fn look_again(&self) {
        self.monitor.look_again();
    }

    fn differing(
        &self,
        path: &dyn Fn() -> RelPath,
        source: &Meta,
        replica: &dyn Fn() -> Option<Meta>,
    ) -> Differing {
        self.monitor.differing(path, source, replica)
    }

    fn indexes_directories(&self) -> bool {
        self.monitor.indexes_directories()
    }

    fn directory(&self, id: DirectoryId, place: DirectoryPlace<'_>) {
        self.monitor.directory(id, place);
    }

    fn stood_at(&self, id: DirectoryId, root: u64) -> Option<(RelPath, u64)> {
        self.monitor.stood_at(id, root)
    }

    fn relocated(&self, from: &RelPath, to: &RelPath) {
        self.monitor.relocated(from, to);
    }

    fn progress(&self, progress: &Progress) {
        self.before.connections.tell(|note| self.monitor.note(note));
        let counts = self.before.earlier.so_far(&progress.counts);
        self.monitor.progress(&Progress {
            counts,
            elapsed: self.before.began.elapsed(),
            ..*progress
        });
    }
}
