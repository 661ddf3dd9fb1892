//! Directories and files that are changed. Nothing that has only a [`Dir`] can change a tree, so no
//! code path writes to a source:
//!
//! ```compile_fail,E0599
//! fn change(source: &dyn driftless_tree::Dir) {
//!     let _made = source.make_dir(c"name");
//! }
//! ```
//!
//! ```
//! fn change(replica: &dyn driftless_tree::DirMut) {
//!     let _made = replica.make_dir(c"name");
//! }
//! ```

use crate::{
    Attributes, BeforeChange, Dir, Done, Known, Lock, OpMut, Reach, ReadFile, Removed, Sentry,
    Spared,
};
use driftless_model::{Act, Fault, Kind, Side, Stamp, errno};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

/// A shared open directory that may be changed.
pub type DirMutRef = Arc<dyn DirMut>;

/// An open directory of a tree that may be changed.
pub trait DirMut: Dir {
    /// Opens a subdirectory that may be changed; a symbolic link or anything else at `name` is an
    /// error.
    fn enter_mut(&self, name: &CStr) -> Done<DirMutRef>;
    /// Makes a directory with mode 0700 and opens it; it is checked to be the one made.
    fn make_dir(&self, name: &CStr) -> Done<DirMutRef>;
    /// Makes a regular file that must not exist; `mode` is taken as it is (the process's umask is
    /// 0).
    fn create_file(&self, name: &CStr, mode: u32) -> Done<Box<dyn WriteFile>>;
    /// Opens an unfinished file of an earlier run for writing; it must be a regular file with one
    /// link that is owned by this user.
    fn reopen_file(&self, name: &CStr) -> Done<Box<dyn WriteFile>>;
    /// Makes a symbolic link.
    fn make_symlink(&self, name: &CStr, target: &CStr) -> Done;
    /// Makes a fifo, socket or device node with mode 0600; `rdev` is the number of the device.
    fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> Done;
    /// Makes `name` here a hard link to the entry `from` (a directory of the same tree, and a name
    /// in it), provided that this entry is the inode `id` (device and inode); `ESTALE` otherwise.
    fn link(&self, name: &CStr, from: (&dyn Dir, &CStr), id: (u64, u64)) -> Done;
    /// Sets attributes of the entry `name`, provided that it is still what `expected` says. Returns
    /// what could not be set.
    fn set(&self, name: &CStr, expected: &Known, attributes: &Attributes) -> Done<Vec<Fault>>;
    /// Sets attributes of the directory itself. Returns what could not be set.
    fn set_own(&self, known: &Known, attributes: &Attributes) -> Vec<Fault>;
    /// Gives an ordinary user all rights to this directory if it is his own. The mode stays changed
    /// until the caller sets it again.
    fn make_writable(&self);
    /// A private directory in this one, in which entries are made before they are
    /// [taken](DirMut::take) here; `None` where no nest is needed: nobody else can put another
    /// entry in the place of one that is made here and, with `hidden`, nobody else can open one
    /// either.
    fn nest(&self, hidden: bool) -> Done<Option<DirMutRef>>;
    /// Moves the entry `name` of another directory of the same file system to the name `to` here,
    /// replacing what is not a directory.
    fn take(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done;
    /// Moves the entry `name` of another directory of the same file system to the name `to` here,
    /// at which nothing may stand; `EEXIST` if something does. Where the kernel cannot refuse to
    /// replace an entry (renameat2(2)), a look at the name comes first.
    fn take_new(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done {
        match self.look(to) {
            Ok(_) => Err(Fault {
                side: Side::Replica,
                act: Act::Rename,
                errno: errno::EEXIST,
            }),
            Err(fault) if fault.is_missing() => self.take(from, name, to),
            Err(fault) => Err(fault),
        }
    }
    /// Exchanges the entry `name` of another directory of the same file system with the entry `to`
    /// here in one step (renameat2(2), `RENAME_EXCHANGE`). `EOPNOTSUPP` where the file system or
    /// the kernel cannot.
    fn exchange(&self, _from: &dyn DirMut, _name: &CStr, _to: &CStr) -> Done {
        Err(Fault {
            side: Side::Replica,
            act: Act::Rename,
            errno: errno::EOPNOTSUPP,
        })
    }
    /// Returns the room that this user has on the file system (statvfs(3)); `None` where it is not
    /// known.
    fn free_room(&self) -> Done<Option<FreeRoom>> {
        Ok(None)
    }
    /// Renames within this directory, replacing what is not a directory.
    fn rename(&self, from: &CStr, to: &CStr) -> Done;
    /// Renames within this directory to a name at which a directory stands. That directory is
    /// removed, with at most `below_max` entries in it. Returns what was removed below it; the
    /// entry has its new name if nothing is stuck.
    fn displace(&self, from: &CStr, to: &CStr, below_max: u64) -> Removed;
    /// Removes an entry that is not a directory.
    fn remove(&self, name: &CStr) -> Done;
    /// Removes an empty directory.
    fn remove_dir(&self, name: &CStr) -> Done;
    /// Removes an entry and all below it, but for what is spared. Never enters a file system that
    /// is mounted there.
    fn remove_tree(&self, name: &CStr, spared: Spared<'_>) -> Removed;
    /// Removes an entry with a name of the reserved form, with all below it if it is known that an
    /// earlier run left it.
    fn remove_leftover(&self, name: &CStr) -> Removed;
    /// Makes the whole file system durable (syncfs(2)).
    fn sync_all(&self) -> Done;
    /// Keeps other runs from this directory, or from its entry `name`.
    fn lock(&self, name: Option<&CStr>, reach: Reach) -> Done<Lock>;
    /// `true` notes that this directory, which is new, is closed to others until it is finished;
    /// `false` takes the note back. Where the file system keeps no extended attributes, nothing is
    /// noted.
    fn set_unfinished(&self, is: bool) -> Done;
    /// Marks this directory as the root of a replica, durably if asked for; returns what time it
    /// was then by the file system's clock.
    fn set_mark(&self, text: &[u8], durable: bool) -> Done<Stamp>;
    /// From now on the first change in the tree that this directory belongs to waits for `act`;
    /// `None` takes that back. Setting a mark and taking a lock do not wait.
    fn before_change(&self, act: Option<BeforeChange>);
    /// From now on `sentry` is asked before each change in the tree that this directory belongs to;
    /// `None` sends it away.
    fn guard(&self, sentry: Option<Arc<dyn Sentry>>);
    /// Where an agent on another host changes the tree: tells the agent to make sure by itself,
    /// before each change, that the mark of this directory is that of the replica `identity` and
    /// names the run of `movers`. In a local tree the sentry does that.
    fn hold(&self, _identity: u128, _movers: u128) -> Done {
        Ok(())
    }
    /// Asks the sentry, if there is one, to look whether the tree may still be changed. Callers ask
    /// before they publish something large.
    fn confirm(&self) -> Done;
    /// Owner and group that entries made here get, if the metadata of this directory, which was
    /// just made, shows them.
    fn birth(&self) -> Option<(u32, u32)> {
        // New entries belong to the user and group of the process unless the file system or the
        // set-group-id bit says otherwise; a new directory that has the process's group shows that
        // neither does here.
        let (made, (_, group)) = (self.first_meta(), self.user());
        (made.gid == group).then_some((made.uid, group))
    }
    /// Submits a change; its completion comes from [`Host::completions`](crate::Host::completions)
    /// with the same token. May wait until there is room for one more.
    fn submit_change(&self, _token: u64, _op: OpMut) {
        unreachable!("only directories that say so take submissions");
    }
}

/// Room on a file system for an ordinary user (statvfs(3)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeRoom {
    /// Bytes.
    pub bytes: u64,
    /// Entries; `None` if the file system makes inodes as they are needed.
    pub inodes: Option<u64>,
}

/// A regular file that is being made. It stays unfinished until it is published by a rename or by
/// its directory.
pub trait WriteFile: ReadFile {
    /// Writes all of `data` at `offset`. Only when the file is [settled](WriteFile::settle) is it
    /// known that the data arrived.
    fn write_at(&self, data: &[u8], offset: u64) -> Done;
    /// Waits until all that was written has arrived. Nothing may rely on it before.
    fn settle(&self) -> Done {
        Ok(())
    }
    /// Asks the other host that both files are on to copy a range by itself, and returns the number
    /// of bytes that it is asked to copy; `None` if they are not both on one other host. Only when
    /// the file is [settled](WriteFile::settle) is it known that all of them were there and were
    /// copied.
    fn copy_from(&self, _from: &dyn ReadFile, _range: Range<u64>) -> Option<Done<u64>> {
        None
    }
    /// Sets the length; what lies beyond the old one is a hole.
    fn set_len(&self, len: u64) -> Done;
    /// Reserves space for a range, where the file system can. A file system that cannot is no
    /// error; a full one, an exhausted quota or a change that is not let through is.
    fn allocate(&self, range: Range<u64>) -> Done;
    /// Sets attributes. Returns what could not be set.
    fn set(&self, known: &Known, attributes: &Attributes) -> Vec<Fault>;
    /// Makes data and metadata durable.
    fn sync(&self) -> Done;
    /// Returns what the file system says when a file is closed (close(2)), and leaves the file
    /// open. Some file systems tell of failed writes, quotas and full disks only then. This serves
    /// a file that other threads hold, too.
    fn flush(&self) -> Done;
    /// Closes the file, and returns what the file system says to that. A mover closes or
    /// [flushes](WriteFile::flush) each file before it publishes it.
    fn close(self: Box<Self>) -> Done;
    /// Reads what [`save_progress`](WriteFile::save_progress) kept.
    fn progress(&self) -> Option<Vec<u8>>;
    /// Keeps a note about the progress of this unfinished file with the file; `None` removes the
    /// note. A note of more than 2 KiB, or one on a file system without extended attributes, is
    /// silently not kept.
    fn save_progress(&self, note: Option<&[u8]>) -> Done;
}
