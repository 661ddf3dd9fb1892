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
    /// Says that work in this directory and below it is over, so that its parent is cheap to use
    /// next.
    fn leave(&self);
    /// Metadata of the directory itself when it was opened.
    fn first_meta(&self) -> &Meta;
    /// Metadata of the directory itself, now.
    fn meta(&self) -> Done<Meta>;
    /// Its metadata, asked of the file system past every cache of attributes: for the second look,
    /// on which a decision rests.
    fn meta_again(&self) -> Done<Meta>;
    /// Extended attributes of the directory itself.
    fn xattrs(&self, keep: &Keep) -> Done<Xattrs>;
    /// Extended attributes that `keep` wants; `None` if they take more than `bytes_max` bytes of
    /// memory. This default does not look at `bytes_max`: another host bounds its answer by itself.
    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs(keep).map(Some)
    }
    /// Starts to list the names. Listings of one directory do not disturb each other.
    fn list(&self) -> Done<Box<dyn NameStream>>;
    /// Metadata of an entry, now: of a symbolic link itself, and not of what it leads to.
    fn look(&self, name: &CStr) -> Done<Meta>;
    /// Metadata of an entry as the kernel remembers it. The server of a file system that is mounted
    /// there is not asked, so this also works while that server does not answer.
    fn peek(&self, name: &CStr) -> Done<Meta> {
        self.look(name)
    }
    /// Extended attributes of an entry.
    fn xattrs_of(&self, name: &CStr, keep: &Keep) -> Done<Xattrs>;
    /// Extended attributes of an entry that `keep` wants; `None` if they take more than `bytes_max`
    /// bytes of memory. This default does not look at `bytes_max`: another host bounds its answer
    /// by itself.
    fn xattrs_of_within(&self, name: &CStr, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs_of(name, keep).map(Some)
    }
    /// Target of a symbolic link.
    fn read_link(&self, name: &CStr) -> Done<CString>;
    /// Opens a regular file for reading. A symbolic link or a socket is an error; a directory, a
    /// fifo or a device may be opened, so the caller looks at the kind with [`ReadFile::meta`].
    /// Does not wait for the other end of a fifo, but may wait until another process gives up its
    /// lease on the file (fcntl(2)). The access time stays as it is where this user may ask for
    /// that (open(2), O_NOATIME).
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
    /// Whether a mark was among its extended attributes when they were read.
    fn is_marked(&self) -> bool;
    /// Whether this user has noted that the directory is unfinished
    /// ([`set_unfinished`](crate::DirMut::set_unfinished)), and it is still closed to others.
    fn is_unfinished(&self) -> bool;
    /// This directory and all above it, up to the root of the name space or to where this user may
    /// look no further.
    fn lineage(&self) -> Done<Vec<Ancestor>>;
    /// Whether something is mounted on this directory, as it was when it was opened; `None` where
    /// the kernel does not tell.
    fn is_mount_root(&self) -> Option<bool>;
    /// When this directory was made, where the file system of this machine tells (statx(2),
    /// `STATX_BTIME`).
    fn made_at(&self) -> Option<Stamp> {
        None
    }
    /// When the entry `name` was made, where the file system of this machine tells: a symbolic link
    /// itself, and not what it leads to.
    fn made_at_of(&self, _name: &CStr) -> Option<Stamp> {
        None
    }
    /// A number by which this directory is known on whichever host it is seen, for as long as it
    /// is there: made of its file system, its inode number and when it was made. `None` where the
    /// file system does not tell the last.
    fn birthmark(&self) -> Done<Option<u128>> {
        Ok(None)
    }
    /// Says that the subdirectory `name` will soon be entered and listed, and whether its files
    /// will be looked at then.
    fn expect(&self, _name: &CStr, _look: bool) {}
    /// Whether operations can be submitted here, because replies take their time.
    fn takes_submissions(&self) -> bool {
        false
    }
    /// Submits an operation; its completion comes from
    /// [`Host::completions`](crate::Host::completions) with the same token. May wait until there is
    /// room for one more.
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
    /// Its metadata, asked of the file system past every cache of attributes: for the second look,
    /// on which a decision rests.
    fn meta_again(&self) -> Done<Meta> {
        self.meta()
    }
    /// Extended attributes.
    fn xattrs(&self, keep: &Keep) -> Done<Xattrs>;
    /// Extended attributes that `keep` wants; `None` if they take more than `bytes_max` bytes of
    /// memory. This default does not look at `bytes_max`: another host bounds its answer by itself.
    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        let _what_is_far_away_is_bounded_there = bytes_max;
        self.xattrs(keep).map(Some)
    }
    /// Reads at `offset` until `buffer` is full or the file ends; returns the number of bytes read.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Done<usize>;
    /// Writes out what is cached of this file and lets go of it, so that the next read comes from
    /// the medium.
    fn drop_cached(&self) -> Done;
    /// The first range of data, as opposed to a hole, in `within`; `None` if there is none. More
    /// data may follow right after it.
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
