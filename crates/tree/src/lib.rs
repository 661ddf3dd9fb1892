//! The hands: the only crate that opens the files of a replicated tree.
//!
//! A tree is met through its directories. [`Dir`] is the interface: an open directory in which entries are listed, looked
//! at, read, made and removed by their names. Names are single components, no symbolic link is ever followed, and every
//! act goes through an open handle, so nobody who owns a part of a tree can lead an act out of it.
//! [`LocalDir`] is the implementation on this machine's file systems. A directory on another machine answers later: it may be
//! told what will be asked of it ([`Dir::expect`]), and takes submissions that complete in their own time ([`Dir::submit`]).
#![deny(missing_docs)]

mod attributes;
mod copy;
mod digests;
mod displace;
mod endpoint;
mod file;
mod gate;
mod handles;
mod leftover;
mod lend;
mod local;
mod lockfile;
mod locks;
mod mark;
mod mounts;
mod names;
mod nest;
mod remove;
mod root;
mod started;
mod submit;
mod sys;
mod temp;
mod whole;
mod windows;
mod xattr;

pub use attributes::{ACL_ACCESS, Attributes, Known, Lends};
pub use copy::{Cache, Copier, DIFFERENCE_BYTES, HASHED_BYTES, Halt, Ladder, Pace, differing_pieces};
pub use endpoint::{Endpoint, Host, Loss, plain_path, random_id, random_secret, this_machine};
pub use file::LocalFile;
pub use gate::{BeforeChange, Gate, Sentry};
pub use handles::HandlePool;
pub use lend::Lent;
pub use local::LocalDir;
pub use locks::{Holder, Lock, Reach, prepare_holder, prepare_locks};
pub use mark::{MarkText, prepare_marks};
pub use mounts::{MountPoint, mounts_below, shown_twice, shows_changes_at_once};
pub use names::{NameHashes, NameStream, Names};
pub use remove::{Removed, STUCK_MAX, Spared};
pub use root::{Ancestor, Place, RootError, descend, locate};
pub use submit::{Completion, NewEntry, Op};
pub use temp::{ROOT_MARK, between_name, is_between_name, is_root_name, is_temp_name, stable_temp_name, temp_name};
pub use whole::{WHOLE_BYTES_MAX, WHOLE_XATTRS_BYTES_MAX, Whole};
pub use windows::{WINDOW_NAMES, windows};

use driftless_model::{CAPABILITY, Fault, Keep, Kind, Meta, Stamp, Xattrs};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::sync::Arc;

/// What the user who acts on a tree may do (credentials(7), capabilities(7)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// May give entries to anybody (`CAP_CHOWN`).
    pub any_owner: bool,
    /// May give a file capabilities (`CAP_SETFCAP`).
    pub capabilities: bool,
    /// May set attributes `trusted.*` (`CAP_SYS_ADMIN`).
    pub trusted: bool,
}

impl Rights {
    /// Those of this process.
    pub fn own() -> Rights {
        use rustix::process::{getegid, geteuid, getgroups};
        use rustix::thread::CapabilitySet;
        let held = rustix::thread::capabilities(None).map(|held| held.effective);
        let has = |capability| held.map_or(geteuid().is_root(), |held| held.contains(capability));
        let groups = getgroups().unwrap_or_default().into_iter().map(|group| group.as_raw()).collect();
        Rights {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups,
            any_owner: has(CapabilitySet::CHOWN),
            capabilities: has(CapabilitySet::SETFCAP),
            trusted: has(CapabilitySet::SYS_ADMIN),
        }
    }

    /// Whether this user may set the extended attribute of what is his (xattr(7)).
    pub fn may_set(&self, xattr: &[u8]) -> bool {
        match () {
            () if xattr == CAPABILITY => self.capabilities,
            () if xattr.starts_with(b"trusted.") => self.trusted,
            () => true,
        }
    }

    /// Whether this user may give what is his to the group, and have it lend the group's rights.
    pub fn may_give_to(&self, gid: u32) -> bool {
        self.any_owner || self.gid == gid || self.groups.contains(&gid)
    }
}

/// A shared open directory.
pub type DirRef = Arc<dyn Dir>;

/// A lock, which is held until it is dropped.
pub type Hold = Box<dyn Held>;

/// What is held.
pub trait Held: Send + Sync {
    /// Whether it still keeps others out: whoever may write to a directory can take the file away that its lock is on.
    fn is_kept(&self) -> Done<bool>;
}

/// The result of an act on a tree.
pub type Done<T = ()> = Result<T, Fault>;

/// An open directory of a tree. Cheap to share; a local one gives its file descriptor back when too many are open and
/// opens it again, checked to be the same directory, when it is needed.
pub trait Dir: Send + Sync {
    /// Opens a subdirectory; a symbolic link or anything else at `name` is an error.
    fn enter(&self, name: &CStr) -> Done<DirRef>;
    /// Says that work below this directory is over, so that its parent is cheap to use next.
    fn leave(&self);
    /// Metadata of the directory itself when it was opened.
    fn first_meta(&self) -> &Meta;
    /// Metadata of the directory itself, now.
    fn meta(&self) -> Done<Meta>;
    /// The same, asked of the file system and not of what is remembered of it: for a second look, on which it is decided.
    fn meta_again(&self) -> Done<Meta>;
    /// Extended attributes of the directory itself.
    fn xattrs(&self, keep: &Keep) -> Done<Xattrs>;
    /// The same, if they take no more than `bytes_max` of memory.
    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs(keep).map(Some)
    }
    /// Starts to list the names. One listing at a time.
    fn list(&self) -> Done<Box<dyn NameStream>>;
    /// Metadata of an entry, now.
    fn look(&self, name: &CStr) -> Done<Meta>;
    /// The same as this machine remembers it: what is mounted there is not asked, so that this also works where nobody answers for it.
    fn peek(&self, name: &CStr) -> Done<Meta> {
        self.look(name)
    }
    /// Extended attributes of an entry.
    fn xattrs_of(&self, name: &CStr, keep: &Keep) -> Done<Xattrs>;
    /// The same, if they take no more than `bytes_max` of memory.
    fn xattrs_of_within(&self, name: &CStr, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs_of(name, keep).map(Some)
    }
    /// Target of a symbolic link.
    fn read_link(&self, name: &CStr) -> Done<CString>;
    /// Opens a regular file for reading; anything else is an error. Does not block and does not touch the access time.
    fn open_file(&self, name: &CStr) -> Done<Box<dyn ReadFile>>;

    /// Makes a directory with mode 0700 and opens it; it is checked to be the one made.
    fn make_dir(&self, name: &CStr) -> Done<DirRef>;
    /// Makes a regular file that must not exist; `mode` is taken as it is (the process's umask is 0).
    fn create_file(&self, name: &CStr, mode: u32) -> Done<Box<dyn WriteFile>>;
    /// Opens an unfinished file of an earlier run for writing; it must be a regular file with one link that is owned by this user.
    fn reopen_file(&self, name: &CStr) -> Done<Box<dyn WriteFile>>;
    /// Makes a symbolic link.
    fn make_symlink(&self, name: &CStr, target: &CStr) -> Done;
    /// Makes a fifo, socket or device node with mode 0600.
    fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> Done;
    /// Makes `name` here a hard link to an entry of a directory of the same tree, provided that it is the inode `id`.
    fn link(&self, name: &CStr, from: (&dyn Dir, &CStr), id: (u64, u64)) -> Done;
    /// Sets attributes of the entry `name`, provided that it is still the inode `expected`. Returns what could not be set.
    fn set(&self, name: &CStr, expected: &Known, attributes: &Attributes) -> Done<Vec<Fault>>;
    /// Sets attributes of the directory itself. Returns what could not be set.
    fn set_own(&self, known: &Known, attributes: &Attributes) -> Vec<Fault>;
    /// Gives an ordinary user the right to change a directory of his own, as far as he may. Whoever calls it sets the mode again.
    fn make_writable(&self);
    /// A private directory in this one, in which entries are made before they are [taken](Dir::take) here; `None` where that is not
    /// needed, because nobody else can put anything in the place of what is made here, or, with `hidden`, open it.
    fn nest(&self, hidden: bool) -> Done<Option<DirRef>>;
    /// Moves an entry of another directory of the same file system here, replacing what is not a directory.
    fn take(&self, from: &dyn Dir, name: &CStr, to: &CStr) -> Done;
    /// Renames within this directory, replacing what is not a directory.
    fn rename(&self, from: &CStr, to: &CStr) -> Done;
    /// Renames within this directory to a name at which a directory stands; that goes, with at most so many entries in it. Returns these; it
    /// was done if nothing is stuck.
    fn displace(&self, from: &CStr, to: &CStr, below_max: u64) -> Removed;
    /// Removes an entry that is not a directory.
    fn remove(&self, name: &CStr) -> Done;
    /// Removes an empty directory.
    fn remove_dir(&self, name: &CStr) -> Done;
    /// Removes an entry and all below it, but for what is spared. Never goes into what is mounted there.
    fn remove_tree(&self, name: &CStr, spared: Spared<'_>) -> Removed;
    /// Removes an entry with a name of the reserved form, with all below it if it is known that an earlier run left it.
    fn remove_leftover(&self, name: &CStr) -> Removed;
    /// Counts what [`remove_tree`](Dir::remove_tree) would remove, until that is more than `max` entries.
    fn count_tree(&self, name: &CStr, max: u64, spared: Spared<'_>) -> Removed;
    /// Makes the whole file system durable (syncfs).
    fn sync_all(&self) -> Done;
    /// Effective user and group that act on this tree (credentials(7)).
    fn user(&self) -> (u32, u32);
    /// What that user may do.
    fn rights(&self) -> Rights;
    /// Whether entries of this tree may be given to other owners (chown(2)).
    fn may_give(&self) -> bool {
        self.user().0 == 0
    }
    /// Keeps other runs from this directory, or from its entry `name`.
    fn lock(&self, name: Option<&CStr>, reach: Reach) -> Done<Lock>;
    /// The marks of this directory as the root of a replica, and with `above` those of all directories above it.
    fn marks(&self, above: bool) -> Done<Vec<MarkText>>;
    /// Whether its attributes, as they were last read, have a mark among them.
    fn is_marked(&self) -> bool;
    /// Notes that this directory, which is new, is closed to others until it is finished, or that it is finished. Where the file system
    /// keeps no attributes, nobody will know.
    fn set_unfinished(&self, is: bool) -> Done;
    /// Whether that was noted by this user, and it is closed to others still.
    fn is_unfinished(&self) -> bool;
    /// Marks this directory as the root of a replica, durably if asked for; returns what time it was then by the file system's clock.
    fn set_mark(&self, text: &[u8], durable: bool) -> Done<Stamp>;
    /// From now on the first change in the tree that this directory belongs to waits for `act`. What marks and locks does not.
    fn before_change(&self, act: Option<BeforeChange>);
    /// From now on `sentry` is asked before each change in the tree that this directory belongs to; `None` sends it away.
    fn guard(&self, sentry: Option<Arc<dyn Sentry>>);
    /// Where the tree is changed by an agent on another host: has that look by itself, before each change, whether the mark of this directory
    /// is that of the replica `identity` and names the run of `movers`. Here the sentry does.
    fn hold(&self, _identity: u128, _movers: u128) -> Done {
        Ok(())
    }
    /// Has the sentry, if there is one, look whether the tree may still be changed: before something large is published.
    fn confirm(&self) -> Done;
    /// This directory and all above it, up to the root of the name space.
    fn lineage(&self) -> Done<Vec<Ancestor>>;

    /// Whether something is mounted on this directory, as it was when it was opened; `None` where the kernel does not tell.
    fn is_mount_root(&self) -> Option<bool>;

    /// When this directory was made, where the file system of this machine tells (statx(2), `STATX_BTIME`).
    fn made_at(&self) -> Option<Stamp> {
        None
    }

    /// When the entry `name`, itself and not what it links to, was made, where the file system of this machine tells.
    fn made_at_of(&self, _name: &CStr) -> Option<Stamp> {
        None
    }

    /// Owner and group that entries made here get, if this directory, which was just made, shows it without being asked.
    fn birth(&self) -> Option<(u32, u32)> {
        // New entries belong to the user and group of the process unless the file system or the set-group-id bit says otherwise;
        // a new directory that has the process's group shows that they do not.
        let (made, (_, group)) = (self.first_meta(), self.user());
        (made.gid == group).then_some((made.uid, group))
    }
    /// Says that the subdirectory `name` will soon be entered and listed, and whether its files will be looked at then.
    fn expect(&self, _name: &CStr, _look: bool) {}
    /// Whether operations can be submitted here, because replies take their time.
    fn takes_submissions(&self) -> bool {
        false
    }
    /// Submits an operation; its completion comes from [`Host::completions`] with the same token. May wait until there is room for one more.
    fn submit(&self, _token: u64, _op: Op) {
        unreachable!("only directories that say so take submissions");
    }
    /// Which connection to another host this directory is reached through, and the number by which it is known there.
    fn token(&self) -> Option<(usize, u64)> {
        None
    }
    /// This directory as a local one.
    fn as_local(&self) -> Option<&LocalDir> {
        None
    }
}

/// A regular file that is read.
pub trait ReadFile: Send + Sync {
    /// Metadata, now.
    fn meta(&self) -> Done<Meta>;
    /// The same, asked of the file system and not of what is remembered of it: for a second look, on which it is decided.
    fn meta_again(&self) -> Done<Meta> {
        self.meta()
    }
    /// Extended attributes.
    fn xattrs(&self, keep: &Keep) -> Done<Xattrs>;
    /// The same, if they take no more than `bytes_max` of memory.
    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs(keep).map(Some)
    }
    /// Reads at `offset` until `buffer` is full or the file ends; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize>;
    /// Writes out what is cached of this file and lets go of it, so that the next read comes from the medium.
    fn drop_cached(&self) -> Done;
    /// The first range of data, as opposed to a hole, in `within`.
    fn next_data(&self, within: Range<u64>) -> Done<Option<Range<u64>>>;
    /// BLAKE3 hashes of a range, piece by piece, each of `piece` bytes but the last. What lies beyond the end of the file has none.
    fn digests(&self, range: Range<u64>, piece: u64) -> Done<Vec<[u8; 32]>> {
        digests::by_reading(self, range, piece)
    }
    /// All its bytes, if they are in memory.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
    /// Which connection to another host this file is reached through, and the number by which it is known there.
    fn token(&self) -> Option<(usize, u64)> {
        None
    }
    /// This file as a local one.
    fn as_local(&self) -> Option<&LocalFile> {
        None
    }
}

/// A regular file that is being made. It stays unfinished until it is published by a rename or by its directory.
pub trait WriteFile: ReadFile {
    /// Writes all of `data` at `offset`. That it arrived is known when the file is [settled](WriteFile::settle).
    fn write_at(&self, data: &[u8], offset: u64) -> Done;
    /// Waits until all that was written has arrived. Nothing may rely on it before.
    fn settle(&self) -> Done {
        Ok(())
    }
    /// Has the host on which both files are copy a range, and returns the bytes that it is asked for; `None` if they are not on one
    /// other host. That all of it was there and has been copied is known when the file is [settled](WriteFile::settle).
    fn copy_from(&self, _from: &dyn ReadFile, _range: Range<u64>) -> Option<Done<u64>> {
        None
    }
    /// Sets the length; what lies beyond the old one is a hole.
    fn set_len(&self, len: u64) -> Done;
    /// Reserves space for a range, where the file system can; running out of space is the only error.
    fn allocate(&self, range: Range<u64>) -> Done;
    /// Sets attributes. Returns what could not be set.
    fn set(&self, known: &Known, attributes: &Attributes) -> Vec<Fault>;
    /// Makes data and metadata durable.
    fn sync(&self) -> Done;
    /// Has the file system say what it says when a file is closed (close(2)): some tell of failed writes, quotas and full disks only then.
    /// For a file that others hold, too; it stays open.
    fn flush(&self) -> Done;
    /// Closes it and hears the same. A file that gets its name, or keeps it, is closed with this before.
    fn close(self: Box<Self>) -> Done;
    /// Reads what [`save_progress`](WriteFile::save_progress) kept.
    fn progress(&self) -> Option<Vec<u8>>;
    /// Keeps a note of at most 2 KiB about the progress of this unfinished file with it; `None` removes it.
    fn save_progress(&self, note: Option<&[u8]>) -> Done;
}
