//! Copying one large file by many threads, and going on with one that an earlier run left.
//!
//! The copy grows under a temporary name that follows from the file's own. A note kept with it says
//! which ranges are durable and from which state of the source they come, so that the next run goes
//! on from there.

use crate::mover::{Made, Mover, new_attributes};
use crate::spot::{Moved, Opened, Spot, Trouble};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Keep, Kind, Level, Side, Xattrs, errno};
use driftless_reconcile::{Fingerprint, Ranges, Resume, lends_rights};
use driftless_tree::{
    Attributes, Copier, Dir, DirMut, HASHED_BYTES, Known, Pace, ReadFile, WriteFile,
    differing_pieces, stable_temp_name,
};
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes copied between two durable notes of progress: at most this much (and what other threads
/// have in flight) is copied again.
pub(crate) const CHECKPOINT_BYTES: u64 = 64 * 1024 * 1024;
/// The same in time: what a slow line has brought in so long is worth a note, too.
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
    cloned: bool,
    trouble: Mutex<Option<Trouble>>,
    /// Held while data are made durable and the note of it is written; why that failed, if it did.
    flushing: Mutex<Option<Fault>>,
    resumed: u64,
    verify: Option<Level>,
    patch: Option<Patch>,
    /// Whether notes of progress are kept here; a range of a file that somebody else finishes has
    /// none, and by a file that does not come to rest nobody could tell later whether it is still
    /// what was copied.
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
        let temp = stable_temp_name(spot.name);
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

    /// Takes part in the copying of a file that another mover began and that somebody finishes:
    /// none if there is no such copy, or not of this `source`. What is copied is kept in
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
            cloned: false,
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
            self.cloned = true;
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

    /// Bytes that were copied at one stroke when it began, by sharing extents.
    pub fn cloned(&self) -> u64 {
        if self.cloned { self.size() } else { 0 }
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

    /// Looks again at the source, sets attributes and gives the file its name. Call once, when all
    /// ranges are through.
    pub fn finish(&self, mover: &Mover, spot: &Spot) -> Made {
        let done = self.try_finish(mover, spot);
        match done {
            Ok(_) | Err(Trouble::Stopped) => {}
            // What was copied is as good as ever: it is gone on with when the other host is there
            // again.
            Err(ref trouble) if trouble.is_cut_off() => drop(self.suspend(mover, spot)),
            Err(_) => self.discard(spot),
        }
        done
    }

    /// Ends early, so that the next run can go on.
    pub fn suspend(&self, mover: &Mover, spot: &Spot) -> Trouble {
        if !self.gives_way(mover, spot) {
            let _or_the_older_note_counts = self.checkpoint();
        }
        Trouble::Stopped
    }

    /// Whether another mover has finished the copy; then what was written here since is made to
    /// leave no trace.
    pub fn gives_way(&self, mover: &Mover, spot: &Spot) -> bool {
        let gives_way = self.was_finished_by_another(spot);
        if gives_way {
            self.hide_traces(mover);
        }
        gives_way
    }

    /// Whether the copy does not have its temporary name any more: another mover, which took over,
    /// has finished it.
    fn was_finished_by_another(&self, spot: &Spot) -> bool {
        let id = self.replica.meta().map(|meta| meta.id());
        match spot.replica.look(&self.temp) {
            Ok(there) => id.is_ok_and(|id| there.id() != id),
            Err(fault) => fault.is_missing(),
        }
    }

    /// What was written last was there already, but for the time of the writing and a note of
    /// progress.
    fn hide_traces(&self, mover: &Mover) {
        if !self
            .opened
            .file
            .meta_again()
            .is_ok_and(|now| self.opened.meta.unchanged(&now))
        {
            return;
        }
        let _as_well_as_it_can_be_done = self.replica.settle();
        let _nor_this = self.replica.save_progress(None);
        let keep = Keep {
            xattrs: false,
            acls: false,
            ..mover.terms.rules.keep
        };
        let _nor_that = self.replica.set(
            &Known::default(),
            &Attributes::of(&self.opened.wanted(&keep), Xattrs::default(), &keep),
        );
    }

    fn try_finish(&self, mover: &Mover, spot: &Spot) -> Made {
        if let Some(trouble) = self.trouble.lock().clone() {
            return Err(self.opened.cause_of(trouble));
        }
        if (mover.stopped)() && !self.missing().is_empty() {
            return Err(self.suspend(mover, spot));
        }
        let keep = mover.terms.rules.keep;
        let xattrs = self.opened.file.xattrs(&keep)?;
        if !self.opened.meta.unchanged(&self.opened.file.meta_again()?) {
            return Err(Trouble::Changing);
        }
        self.replica.settle()?;
        if mover.terms.sync_large {
            self.flush(&mut self.flushing.lock())?;
        }
        self.replica.save_progress(None)?;
        let hidden = !spot.private && lends_rights(&self.opened.meta, &xattrs, &keep);
        let unkept = self.opened.meta.unkept | xattrs.unkept;
        let attributes = new_attributes(&self.opened.wanted(&keep), xattrs, &mover.terms);
        if let Some(nest) = if hidden {
            spot.replica.nest(true)?
        } else {
            None
        } {
            return self
                .finish_out_of_sight(mover, &*nest, spot, &attributes)
                .map(|moved| Moved { unkept, ..moved });
        }
        let (faults, id) = self.dress(spot.replica, spot, &attributes)?;
        spot.replica.confirm()?;
        mover.publish(spot, Some(&self.temp))?;
        // Its bytes were counted as they were copied.
        Ok(Moved {
            faults,
            id: Some(id),
            young: self.opened.young,
            unkept,
            ..Moved::default()
        })
    }

    /// So far nobody but this user may open the copy. It is moved to where nobody can find it
    /// before it belongs to somebody else, who could write to it before it has the rights that go
    /// with its content.
    fn finish_out_of_sight(
        &self,
        mover: &Mover,
        nest: &dyn DirMut,
        spot: &Spot,
        attributes: &Attributes,
    ) -> Made {
        nest.take(spot.replica, &self.temp, &self.temp)?;
        // By another name it could be found.
        let alone = nest
            .look(&self.temp)
            .map_err(Trouble::from)
            .and_then(|there| {
                if there.nlink == 1 {
                    Ok(())
                } else {
                    Err(stale())
                }
            });
        let dressed = alone
            .and_then(|()| self.keeps_name(nest))
            .and_then(|_| self.dress(nest, spot, attributes));
        if dressed.is_err() {
            let _the_first_error_counts = nest.remove(&self.temp);
        }
        let (faults, id) = dressed?;
        spot.replica.confirm()?;
        mover.emerge(nest, &self.temp, spot)?;
        Ok(Moved {
            faults,
            id: Some(id),
            young: self.opened.young,
            ..Moved::default()
        })
    }

    /// Gives the copy in `dir` its attributes. Returns what could not be set, and its inode.
    fn dress(
        &self,
        dir: &dyn Dir,
        spot: &Spot,
        attributes: &Attributes,
    ) -> Result<(Vec<Fault>, (u64, u64)), Trouble> {
        let known = Known {
            clean: false,
            ..spot.newborn(Kind::File, 0o600)
        };
        let faults = self.replica.set(&known, attributes);
        self.replica.flush()?;
        Ok((faults, self.keeps_name(dir)?))
    }

    /// Which inode the copy is, if that is what stands at the temporary name in `dir`. Anybody can
    /// find out that name, and whoever may rename there can put a file of his own in its place.
    fn keeps_name(&self, dir: &dyn Dir) -> Result<(u64, u64), Trouble> {
        let id = self.replica.meta()?.id();
        if dir.look(&self.temp)?.id() == id {
            Ok(id)
        } else {
            Err(stale())
        }
    }

    fn discard(&self, spot: &Spot) {
        let _the_next_run_removes_it = spot.replica.remove(&self.temp);
    }
}

/// Something else stands at the temporary name.
fn stale() -> Trouble {
    Fault {
        side: Side::Replica,
        act: Act::HoldUnfinished,
        errno: errno::ESTALE,
    }
    .into()
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
        Err(e) if e.errno == 17 => {
            spot.replica.remove_leftover(temp).done()?;
            Ok(spot.replica.create_file(temp, 0o600)?)
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Meta, Stamp};
    use driftless_tree::Done;

    /// A file whose first flush fails, as a disk's does that has lost something: the kernel says so
    /// once.
    #[derive(Default)]
    struct Forgetful {
        flushes: AtomicU64,
        note: Arc<Mutex<Option<Vec<u8>>>>,
    }

    fn meta() -> Meta {
        let stamp = Stamp::default();
        let (mtime, atime, ctime) = (stamp, stamp, stamp);
        Meta {
            kind: Kind::File,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 100,
            blocks: 0,
            mtime,
            atime,
            ctime,
            nlink: 1,
            dev: 1,
            ino: 1,
            rdev: 0,
            unkept: driftless_model::Unkept::NONE,
        }
    }

    impl ReadFile for Forgetful {
        fn meta(&self) -> Done<Meta> {
            Ok(meta())
        }
        fn xattrs(&self, _keep: &Keep) -> Done<Xattrs> {
            Ok(Xattrs::default())
        }
        fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> Done<usize> {
            Ok(0)
        }
        fn drop_cached(&self) -> Done {
            Ok(())
        }
        fn next_data(&self, within: Range<u64>) -> Done<Option<Range<u64>>> {
            Ok(Some(within))
        }
    }

    impl WriteFile for Forgetful {
        fn write_at(&self, _data: &[u8], _offset: u64) -> Done {
            Ok(())
        }
        fn set_len(&self, _len: u64) -> Done {
            Ok(())
        }
        fn allocate(&self, _range: Range<u64>) -> Done {
            Ok(())
        }
        fn set(&self, _known: &Known, _attributes: &Attributes) -> Vec<Fault> {
            Vec::new()
        }
        fn sync(&self) -> Done {
            let fault = Fault {
                side: Side::Replica,
                act: Act::Flush,
                errno: 5,
            };
            if self.flushes.fetch_add(1, Relaxed) == 1 {
                Err(fault)
            } else {
                Ok(())
            }
        }
        fn flush(&self) -> Done {
            Ok(())
        }
        fn close(self: Box<Self>) -> Done {
            Ok(())
        }
        fn progress(&self) -> Option<Vec<u8>> {
            None
        }
        fn save_progress(&self, note: Option<&[u8]>) -> Done {
            *self.note.lock() = note.map(<[u8]>::to_vec);
            Ok(())
        }
    }

    #[test]
    fn after_a_flush_that_failed_nothing_is_noted_as_durable() {
        let file = Forgetful::default();
        let note = file.note.clone();
        let mover = Mover {
            copier: Copier::new(driftless_model::Cache::Keep, Arc::default()),
            terms: crate::Terms::default(),
            carrier: None,
            pace: &|_| (),
            stopped: &|| false,
        };
        let opened = Opened {
            file: Arc::new(Forgetful::default()),
            meta: meta(),
            young: false,
        };
        let large = Large::over(
            &mover,
            opened,
            (Box::new(file), c"temp".into()),
            Ranges::default(),
        );
        large.done.lock().add(0..50);
        assert!(large.checkpoint().is_ok() && note.lock().is_some());
        large.done.lock().add(50..100);
        assert!(
            matches!(large.checkpoint(), Err(Trouble::Lost(_))) && note.lock().is_none(),
            "the note went with what it vouched for"
        );
        assert!(
            matches!(large.checkpoint(), Err(Trouble::Lost(_))),
            "the kernel says it once, and it holds for all"
        );
        assert!(note.lock().is_none());
    }
}
