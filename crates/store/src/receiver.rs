//! Receiving one set at one place.
//!
//! Units come in any order into a private directory. No byte is written before its unit has the
//! hash that the catalogue states. What an earlier process wrote is hashed again, so nothing has to
//! be believed after a crash.

use crate::catalogue::Catalogue;
use crate::claim::{CopyClaim, claim};
use crate::complete::{CopyCompletion, UnkeptMetadata};
use crate::cursor::DirCursor;
use crate::error::{Error, Result};
use crate::format::SetHash;
use crate::in_use::{CopyUse, hold_copy};
use crate::node::{CopyPlace, NodeFiles, path_of};
use crate::place::IdWriter;
use crate::present::PresentUnits;
use crate::publish::Publication;
use crate::purge::{purge_unused, superseded};
use crate::reader::UnitReader;
use crate::remove::PurgeReport;
use crate::staging::{StagedDir, failed_at, take_up};
use crate::verified::VerifiedUnit;
use crate::writer::UnitWriter;
use driftless_model::{Fault, Keep, errno};
use driftless_state::holdings::{CopyRow, NewCopy};
use driftless_tree::{DirMutRef, DirRef, random_id};
use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

/// The time after which a receiver notes again that it is at work.
const USE_INTERVAL: Duration = Duration::from_secs(5);

/// Free bytes beyond those that are missing, above which the file system itself is not full.
const ROOM_MARGIN: u64 = 64 << 20;

/// The result of a reception: the copy under its final names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedCopy {
    /// The number of the copy.
    pub copy: u64,
    /// The set.
    pub hash: SetHash,
    /// Bytes of content.
    pub bytes: u64,
    /// Entries.
    pub entries: u32,
    /// Metadata that could not be kept.
    pub metadata: UnkeptMetadata,
    /// Older versions that were removed.
    pub replaced: PurgeReport,
}

/// Receives one set at one place. Dropped before [`finish`](SetReceiver::finish), it leaves what is
/// there for the next receiver of this set at this place.
pub struct SetReceiver {
    files: Arc<NodeFiles>,
    catalogue: Arc<Catalogue>,
    row: CopyRow,
    place: CopyPlace,
    staging: DirMutRef,
    staging_name: CString,
    writer: UnitWriter,
    present: Arc<PresentUnits>,
    is_resumed: bool,
    keep: Keep,
    used: Duration,
    _claim: CopyClaim,
    /// Tells a purge that does not see the place.
    _use: CopyUse,
}

/// Older versions whose names a copy has taken: complete ones in its private directory, and unfinished
/// ones. Dropped before [`remove`](ReplacedVersions::remove), they stay until the next sweep or
/// reception at that place.
pub struct ReplacedVersions {
    files: Arc<NodeFiles>,
    catalogue: Arc<Catalogue>,
    copy: u64,
    place: CopyPlace,
    staging: DirMutRef,
    private_name: CString,
    rows: Vec<CopyRow>,
    superseded: Vec<CopyRow>,
    _claim: CopyClaim,
}

impl ReplacedVersions {
    /// Removes the older versions, entry by entry.
    ///
    /// # Errors
    /// An entry cannot be removed.
    pub fn remove(self) -> Result<PurgeReport> {
        let mut report = self.publication().clear(&self.rows)?;
        for row in &self.superseded {
            if let Some(one) = purge_unused(&self.files, row)? {
                report.add(one);
            }
        }
        Ok(report)
    }

    fn publication(&self) -> Publication<'_> {
        Publication {
            files: &self.files,
            catalogue: &self.catalogue,
            copy: self.copy,
            place: self.place.clone(),
            staging: self.staging.clone(),
            private_name: self.private_name.clone(),
        }
    }
}

impl SetReceiver {
    /// Opens the unfinished copy of a set at a place, or begins it.
    pub(crate) fn open(
        files: &Arc<NodeFiles>,
        catalogue: &Arc<Catalogue>,
        place: CopyPlace,
        is_cached: bool,
    ) -> Result<SetReceiver> {
        let row = files.index.lock().begin(&NewCopy {
            hash: &catalogue.hash().to_string(),
            place: &place.path,
            place_id: place.id(),
            token: random_id() as u64,
            is_cached,
            bytes: catalogue.bytes(),
            now: files.now(),
        })?;
        let private = match files.open_private(&row, &place) {
            Ok(private) => private,
            Err(error) => {
                if row.private_id.is_none() {
                    files.index.lock().remove(row.id)?;
                }
                return Err(error);
            }
        };
        let (staging, is_new) = (private.dir, private.is_new);
        let row = files.row(row.id)?;
        let busy = || Error::Busy {
            hash: catalogue.hash(),
            place: path_of(&place.path),
        };
        let claim = claim(files, &row, Some(&staging))?.ok_or_else(busy)?;
        let in_use = hold_copy(files, row.id)?;
        let cursor = staged_cursor(catalogue, &staging, &place.path)?;
        let mut receiver = SetReceiver {
            files: files.clone(),
            catalogue: catalogue.clone(),
            writer: UnitWriter::new(catalogue, cursor),
            present: Arc::new(PresentUnits::new(catalogue.units())),
            is_resumed: !is_new,
            keep: Keep::default(),
            used: row.used,
            row,
            place,
            staging,
            staging_name: private.name,
            _claim: claim,
            _use: in_use,
        };
        if receiver.is_resumed {
            receiver.resume()?;
        }
        match receiver.check_room() {
            Ok(()) => Ok(receiver),
            Err(error) if receiver.is_resumed => Err(error),
            Err(error) => {
                receiver.abandon()?;
                Err(error)
            }
        }
    }

    /// Hashes what an earlier process wrote, and writes it again. The pages may never have reached
    /// the disk: the kernel reports a failed write once, and keeps the pages as if they were written
    /// (fsync(2), "EIO"). The earlier process may also have left holes in place of zeros.
    fn resume(&mut self) -> Result<()> {
        take_up(&self.catalogue, &mut self.writer.cursor)?;
        let (mut reader, mut buffer) = (self.reader()?, Vec::new());
        for unit in 0..self.catalogue.units() {
            match reader.read(unit, &mut buffer) {
                Ok(()) => {
                    let written = self.writer.write(unit, &buffer);
                    written.map_err(|error| self.room_error(error))?;
                    self.present.add(unit);
                    self.note_use()?;
                }
                Err(Error::CopyChanged { .. } | Error::Entry { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Returns the number of the copy.
    pub fn copy(&self) -> u64 {
        self.row.id
    }

    /// Returns the set.
    pub fn catalogue(&self) -> &Arc<Catalogue> {
        &self.catalogue
    }

    /// Returns the units that are there; other threads may look at them at any time.
    pub fn present(&self) -> Arc<PresentUnits> {
        self.present.clone()
    }

    /// Returns a reader of the units that are there, for another thread. It serves until the copy
    /// gets its final names.
    ///
    /// # Errors
    /// The file of the catalogue cannot be read.
    pub fn reader(&self) -> Result<UnitReader> {
        let dir: DirRef = self.staging.clone();
        UnitReader::of_copy(&self.catalogue, &dir, &self.place.path)
    }

    /// Takes a unit. Returns `false` if it is there already.
    ///
    /// # Errors
    /// [`Error::WrongUnit`] if the bytes have another hash: nothing was written.
    /// [`Error::NoRoom`] if the disk is full: what is there stays.
    pub fn put(&mut self, unit: u64, bytes: &[u8]) -> Result<bool> {
        self.catalogue.check_unit(unit, bytes)?;
        self.write(unit, bytes)
    }

    /// Takes a unit that was verified before. Returns `false` if it is there already.
    ///
    /// # Errors
    /// [`Error::WrongUnit`] if the unit is of another set; [`Error::NoRoom`].
    pub fn put_verified(&mut self, unit: &VerifiedUnit) -> Result<bool> {
        if unit.set() != self.catalogue.hash() {
            let unit = unit.number();
            return Err(Error::WrongUnit { unit });
        }
        self.write(unit.number(), unit.bytes())
    }

    fn write(&mut self, unit: u64, bytes: &[u8]) -> Result<bool> {
        if self.present.has(unit) {
            return Ok(false);
        }
        let written = self.writer.write(unit, bytes);
        written.map_err(|error| self.room_error(error))?;
        self.present.add(unit);
        self.note_use()?;
        Ok(true)
    }

    /// Notes in the index that this process is at work, for others that wait for the copy.
    fn note_use(&mut self) -> Result<()> {
        let now = self.files.now();
        if now.saturating_sub(self.used) < USE_INTERVAL {
            return Ok(());
        }
        self.used = now;
        Ok(self.files.index.lock().touch(self.row.id, now)?)
    }

    /// Gives the unit writer to the reuse of local content.
    pub(crate) fn parts_for_reuse(
        &mut self,
    ) -> (
        &Arc<NodeFiles>,
        &Arc<Catalogue>,
        &mut UnitWriter,
        &PresentUnits,
    ) {
        (
            &self.files,
            &self.catalogue,
            &mut self.writer,
            &self.present,
        )
    }

    /// Completes the copy as [`place`](SetReceiver::place), and removes older versions.
    ///
    /// # Errors
    /// As [`place`](SetReceiver::place); an older version cannot be removed.
    pub fn finish(self) -> Result<PlacedCopy> {
        let (mut placed, replaced) = self.place()?;
        if let Some(replaced) = replaced {
            placed.replaced = replaced.remove()?;
        }
        Ok(placed)
    }

    /// Completes the copy: all metadata, durable, under the final names. Older versions that this
    /// store placed lose their names. The caller removes them, which can take long.
    ///
    /// # Errors
    /// [`Error::Incomplete`] if units are missing; [`Error::Occupied`] if another entry stands at a
    /// final name; [`Error::NoRoom`]. The unfinished copy stays.
    pub fn place(mut self) -> Result<(PlacedCopy, Option<ReplacedVersions>)> {
        if !self.present.is_complete() {
            return Err(Error::Incomplete {
                hash: self.catalogue.hash(),
                lacking: self.present.units().saturating_sub(self.present.count()),
            });
        }
        let metadata = self.complete().map_err(|error| self.room_error(error))?;
        let publication = Publication {
            files: &self.files,
            catalogue: &self.catalogue,
            copy: self.row.id,
            place: self.place.clone(),
            staging: self.staging.clone(),
            private_name: self.staging_name.clone(),
        };
        publication.note(metadata.counts)?;
        let rows = publication.place()?;
        let superseded = superseded(&self.files, &self.catalogue, &self.place, self.row.id)?;
        let placed = PlacedCopy {
            copy: self.row.id,
            hash: self.catalogue.hash(),
            bytes: self.catalogue.bytes(),
            entries: self.catalogue.entries(),
            metadata,
            replaced: PurgeReport::default(),
        };
        let replaced = ReplacedVersions {
            files: self.files,
            catalogue: self.catalogue,
            copy: self.row.id,
            place: self.place,
            staging: self.staging,
            private_name: self.staging_name,
            rows,
            superseded,
            _claim: self._claim,
        };
        let is_empty = replaced.publication().staged_names()?.is_empty();
        if !is_empty || !replaced.superseded.is_empty() {
            return Ok((placed, Some(replaced)));
        }
        // Only the empty directory is left.
        replaced.remove()?;
        Ok((placed, None))
    }

    fn complete(&mut self) -> Result<UnkeptMetadata> {
        self.writer.close()?;
        let mut completion = CopyCompletion {
            catalogue: &self.catalogue,
            cursor: staged_cursor(&self.catalogue, &self.staging, &self.place.path)?,
            links: staged_cursor(&self.catalogue, &self.staging, &self.place.path)?,
            root: self.staging.clone(),
            is_resumed: self.is_resumed,
            keep: self.keep,
            may_give: self.staging.rights().any_owner,
        };
        let mut ids = IdWriter::create(&self.files.ids, self.row.id)?;
        completion.make_entries(&mut ids)?;
        ids.finish()?;
        let metadata = completion.set_metadata()?;
        // From here on a second attempt finds entries with their metadata.
        self.is_resumed = true;
        let durable = self.staging.sync_all();
        durable.map_err(failed_at(&self.place.path, &self.staging_name))?;
        // One call serves both where they are on one file system.
        let own = &self.files.dir;
        if own.first_meta().dev != self.staging.first_meta().dev {
            own.sync_all().map_err(crate::error::own_file(b"."))?;
        }
        Ok(metadata)
    }

    /// Removes the unfinished copy.
    ///
    /// # Errors
    /// An entry cannot be removed.
    pub fn abandon(self) -> Result<()> {
        self.files.remove_private(&self.row, &self.place)?;
        self.files.index.lock().remove(self.row.id)?;
        self.files.forget_files(&self.row)
    }

    /// Returns the error of a full disk with what is needed and free.
    fn room_error(&self, error: Error) -> Error {
        match error {
            Error::Entry { path, fault } if fault.lacks_room() => self.error_of_room(path, fault),
            other => other,
        }
    }

    /// Returns the resource that lacks, after a call found no room for an entry.
    fn error_of_room(&self, path: Vec<u8>, fault: Fault) -> Error {
        let room = self.place.dir.free_room().ok().flatten();
        let (free, free_inodes) = room.map_or((0, None), |room| (room.bytes, room.inodes));
        let needed = self.lacking_bytes();
        let has_room = free > needed.saturating_add(ROOM_MARGIN)
            && free_inodes.is_none_or(|free_inodes| free_inodes > 0);
        if fault.errno == errno::EDQUOT || has_room {
            return Error::Quota {
                path,
                fault,
                needed,
                free,
            };
        }
        Error::NoRoom {
            path: self.place.path.clone(),
            // The file that had no room needs a block at least.
            needed: needed.max(1),
            inodes: 1,
            free,
            free_inodes,
        }
    }

    fn lacking_bytes(&self) -> u64 {
        let lacking = self.present.units().saturating_sub(self.present.count());
        lacking.saturating_mul(crate::format::UNIT_BYTES.into())
    }

    /// Returns an error if the file system has no room for what is missing.
    fn check_room(&self) -> Result<()> {
        let needed = self.lacking_bytes().min(self.catalogue.bytes());
        let failed = failed_at(&self.place.path, c".");
        let Some(room) = self.place.dir.free_room().map_err(failed)? else {
            return Ok(());
        };
        let inodes = match self.is_resumed {
            true => 0,
            false => u64::from(self.catalogue.entries()),
        };
        if room.bytes >= needed && room.inodes.is_none_or(|free| free >= inodes) {
            return Ok(());
        }
        Err(Error::NoRoom {
            path: self.place.path.clone(),
            needed,
            inodes,
            free: room.bytes,
            free_inodes: room.inodes,
        })
    }
}

fn staged_cursor(
    catalogue: &Catalogue,
    staging: &DirMutRef,
    place: &[u8],
) -> Result<DirCursor<StagedDir>> {
    DirCursor::within(catalogue, &StagedDir(staging.clone()), place)
}

/// Goes on with a publication that a crash interrupted. Returns `false` if another process is at
/// work on the copy.
pub(crate) fn recover(files: &Arc<NodeFiles>, row: &CopyRow) -> Result<bool> {
    let (Some(catalogue), Some(place)) = (files.catalogue_of(row)?, files.place_of(row)?) else {
        return Ok(true);
    };
    let private = files.open_private(row, &place)?;
    let Some(_claim) = claim(files, row, Some(&private.dir))? else {
        return Ok(false);
    };
    let publication = Publication {
        files,
        catalogue: &catalogue,
        copy: row.id,
        place,
        staging: private.dir,
        private_name: private.name,
    };
    publication.go().map(|_| true)
}
