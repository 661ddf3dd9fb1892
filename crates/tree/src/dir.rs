//! Directories and files that are read.

use crate::copy::digests;
use crate::{
    Ancestor, Done, LocalDir, LocalFile, MarkText, NameStream, Op, Removed, Rights, Spared,
};
use driftless_model::{Keep, Meta, Stamp, Xattrs};
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::sync::Arc;

/// A shared open directory that is only read.
pub type DirRef = Arc<dyn Dir>;

/// An open directory of a tree. Cheap to share; a local one gives its file descriptor back when too
/// many are open and opens it again, checked to be the same directory, when it is needed.
pub trait Dir: Send + Sync {
    /// Opens a subdirectory; a symbolic link or anything else at `name` is an error.
    fn enter(&self, name: &CStr) -> Done<DirRef>;
    /// Says that work below this directory is over, so that its parent is cheap to use next.
    fn leave(&self);
    /// Metadata of the directory itself when it was opened.
    fn first_meta(&self) -> &Meta;
    /// Metadata of the directory itself, now.
    fn meta(&self) -> Done<Meta>;
    /// Its metadata, asked of the file system and not of what is remembered of it: for a second
    /// look, on which it is decided.
    fn meta_again(&self) -> Done<Meta>;
    /// Extended attributes of the directory itself.
    fn xattrs(&self, keep: &Keep) -> Done<Xattrs>;
    /// Its attributes that are kept, if they take no more than `bytes_max` of memory.
    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs(keep).map(Some)
    }
    /// Starts to list the names. Listings of one directory do not disturb each other.
    fn list(&self) -> Done<Box<dyn NameStream>>;
    /// Metadata of an entry, now.
    fn look(&self, name: &CStr) -> Done<Meta>;
    /// The metadata of an entry as this machine remembers it: what is mounted there is not asked,
    /// so that this also works where nobody answers for it.
    fn peek(&self, name: &CStr) -> Done<Meta> {
        self.look(name)
    }
    /// Extended attributes of an entry.
    fn xattrs_of(&self, name: &CStr, keep: &Keep) -> Done<Xattrs>;
    /// The attributes of an entry, if they take no more than `bytes_max` of memory.
    fn xattrs_of_within(&self, name: &CStr, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs_of(name, keep).map(Some)
    }
    /// Target of a symbolic link.
    fn read_link(&self, name: &CStr) -> Done<CString>;
    /// Opens a regular file for reading; anything else is an error. Does not block and does not
    /// touch the access time.
    fn open_file(&self, name: &CStr) -> Done<Box<dyn ReadFile>>;
    /// Counts what [`remove_tree`](crate::DirMut::remove_tree) would remove, until that is more
    /// than `max` entries.
    fn count_tree(&self, name: &CStr, max: u64, spared: Spared<'_>) -> Removed;
    /// Effective user and group that act on this tree (credentials(7)).
    fn user(&self) -> (u32, u32);
    /// What that user may do.
    fn rights(&self) -> Rights;
    /// Whether entries of this tree may be given to other owners (chown(2)).
    fn may_give(&self) -> bool {
        self.user().0 == 0
    }
    /// The marks of this directory as the root of a replica, and with `above` those of all
    /// directories above it.
    fn marks(&self, above: bool) -> Done<Vec<MarkText>>;
    /// Whether its attributes, as they were last read, have a mark among them.
    fn is_marked(&self) -> bool;
    /// Whether that was noted by this user, and it is closed to others still.
    fn is_unfinished(&self) -> bool;
    /// This directory and all above it, up to the root of the name space.
    fn lineage(&self) -> Done<Vec<Ancestor>>;
    /// Whether something is mounted on this directory, as it was when it was opened; `None` where
    /// the kernel does not tell.
    fn is_mount_root(&self) -> Option<bool>;
    /// When this directory was made, where the file system of this machine tells (statx(2),
    /// `STATX_BTIME`).
    fn made_at(&self) -> Option<Stamp> {
        None
    }
    /// When the entry `name`, itself and not what it links to, was made, where the file system of
    /// this machine tells.
    fn made_at_of(&self, _name: &CStr) -> Option<Stamp> {
        None
    }
    /// Says that the subdirectory `name` will soon be entered and listed, and whether its files
    /// will be looked at then.
    fn expect(&self, _name: &CStr, _look: bool) {}
    /// Whether operations can be submitted here, because replies take their time.
    fn takes_submissions(&self) -> bool {
        false
    }
    /// Submits an operation; its completion comes from [`Host::completions`] with the same token.
    /// May wait until there is room for one more.
    fn submit(&self, _token: u64, _op: Op) {
        unreachable!("only directories that say so take submissions");
    }
    /// Which connection to another host this directory is reached through, and the number by which
    /// it is known there.
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
    /// Its metadata, asked of the file system and not of what is remembered of it: for a second
    /// look, on which it is decided.
    fn meta_again(&self) -> Done<Meta> {
        self.meta()
    }
    /// Extended attributes.
    fn xattrs(&self, keep: &Keep) -> Done<Xattrs>;
    /// Its attributes that are kept, if they take no more than `bytes_max` of memory.
    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs(keep).map(Some)
    }
    /// Reads at `offset` until `buffer` is full or the file ends; returns the bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize>;
    /// Writes out what is cached of this file and lets go of it, so that the next read comes from
    /// the medium.
    fn drop_cached(&self) -> Done;
    /// The first range of data, as opposed to a hole, in `within`.
    fn next_data(&self, within: Range<u64>) -> Done<Option<Range<u64>>>;
    /// BLAKE3 hashes of a range, piece by piece, each of `piece` bytes but the last. What lies
    /// beyond the end of the file has none.
    fn digests(&self, range: Range<u64>, piece: u64) -> Done<Vec<[u8; 32]>> {
        digests::by_reading(self, range, piece)
    }
    /// All its bytes, if they are in memory.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
    /// Which connection to another host this file is reached through, and the number by which it is
    /// known there.
    fn token(&self) -> Option<(usize, u64)> {
        None
    }
    /// This file as a local one.
    fn as_local(&self) -> Option<&LocalFile> {
        None
    }
}
