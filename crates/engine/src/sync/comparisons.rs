//! Comparing content: small files at once, large ones range by range by any thread that is free.
//! What was found equal may be noted, so that a run that is interrupted need not read it again.

use crate::sync::entry::{Met, Pair, Verdict};
use crate::sync::files::{self, LARGE_BYTES, next_step};
use crate::sync::task::{LargeCompare, Task};
use crate::sync::worker::Worker;
use crate::tally::add;
use crate::underway::Begun;
use driftless_model::{Level, Meta, Side, What};
use driftless_mover::{Comparison, Opened, Spot, Trouble};
use driftless_pool::Stride;
use driftless_reconcile::Step;
use driftless_state::Ledger;
use driftless_tree::DirRef;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The piece that a whole file is.
pub const WHOLE: &str = "whole";

impl Worker<'_> {
    /// Compares the content of an entry that is a file on both sides and does what follows.
    pub fn compare(&mut self, met: Met<'_>, pair: Pair, what: What) -> Result<Verdict, Trouble> {
        // The page cache may still hold content that the disk did not keep.
        let suspect = self.run.rules_in(met.visit).suspects(&pair.replica.meta);
        let level = if suspect {
            Level::Media
        } else {
            self.run.options.policy.level
        };
        let is_lost = |trouble: &Trouble| matches!(trouble, Trouble::Failed(fault) if suspect && fault.side == Side::Replica && !fault.is_cut_off());
        if !suspect && self.is_noted(&pair, WHOLE) {
            add(&self.run.tally.known_equal, 1);
            return self.same_content(met, &pair, what);
        }
        let spot = Spot {
            only: met.only(),
            ..met.visit.spot(met.name)
        };
        let source = self.open_to_compare(&spot)?;
        if met.meta.size < LARGE_BYTES {
            let content = match self.mover.compare(&spot, source, level) {
                Err(trouble) if is_lost(&trouble) => return self.unreadable(met, &pair, what),
                content => content?,
            };
            add(&self.run.tally.bytes_compared, met.meta.size);
            return self.compared(met, &pair, what, content);
        }
        let comparison = match Comparison::begin(&spot, source, level) {
            Err(trouble) if is_lost(&trouble) => return self.unreadable(met, &pair, what),
            comparison => comparison?,
        };
        self.begin_compare(met, comparison, (pair, what), None);
        Ok(Verdict::Large)
    }

    /// Compares a large file, with the one of an earlier copy if `basis` is given; the threads that
    /// are free take part.
    pub fn begin_compare(
        &mut self,
        met: Met<'_>,
        comparison: Comparison,
        (pair, what): (Pair, What),
        basis: Option<DirRef>,
    ) {
        met.visit.more();
        let range = 0..comparison.size();
        let is_far = |dir: &DirRef| dir.takes_submissions();
        let waits = match &basis {
            Some(basis) => is_far(&met.visit.source) || is_far(basis),
            None => files::is_far(&met.visit.spot(met.name)),
        };
        let compare = LargeCompare {
            comparison,
            visit: met.visit.clone(),
            name: met.name.into(),
            pair,
            basis,
            waits,
            what,
            leads: met.leads,
            whole: met.whole,
            weight: met.weight,
            begun: Begun::new(&self.run.under_way, range.end, met.weight),
            pending: AtomicUsize::new(1),
            incomplete: AtomicBool::default(),
        };
        self.compare_chunk(&Arc::new(compare), range);
    }

    /// Whether an entry of the replica is equal to the source's as it is, its names aside.
    pub fn is_equal_alone(&mut self, met: &Met<'_>, there: &Meta) -> Result<bool, Trouble> {
        let Met {
            visit, name, meta, ..
        } = *met;
        let pair = self.pair(visit, name, meta, *there)?;
        match self.decide(visit, &pair, pair.has_same_target()) {
            Step::Same => Ok(true),
            Step::CompareContent(what) if what.is_empty() => self.has_same_content(met),
            _ => Ok(false),
        }
    }

    fn has_same_content(&mut self, met: &Met<'_>) -> Result<bool, Trouble> {
        let spot = Spot {
            only: Some(met.meta.id()),
            ..met.visit.spot(met.name)
        };
        let source = self.open_to_compare(&spot)?;
        let level = self.run.options.policy.level.max(Level::Content);
        let content = self.mover.compare(&spot, source, level)?;
        add(&self.run.tally.bytes_compared, met.meta.size);
        Ok(content.differs.is_empty())
    }

    /// Opens a source file. A run that may call it equal waits until what is written from now on
    /// gets another time; a run that only reports differences reports those of this moment.
    fn open_to_compare(&self, spot: &Spot<'_>) -> Result<Opened, Trouble> {
        if !self.run.options.applies() {
            return spot.open();
        }
        let source = self.mover.open(spot)?;
        if source.young {
            Err(Trouble::Changing)
        } else {
            Ok(source)
        }
    }

    /// Compares a range of a large file, giving half of the rest away whenever a thread is idle.
    pub fn compare_chunk(&mut self, compare: &Arc<LargeCompare>, mut range: Range<u64>) {
        let mut data_end = range.start;
        while !compare.comparison.failed() && !self.run.stopped() {
            if self.run.leaves_begun() && compare.leaves(&range) {
                break;
            }
            if range.start >= data_end {
                let start = range.start;
                data_end = compare.comparison.next_data(&mut range);
                compare.begun.advance(range.start - start);
            }
            if range.is_empty() {
                break;
            }
            self.share((&compare.pending, compare.waits), &mut range, |given| {
                Task::Compare(compare.clone(), given)
            });
            let step = next_step(&mut range, data_end, Stride::MAX);
            let (run, len) = (self.run, step.end - step.start);
            let piece = format!("{}-{}", step.start, step.end);
            if self.is_noted(&compare.pair, &piece) {
                continue;
            }
            if compare
                .comparison
                .compare(&mut self.mover.copier, step, &mut |bytes| {
                    run.pace_or_stop(bytes)
                })
            {
                self.note_equal(&compare.pair, &piece);
            }
            add(&run.tally.bytes_compared, len);
            compare.begun.advance(len);
        }
        if compare.pending.fetch_sub(1, Ordering::AcqRel) == 1 && !self.run.stopped() {
            if compare.incomplete.load(Ordering::Relaxed) {
                self.give_back(&compare.visit, &compare.name, self.run.part.class());
                return self.less(&compare.visit);
            }
            self.finish_comparison(compare);
        }
    }

    fn finish_comparison(&mut self, compare: &Arc<LargeCompare>) {
        let LargeCompare {
            visit,
            name,
            pair,
            basis,
            what,
            leads,
            whole,
            weight,
            ..
        } = &**compare;
        // If it is copied now, that is the same share of the walk.
        add(&self.run.tally.walked, *weight);
        let met = Met {
            visit,
            name,
            meta: &pair.source.meta,
            leads: *leads,
            whole: *whole,
            weight: 0,
        };
        let content = compare.comparison.finish();
        let done = match basis {
            Some(basis) => self.compared_basis(met, basis, pair, content),
            None => content.and_then(|content| self.compared(met, pair, *what, content)),
        };
        if !matches!(done, Ok(Verdict::Large)) {
            if *leads {
                self.settle(met, done.as_ref().ok());
            }
            match done {
                Ok(verdict) => self.account(visit, name, verdict),
                Err(trouble) => self.account_trouble(visit, name, trouble),
            }
        }
        self.less(visit);
    }

    /// Whether an interrupted run found `piece` of the content equal, and neither file has been
    /// touched since.
    fn is_noted(&self, pair: &Pair, piece: &str) -> bool {
        let Some(mut ledger) = self.run.ledger.as_ref().map(|ledger| ledger.lock()) else {
            return false;
        };
        let knows = ledger.knows(&self.ledger_key(pair, piece));
        self.run
            .tally
            .oldest_note_seconds
            .fetch_max(ledger.oldest_seconds(), Ordering::Relaxed);
        knows
    }

    /// Notes that `piece` of the content is equal.
    pub fn note_equal(&self, pair: &Pair, piece: &str) {
        if let Some(ledger) = &self.run.ledger {
            ledger.lock().add(self.ledger_key(pair, piece));
        }
    }

    fn ledger_key(&self, pair: &Pair, piece: &str) -> driftless_state::LedgerKey {
        let level = self.run.options.policy.level.word();
        let state =
            |m: &Meta| format!("{} {} {} {:?} {:?}", m.dev, m.ino, m.size, m.mtime, m.ctime);
        Ledger::key(
            format!(
                "{level} {piece} {} {}",
                state(&pair.source.meta),
                state(&pair.replica.meta)
            )
            .as_bytes(),
        )
    }
}

/// The name of the ledger for what `about` says, such as the two paths of a verification.
pub fn ledger_name(about: &[u8]) -> String {
    Ledger::key(about)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
