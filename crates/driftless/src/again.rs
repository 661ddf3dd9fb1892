//! What follows when a connection is lost: it is made again, and the trees are looked at once more.
//!
//! Nothing is replayed. A pass that was cut off is over, with its plan of deletes; the next one finds equal what was done, and goes on with
//! large files from their notes. What the user sees is one run: entries are accounted for by the last pass, which meets all of them,
//! and what the passes before it changed, deleted and copied is added up beside that.

use crate::earlier::Earlier;
use crate::output::Output;
use crate::reach::Lines;
use crate::signals::Signals;
use driftless_audit::{Audit, AuditMonitor, AuditOptions};
use driftless_engine::{Counts, End, Monitor, Options, Progress, RunError, Summary};
use driftless_model::{Problem, Receipt, RelPath, Unkept};
use driftless_remote::ReachError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The pause before the first attempt; each is twice as long as the one before, up to the longest. Half of each is left to chance, so
/// that many runs that lost the same host do not come back at once.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

const PAUSE_MAX: Duration = Duration::from_secs(30);

/// An attempt that takes longer is given up, and another made.
const ATTEMPT: Duration = Duration::from_secs(60);

/// Between two looks at whether to stop.
const TICK: Duration = Duration::from_millis(20);

/// What a run has to do with besides its trees: who is told, and who may stop it.
type Outside<'a> = (&'a Output, &'a Signals);

/// Who hears of lines that are lost and made again, and says when nobody wants them any more.
pub trait Witness {
    fn is_stopped(&self) -> bool;
    /// A line was lost, so long after the beginning, and for so long it is tried to make it again.
    fn line_lost(&self, why: &str, times: (Duration, Duration));
    /// The line to a host was made again after so long.
    fn line_made(&self, host: &str, after: Duration);
    /// Something that whoever watches should know.
    fn note(&self, text: &str);
}

impl Witness for Outside<'_> {
    fn is_stopped(&self) -> bool {
        self.1.stop.load(Relaxed)
    }

    fn line_lost(&self, why: &str, times: (Duration, Duration)) {
        self.0.line_lost(why, times);
    }

    fn line_made(&self, host: &str, after: Duration) {
        self.0.line_made(host, after);
    }

    fn note(&self, text: &str) {
        self.0.note(text);
    }
}

/// What may have to be done more than once: the lines are there again, and what was done counts.
pub struct Passed<T> {
    pub result: T,
    pub counts: Counts,
    pub end: End,
}

/// Has `pass` carried out until its lines hold, or for as long as is tried to make them again. Of passes that were cut off, only what
/// [`Earlier`] tells is left; `acts` if that is to be added up.
pub fn repeat<T>(
    (options, lines): (&mut Options, &mut Lines),
    witness: &dyn Witness,
    acts: bool,
    mut pass: impl FnMut(&Options) -> Result<Passed<T>, RunError>,
) -> Result<(Passed<T>, Earlier), RunError> {
    let (mut trouble, mut earlier) = (Trouble::new(lines), Earlier::default());
    loop {
        let passed = match pass(options) {
            // The other host may take a moment to let go of the lock that the lost line held.
            Err(RunError::Locked { .. }) if earlier.lost > 0 && trouble.wait(witness) => continue,
            done => done?,
        };
        lines.tell(|note| witness.note(note));
        if !matches!(passed.end, End::CutOff(_)) {
            return Ok((passed, earlier));
        }
        if earlier.add(&passed.counts, acts) {
            trouble.is_over();
        }
        if let Err(end) = mend((options, lines), &mut trouble, witness) {
            // There is no pass after this one.
            earlier.lost -= 1;
            return Ok((Passed { end, ..passed }, earlier));
        }
    }
}

/// Makes the replica equal, in as many passes as it takes; returns the summary of all, and what those before the last one did.
pub fn sync(options: &mut Options, lines: &mut Lines, (output, signals): Outside<'_>) -> Result<(Summary, Earlier), RunError> {
    let (mut trouble, mut earlier) = (Trouble::new(lines), Earlier::default());
    if lines.are_there() && !lines.patience.is_zero() {
        output.remember();
    }
    loop {
        let pass = Pass { output, lines, earlier: &earlier, began: trouble.began };
        let mut summary = match driftless_engine::sync(options, &pass, &signals.stop) {
            // The other host may take a moment to let go of the lock that the lost line held.
            Err(RunError::Locked { .. }) if earlier.lost > 0 && trouble.wait(&(output, signals)) => continue,
            Err(RunError::Locked { .. }) if signals.stop.load(Relaxed) => Summary::of_nothing(Duration::ZERO, End::Stopped),
            // What failed is what nobody waited for any more.
            Err(_) if signals.stop.load(Relaxed) && lines.lost().is_some() => Summary::of_nothing(Duration::ZERO, End::Stopped),
            done => done?,
        };
        lines.tell(|note| output.note(note));
        summary.elapsed = trouble.began.elapsed();
        let (counts, acts) = (summary.counts, !options.dry_run);
        if !matches!(summary.end, End::CutOff(_)) {
            summary.counts = earlier.with(&counts);
            return Ok((summary, earlier));
        }
        summary.counts = earlier.so_far(&counts);
        if earlier.add(&counts, acts) {
            trouble.is_over();
        }
        options.deleted_before += if acts { counts.deleted } else { 0 };
        if let Err(end) = mend((options, lines), &mut trouble, &(output, signals)) {
            // There is no pass after this one.
            earlier.lost -= 1;
            earlier.changed = earlier.changed.saturating_sub(summary.counts.changed);
            return Ok((Summary { end, ..summary }, earlier));
        }
        output.begin_again();
    }
}

/// Audits, from the beginning whenever a line was lost: the seed draws the same sample. Whoever reads the audit finds in `cut_off` why it
/// could not go on.
pub fn audit(
    options: &mut AuditOptions,
    lines: &mut Lines,
    monitor: &dyn AuditMonitor,
    (output, signals): Outside<'_>,
) -> Result<Audit, RunError> {
    let (mut trouble, mut entries) = (Trouble::new(lines), 0);
    output.remember();
    loop {
        let mut audit = driftless_audit::audit(options, monitor, &signals.stop)?;
        lines.tell(|note| output.note(note));
        audit.elapsed = trouble.began.elapsed();
        if audit.cut_off.is_none() {
            return Ok(audit);
        }
        if audit.entries > entries {
            entries = audit.entries;
            trouble.is_over();
        }
        if let Err(end) = mend((&mut options.run, lines), &mut trouble, &(output, signals)) {
            audit.cut_off = if let End::CutOff(why) = end { Some(why) } else { None };
            return Ok(audit);
        }
        output.begin_again();
    }
}

/// Makes all lines that are lost again. An error is how the run ends instead.
fn mend((options, lines): (&mut Options, &mut Lines), trouble: &mut Trouble, witness: &dyn Witness) -> Result<(), End> {
    let stopped = || witness.is_stopped();
    if stopped() {
        options.lost().iter().for_each(|loss| witness.note(&format!("the connection was given up: {}", loss.why)));
        return Err(End::Stopped);
    }
    let Some(loss) = options.lost() else { return Ok(()) };
    if !loss.is_mendable || lines.patience.is_zero() {
        return Err(End::CutOff(loss.why));
    }
    let lost_at = Instant::now();
    trouble.lost += 1;
    witness.line_lost(&loss.why, (trouble.began.elapsed(), lines.patience));
    let mut last = None;
    while let Some(name) = lines.lost().map(str::to_owned) {
        if !trouble.wait(witness) {
            return Err(if stopped() { End::Stopped } else { End::CutOff(trouble.words(&loss.why, last)) });
        }
        let until = trouble.deadline().min(Instant::now() + ATTEMPT);
        match lines.mend(options, &|| stopped() || Instant::now() >= until) {
            Ok(()) => witness.line_made(&name, lost_at.elapsed()),
            Err(error) if !error.may_pass() => return Err(End::CutOff(format!("{}; {error}", loss.why))),
            // An attempt that the end of the time cut short says less than the one before.
            Err(ReachError::NoAnswer(_)) if last.is_some() => {}
            Err(error) => last = Some(error),
        }
    }
    Ok(())
}

/// How long it has been going badly: since a line was lost after which no pass got any further.
struct Trouble {
    /// When the run began.
    began: Instant,
    patience: Duration,
    since: Option<Instant>,
    /// Lines that were lost since then.
    lost: u64,
    pause: Duration,
}

impl Trouble {
    fn new(lines: &Lines) -> Trouble {
        Trouble { began: Instant::now(), patience: lines.patience, since: None, lost: 0, pause: PAUSE_FIRST }
    }

    /// The run has got further.
    fn is_over(&mut self) {
        (self.since, self.lost, self.pause) = (None, 0, PAUSE_FIRST);
    }

    fn deadline(&mut self) -> Instant {
        *self.since.get_or_insert_with(Instant::now) + self.patience
    }

    /// Lets some time pass, each time more; false if it is over, or the run is to stop.
    fn wait(&mut self, witness: &dyn Witness) -> bool {
        let deadline = self.deadline();
        if Instant::now() >= deadline {
            return false;
        }
        let until = deadline.min(Instant::now() + self.pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        while Instant::now() < until && !witness.is_stopped() {
            std::thread::sleep(TICK);
        }
        !witness.is_stopped()
    }

    /// Why it is given up.
    fn words(&self, why: &str, last: Option<ReachError>) -> String {
        let seconds = self.patience.as_secs();
        match last {
            Some(error) if self.lost == 1 => format!("{why}; connecting again did not succeed within {seconds} s: {error}"),
            _ => format!("{why}; it was lost {} times within {seconds} s, and nothing was done in between", self.lost),
        }
    }
}

/// Who watches one pass of a run sees all of the run.
struct Pass<'a> {
    output: &'a Output,
    lines: &'a Lines,
    earlier: &'a Earlier,
    began: Instant,
}

impl Monitor for Pass<'_> {
    fn wants_receipts(&self) -> bool {
        self.output.wants_receipts()
    }

    fn wants_values(&self) -> bool {
        self.output.wants_values()
    }

    fn receipt(&self, receipt: &Receipt) {
        self.output.receipt(receipt);
    }

    fn problem(&self, problem: &Problem) {
        self.output.problem(problem);
    }

    fn note(&self, text: &str) {
        // What is known of the replica is known since the first pass.
        if self.earlier.lost == 0 {
            self.output.note(text);
        }
    }

    fn unkept(&self, what: Unkept, path: &RelPath) {
        self.output.unkept(what, path);
    }

    fn progress(&self, progress: &Progress) {
        self.lines.tell(|note| self.output.note(note));
        let counts = self.earlier.so_far(&progress.counts);
        self.output.progress(&Progress { counts, elapsed: self.began.elapsed(), ..*progress });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_did_adds_up_and_entries_are_those_of_the_last() {
        let cut = Counts { seen: 10, same: 2, changed: 7, failed: 1, deleted: 3, bytes_copied: 70, walked: 50, ..Counts::default() };
        let last = Counts { seen: 12, same: 9, changed: 3, deleted: 1, bytes_copied: 30, walked: 100, ..Counts::default() };
        let mut earlier = Earlier::default();
        assert!(earlier.add(&cut, true), "the first pass always gets somewhere");
        let all = earlier.with(&last);
        assert!(all.adds_up());
        assert_eq!((all.seen, all.changed, all.deleted, all.bytes_copied, earlier.changed), (12, 3, 4, 100, 7));
        // A dry run deletes nothing, so nothing is counted twice.
        let mut looked = Earlier::default();
        looked.add(&cut, false);
        assert_eq!((looked.with(&last).deleted, looked.changed), (1, 0));
    }

    #[test]
    fn a_new_pass_does_not_fall_behind_the_one_that_was_cut_off() {
        let cut = Counts { seen: 10, same: 10, bytes_copied: 5, walked: 50, ..Counts::default() };
        let mut earlier = Earlier::default();
        earlier.add(&cut, true);
        let behind = earlier.so_far(&Counts { seen: 2, bytes_copied: 1, walked: 10, ..Counts::default() });
        assert_eq!((behind.seen, behind.walked, behind.bytes_copied), (10, 50, 6));
        let before = earlier.so_far(&Counts { seen: 11, walked: 60, ..Counts::default() });
        assert_eq!((before.seen, before.walked, before.bytes_copied), (11, 60, 5));
    }

    #[test]
    fn a_pass_that_neither_acts_nor_comes_further_is_no_progress() {
        let pass = |seen, changed| Counts { seen, changed, ..Counts::default() };
        let mut earlier = Earlier::default();
        let cases =
            [(10, 0, true, true), (10, 0, true, false), (9, 0, true, false), (11, 0, true, true), (5, 1, true, true), (5, 1, false, false)];
        for (seen, changed, acts, expected) in cases {
            assert_eq!(earlier.add(&pass(seen, changed), acts), expected, "{seen} {changed} {acts}");
        }
    }
}
