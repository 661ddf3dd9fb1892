//! Which part of a run this is: all of it, a batch of it, or what is left when all batches are
//! done; and what a batch leaves to others.

use crate::monitor::{Monitor, Progress};
use crate::options::Options;
use crate::shared::batch::{Batch, Outcome, Piece};
use crate::shared::brief::Brief;
use crate::shared::handed::{Handed, Misspelt, Namesake};
use crate::shared::settled::{ReplicaView, Settled, SettledSample};
use crate::shared::unfinished::{Listed, Unfinished};
use crate::sync::entry::Pair;
use crate::sync::visit::Visit;
use crate::view::{View, exact_birth};
use driftless_lock::Mutex;
use driftless_model::{Entry, Meta, Problem, Receipt, RelPath, Selection, Stamp, Unkept, Xattrs};
use driftless_mover::Large;
use driftless_reconcile::{Fingerprint, Ranges};
use driftless_tree::Names;
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Weight of an outcome, in bytes, above which a mover comes to an end and leaves the rest.
const OUTCOME_BYTES_MAX: usize = 4 << 20;

/// Which part of a run it is.
pub enum Part<'r> {
    /// All of it.
    Whole,
    /// A batch.
    Batch(Sharing<'r>),
    /// What is left when all batches are done.
    End(Left),
}

/// What is left when all batches are done: the names of files that have several, and directories.
#[derive(Default)]
pub struct Left {
    /// These directories, when it is their turn.
    pub dirs: HashMap<RelPath, Unfinished>,
    /// What is known of names.
    pub handed: Arc<Handed>,
}

/// A batch in the course of being carried out.
pub struct Sharing<'r> {
    pub brief: &'r Brief,
    pub batch: &'r Batch,
    pub yields: &'r AtomicBool,
    pub leaves: &'r AtomicBool,
    pub gathered: &'r Gathered<'r>,
    pub copied: HashMap<RelPath, (Fingerprint, Ranges)>,
    pub handed: Handed,
}

/// What a batch leads to, while it does.
pub struct Gathered<'r> {
    pub outcome: Mutex<Outcome>,
    receipts: bool,
    weight: AtomicU64,
    /// Sample of the entries that are equal now.
    pub settled: SettledSample,
    watch: &'r (dyn Fn(&Progress) + Sync),
}

impl<'r> Gathered<'r> {
    /// Nothing yet; `watch` is told a few times a second how far it is.
    pub fn new(receipts: bool, watch: &'r (dyn Fn(&Progress) + Sync)) -> Self {
        Gathered {
            outcome: Mutex::default(),
            receipts,
            weight: AtomicU64::new(0),
            settled: SettledSample::default(),
            watch,
        }
    }

    /// All of it.
    pub fn take(&self) -> Outcome {
        std::mem::take(&mut *self.outcome.lock())
    }

    /// Adds something that is said of a path.
    pub fn add(&self, path: &RelPath, add: impl FnOnce(&mut Outcome)) {
        add(&mut self.outcome.lock());
        self.weight
            .fetch_add(path.as_bytes().len() as u64 + 64, Relaxed);
    }

    /// Whether it has become so large that the batch comes to its end.
    pub fn is_full(&self) -> bool {
        self.weight.load(Relaxed) > OUTCOME_BYTES_MAX as u64
    }
}

impl Monitor for Gathered<'_> {
    fn wants_receipts(&self) -> bool {
        self.receipts
    }

    fn receipt(&self, receipt: &Receipt) {
        self.add(&receipt.path, |outcome| outcome.done.push(receipt.into()));
    }

    fn problem(&self, problem: &Problem) {
        self.add(&problem.path, |outcome| {
            outcome.problems.push(problem.clone())
        });
    }

    fn unkept(&self, what: Unkept, path: &RelPath) {
        self.add(path, |outcome| outcome.unkept.push((what, path.clone())));
    }

    fn progress(&self, progress: &Progress) {
        (self.watch)(progress);
    }
}

impl<'r> Sharing<'r> {
    /// A batch that has not begun; it comes to an end early when `yields` is set, and leaves what
    /// is begun, too, when `leaves` is.
    pub fn new(
        (brief, batch): (&'r Brief, &'r Batch),
        (yields, leaves): (&'r AtomicBool, &'r AtomicBool),
        gathered: &'r Gathered<'r>,
    ) -> Self {
        let copied = batch.pieces.iter().filter_map(|piece| match piece {
            Piece::Rest(path, source, done) => Some((path.clone(), (source.clone(), done.clone()))),
            _ => None,
        });
        Sharing {
            brief,
            batch,
            yields,
            leaves,
            gathered,
            copied: copied.collect(),
            handed: Handed::with(&batch.alike),
        }
    }
}

impl Sharing<'_> {
    /// Notes a directory on which a file system is mounted: the coordinator must see the same one
    /// there.
    fn note_mount(&self, visit: &Visit) {
        let replica = visit.replica.as_ref();
        let in_source = visit.source.is_mount_root() == Some(true);
        let in_replica = replica.is_some_and(|replica| replica.is_mount_root() == Some(true));
        if visit.parent.is_none() || !in_source && !in_replica {
            return;
        }
        self.gathered.settled.add_mount(Settled {
            path: visit.path(),
            source: Some(View::of(visit.source.first_meta())),
            replica: view_of_dir(visit, replica.and_then(|replica| replica.made_at())),
            is_equal: false,
            is_mounted: in_source,
        });
    }
}

/// Returns the view of a directory of the replica as it was opened, with its time of birth.
fn view_of_dir(visit: &Visit, born: Option<Stamp>) -> ReplicaView {
    let above = visit.parent.as_ref();
    let way = above.map_or(Some(0), |above| above.way_on_replica());
    let (Some(replica), Some(way)) = (&visit.replica, way) else {
        return ReplicaView::Left;
    };
    let mut view = View::of(replica.first_meta()).below(way);
    view.born = exact_birth(born);
    ReplicaView::Seen(Box::new(view))
}

impl Part<'_> {
    /// The batch, if it is one.
    pub fn batch(&self) -> Option<&Sharing<'_>> {
        if let Part::Batch(sharing) = self {
            Some(sharing)
        } else {
            None
        }
    }

    /// What others have seen of the names of directories, if any of it is known.
    fn handed(&self) -> Option<&Handed> {
        let handed = match self {
            Part::Whole => return None,
            Part::Batch(sharing) => &sharing.handed,
            Part::End(left) => &*left.handed,
        };
        Some(handed).filter(|handed| !handed.is_empty())
    }

    /// The names of a directory that are like others of it, as the coordinator, which has listed
    /// it, says.
    pub fn alike_in(&self, visit: &Visit) -> &[Namesake] {
        self.handed()
            .map_or(&[], |handed| handed.alike_in(&visit.path()))
    }

    /// What the thread that has listed a directory found in another spelling on the replica.
    pub fn misspelt_in(&self, visit: &Visit) -> &[Misspelt] {
        self.handed()
            .map_or(&[], |handed| handed.misspelt_in(&visit.path()))
    }

    /// Whether it is a batch.
    pub fn is_batch(&self) -> bool {
        self.batch().is_some()
    }

    /// Whether files with several names are made like all others.
    pub fn is_alone(&self) -> bool {
        self.batch().is_some_and(|sharing| sharing.batch.alone)
    }

    /// Returns whether directories that stand in the way are left to the coordinator.
    pub fn is_limited(&self) -> bool {
        self.batch().is_some_and(|sharing| sharing.brief.limited())
    }

    /// Notes that an entry, no directory, was found to be equal.
    pub fn settle_equal(&self, visit: &Visit, name: &CStr, pair: &Pair) {
        let Some(sharing) = self.batch() else { return };
        let Pair {
            source, replica, ..
        } = pair;
        let seen = || View::with_xattrs(&replica.meta, &replica.xattrs);
        sharing.gathered.settled.add(|| Settled {
            path: visit.path_of(name),
            source: Some(View::with_xattrs(&source.meta, &source.xattrs)),
            replica: visit.way_on_replica().map_or(ReplicaView::Left, |way| {
                ReplicaView::Seen(Box::new(seen().below(way)))
            }),
            is_equal: true,
            is_mounted: false,
        });
    }

    /// Notes that an entry, no directory, was made equal to the one that was read of the source.
    /// The source is looked at through the same directory if only its content was of interest. With
    /// `applies` the replica was changed.
    pub fn settle_made(&self, visit: &Visit, name: &CStr, source: Option<&Entry>, applies: bool) {
        let Some(sharing) = self.batch() else { return };
        let look = || Some(View::of(&visit.source.look(name).ok()?));
        let read = |source: &Entry| View::with_xattrs(&source.meta, &source.xattrs);
        sharing.gathered.settled.add(|| Settled {
            path: visit.path_of(name),
            source: source.map(read).or_else(look),
            replica: visit
                .way_on_replica()
                .filter(|_| applies)
                .map_or(ReplicaView::Left, ReplicaView::Made),
            is_equal: applies,
            is_mounted: false,
        });
    }

    /// Notes one of several names of a file, which are left to the coordinator.
    pub fn settle_left(&self, visit: &Visit, name: &CStr, source: &Meta) {
        let Some(sharing) = self.batch() else { return };
        sharing.gathered.settled.add(|| Settled {
            path: visit.path_of(name),
            source: Some(View::of(source)),
            replica: ReplicaView::Left,
            is_equal: false,
            is_mounted: false,
        });
    }

    /// Notes that nothing is left to do here in a directory.
    pub fn settle_dir(&self, visit: &Visit) {
        let Some(sharing) = self.batch() else { return };
        sharing.gathered.settled.add_dir(|| {
            let listing = visit.listing.lock();
            Settled {
                path: visit.path(),
                source: Some(View::of(&visit.listed.lock()).with_listing(&listing)),
                replica: view_of_dir(visit, None),
                is_equal: true,
                is_mounted: false,
            }
        });
    }

    /// Notes the extended attributes of a directory of the source, which the coordinator may compare
    /// with those that it sees.
    pub fn note_xattrs(&self, visit: &Visit, xattrs: &Xattrs) {
        if self.is_batch() {
            visit.listing.lock().note_xattrs(xattrs);
        }
    }

    /// Notes names of the listing of a directory, which the coordinator may compare with its own.
    pub fn note_listing(&self, visit: &Visit, names: &Names, (is_first, is_last): (bool, bool)) {
        if self.is_batch() {
            visit.listing.lock().add(names, is_first, is_last);
        }
    }

    /// The class of the work in hand.
    pub fn class(&self) -> u8 {
        self.batch().map_or(0, |sharing| sharing.batch.class)
    }

    /// The class that a file's content belongs to, if that is not this one.
    pub fn other_class(&self, size: u64) -> Option<u8> {
        self.batch()
            .map(|sharing| sharing.brief.class_of(size))
            .filter(|class| *class != self.class())
    }

    /// Says who sees to a directory that is entered.
    pub fn assign(&self, visit: &mut Visit) {
        match self {
            Part::Batch(sharing) => {
                visit.borrowed = !visit.selection.whole;
                sharing.note_mount(visit);
            }
            Part::End(left) if !visit.selection.whole => match left.dirs.get(&visit.path()) {
                Some(left) => visit.take_over(*left),
                None => visit.borrowed = true,
            },
            Part::Whole | Part::End(_) => {}
        }
    }

    /// Whether the names below a directory that is only passed through were found in it, and not
    /// listed by the user.
    pub fn found_names(&self, options: &Options) -> bool {
        match self {
            Part::Whole => false,
            Part::Batch(sharing) => !sharing.brief.chosen(),
            Part::End(_) => options.selection.is_none(),
        }
    }

    /// Whether the names below a directory that is only passed through are the user's list.
    pub fn has_list(&self, options: &Options) -> bool {
        match self {
            Part::Whole => options.selection.is_some(),
            part => !part.found_names(options),
        }
    }

    /// Whether batches have passed through this directory, and said so if it was not there.
    pub fn was_passed(&self, visit: &Visit, name: &CStr) -> bool {
        let Part::End(left) = self else { return false };
        left.dirs
            .get(&visit.path_of(name))
            .is_some_and(|left| left.listed == Listed::InPart)
    }

    /// How many of `count` names that are handed out are counted as seen: directories that are only
    /// passed through are not.
    pub fn counted(&self, visit: &Visit, count: u64) -> u64 {
        if matches!(self, Part::Whole) || visit.selection.whole || visit.pass() > 0 {
            return count;
        }
        visit
            .selection
            .children
            .iter()
            .filter(|(name, below)| self.counts(visit, name, below))
            .count() as u64
    }

    fn counts(&self, visit: &Visit, name: &[u8], below: &Selection) -> bool {
        below.whole
            || matches!(self, Part::End(left) if left.dirs.contains_key(&visit.path().join(name)))
    }

    /// Whether a directory is only passed through, and not counted.
    pub fn passes(&self, parent: &Visit, name: &CStr) -> bool {
        let below = parent
            .selection
            .children
            .get(name.to_bytes())
            .filter(|_| !parent.selection.whole);
        !matches!(self, Part::Whole)
            && below.is_some_and(|below| !self.counts(parent, name.to_bytes(), below))
    }

    /// Whether the file at `path` was begun by another mover of this run.
    pub fn continues(&self, path: &RelPath) -> bool {
        self.batch()
            .is_some_and(|sharing| sharing.copied.contains_key(path))
    }

    /// Tells the copy of a large file which bytes others have copied.
    pub fn tell_copied(&self, path: &RelPath, large: &mut Large) {
        if let Some((source, done)) = self.batch().and_then(|sharing| sharing.copied.get(path)) {
            large.take_over(source, done);
        }
    }
}
