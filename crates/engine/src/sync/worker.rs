//! One thread of the pool: takes items and carries them out.

use crate::sync::run::Run;
use crate::sync::task::Task;
use crate::sync::visit::Visit;
use crate::tally::{Reason, add};
use crate::trees::alike::random_seed;
use driftless_model::{Act, Class, Fault, RelPath, Side, errno};
use driftless_mover::{Mover, Trouble};
use driftless_pool::{BYTES_PER_ENTRY, Concurrency, Queue, Workload, drive};
use driftless_reconcile::NameIndex;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Items that wait, at most, while a run that has few to do needs no further thread.
const FEW_ITEMS: usize = 8;
/// How long one thread is enough for it.
const FEW_TIME: Duration = Duration::from_millis(2);

/// What one thread works with, and what it shares with the others.
pub struct Worker<'a> {
    /// The run.
    pub run: &'a Run<'a>,
    /// Makes entries equal.
    pub mover: Mover<'a>,
    /// Where the names of the window stand that was listed last.
    pub index: NameIndex,
}

impl Workload for Run<'_> {
    type Item = Task;

    fn queue(&self) -> &Queue<Task> {
        &self.queue
    }

    fn concurrency(&self) -> Concurrency {
        self.options.throttle.jobs
    }

    fn work_done(&self) -> u64 {
        let counts = self.tally.counts();
        let entries =
            counts.same + counts.changed + counts.skipped() + counts.failed + counts.deleted;
        entries + (counts.bytes_copied + counts.bytes_compared) / BYTES_PER_ENTRY
    }

    fn work(&self, index: usize) {
        self.with_worker(|worker| {
            while let Some(task) = self.queue.take(index) {
                // A stopped run drops what waits: its directories stay private or keep their old
                // times, so the next run sees them.
                if !self.stopped() {
                    worker.carry_out(task);
                }
                self.queue.done();
            }
        });
    }

    fn listeners(&self) -> usize {
        self.listeners()
    }

    fn listen(&self, index: usize) {
        self.listen(index);
    }

    fn delay(&self) -> Duration {
        self.hosts()
            .map(|host| host.round_trip())
            .max()
            .unwrap_or_default()
    }

    fn held_up(&self) -> usize {
        self.submitting()
    }

    fn tell(&self, jobs: usize) {
        self.monitor.progress(&self.progress(jobs));
        self.changes.iter().for_each(|changes| changes.look_after());
    }
}

impl Run<'_> {
    /// Carries out what is in the queue and all that comes of it: few items on this thread, more by
    /// a pool.
    pub fn work_off_queue(&self, threads_max: usize) {
        if !(self.is_few && self.listeners() == 0 && self.work_off_few()) {
            drive(self, threads_max);
        }
    }

    /// Begins on this thread; returns whether that was all. Starting threads takes longer than a
    /// path that has hardly changed.
    fn work_off_few(&self) -> bool {
        self.queue.reopen();
        let until = Instant::now() + FEW_TIME;
        self.with_worker(|worker| {
            while self.queue.waiting() <= FEW_ITEMS && Instant::now() < until {
                let Some(task) = self.queue.take(0) else {
                    break;
                };
                if !self.stopped() {
                    worker.carry_out(task);
                }
                self.queue.done();
            }
        });
        self.queue.is_over()
    }

    /// A worker for a thread.
    pub fn with_worker(&self, act: impl FnOnce(&mut Worker<'_>)) {
        let pace = |bytes| self.pace_bytes(bytes);
        let stopped = || self.stopped();
        let cache = self.options.policy.cache;
        let copier = self.ground.copier(cache);
        let carrier = self.options.carrier.as_deref();
        let mover = Mover {
            copier,
            terms: self.terms(),
            carrier,
            pace: &pace,
            stopped: &stopped,
        };
        let mut worker = Worker {
            run: self,
            mover,
            index: NameIndex::new(random_seed()),
        };
        act(&mut worker);
        self.ground.keep(cache, worker.mover.copier);
    }
}

impl Worker<'_> {
    fn carry_out(&mut self, task: Task) {
        match task {
            Task::Dir(visit, name, _) if self.run.yields() => {
                self.give_back(&visit, &name, self.run.part.class());
                self.less(&visit);
            }
            Task::Dir(visit, name, weight) => self.directory(&visit, &name, weight),
            Task::Names(visit, names, range, weight) => self.names(&visit, &names, range, weight),
            Task::List(visit, stream, weight) => self.list_on(&visit, stream, weight, false),
            Task::Again(visit) => self.list(&visit),
            Task::Waiter(visit, name) => {
                self.entry(&visit, &name, None, 0);
                self.less(&visit);
            }
            Task::Bytes(path, source, range) => self.bytes(path, &source, range),
            Task::Chunk(large, range) => self.chunk(&large, range),
            Task::Compare(compare, range) => self.compare_chunk(&compare, range),
            Task::Delete(path, names) => self.delete(&path, &names),
        }
    }

    /// Counts and reports an entry that was not made equal.
    pub fn account_trouble(&mut self, visit: &Arc<Visit>, name: &CStr, trouble: Trouble) {
        if matches!(&trouble, Trouble::Failed(fault) if self.meets_another(visit, fault)) {
            visit.share_with_another();
            visit.more();
            return self
                .run
                .queue
                .push(Task::Waiter(visit.clone(), name.into()));
        }
        let tally = &self.run.tally;
        if !matches!(trouble, Trouble::Stopped) && self.run.part.passes(visit, name) {
            // The directory is only passed through; what was chosen below it cannot be counted, so
            // it counts in place of that.
            add(&tally.seen, 1);
        }
        match trouble {
            Trouble::Stopped => {}
            // A lost connection says nothing about the entry, and nothing about the disk.
            Trouble::Failed(fault) | Trouble::Lost(fault) if fault.is_cut_off() => {
                self.run.problem(visit.path_of(name), fault, Class::Skip)
            }
            Trouble::Failed(fault) if self.looks_again(visit, &fault) => {
                visit.mark_dirty();
                // It is counted when it is looked at again.
                tally.seen.fetch_sub(1, Relaxed);
            }
            Trouble::Vanished if self.run.part.was_passed(visit, name) => {
                self.skip(visit, Reason::Vanished)
            }
            Trouble::Vanished if self.was_found(visit) => {
                visit.mark_dirty();
                self.skip(visit, Reason::Vanished);
            }
            Trouble::Vanished => {
                self.report_listed(&self.listed_at(visit, name), (1, 0), errno::ENOENT);
            }
            Trouble::Failed(fault) if self.run.postpone(|| visit.path_of(name), &fault) => {
                self.count_again(visit)
            }
            Trouble::Postponed => self.count_again(visit),
            failed => {
                self.count_late(visit);
                add(&tally.failed, 1);
                self.report_failed(visit, name, failed);
            }
        }
    }

    /// Says why an entry has failed, and draws what follows from it.
    fn report_failed(&self, visit: &Visit, name: &CStr, trouble: Trouble) {
        let (run, path) = (self.run, visit.path_of(name));
        match trouble {
            Trouble::Changing => self.report_changing(visit, name),
            Trouble::Mismatch => {
                add(&run.tally.mismatched, 1);
                self.report_mismatch(path);
            }
            Trouble::Failed(fault) => run.problem(path, fault, Class::Skip),
            Trouble::Barred(side, cause) => self.report_barred(path, side, cause),
            Trouble::InTheWay(cause) => self.report_in_the_way(path, cause),
            Trouble::Undone(cause) => self.report_undone(path, cause),
            Trouble::Stuck(removed) => {
                add(&run.tally.deleted, removed.entries);
                run.report_stuck(&visit.path(), removed.stuck);
            }
            Trouble::Lost(fault) => {
                run.problem(path, fault, Class::Stop);
                run.lose();
            }
            Trouble::Stopped | Trouble::Vanished | Trouble::Postponed => {
                unreachable!("an entry with such trouble has not failed")
            }
        }
    }

    /// A postponed entry is counted when it is tried again.
    fn count_again(&self, visit: &Visit) {
        visit.mark_unfinished();
        if visit.pass() == 0 {
            self.run.tally.seen.fetch_sub(1, Relaxed);
        }
    }

    /// Returns whether a name that vanished from a directory is no problem: the names come from a look
    /// at the directory, or are paths that may go. Another look at the directory shows what became of it.
    fn was_found(&self, visit: &Visit) -> bool {
        if visit.borrowed {
            return visit.renamed.is_none() && self.run.part.found_names(self.run.options);
        }
        let may_go = self.run.options.removes_chosen && !self.run.is_stub(visit);
        may_go || visit.selection.is_listed() || visit.was_listed()
    }

    /// Whether a source that cannot be used because its handle is stale is tried once more, from
    /// the directory `visit` that it is in.
    fn looks_again(&self, visit: &Visit, fault: &Fault) -> bool {
        fault.side == Side::Source
            && fault.is_stale()
            && visit.pass() == 0
            && !visit.borrowed
            && self.was_found(visit)
    }

    /// Whether the source's directory `visit` went while it was looked at; then the one above is
    /// looked at again. Without one above that was listed, that it went is a problem of its own.
    pub fn is_lost(&self, visit: &Visit, fault: &Fault) -> bool {
        let went = |above: &Arc<Visit>| {
            fault.is_missing() && self.was_found(above) || self.looks_again(above, fault)
        };
        let above = visit
            .parent
            .as_ref()
            .filter(|above| fault.side == Side::Source && went(above));
        above.inspect(|above| visit.lose(above)).is_some()
    }

    /// Whether another mover seems to be at work on the same batch, because the coordinator took
    /// one of the two for dead, or another member of a pool at the same entries: something was made
    /// or removed on the replica meanwhile. What the
    /// other did counts, and the rest is tried again.
    fn meets_another(&self, visit: &Visit, fault: &Fault) -> bool {
        let is_sign = fault.side == Side::Replica
            && matches!(fault.errno, errno::ENOENT | errno::EEXIST | errno::ESTALE);
        is_sign
            && (self.run.part.is_batch() || self.run.options.meets_others())
            && !self.run.stopped()
            && visit.pass() == 0
            && visit.may_meet_another()
    }

    /// Says that the run does not go into the directory at `path`.
    fn report_barred(&self, path: RelPath, side: Side, cause: &'static str) {
        let act = if side == Side::Source {
            Act::Copy
        } else {
            Act::Enter
        };
        let cause = cause.into();
        self.run.report(&driftless_model::Problem {
            path,
            side,
            act,
            cause,
            class: Class::Skip,
        });
    }

    /// Says that what stands on the replica at `path` keeps the entry from being made.
    fn report_in_the_way(&self, path: RelPath, cause: String) {
        self.run.report(&driftless_model::Problem {
            path,
            side: Side::Replica,
            act: Act::Replace,
            cause,
            class: Class::Skip,
        });
    }

    /// Says that the user's own program did not make the file at `path`.
    fn report_undone(&self, path: RelPath, cause: String) {
        self.run.report(&driftless_model::Problem {
            path,
            side: Side::Replica,
            act: Act::CopyWith,
            cause,
            class: Class::Skip,
        });
    }

    /// Says that what is read back from the replica is never what was written.
    fn report_mismatch(&self, path: RelPath) {
        self.run.report(&driftless_model::Problem {
            path,
            side: Side::Replica,
            act: Act::ReadBack,
            cause: "it is not what was read from the source".into(),
            class: Class::Skip,
        });
    }

    /// Counts an entry that was left out; in a second look at a directory it was counted before.
    pub fn skip(&self, visit: &Visit, reason: Reason) {
        if visit.pass() == 0 {
            self.run.tally.skip(reason);
        }
    }

    /// In a second look at a directory only what is done or fails counts, and so it is seen only
    /// then.
    pub fn count_late(&self, visit: &Visit) {
        if visit.pass() > 0 {
            add(&self.run.tally.seen, 1);
        }
    }
}
