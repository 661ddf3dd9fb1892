//! Comparing the content of two files, range by range, by one thread or by many.
//!
//! Reading both sides and comparing bytes says more than comparing hashes, and where both sides are
//! at hand it costs less.

use crate::mover::Mover;
use crate::spot::{Opened, Spot, Trouble};
use driftless_lock::Mutex;
use driftless_model::{Level, errno};
use driftless_reconcile::Ranges;
use driftless_tree::{Copier, Done, Pace, ReadFile};
use std::ops::Range;
use std::sync::Arc;

/// Ranges of one file that are kept apart to the block.
const FINE_RANGES_MAX: usize = 1 << 16;
/// What further ranges are widened to multiples of.
const COARSE_BYTES: u64 = 16 << 20;

/// The two files of an entry in the course of being compared. They have the same size.
pub struct Comparison {
    source: Opened,
    /// None where its owner has no right to read it: nothing of it counts as equal then.
    replica: Option<Arc<dyn ReadFile>>,
    outcome: Mutex<Result<Ranges, Trouble>>,
}

/// What a comparison found, and the two files, still open.
pub struct Compared {
    /// The source, as it was when the comparison began.
    pub source: Opened,
    /// The replica, if it could be opened.
    pub replica: Option<Arc<dyn ReadFile>>,
    /// Where they differ.
    pub differs: Ranges,
}

impl Comparison {
    /// Opens the replica's file, too; at level media its cache is let go of.
    pub fn begin(spot: &Spot, source: Opened, level: Level) -> Result<Comparison, Trouble> {
        Comparison::with_copy(source, open_replica(spot)?, level)
    }

    /// Begins a comparison with a file that is open; `None` counts as different. At level media the
    /// cache of that file is let go of.
    pub fn with_copy(
        source: Opened,
        replica: Option<Arc<dyn ReadFile>>,
        level: Level,
    ) -> Result<Comparison, Trouble> {
        if let (Level::Media, Some(replica)) = (level, &replica) {
            replica.drop_cached()?;
        }
        let mut differs = Ranges::default();
        if replica.is_none() {
            differs.add(0..source.meta.size);
        }
        Ok(Comparison {
            source,
            replica,
            outcome: Mutex::new(Ok(differs)),
        })
    }

    /// Size in bytes of what is compared.
    pub fn size(&self) -> u64 {
        self.source.meta.size
    }

    fn with<R>(&self, act: impl FnOnce(&mut Result<Ranges, Trouble>) -> R) -> R {
        act(&mut self.outcome.lock())
    }

    /// Whether comparing on is in vain.
    pub fn failed(&self) -> bool {
        self.replica.is_none() || self.with(|outcome| outcome.is_err())
    }

    /// Moves the start of `range` to where one of the two has data, and returns where to look
    /// again.
    pub fn next_data(&self, range: &mut Range<u64>) -> u64 {
        match self.first_data(range) {
            Ok(data) => {
                range.start = data.start;
                data.end
            }
            Err(fault) => {
                self.with(|outcome| *outcome = Err(fault.into()));
                range.end
            }
        }
    }

    fn first_data(&self, range: &Range<u64>) -> Done<Range<u64>> {
        let nothing = range.end..range.end;
        let source = self
            .source
            .file
            .next_data(range.clone())?
            .unwrap_or(nothing.clone());
        let replica = self
            .replica
            .as_ref()
            .map_or(Ok(None), |replica| replica.next_data(range.clone()))?
            .unwrap_or(nothing);
        let (first, second) = if source.start <= replica.start {
            (source, replica)
        } else {
            (replica, source)
        };
        // Where both have data, up to the end of the shorter; else the first alone.
        let end = if second.start == first.start {
            first.end.min(second.end)
        } else {
            first.end
        };
        Ok(first.start..end)
    }

    /// Compares a range; returns whether it is the same on both sides.
    pub fn compare(&self, copier: &mut Copier, range: Range<u64>, pace: Pace<'_>) -> bool {
        let Some(replica) = &self.replica else {
            return false;
        };
        let mut same = true;
        let mut found = |differs| {
            same = false;
            self.with(|outcome| {
                outcome
                    .as_mut()
                    .map(|ranges| note(ranges, differs, self.size()))
                    .unwrap_or_default()
            });
        };
        let done = copier.differing((&*self.source.file, &**replica), range, &mut found, pace);
        if let Err(halt) = done {
            same = false;
            self.with(|outcome| *outcome = Err(halt.into()));
        }
        same
    }

    /// Looks again at the source and says where the files differ.
    pub fn finish(&self) -> Result<Compared, Trouble> {
        let differs = self
            .with(|outcome| outcome.clone())
            .map_err(|trouble| self.source.cause_of(trouble))?;
        if !self.source.meta.unchanged(&self.source.file.meta_again()?) {
            return Err(Trouble::Changing);
        }
        Ok(Compared {
            source: self.source.clone(),
            replica: self.replica.clone(),
            differs,
        })
    }
}

impl Mover<'_> {
    /// Compares the content of a file that is small enough for one thread; a source that changes
    /// meanwhile is trouble.
    pub fn compare(
        &mut self,
        spot: &Spot,
        source: Opened,
        level: Level,
    ) -> Result<Compared, Trouble> {
        self.compare_all(&Comparison::begin(spot, source, level)?)
    }

    /// Carries out a whole comparison by this thread alone; a source that changes meanwhile is
    /// trouble.
    pub fn compare_all(&mut self, comparison: &Comparison) -> Result<Compared, Trouble> {
        let mut pace = self.pace();
        comparison.compare(&mut self.copier, 0..comparison.size(), &mut pace);
        comparison.finish()
    }
}

/// Opens the replica's file. Its owner may have no right to read it, and then it is not what it
/// should be; of files of others nothing is known then.
fn open_replica(spot: &Spot) -> Result<Option<Arc<dyn ReadFile>>, Trouble> {
    match spot.replica.open_file(spot.name) {
        Err(fault)
            if fault.errno == errno::EACCES
                && spot.replica.look(spot.name)?.uid == spot.replica.user().0 =>
        {
            Ok(None)
        }
        opened => Ok(Some(opened?.into())),
    }
}

/// Notes a range; when there are many, whole pieces around them, so that memory stays bounded.
fn note(ranges: &mut Ranges, differs: Range<u64>, size: u64) {
    let wide = differs.start / COARSE_BYTES * COARSE_BYTES
        ..differs.end.next_multiple_of(COARSE_BYTES).min(size);
    ranges.add(if ranges.len() < FINE_RANGES_MAX {
        differs
    } else {
        wide
    });
}
