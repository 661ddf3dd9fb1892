//! What a batch leaves to others, and how.

use crate::shared::batch::{LinkName, Piece};
use crate::shared::handed::{Misspelt, Namesake};
use crate::shared::plan::chosen;
use crate::shared::role::Sharing;
use crate::sync::entry::{Met, Verdict};
use crate::sync::run::{Postponing, Run};
use crate::sync::task::LargeCopy;
use crate::sync::visit::{Sides, Visit};
use crate::sync::worker::Worker;
use driftless_model::{EntryName, RelPath, Xattrs};
use driftless_mover::Trouble;
use driftless_pool::split_half;
use driftless_tree::{Names, descend, descend_mut};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a large file that are worth a piece of their own.
const PIECE_BYTES_MIN: u64 = 8 << 20;

/// Pieces that what is missing of a large file is cut into.
const PIECES: u64 = 8;

impl Run<'_> {
    /// Whether this batch comes to its end, and leaves what is not begun to others.
    pub fn yields(&self) -> bool {
        self.part
            .batch()
            .is_some_and(|sharing| sharing.yields.load(Relaxed) || sharing.gathered.is_full())
    }

    /// Whether this batch comes to its end because its mover does. Until then a comparison that is
    /// begun goes on: a mover that took it over would begin it anew, and be asked to leave it in
    /// turn.
    pub fn leaves_begun(&self) -> bool {
        self.part
            .batch()
            .is_some_and(|sharing| sharing.leaves.load(Relaxed))
    }

    /// Whether an entry is only passed through because a mover found a directory there, and left
    /// some of its names to others.
    pub fn was_divided(&self, parent: &Visit, name: &CStr) -> bool {
        self.part.found_names(self.options) && self.part.passes(parent, name)
    }

    /// Adds the names that the source lacks, and what there was no room for, to what the batch
    /// leads to.
    pub fn gather_rest(&self, postponing: Postponing) -> std::io::Result<()> {
        let Some(sharing) = self.part.batch() else {
            return Ok(());
        };
        self.deletes.for_each(&mut |dir, names| {
            let names = names.iter().map(|name| (&**name).into()).collect();
            sharing.gathered.outcome.lock().extras.push((dir, names));
        })?;
        sharing
            .gathered
            .outcome
            .lock()
            .no_room
            .extend(self.postponed(postponing));
        Ok(())
    }
}

impl Worker<'_> {
    /// Leaves an entry, with all below it, to the movers that take work of `class`.
    pub fn give_back(&mut self, visit: &Arc<Visit>, name: &CStr, class: u8) {
        let Some(sharing) = self.run.part.batch() else {
            return;
        };
        if self.run.part.passes(visit, name) {
            return self.give_back_chosen(visit, name, sharing);
        }
        self.uncount(visit);
        visit.mark_unfinished();
        let dir = visit.path();
        if let Some((path, (source, done))) =
            sharing.copied.get_key_value(&dir.join(name.to_bytes()))
        {
            let piece = Piece::Rest(path.clone(), source.clone(), done.clone());
            return sharing
                .gathered
                .add(&dir, |outcome| outcome.rest.push((class, piece)));
        }
        sharing.gathered.add(&dir, |outcome| {
            push_entry(&mut outcome.rest, class, &dir, name.into())
        });
    }

    /// Of a directory that is only passed through, what is chosen below it is left to others.
    fn give_back_chosen(&self, visit: &Visit, name: &CStr, sharing: &Sharing<'_>) {
        let Some(below) = visit.selection.children.get(name.to_bytes()) else {
            return;
        };
        let dir = visit.path_of(name);
        let pieces = chosen(dir.clone(), below)
            .0
            .into_iter()
            .map(|piece| (sharing.batch.class, piece));
        sharing
            .gathered
            .add(&dir, |outcome| outcome.rest.extend(pieces));
    }

    /// Takes an entry out of those that were seen: the mover that it is left to counts it.
    fn uncount(&self, visit: &Visit) {
        if visit.pass() == 0 {
            self.run.tally.seen.fetch_sub(1, Relaxed);
        }
    }

    /// Leaves a range of names to others.
    pub fn give_back_names(&mut self, visit: &Arc<Visit>, names: &Names, range: Range<u64>) {
        let Some(sharing) = self.run.part.batch().filter(|_| !range.is_empty()) else {
            return;
        };
        if !visit.selection.whole {
            let class = sharing.batch.class;
            return range
                .for_each(|index| self.give_back(visit, names.get(index as usize).0, class));
        }
        let left: Vec<EntryName> = range
            .clone()
            .map(|index| names.get(index as usize).0.into())
            .collect();
        if visit.pass() == 0 {
            self.run
                .tally
                .seen
                .fetch_sub(range.end - range.start, Relaxed);
        }
        visit.mark_unfinished();
        let dir = visit.path();
        sharing.gathered.add(&dir.clone(), |outcome| {
            outcome
                .rest
                .push((sharing.batch.class, Piece::Entries(dir, left)))
        });
    }

    /// Leaves what is missing of a large file to others, if the batch comes to its end; or says
    /// which bytes of another mover's were copied. Returns whether either was so.
    pub fn gives_back_bytes(&mut self, large: &LargeCopy) -> bool {
        let Some(sharing) = self.run.part.batch() else {
            return false;
        };
        if let Some((path, range)) = &large.bytes_of {
            self.report_bytes(large, path, range);
            return true;
        }
        let missing = large.large.missing();
        if !self.run.yields() || large.large.failed() || missing.is_empty() || self.run.stopped() {
            return false;
        }
        if large.large.patches() {
            self.give_back(&large.visit, &large.name, sharing.batch.class);
            return true;
        }
        self.uncount(&large.visit);
        large.visit.mark_unfinished();
        let (path, source) = (large.visit.path_of(&large.name), large.large.source());
        for range in cut(missing) {
            let piece = Piece::Bytes(path.clone(), source.clone(), range);
            sharing.gathered.add(&path, |outcome| {
                outcome.rest.push((sharing.batch.class, piece))
            });
        }
        true
    }

    fn report_bytes(&mut self, large: &LargeCopy, path: &RelPath, range: &Range<u64>) {
        let Some(sharing) = self.run.part.batch() else {
            return;
        };
        if large.large.failed() || large.large.checkpoint().is_err() {
            // The mover that finishes the file copies what is missing, and meets the fault again.
            return;
        }
        let (done, source) = (large.large.done(), large.large.source());
        let missing = done
            .cut(range.clone())
            .into_iter()
            .filter(|(_, done)| !done);
        for (range, _) in missing {
            let piece = Piece::Bytes(path.clone(), source.clone(), range);
            sharing.gathered.add(path, |outcome| {
                outcome.rest.push((sharing.batch.class, piece))
            });
        }
        sharing.gathered.add(path, |outcome| {
            outcome.copied.push((path.clone(), source, done))
        });
    }

    /// Leaves a file with several names to the coordinator, which sees all of them.
    pub fn leave_link(&mut self, met: Met<'_>) -> Result<Verdict, Trouble> {
        let Met {
            visit, name, meta, ..
        } = met;
        let there = self.replica_meta(visit, name)?.is_some();
        let Some(sharing) = self.run.part.batch() else {
            unreachable!("only batches leave links")
        };
        self.uncount(visit);
        visit.mark_unfinished();
        // A mover that sees other inode numbers would join the names of different files.
        self.run.part.settle_left(visit, name, meta);
        // Hosts number devices each in their own way; that of the root is the same for all.
        let device = if meta.dev == self.run.roots.0.first_meta().dev {
            0
        } else {
            meta.dev
        };
        let link = LinkName {
            id: (device, meta.ino),
            path: visit.path_of(name),
            size: meta.size,
            there,
        };
        sharing
            .gathered
            .add(&link.path.clone(), |outcome| outcome.links.push(link));
        Ok(Verdict::GivenBack)
    }

    /// Leaves an entry that would replace a directory until it is known how much else is removed.
    pub fn leave_for_room(&mut self, visit: &Arc<Visit>, name: &CStr) -> Verdict {
        let Some(sharing) = self.run.part.batch() else {
            unreachable!("only batches leave entries")
        };
        self.uncount(visit);
        visit.mark_unfinished();
        let path = visit.path_of(name);
        sharing
            .gathered
            .add(&path.clone(), |outcome| outcome.no_room.push(path));
        Verdict::GivenBack
    }

    /// Whether the coordinator finishes this directory; then it is told what it has to know.
    pub fn leaves_open(&mut self, visit: &Arc<Visit>) -> bool {
        let Some(sharing) = self.run.part.batch() else {
            return visit.borrowed;
        };
        let open = if visit.borrowed {
            visit.is_made()
        } else {
            visit.is_unfinished()
        };
        if open {
            let path = visit.path();
            sharing.gathered.add(&path.clone(), |outcome| {
                outcome.unfinished.push((path, visit.leave()))
            });
            self.run.part.settle_dir(visit);
            if !visit.borrowed {
                // The coordinator finishes it, and counts it.
                self.run.tally.seen.fetch_sub(1, Relaxed);
                visit
                    .parent
                    .iter()
                    .for_each(|parent| parent.mark_unfinished());
                hand_on_names(sharing, visit);
            }
        }
        open || visit.borrowed
    }

    /// The directory of a path, borrowed, and the last name.
    pub fn borrow_parent(&mut self, path: &RelPath) -> Option<(Arc<Visit>, CString)> {
        let (dir, name) = path.split_last()?;
        let name = CString::new(name).ok()?;
        let (source, replica) = &self.run.roots;
        let (source, replica) = (
            descend(source, &dir).ok()?,
            descend_mut(replica.as_ref()?, &dir).ok()?,
        );
        let before = Some((*replica.first_meta(), Xattrs::default()));
        let renamed = self.run.renamed.clone().filter(|_| dir.is_root());
        let sides = Sides {
            source,
            replica: Some(replica),
            before,
        };
        let mut visit = Visit::root(sides, Arc::default(), 0);
        (visit.borrowed, visit.renamed) = (true, renamed);
        Some((Arc::new(visit), name))
    }
}

/// Hands on what is known of the names of a directory that was listed here.
fn hand_on_names(sharing: &Sharing<'_>, visit: &Visit) {
    let dir = visit.path();
    for (later, earlier) in visit.namesakes.alike() {
        let namesake = Namesake {
            name: (&*later).into(),
            earlier: earlier.iter().map(|name| (&**name).into()).collect(),
        };
        sharing
            .gathered
            .add(&dir, |outcome| outcome.alike.push((dir.clone(), namesake)));
    }
    for (from, to) in visit.namesakes.misspelt() {
        let misspelt = Misspelt {
            dir: dir.clone(),
            from: (&*from).into(),
            to: (&*to).into(),
        };
        sharing
            .gathered
            .add(&dir, |outcome| outcome.misspelt.push(misspelt));
    }
}

/// Adds an entry to what is left of its directory.
fn push_entry(rest: &mut Vec<(u8, Piece)>, class: u8, dir: &RelPath, name: EntryName) {
    match rest.last_mut() {
        Some((last, Piece::Entries(path, names))) if *last == class && path == dir => {
            names.push(name)
        }
        _ => rest.push((class, Piece::Entries(dir.clone(), vec![name]))),
    }
}

/// Cuts what is missing of a large file into pieces for several movers.
fn cut(missing: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let total: u64 = missing.iter().map(|range| range.end - range.start).sum();
    let piece = (total / PIECES)
        .max(PIECE_BYTES_MIN)
        .next_multiple_of(PIECE_BYTES_MIN);
    let mut pieces = Vec::new();
    let mut left = missing;
    while let Some(mut range) = left.pop() {
        if range.end - range.start > piece + piece / 2
            && let Some(second) = split_half(&mut range, PIECE_BYTES_MIN)
        {
            left.extend([second, range]);
        } else {
            pieces.push(range);
        }
    }
    pieces
}
