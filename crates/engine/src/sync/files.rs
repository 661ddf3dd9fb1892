//! Regular files: small ones at once, large ones piece by piece by any thread that is free.

use crate::monitor::Differing;
use crate::sync::entry::{Intent, Met, Verdict};
use crate::sync::task::{CopyContext, LargeCopy, Task};
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use crate::underway::Begun;
use driftless_model::{Action, Kind, RelPath, What};
use driftless_mover::{Large, Opened, Patch, Spot, Trouble};
use driftless_pool::{Stride, split_half};
use driftless_reconcile::{Fingerprint, Ranges};
use driftless_tree::{ReadFile, shares_blocks};
use std::cell::LazyCell;
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// From this size on a file is copied under a name that the next run finds again, in pieces.
pub const LARGE_BYTES: u64 = 64 * 1024 * 1024;
/// From this size on it may pay to copy only what differs of a file.
const RANGES_BYTES_MIN: u64 = 1024 * 1024;
/// Threads for each core that work on one file when they mostly wait for another host.
const WAITERS_PER_CORE: usize = 8;
/// How often a large file is begun again because its source changed.
const ATTEMPTS_MAX: u8 = 2;

impl Worker<'_> {
    /// Copies a regular file.
    pub fn make_file(
        &mut self,
        met: Met<'_>,
        opened: Option<Opened>,
        patch: Option<Patch>,
        intent: Intent,
    ) -> Result<Verdict, Trouble> {
        self.run.refuse_append_only(met.visit)?;
        let opened = match opened {
            Some(opened) => opened,
            None if self.submit_fetch_known(&met, &intent) => return Ok(Verdict::Submitted),
            None => Spot {
                only: met.only(),
                ..met.visit.touched_spot(met.name)
            }
            .open()?,
        };
        self.make_opened(met, opened, patch, intent)
    }

    /// Copies a regular file that is open, or at hand.
    pub fn make_opened(
        &mut self,
        met: Met<'_>,
        opened: Opened,
        patch: Option<Patch>,
        intent: Intent,
    ) -> Result<Verdict, Trouble> {
        let Met { visit, name, .. } = met;
        let spot = Spot {
            room: intent.room,
            stood: intent.stood,
            only: met.only(),
            ..visit.touched_spot(name)
        };
        let (first, opened) = (opened.meta, self.mover.ripen(&spot, opened)?);
        // The ranges that differ were found in an earlier state of the source, and do not hold for
        // a new one.
        let patch = patch.filter(|_| first.unchanged(&opened.meta));
        if opened.meta.kind != Kind::File {
            return Err(Trouble::Vanished);
        }
        if let Some(class) = self.run.part.other_class(opened.meta.size) {
            self.give_back(visit, name, class);
            return Ok(Verdict::GivenBack);
        }
        if self.submit_file(&met, &opened, &intent)? {
            return Ok(Verdict::Submitted);
        }
        let was_compared = patch.is_some();
        let patch = patch.or_else(|| self.old_content(&met, &spot, &opened, intent.action));
        let by_ranges = patch.is_some() && !was_compared;
        let whole = opened.meta.size < LARGE_BYTES || self.mover.carrier.is_some();
        if whole && !by_ranges {
            return Ok(Verdict::Changed(
                intent,
                self.mover.copy_small(&spot, opened)?,
            ));
        }
        let mut large = Large::begin(&mut self.mover, &spot, opened, patch)?;
        self.run.part.tell_copied(&visit.path_of(name), &mut large);
        let leads = met.leads.then_some(*met.meta);
        self.begin_large(
            visit,
            name,
            large,
            CopyContext {
                intent,
                leads,
                attempt: 0,
                weight: met.weight,
            },
        );
        Ok(Verdict::Large)
    }

    /// The replica's file, if it pays to copy only what differs from it: where that is known, over
    /// a line, which only what differs by its hashes has to cross, and where the rest can share the
    /// old one's blocks.
    fn old_content(
        &self,
        met: &Met<'_>,
        spot: &Spot<'_>,
        opened: &Opened,
        action: Action,
    ) -> Option<Patch> {
        let (size, is_far) = (opened.meta.size, is_far(spot));
        let is_carried = self.mover.carrier.is_some() && !is_far;
        if action != Action::Content || size < RANGES_BYTES_MIN || is_carried {
            return None;
        }
        let open = || -> Option<Arc<dyn ReadFile>> {
            Some(spot.replica.open_file(spot.name).ok()?.into())
        };
        let replica = LazyCell::new(open);
        let meta = || replica.as_ref()?.meta().ok();
        let path = || met.visit.path_of(met.name);
        let differs = match self.run.monitor.differing(&path, &opened.meta, &meta) {
            Differing::In(ranges) => Some(Ranges::from(ranges)),
            _ if is_far => None,
            Differing::InPlaces if size >= LARGE_BYTES && is_sharing(spot) => None,
            Differing::InPlaces | Differing::Anywhere => return None,
        };
        let replica = replica.clone()?;
        Some(Patch { replica, differs })
    }

    /// Copies what is missing, at once: a large file starts when it is met, and idle threads take
    /// halves of it.
    fn begin_large(&mut self, visit: &Arc<Visit>, name: &CStr, large: Large, context: CopyContext) {
        visit.more();
        if !self.run.part.continues(&visit.path_of(name)) {
            add(&self.run.tally.bytes_resumed, large.resumed());
        }
        add(&self.run.tally.bytes_copied, large.cloned());
        let missing = large.missing();
        let pending = AtomicUsize::new(missing.len().max(1));
        let bytes = missing.iter().map(|range| range.end - range.start).sum();
        let begun = Begun::new(&self.run.under_way, bytes, context.weight);
        let large = LargeCopy {
            large,
            visit: visit.clone(),
            name: name.into(),
            context,
            begun,
            pending,
            bytes_of: None,
        };
        let large = Arc::new(large);
        let mut pieces = missing.into_iter();
        let first = pieces.next().unwrap_or(0..0);
        pieces.for_each(|piece| self.run.queue.push_first(Task::Chunk(large.clone(), piece)));
        self.chunk(&large, first);
    }

    /// Copies a range of a large file, giving half of the rest away whenever a thread is idle.
    pub fn chunk(&mut self, large: &Arc<LargeCopy>, mut range: Range<u64>) {
        let sparse = self.run.options.policy.keep.holes;
        let mut data_end = if sparse { range.start } else { range.end };
        while !large.large.failed() && !self.run.stopped() && !self.run.yields() {
            if range.start >= data_end {
                let start = range.start;
                data_end = large.large.next_data(&mut range);
                self.walked(large, range.start - start);
            }
            if range.is_empty() {
                break;
            }
            let waits = large.large.patches() && is_far(&large.visit.spot(&large.name));
            self.share((&large.pending, waits), &mut range, |given| {
                Task::Chunk(large.clone(), given)
            });
            // Steps are measured only where they have to be short: a batch has to end soon, and a
            // run with a limit on bytes loses the step under way when it is stopped. Where hashes
            // show that most of a file stays, a step says nothing of how fast bytes cross the line,
            // and costs a round trip.
            let is_slow = self.run.part.is_batch()
                || self.run.options.throttle.bytes_per_second_max.is_some();
            let measured = is_slow && !large.large.patches();
            let stride = if measured {
                self.run.stride.bytes()
            } else {
                Stride::MAX
            };
            let step = next_step(&mut range, data_end, stride);
            let (run, len, began) = (self.run, step.end - step.start, Instant::now());
            let copied = large
                .large
                .copy(&mut self.mover.copier, step, &mut |bytes| {
                    run.pace_or_stop(bytes)
                });
            if measured {
                run.stride.learn(len, began.elapsed());
            }
            add(&run.tally.bytes_copied, copied);
            self.walked(large, len);
        }
        if self.run.stopped() || self.run.yields() {
            large
                .large
                .suspend(&self.mover, &large.visit.spot(&large.name));
        } else if self.run.part.is_batch() {
            // A mover that slept while the file was finished may have ended its range before it
            // hears of it.
            large
                .large
                .gives_way(&self.mover, &large.visit.spot(&large.name));
        }
        if large.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish_large(large);
        }
    }

    /// Gives half of a range away, if a thread is idle. `waits` if the threads that work on the
    /// file mostly wait for another host.
    pub fn share(
        &self,
        (pending, waits): (&AtomicUsize, bool),
        range: &mut Range<u64>,
        task: impl FnOnce(Range<u64>) -> Task,
    ) {
        let most = if waits {
            driftless_pool::cores() * WAITERS_PER_CORE
        } else {
            self.sharers_max()
        };
        let wanted = self.run.queue.hungry() && pending.load(Ordering::Relaxed) < most;
        if let Some(given) = wanted.then(|| split_half(range, Stride::MAX)).flatten() {
            pending.fetch_add(1, Ordering::Relaxed);
            self.run.queue.push_first(task(given));
        }
    }

    /// Copies bytes of a large file that another mover began.
    pub fn bytes(&mut self, path: RelPath, source: &Fingerprint, range: Range<u64>) {
        let Some((visit, name)) = self.borrow_parent(&path) else {
            return;
        };
        let spot = visit.spot(&name);
        let opened = spot.open().ok();
        let range = range.start
            ..range
                .end
                .min(opened.as_ref().map_or(0, |opened| opened.meta.size));
        if range.is_empty() {
            return;
        }
        let Some(large) = opened.and_then(|opened| Large::join(&self.mover, &spot, opened, source))
        else {
            return;
        };
        let intent = Intent::new(Action::Content, What::default(), visit.source.first_meta());
        let context = CopyContext {
            intent,
            leads: None,
            attempt: 0,
            weight: 0,
        };
        let (pending, bytes_of) = (AtomicUsize::new(1), Some((path, range.clone())));
        let begun = Begun::new(&self.run.under_way, range.end - range.start, 0);
        let large = LargeCopy {
            large,
            visit,
            name,
            context,
            begun,
            pending,
            bytes_of,
        };
        self.chunk(&Arc::new(large), range);
    }

    /// How many threads help with one file. Writers of a file wait for each other in the kernel
    /// (the lock of the inode), so on a file system that answers at once one a core is best: one
    /// reads while another writes. Where so many threads are at work that they mostly wait for the
    /// file system, all may help.
    fn sharers_max(&self) -> usize {
        let (cores, admitted) = (driftless_pool::cores(), self.run.queue.admitted());
        if admitted > cores * driftless_pool::THREADS_PER_CORE {
            admitted
        } else {
            cores.max(2)
        }
    }

    /// Counts `bytes` of a large file as its part of the walk.
    fn walked(&self, large: &LargeCopy, bytes: u64) {
        let part = u128::from(large.context.weight) * u128::from(bytes)
            / u128::from(large.large.size().max(1));
        add(&self.run.tally.walked, part as u64);
        large.begun.advance(bytes);
    }

    fn finish_large(&mut self, large: &Arc<LargeCopy>) {
        if self.gives_back_bytes(large) {
            return self.less(&large.visit);
        }
        let (visit, name) = (&large.visit, &*large.name);
        let done = large.large.finish(
            &self.mover,
            &Spot {
                room: large.context.intent.room,
                stood: large.context.intent.stood,
                ..visit.spot(name)
            },
        );
        let again = matches!(done, Err(Trouble::Changing | Trouble::Mismatch));
        if again
            && large.context.attempt < ATTEMPTS_MAX
            && self.begin_again(large, matches!(done, Err(Trouble::Mismatch)))
        {
            return self.less(visit);
        }
        let done = done.map(|moved| Verdict::Changed(large.context.intent.clone(), moved));
        if let Some(meta) = &large.context.leads {
            self.settle(
                Met {
                    visit,
                    name,
                    meta,
                    leads: true,
                    whole: None,
                    weight: 0,
                },
                done.as_ref().ok(),
            );
        }
        match done {
            Ok(verdict) => self.account(visit, name, verdict),
            Err(trouble) => self.account_trouble(visit, name, trouble),
        }
        self.less(visit);
    }

    fn begin_again(&mut self, large: &LargeCopy, mismatch: bool) -> bool {
        let only = large.context.leads.map(|meta| meta.id());
        let spot = Spot {
            only,
            ..large.visit.spot(&large.name)
        };
        let again = self
            .mover
            .open(&spot)
            .and_then(|opened| Large::begin(&mut self.mover, &spot, opened, None));
        let Ok(again) = again else { return false };
        add(&self.run.tally.mismatched, u64::from(mismatch));
        let context = CopyContext {
            attempt: large.context.attempt + 1,
            weight: 0,
            ..large.context.clone()
        };
        self.begin_large(&large.visit, &large.name, again, context);
        true
    }
}

/// Whether one of the trees is on another host.
pub fn is_far(spot: &Spot<'_>) -> bool {
    spot.source.takes_submissions() || spot.replica.takes_submissions()
}

/// Whether what stays of a replica's file can share its blocks with the new one.
fn is_sharing(spot: &Spot<'_>) -> bool {
    spot.replica.as_local().is_some_and(shares_blocks)
}

/// Takes the next step off a range: up to the end of the data or a multiple of `stride`.
pub fn next_step(range: &mut Range<u64>, data_end: u64, stride: u64) -> Range<u64> {
    let step = range.start
        ..range
            .end
            .min(data_end)
            .min((range.start / stride + 1) * stride);
    range.start = step.end;
    step
}
