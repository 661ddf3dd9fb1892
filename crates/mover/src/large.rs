//! Copying one large file by many threads, and going on with one that an earlier run left.
//!
//! The copy grows under a temporary name that follows from the file's own. A note kept with it says
//! which ranges are durable and from which state of the source they come, so that the next run goes
//! on from there.

mod finish;

use crate::mover::Mover;
use crate::spot::{Opened, Spot, Trouble};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Level, Side, errno};
use driftless_reconcile::{Fingerprint, Ranges, Resume};
use driftless_tree::{
    Copier, HASHED_BYTES, Pace, ReadFile, WriteFile, differing_pieces, own_temp_name,
    stable_temp_name,
};
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes copied between two durable notes of progress: at most this much (and what other threads
/// have in flight) is copied again.
pub(crate) const CHECKPOINT_BYTES: u64 = 64 * 1024 * 1024;
/// Time between two durable notes of progress: what a slow line has brought in so long is worth a
/// note, too.
const CHECKPOINT_TIME: Duration = Duration::from_secs(10);

/// A large file in the course of being copied.
pub struct Large {
    opened: Opened,
    replica: Box<dyn WriteFile>,
    temp: CString,
    done: Mutex<Ranges>,
    /// The data of the source that was found last.
    data: Mutex<Range<u64>>,
    since_checkpoint: AtomicU64,
    checkpointed: Mutex<Instant>,
    cloned: u64,
    trouble: Mutex<Option<Trouble>>,
    /// Held while data are made durable and the note of it is written; why that failed, if it did.
    flushing: Mutex<Option<Fault>>,
    resumed: u64,
    verify: Option<Level>,
    patch: Option<Patch>,
    /// Whether notes of progress are kept here; a range of a file that another mover finishes has
    /// none, and neither has a file that does not come to rest: no later run could tell whether it
    /// is still what was copied.
    noted: bool,
    /// Whether it goes on with a copy that was there.
    found: bool,
}

/// A replica of the same size that differs in some ranges only: the rest is taken from it.
pub struct Patch {
    /// The file that the copy takes the place of.
    pub replica: Arc<dyn ReadFile>,
    /// Where it differs from the source; if that is not known, hashes tell it range by range.
    pub differs: Option<Ranges>,
}

impl Large {
    /// Begins, or goes on where an earlier run stopped. With a patch, the source is only read where
    /// the replica differs.
    pub fn begin(
        mover: &mut Mover,
        spot: &Spot,
        opened: Opened,
        patch: Option<Patch>,
    ) -> Result<Large, Trouble> {
        let temp = match mover.terms.own {
            0 => stable_temp_name(spot.name),
            own => own_temp_name(spot.name, own),
        };
        let found = resume(spot, &opened, &temp);
        let is_found = found.is_some();
        let (replica, done) = match found {
            Some(found) => found,
            None => (anew(spot, &temp)?, Ranges::default()),
        };
        let mut large = Large {
            patch,
            found: is_found,
            ..Large::over(mover, opened, (replica, temp), done)
        };
        if let Err(trouble) = large.prepare(mover) {
            if !trouble.is_cut_off() {
                large.discard(spot);
            }
            return Err(trouble);
        }
        Ok(large)
    }

    /// Takes part in the copying of a file that another mover began and that one of them will
    /// finish; `None` if there is no such copy, or not of this `source`. What is copied is kept in
    /// [`done`](Large::done) alone.
    pub fn join(mover: &Mover, spot: &Spot, opened: Opened, source: &Fingerprint) -> Option<Large> {
        let temp = stable_temp_name(spot.name);
        let (replica, _) =
            resume(spot, &opened, &temp).filter(|_| Fingerprint::of(&opened.meta) == *source)?;
        Some(Large {
            noted: false,
            found: true,
            ..Large::over(mover, opened, (replica, temp), Ranges::default())
        })
    }

    fn over(
        mover: &Mover,
        opened: Opened,
        (replica, temp): (Box<dyn WriteFile>, CString),
        done: Ranges,
    ) -> Large {
        Large {
            noted: !opened.young,
            opened,
            replica,
            temp,
            resumed: done.bytes(),
            done: Mutex::new(done),
            data: Mutex::new(0..0),
            since_checkpoint: AtomicU64::new(0),
            checkpointed: Mutex::new(Instant::now()),
            cloned: 0,
            trouble: Mutex::new(None),
            flushing: Mutex::new(None),
            verify: mover.terms.verify,
            patch: None,
            found: false,
        }
    }

    /// Takes over what others have copied of the same `source`, durably, if this goes on with that
    /// copy.
    pub fn take_over(&mut self, source: &Fingerprint, done: &Ranges) {
        if self.found && self.source() == *source {
            done.iter()
                .for_each(|range| self.done.lock().add(range.clone()));
        }
    }

    /// From which state of the source it is copied.
    pub fn source(&self) -> Fingerprint {
        Fingerprint::of(&self.opened.meta)
    }

    /// Whether some of it is taken from the old replica.
    pub fn patches(&self) -> bool {
        self.patch.is_some()
    }

    /// What was copied so far; durable after a [`checkpoint`](Large::checkpoint).
    pub fn done(&self) -> Ranges {
        self.done.lock().clone()
    }

    fn prepare(&mut self, mover: &mut Mover) -> Result<(), Trouble> {
        if self.resumed == 0 && mover.clone_whole(&self.opened, &*self.replica)? {
            mover.verify_clone(&self.opened, &*self.replica)?;
            self.done.lock().add(0..self.size());
            self.cloned = self.opened.data_bytes()?;
            return Ok(());
        }
        self.replica.set_len(self.size())?;
        if self.resumed == 0 {
            self.save_note()?;
        }
        Ok(())
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.opened.meta.size
    }

    /// Bytes that an earlier run had copied.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Bytes of data that were copied at one stroke when it began, by sharing extents.
    pub fn cloned(&self) -> u64 {
        self.cloned
    }

    /// What is still to be copied.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.done.lock().missing(self.size())
    }

    /// Moves the start of `range` to the next data and returns where that ends; a hole needs no
    /// copying. Looking for the end of data may cost as much as walking all its pages, so it is
    /// remembered, and others need not look again.
    pub fn next_data(&self, range: &mut Range<u64>) -> u64 {
        if range.is_empty() {
            return range.end;
        }
        let known = self.data.lock().clone();
        if known.contains(&range.start) {
            return known.end.min(range.end);
        }
        let data = match self.opened.file.next_data(range.clone()) {
            Ok(data) => data.unwrap_or(range.end..range.end),
            Err(fault) => {
                self.fail(fault.into());
                return range.end;
            }
        };
        self.done.lock().add(range.start..data.start);
        *self.data.lock() = data.clone();
        range.start = data.start;
        data.end
    }

    /// Whether copying on is in vain.
    pub fn failed(&self) -> bool {
        self.trouble.lock().is_some()
    }

    /// Copies a range of data and returns the bytes copied; what goes wrong is kept for
    /// [`finish`](Large::finish).
    pub fn copy(&self, copier: &mut Copier, range: Range<u64>, pace: Pace<'_>) -> u64 {
        if self.failed() {
            return 0;
        }
        let done = self.copy_range(copier, range.clone(), pace);
        match done.and_then(|bytes| self.note_done(range, bytes).map(|()| bytes)) {
            Ok(bytes) => bytes,
            Err(trouble) => {
                self.fail(trouble);
                0
            }
        }
    }

    fn copy_range(
        &self,
        copier: &mut Copier,
        range: Range<u64>,
        pace: Pace<'_>,
    ) -> Result<u64, Trouble> {
        let Some(patch) = &self.patch else {
            self.replica.allocate(range.clone())?;
            return self.copy_from(&*self.opened.file, copier, range, pace);
        };
        let mut copied = 0;
        for (piece, differs) in self.pieces(patch, range)? {
            if differs {
                copied += self.copy_from(&*self.opened.file, copier, piece, pace)?;
            } else if self.copy_from(&*patch.replica, copier, piece.clone(), pace)?
                < piece.end - piece.start
            {
                // Somebody has shortened it since it was compared.
                return Err(Fault {
                    side: Side::Replica,
                    act: Act::CopyOld,
                    errno: errno::ENODATA,
                }
                .into());
            }
        }
        Ok(copied)
    }

    /// Cuts a range into what differs and what does not.
    fn pieces(&self, patch: &Patch, range: Range<u64>) -> Result<Vec<(Range<u64>, bool)>, Trouble> {
        if let Some(differs) = &patch.differs {
            return Ok(differs.cut(range).into_iter().collect());
        }
        let wanted = self.opened.file.digests(range.clone(), HASHED_BYTES)?;
        // What cannot be read there is copied.
        let there = patch
            .replica
            .digests(range.clone(), HASHED_BYTES)
            .unwrap_or_default();
        let mut differs = Ranges::default();
        differing_pieces(range.clone(), &wanted, &there).for_each(|piece| differs.add(piece));
        Ok(differs.cut(range).into_iter().collect())
    }

    fn copy_from(
        &self,
        from: &dyn ReadFile,
        copier: &mut Copier,
        range: Range<u64>,
        pace: Pace<'_>,
    ) -> Result<u64, Trouble> {
        let pair: (&dyn ReadFile, &dyn WriteFile) = (from, &*self.replica);
        let Some(level) = self.verify else {
            return Ok(copier.copy(pair, range, false, pace)?);
        };
        let (copied, same) =
            copier.copy_verified(pair, (range, false), level == Level::Media, pace)?;
        if same {
            Ok(copied)
        } else {
            Err(Trouble::Mismatch)
        }
    }

    fn note_done(&self, range: Range<u64>, bytes: u64) -> Result<(), Trouble> {
        self.done.lock().add(range);
        if self.is_checkpoint_due(bytes) {
            self.checkpoint()
        } else {
            Ok(())
        }
    }

    /// Whether so many bytes more are reason for a note.
    fn is_checkpoint_due(&self, bytes: u64) -> bool {
        let mut last = self.checkpointed.lock();
        let is_due = self.since_checkpoint.fetch_add(bytes, Relaxed) + bytes >= CHECKPOINT_BYTES
            || last.elapsed() >= CHECKPOINT_TIME;
        if is_due {
            self.since_checkpoint.store(0, Relaxed);
            *last = Instant::now();
        }
        is_due
    }

    /// Makes what was copied durable, then the note of it: never the other way round.
    pub fn checkpoint(&self) -> Result<(), Trouble> {
        let mut failed = self.flushing.lock();
        let done = self.done.lock().clone();
        self.flush(&mut failed)?;
        Ok(self.save(done)?)
    }

    /// Makes what was copied durable, by one thread at a time: the kernel tells only one of them
    /// that something was lost (fsync(2)), and the next would note that as durable. After that
    /// there is no note any more, and no flush.
    fn flush(&self, failed: &mut Option<Fault>) -> Result<(), Trouble> {
        if let Some(fault) = *failed {
            return Err(Trouble::Lost(fault));
        }
        self.replica.settle()?;
        self.replica.sync().map_err(|fault| {
            if !fault.is_cut_off() {
                *failed = Some(fault);
                let _the_first_fault_counts = self.replica.save_progress(None);
            }
            Trouble::Lost(fault)
        })
    }

    fn save_note(&self) -> Result<(), Fault> {
        let done = self.done.lock().clone();
        self.save(done)
    }

    fn save(&self, done: Ranges) -> Result<(), Fault> {
        if !self.noted {
            return Ok(());
        }
        let note = Resume {
            source: Fingerprint::of(&self.opened.meta),
            done,
        };
        self.replica.save_progress(Some(&note.encode()))
    }

    fn fail(&self, trouble: Trouble) {
        self.trouble.lock().get_or_insert(trouble);
    }
}

fn resume(spot: &Spot, opened: &Opened, temp: &CString) -> Option<(Box<dyn WriteFile>, Ranges)> {
    if spot.private {
        return None;
    }
    let file = spot.replica.reopen_file(temp).ok()?;
    let note = Resume::decode(&file.progress()?)?;
    let size = opened.meta.size;
    // A note that speaks of more than there is was not written by us, or is torn.
    let fits = note.source == Fingerprint::of(&opened.meta)
        && note.done.is_within(size)
        && file.meta().ok()?.size == size;
    fits.then_some((file, note.done))
}

fn anew(spot: &Spot, temp: &CString) -> Result<Box<dyn WriteFile>, Trouble> {
    match spot.replica.create_file(temp, 0o600) {
        Err(e) if e.errno == errno::EEXIST => {
            spot.replica.remove_leftover(temp).done()?;
            Ok(spot.replica.create_file(temp, 0o600)?)
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests;
