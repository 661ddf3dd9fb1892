//! What a mirror does where it may have missed changes: it has the source's times of change say
//! what is to be compared, or compares all where they cannot.

use super::{BeginError, Live, YOUNG};
use crate::clock::is_past;
use crate::dirty::Taken;
use crate::gaps::stamp_of;
use crate::hands::{Ended, Outcome};
use crate::worded::counted;
use std::time::Duration;

impl Live {
    /// Finds what has changed while no mirror ran.
    pub(super) fn catch_up(&mut self, now: Duration) -> Result<(), BeginError> {
        if self.is_member() {
            // What it may have missed its lead finds.
            return Ok(());
        }
        let kept = self.memory.heard_until()?.unwrap_or_default();
        let since = self.gaps.since_kept(&kept);
        match since.zip(self.memory.last_walk()?) {
            Some((since, walk)) if self.hands.watched.is_some() => {
                self.walked.go_on(&walk, now);
                self.status.gaps += 1;
                if self.dirty.has_all() {
                    // The comparison of all that is left to do closes this gap, too.
                    self.gaps.miss_since(Some(since));
                }
                self.dirty.add_gap(now, since);
            }
            _ => {
                // What was kept speaks of another ground, and is not to be met again.
                self.memory.keep_heard(Vec::new(), now);
                let checkpoint = self.checkpoint()?;
                self.gaps.miss_since(checkpoint.map(stamp_of));
                self.walk(now);
            }
        }
        Ok(())
    }

    /// Returns the last moment before which every change was on the replica or was looked at, as an
    /// earlier life has kept it.
    fn checkpoint(&self) -> Result<Option<Duration>, BeginError> {
        let walked = self.memory.last_walk()?.map(|run| run.begun);
        let equal = self.walked.equal;
        Ok(equal
            .into_iter()
            .chain(walked)
            .filter(|at| is_past(*at))
            .max())
    }

    /// The kernel has told too little.
    pub(super) fn take_gap(&mut self, now: Duration) {
        self.status.gaps += 1;
        match self.gaps.since_heard() {
            Some(since) if self.walked.ended.is_some() => self.dirty.add_gap(now, since),
            since => {
                let since = since.unwrap_or_else(|| stamp_of(self.in_doubt_since(now)));
                self.gaps.miss_since(Some(since));
                self.walk(now);
            }
        }
    }

    /// What was found in a gap is told; what cannot be narrowed is compared whole. Returns what is
    /// to be taken in still.
    pub(super) fn close_gap(&mut self, now: Duration, outcome: Outcome) -> Option<Outcome> {
        if outcome.end == Ended::Wide {
            tracing::warn!("change times cannot tell what changed: comparing everything");
            self.widen(now, outcome.taken);
            return None;
        }
        if let (Some(found), Ended::Done) = (&outcome.narrowed, &outcome.end) {
            self.status.narrowed += 1;
            self.status.narrowed_seen += outcome.counts.seen;
            let paths = counted(found.len() as u64, "path", "paths");
            tracing::info!("compared what may have changed meanwhile: {paths}");
        }
        Some(outcome)
    }

    fn widen(&mut self, now: Duration, taken: Taken) {
        self.gaps.miss_since(taken.gap());
        self.dirty.give_back(now, taken);
        self.walk(now);
    }

    /// Keeps until when all was heard of, as long as all of that is on the replica or saved.
    pub(super) fn keep_heard(&mut self, now: Duration) {
        let is_known = self.walked.ended.is_some()
            && self.doubt.is_none()
            && self.away.is_none()
            && self.status.deaf.is_none();
        // A gap is closed before it is known what came after it.
        if is_known && self.dirty.has_all() {
            return;
        }
        if let Some(kept) = self.gaps.to_keep(now, YOUNG, is_known) {
            self.memory.keep_heard(kept, now);
        }
    }
}
