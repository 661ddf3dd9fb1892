//! A directory in the course of being made equal.

use crate::shared::unfinished::{Listed, Unfinished};
use crate::sync::entered::Entered;
use crate::sync::namesakes::Namesakes;
use crate::sync::narrowing::Narrowing;
use crate::sync::protected::Protected;
use crate::trees::marks::{Doubt, earliest};
use crate::view::{ListedNames, way_below};
use driftless_lock::Mutex;
use driftless_model::{Kind, Meta, RelPath, Selection, Stamp, Xattrs, is_lock_name, is_set_aside};
use driftless_mover::Spot;
use driftless_tree::{
    Attributes, DirMutRef, DirRef, Known, NameHashes, is_lock_of_run, is_root_name,
};
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Signs of another mover at work in a directory that are believed.
const MEETINGS_MAX: u32 = 64;

/// A directory on both sides, from the moment it is entered until everything in it is equal and its
/// own attributes are set.
pub struct Visit {
    /// The directory above; `None` for the root.
    pub parent: Option<Arc<Visit>>,
    /// Its name there.
    pub name: CString,
    /// The source's directory.
    pub source: DirRef,
    /// The replica's; `None` when a dry run has not made it.
    pub replica: Option<DirMutRef>,
    /// The same directory of an earlier copy (`--link-dest`).
    pub basis: Option<DirRef>,
    /// What of it is looked at.
    pub selection: Arc<Selection>,
    /// What the replica's directory was like; `None` if this run made it.
    pub before: Option<(Meta, Xattrs)>,
    /// Owner and group that new entries get, if the directory is ours alone and shows it.
    pub birth: Option<(u32, u32)>,
    /// This run leaves its attributes alone, as those of the directory around a single file.
    pub borrowed: bool,
    /// The replica's was made by an earlier run, or another mover, and never got its mode.
    pub closed: bool,
    /// What narrows its mode before something in it changes; `None` where nothing has to.
    pub narrowing: Option<Narrowing>,
    /// It is marked as such, or, if this run made it, may be.
    pub is_marked: bool,
    /// Another mover began it: what that has left.
    pub left: Option<Unfinished>,
    /// The name on the replica of the one entry of a borrowed directory.
    pub renamed: Option<CString>,
    /// What it took the place of, if that is not a directory.
    pub replaced: Option<Meta>,
    /// It was entered once more after the one above it, or one further up, had changed.
    pub late: bool,
    /// Its share of the walk, in the unit of `Tally::walked`.
    pub weight: u64,
    /// What the source's directory was like when it was listed last.
    pub listed: Mutex<Meta>,
    /// Unfinished entries that an earlier run left on the replica.
    pub leftovers: Mutex<Vec<CString>>,
    /// The subdirectories that were entered.
    pub entered: Entered,
    /// Names that the replica's file system may take for one.
    pub namesakes: Namesakes,
    /// Names at which the replica has something that the filters protect.
    pub protected: Protected,
    /// Since when changes below it may not be durable, as marks say that were met on the way.
    pub doubt: Doubt,
    /// Names of a large directory of the source that were met so far.
    pub met: Mutex<NameHashes>,
    /// Names of the source's directory as it was listed last, in a batch of a run.
    pub listing: Mutex<ListedNames>,
    state: State,
}

#[derive(Default)]
struct State {
    pending: AtomicUsize,
    fresh: AtomicBool,
    touched: AtomicBool,
    dirty: AtomicBool,
    unlisted: AtomicBool,
    lost: AtomicBool,
    narrowed: OnceLock<Option<u32>>,
    /// The user may not write in the replica's directory, which is the user's own.
    is_protected: bool,
    /// Its mode was opened for this user.
    opened: OnceLock<()>,
    unfinished: AtomicBool,
    doubt_listed: OnceLock<Stamp>,
    meetings: AtomicU32,
    pass: AtomicU8,
}

/// A directory as it was met on both sides.
pub struct Sides {
    /// The source's.
    pub source: DirRef,
    /// The replica's; `None` when a dry run has not made it.
    pub replica: Option<DirMutRef>,
    /// What the replica's was like; `None` if this run made it.
    pub before: Option<(Meta, Xattrs)>,
}

/// The directory above one, and the name of the one in it.
type Place = (Option<Arc<Visit>>, CString);

impl Visit {
    /// Begins a root. It has one piece of work pending: its listing.
    pub fn root(sides: Sides, selection: Arc<Selection>, weight: u64) -> Visit {
        Visit::begin((None, CString::default()), sides, selection, weight)
    }

    /// Begins the directory `name` of `parent`.
    pub fn below(
        parent: &Arc<Visit>,
        name: &CStr,
        sides: Sides,
        selection: Arc<Selection>,
        weight: u64,
    ) -> Visit {
        Visit::begin(
            (Some(parent.clone()), name.into()),
            sides,
            selection,
            weight,
        )
    }

    fn begin((parent, name): Place, sides: Sides, selection: Arc<Selection>, weight: u64) -> Visit {
        let Sides {
            source,
            replica,
            before,
        } = sides;
        let made = before.is_none();
        let protected = before
            .as_ref()
            .is_some_and(|(meta, _)| meta.mode & 0o200 == 0);
        let protected = protected
            && replica
                .as_ref()
                .is_some_and(|replica| replica.user().0 != 0);
        let state = State {
            pending: AtomicUsize::new(1),
            fresh: AtomicBool::new(made),
            is_protected: protected,
            ..State::default()
        };
        let above = parent.as_ref();
        Visit {
            late: above.is_some_and(|above| above.is_repeated()),
            is_marked: made && above.is_none_or(|above| !above.is_fresh()),
            doubt: above
                .map(|above| Doubt {
                    replica: above.suspect_since(),
                    ..above.doubt
                })
                .unwrap_or_default(),
            birth: replica
                .as_ref()
                .filter(|_| made)
                .and_then(|replica| replica.birth()),
            listed: Mutex::new(*source.first_meta()),
            parent,
            name,
            source,
            replica,
            basis: None,
            selection,
            before,
            borrowed: false,
            closed: false,
            narrowing: None,
            left: None,
            renamed: None,
            replaced: None,
            weight,
            leftovers: Mutex::default(),
            entered: Entered::default(),
            namesakes: Namesakes::default(),
            protected: Protected::default(),
            met: Mutex::default(),
            listing: Mutex::default(),
            state,
        }
    }

    /// The directory around a single entry, which is called `name` on the replica.
    pub fn borrow_for(mut self, name: CString) -> Visit {
        (self.borrowed, self.renamed) = (true, Some(name));
        self
    }

    /// Where an entry of this directory is about to be changed.
    pub fn touched_spot<'a>(&'a self, name: &'a CStr) -> Spot<'a> {
        self.touch();
        self.spot(name)
    }

    /// Where an entry of this directory is made equal.
    pub fn spot<'a>(&'a self, name: &'a CStr) -> Spot<'a> {
        Spot {
            source: &*self.source,
            source_name: name,
            replica: &**self
                .replica
                .as_ref()
                .expect("only dry runs have none, and they make nothing"),
            name: self.renamed.as_deref().unwrap_or(name),
            private: self.is_fresh(),
            nested: false,
            birth: self.birth,
            room: 0,
            stood: None,
            only: None,
        }
    }

    /// The path below the root.
    pub fn path(&self) -> RelPath {
        let mut names = Vec::new();
        let mut at = Some(self);
        while let Some(visit) = at {
            if visit.parent.is_some() {
                names.push(visit.name.to_bytes());
            }
            at = visit.parent.as_deref();
        }
        RelPath::from_names(names.into_iter().rev())
    }

    /// Returns the hash of the inode numbers of this directory of the replica and those above it,
    /// without the root. Returns `None` if the replica has none of them.
    pub fn way_on_replica(&self) -> Option<u64> {
        let (mut numbers, mut at) = (Vec::new(), Some(self));
        while let Some(visit) = at.filter(|visit| visit.parent.is_some()) {
            numbers.push(visit.replica.as_ref()?.first_meta().ino);
            at = visit.parent.as_deref();
        }
        Some(numbers.into_iter().rev().fold(0, way_below))
    }

    /// Whether an entry of this directory is kept beside the tree, in its root, and none of it.
    pub fn is_beside(&self, name: &CStr) -> bool {
        self.parent.is_none() && !self.borrowed && is_set_aside(name)
    }

    /// Whether an entry of this directory is what runs keep in the root of a replica, which the
    /// source may be of another run.
    pub fn is_own(&self, name: &CStr, kind: Kind) -> bool {
        let is_at_root = self.parent.is_none() && !self.borrowed;
        let is_lock = || !is_lock_name(name.to_bytes()) || is_lock_of_run(&*self.source, name);
        is_at_root && kind == Kind::File && is_root_name(name) && is_lock()
    }

    /// The path of an entry of this directory.
    pub fn path_of(&self, name: &CStr) -> RelPath {
        self.path().join(name.to_bytes())
    }

    /// Whether this run made the directory, nobody else can reach it, and it was listed only once.
    pub fn is_fresh(&self) -> bool {
        self.state.fresh.load(Ordering::Relaxed)
    }

    /// Whether this run made the directory.
    pub fn is_made(&self) -> bool {
        self.before.is_none()
    }

    /// Adds a piece of work that must be over before the directory is.
    pub fn more(&self) {
        self.state.pending.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that a piece of work is over; returns whether it was the last.
    pub fn less(&self) -> bool {
        self.state.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Says that something is about to be changed in the replica's directory, and with it its
    /// modification time. Before that, its mode is narrowed, and those of the directories above.
    /// Where the directory is the user's own and closed to writing, its mode is opened for this
    /// user, and set again when it is finished.
    pub fn touch(&self) {
        self.state.touched.store(true, Ordering::Relaxed);
        self.narrow();
        if self.state.is_protected {
            // Other threads that touch the directory wait until its mode is open.
            self.state.opened.get_or_init(|| self.open_for_user());
        }
    }

    fn open_for_user(&self) {
        let (Some(replica), Some((before, _))) = (&self.replica, &self.before) else {
            return;
        };
        let attributes = Attributes {
            mode: Some(self.narrow().unwrap_or(before.mode) | 0o700),
            ..Attributes::default()
        };
        // A failure shows when an entry cannot be made.
        replica.set_own(&Known::of(before), &attributes);
    }

    /// Narrows the directory and those above it, the topmost first, once for all that is changed in
    /// them. Returns the mode that it has then, if that is known.
    pub fn narrow(&self) -> Option<u32> {
        let (mut above, mut at) = (Vec::new(), Some(self));
        while let Some(visit) = at.filter(|visit| visit.state.narrowed.get().is_none()) {
            above.push(visit);
            at = visit.parent.as_deref();
        }
        for visit in above.into_iter().rev() {
            visit.state.narrowed.get_or_init(|| {
                let ours = visit.narrowing.as_ref().filter(|_| !visit.borrowed);
                let (narrowing, replica) = ours.zip(visit.replica.as_ref())?;
                let before = visit.before.as_ref()?;
                Some(narrowing.narrow(&visit.source, before, replica))
            });
        }
        self.state.narrowed.get().copied().flatten()
    }

    /// Whether its mode was narrowed.
    pub fn is_narrowed(&self) -> bool {
        let mode = self.state.narrowed.get().copied().flatten();
        mode.zip(self.before.as_ref())
            .is_some_and(|(mode, (before, _))| mode != before.mode)
    }

    /// Whether anything was changed in the replica's directory.
    pub fn is_touched(&self) -> bool {
        self.state.touched.load(Ordering::Relaxed)
    }

    /// Says that the source's directory is not what the listing said.
    pub fn mark_dirty(&self) {
        self.state.dirty.store(true, Ordering::Relaxed);
    }

    /// Says that the source could not be listed to its end; then nothing in it is removed.
    pub fn mark_unlisted(&self) {
        self.state.unlisted.store(true, Ordering::Relaxed);
    }

    /// Whether the source could not be listed to its end.
    pub fn is_unlisted(&self) -> bool {
        self.state.unlisted.load(Ordering::Relaxed)
    }

    /// Says that the source's directory is not there any more, or its handle is stale: the one
    /// above is looked at again, and if it is there, it is entered once more.
    pub fn lose(&self, above: &Visit) {
        self.state.lost.store(true, Ordering::Relaxed);
        self.mark_unlisted();
        above.entered.forget(&self.name, self.source.first_meta());
        above.mark_dirty();
    }

    /// Whether the source's directory went while it was looked at.
    pub fn is_lost(&self) -> bool {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Says that some of what is in it is left to others.
    pub fn mark_unfinished(&self) {
        self.state.unfinished.store(true, Ordering::Relaxed);
    }

    /// Whether it may be that another mover is at work in it; after too many signs of that,
    /// something else is wrong.
    pub fn may_meet_another(&self) -> bool {
        self.state.meetings.fetch_add(1, Ordering::Relaxed) < MEETINGS_MAX
    }

    /// Says that another mover is at work in it: it is private no longer, and the coordinator
    /// finishes it.
    pub fn share_with_another(&self) {
        self.state.fresh.store(false, Ordering::Relaxed);
        self.mark_unfinished();
    }

    /// Whether some of what is in it is left to others.
    pub fn is_unfinished(&self) -> bool {
        self.state.unfinished.load(Ordering::Relaxed)
    }

    /// Takes over a directory that another mover began and left.
    pub fn take_over(&mut self, left: Unfinished) {
        match left.listed {
            // Hosts number devices each in their own way.
            Listed::As(meta) => {
                *self.listed.lock() = Meta {
                    dev: self.source.first_meta().dev,
                    ..meta
                }
            }
            Listed::Changed => self.mark_dirty(),
            Listed::InPart => {}
        }
        self.left = Some(left);
    }

    /// Whether another mover began it, and looked at all of its names.
    pub fn was_listed(&self) -> bool {
        self.left.is_some_and(|left| left.listed != Listed::InPart)
    }

    /// What the coordinator has to know to finish it.
    pub fn leave(&self) -> Unfinished {
        let listed = if self.state.dirty.load(Ordering::Relaxed) {
            Listed::Changed
        } else {
            Listed::As(*self.listed.lock())
        };
        let listed = if self.selection.whole {
            listed
        } else {
            Listed::InPart
        };
        Unfinished {
            listed,
            made: self.is_made(),
            replaced: self.replaced.is_some(),
            unlisted: self.is_unlisted(),
        }
    }

    /// How often the directory was looked at again.
    pub fn pass(&self) -> u8 {
        self.state.pass.load(Ordering::Relaxed)
    }

    /// Whether it may have been looked at before in this run.
    pub fn is_repeated(&self) -> bool {
        self.late || self.pass() > 0
    }

    /// Whether the source's directory, which is now like `now`, has changed since it was listed.
    pub fn is_dirty(&self, now: &Meta) -> bool {
        self.state.dirty.load(Ordering::Relaxed) || !self.listed.lock().unchanged(now)
    }

    /// Notes since when changes below may not be durable, as a mark says that a listing has shown.
    pub fn doubt_listed(&self, since: Stamp) {
        let _known_since_an_earlier_listing = self.state.doubt_listed.set(since);
    }

    /// Since when changes of the replica's directory, and of what is below it, may not be durable.
    pub fn suspect_since(&self) -> Option<Stamp> {
        earliest(self.doubt.replica, self.state.doubt_listed.get().copied())
    }

    /// Begins another look at the directory.
    pub fn again(&self, now: Meta) {
        *self.listed.lock() = now;
        self.state.dirty.store(false, Ordering::Relaxed);
        self.state.fresh.store(false, Ordering::Relaxed);
        self.state.pass.fetch_add(1, Ordering::Relaxed);
        self.state.pending.store(1, Ordering::Release);
    }
}

/// The last to hold a directory deep down holds all those above: they are let go of one by one, not
/// each within the other, or a tree of some ten thousand levels would overflow the stack.
impl Drop for Visit {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut visit) = above.and_then(Arc::into_inner) {
            above = visit.parent.take();
        }
    }
}
