//! What listings tell of a directory's entries: kept until somebody asks for it, so that the first
//! look at an entry costs nothing.

use super::Inner;
use crate::budget::Room;
use crate::client::connection::{nonsense, on};
use crate::wire::{Handle, Listing, Reply, Request, Survey, xattrs_memory};
use driftless_model::{Entry, Meta, Side, Xattrs};
use driftless_reconcile::fold;
use driftless_tree::{Done, NameStream, Names};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What listings have told and nobody has asked for, on one connection, in bytes. Beyond that, each
/// entry is asked about by itself.
const HEARD_BYTES_MAX: u64 = 40 << 20;
/// What the hashes take, on one connection, by which the names of replicas' directories are known,
/// in bytes. Beyond, no listing says what it lacks.
const KNOWN_BYTES_MAX: u64 = 32 << 20;
/// What one of them takes in a table that grows by half.
const FOLD_BYTES: u64 = 24;
/// Entries of the first listing that is asked for by itself; further ones of the directory have up
/// to the most. Room is taken for what may come, so that many directories that are a little larger
/// are listed at the same time, on a slow connection, too.
const LISTED_ENTRIES: u32 = 512;
const LISTED_ENTRIES_MAX: u32 = 4096;
/// Names that are known to have been changed while a listing was under way; when there are more,
/// nothing that it tells is kept.
const CHANGED_MAX: usize = 4096;

/// What was changed since a listing was asked for: what that tells of it may be older.
#[derive(Default)]
enum Changed {
    /// No listing is under way.
    #[default]
    Unwatched,
    /// These names.
    Names(HashSet<CString>),
    /// So much that it is not known.
    Much,
}

impl Changed {
    fn add(&mut self, name: &CStr) {
        match self {
            Changed::Names(names) if names.len() < CHANGED_MAX => drop(names.insert(name.into())),
            Changed::Names(_) => *self = Changed::Much,
            Changed::Unwatched | Changed::Much => {}
        }
    }

    fn has(&self, name: &CStr) -> bool {
        match self {
            Changed::Unwatched => false,
            Changed::Names(names) => names.contains(name),
            Changed::Much => true,
        }
    }
}

/// What a listing told of an entry and nobody has asked yet. All empty: the entry is there, or was
/// touched; ask.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) meta: Option<Meta>,
    pub(super) xattrs: Option<Xattrs>,
    pub(super) target: Option<CString>,
    _room: Option<Room>,
}

impl Heard {
    /// About what it takes of memory, in bytes.
    fn bytes(&self, name: &CStr) -> u64 {
        /// The entry itself, its place in a table that grows by half, and what an allocation costs.
        const ENTRY_BYTES: usize = 512;
        let target = self
            .target
            .as_ref()
            .map_or(0, |target| target.count_bytes());
        (ENTRY_BYTES + name.count_bytes() + target) as u64
            + self.xattrs.as_ref().map_or(0, xattrs_memory)
    }

    fn is_empty(&self) -> bool {
        self.meta.is_none() && self.xattrs.is_none() && self.target.is_none()
    }
}

/// What was heard of a directory's entries.
#[derive(Default)]
pub(super) struct Entries {
    heard: HashMap<CString, Heard>,
    /// Whatever is not among them is not there, unless its file system takes it for one that is.
    complete: bool,
    /// Hashes of what they have in common with names that some file system takes for one with them;
    /// of a replica's alone, since nobody relies on what a source lacks.
    folds: HashSet<u64>,
    /// What they take.
    room: Room,
    /// There was no room for all of them.
    knows_some: bool,
    hashes: RandomState,
    /// The listing that came with the directory.
    first: Option<Listing>,
    /// What was changed since that, or since another one was asked for.
    changed: Changed,
    /// How many listings were begun; what an older one tells than the last is not kept.
    listings: u64,
}

impl Entries {
    /// With the listing that came with the directory.
    pub(super) fn with(first: Option<Listing>, known: &Arc<AtomicU64>) -> Entries {
        let changed = if first.is_some() {
            Changed::Names(HashSet::new())
        } else {
            Changed::Unwatched
        };
        Entries {
            first,
            changed,
            room: Room::none(known),
            ..Entries::default()
        }
    }

    /// Begins a listing and returns its number, from 1 on. What was heard from those before it does
    /// not count any more: it tells all.
    pub(super) fn begin(&mut self, known: &Arc<AtomicU64>) -> u64 {
        self.listings += 1;
        if self.listings > 1 {
            *self = Entries {
                listings: self.listings,
                ..Entries::with(None, known)
            };
        }
        self.listings
    }

    /// Keeps what was told of an entry, as long as there is room for it on the connection.
    fn hear(&mut self, name: CString, heard: Heard, used: &Arc<AtomicU64>) {
        let Some(room) = Room::take(used, heard.bytes(&name), HEARD_BYTES_MAX) else {
            return;
        };
        self.heard.insert(
            name,
            Heard {
                _room: Some(room),
                ..heard
            },
        );
    }

    fn know(&mut self, name: &CStr) {
        let hash = self.hashes.hash_one(fold(name.to_bytes()));
        if !self.folds.contains(&hash) {
            if self.room.grow(FOLD_BYTES, KNOWN_BYTES_MAX) {
                self.folds.insert(hash);
            } else {
                self.knows_some = true;
            }
        }
    }

    /// What was told of an entry does not hold any more, or was not told: it is asked about.
    pub(super) fn forget(&mut self, name: &CStr) {
        self.heard.remove(name);
        self.changed.add(name);
        self.know(name);
    }

    /// The listing that came with the directory, once. Otherwise one is about to be asked for.
    fn first_or_ask(&mut self, listing: u64) -> Option<Listing> {
        if listing != self.listings {
            return None;
        }
        let first = self.first.take();
        if first.is_none() {
            self.changed = Changed::Names(HashSet::new());
        }
        first
    }

    /// Keeps what a listing tells of entries that were not changed since it was asked for.
    fn hear_all(&mut self, told: impl Iterator<Item = (CString, Heard)>, used: &Arc<AtomicU64>) {
        let changed = std::mem::take(&mut self.changed);
        told.filter(|(name, heard)| !heard.is_empty() && !changed.has(name))
            .for_each(|(name, heard)| self.hear(name, heard, used));
    }

    /// Takes a part of what was told of an entry. What nobody has asked for is kept.
    pub(super) fn take<T>(
        &mut self,
        name: &CStr,
        part: impl FnOnce(&mut Heard) -> Option<T>,
    ) -> Option<T> {
        let heard = self.heard.get_mut(name)?;
        let taken = part(heard);
        if heard.is_empty() {
            self.heard.remove(name);
        }
        taken
    }

    /// Drops what was told of an entry that is read whole.
    pub(super) fn drop_heard(&mut self, name: &CStr) {
        self.heard.remove(name);
    }

    /// Whether nothing is there at a name that was never heard of. A listing has one spelling of
    /// each name alone.
    pub(super) fn lacks(&self, unheard: &CStr) -> bool {
        let knows_all = self.complete && !self.knows_some;
        knows_all
            && !self
                .folds
                .contains(&self.hashes.hash_one(fold(unheard.to_bytes())))
    }
}

pub(super) struct RemoteNames {
    dir: Arc<Inner>,
    /// The number of this listing; only the first goes by the directory's own number on the other
    /// side, since each has a place of its own.
    number: u64,
    at: Handle,
    /// How many entries are asked for next.
    entries_max: u32,
}

impl NameStream for RemoteNames {
    fn fill(&mut self, names: &mut Names, max: usize) -> Done<bool> {
        let mut more = true;
        while more && names.len() < max {
            let listing = self.next()?;
            more = self.take(listing, names)?;
        }
        Ok(more)
    }
}

impl RemoteNames {
    /// From the beginning; the first listing goes on where that ends which came with the directory.
    pub(super) fn new(dir: Arc<Inner>) -> RemoteNames {
        let number = dir.entries.lock().begin(&dir.client.connection.known);
        let at = if number == 1 {
            dir.at
        } else {
            dir.client.connection.handle()
        };
        if number > 1 {
            let _its_listings_fail_if_this_does = dir
                .client
                .connection
                .ask(&Request::Again { dir: dir.at, at }, Vec::new());
        }
        RemoteNames {
            dir,
            number,
            at,
            entries_max: LISTED_ENTRIES,
        }
    }

    fn next(&mut self) -> Done<Listing> {
        let first = self.dir.entries.lock().first_or_ask(self.number);
        if let Some(first) = first {
            return Ok(first);
        }
        let survey = Survey {
            keep: self.dir.client.keep,
            files: self.dir.files,
            entries_max: self.entries_max,
        };
        self.entries_max = (self.entries_max * 8).min(LISTED_ENTRIES_MAX);
        match on(
            self.dir.side,
            self.dir.client.connection.call(
                &Request::List {
                    dir: self.at,
                    survey,
                },
                Vec::new(),
            ),
        )? {
            (Reply::Listing(listing), _) if listing.told.len() <= survey.entries_max as usize => {
                Ok(listing)
            }
            _ => Err(nonsense().on(self.dir.side)),
        }
    }

    fn take(&self, listing: Listing, names: &mut Names) -> Done<bool> {
        let mut entries = self.dir.entries.lock();
        let is_last = self.number == entries.listings;
        // A listing that says nothing and promises more could go on for ever.
        let endless = listing.more && listing.told.is_empty();
        for told in &listing.told {
            names.push(
                &told.name.0,
                told.kind
                    .or(told.entry.as_ref().map(|entry| entry.meta.kind)),
            );
            if is_last && self.dir.side == Side::Replica {
                entries.know(&told.name.0);
            }
        }
        let heard = listing.told.into_iter().map(|told| {
            let (meta, xattrs) = told
                .entry
                .map(|Entry { meta, xattrs }| (meta, xattrs))
                .unzip();
            (
                told.name.0,
                Heard {
                    meta,
                    xattrs,
                    target: told.target,
                    _room: None,
                },
            )
        });
        if is_last {
            entries.hear_all(heard, &self.dir.client.connection.heard);
        }
        if let Some(fault) = listing.fault.or(endless.then(nonsense)) {
            return Err(fault.on(self.dir.side));
        }
        entries.complete |= is_last && !listing.more;
        Ok(listing.more)
    }
}

impl Drop for RemoteNames {
    fn drop(&mut self) {
        if self.at != self.dir.at {
            self.dir.client.connection.forget(self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    fn name(number: usize) -> CString {
        CString::new(format!("name-{number:08}")).expect("no NUL")
    }

    fn heard() -> Heard {
        Heard {
            xattrs: Some(Xattrs::default()),
            ..Heard::default()
        }
    }

    #[test]
    fn what_is_heard_of_a_directory_takes_a_bounded_amount_of_memory() {
        let (used, mut entries) = (Arc::default(), Entries::default());
        for number in 0..300_000 {
            entries.know(&name(number));
            entries.hear(name(number), heard(), &used);
        }
        assert!(used.load(Relaxed) <= HEARD_BYTES_MAX);
        let kept = entries.heard.len();
        assert!(kept < 100_000, "{kept}");
        entries.complete = true;
        assert!(
            !entries.lacks(&name(299_999)),
            "it was told, though nothing is kept of it"
        );
        assert!(entries.lacks(&name(300_000)));
        drop(entries);
        assert_eq!(used.load(Relaxed), 0);
    }

    #[test]
    fn what_was_changed_since_a_listing_was_asked_for_is_not_heard_of_from_it() {
        let (used, known) = (Arc::default(), Arc::default());
        let told = || (0..3).map(|number| (name(number), heard()));
        let is_heard =
            |entries: &Entries| [0, 1, 2].map(|number| entries.heard.contains_key(&name(number)));
        let mut entries = Entries::with(Some(Listing::default()), &known);
        assert_eq!(entries.begin(&known), 1);
        entries.forget(&name(1));
        assert!(entries.first_or_ask(1).is_some());
        entries.hear_all(told(), &used);
        assert_eq!(
            is_heard(&entries),
            [true, false, true],
            "of the one that came with the directory"
        );
        assert!(entries.first_or_ask(1).is_none());
        entries.forget(&name(0));
        entries.hear_all(told(), &used);
        assert_eq!(is_heard(&entries), [false, true, true], "of another");
        assert!(entries.first_or_ask(1).is_none());
        (0..=CHANGED_MAX).for_each(|number| entries.forget(&name(number)));
        entries.hear_all(told(), &used);
        assert_eq!(is_heard(&entries), [false; 3], "much was changed");
        assert!(entries.first_or_ask(1).is_none());
        entries.hear_all(told(), &used);
        assert_eq!(is_heard(&entries), [true; 3], "of the next one");
    }

    #[test]
    fn what_was_asked_for_makes_room() {
        let (used, mut entries) = (Arc::default(), Entries::default());
        for number in 0..300_000 {
            entries.hear(name(number), heard(), &used);
            assert!(
                entries
                    .take(&name(number), |heard| heard.xattrs.take())
                    .is_some(),
                "{number}"
            );
        }
        assert_eq!((used.load(Relaxed), entries.heard.len()), (0, 0));
        entries.hear(
            name(1),
            Heard {
                target: Some(name(2)),
                ..heard()
            },
            &used,
        );
        assert!(
            entries
                .take(&name(1), |heard| heard.xattrs.take())
                .is_some()
        );
        assert_eq!(
            entries.take(&name(1), |heard| heard.target.take()),
            Some(name(2)),
            "the rest is kept"
        );
    }
}
