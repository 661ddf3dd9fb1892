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
    /// Makes a fifo, socket or device node with mode 0600.
    fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> Done;
    /// Makes `name` here a hard link to an entry of a directory of the same tree, provided that it
    /// is the inode `id`.
    fn link(&self, name: &CStr, from: (&dyn Dir, &CStr), id: (u64, u64)) -> Done;
    /// Sets attributes of the entry `name`, provided that it is still the inode `expected`. Returns
    /// what could not be set.
    fn set(&self, name: &CStr, expected: &Known, attributes: &Attributes) -> Done<Vec<Fault>>;
    /// Sets attributes of the directory itself. Returns what could not be set.
    fn set_own(&self, known: &Known, attributes: &Attributes) -> Vec<Fault>;
    /// Gives an ordinary user the right to change a directory of his own, as far as he may. Whoever
    /// calls it sets the mode again.
    fn make_writable(&self);
    /// A private directory in this one, in which entries are made before they are
    /// [taken](DirMut::take) here; `None` where that is not needed, because nobody else can put
    /// anything in the place of what is made here, or, with `hidden`, open it.
    fn nest(&self, hidden: bool) -> Done<Option<DirMutRef>>;
    /// Moves an entry of another directory of the same file system here, replacing what is not a
    /// directory.
    fn take(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done;
    /// Moves an entry of another directory of the same file system to a name that nothing has here;
    /// `EEXIST` if something has. Where the kernel does not see to that itself, it is looked at
    /// before.
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
    /// Renames within this directory, replacing what is not a directory.
    fn rename(&self, from: &CStr, to: &CStr) -> Done;
    /// Renames within this directory to a name at which a directory stands; that goes, with at most
    /// so many entries in it. Returns these; it was done if nothing is stuck.
    fn displace(&self, from: &CStr, to: &CStr, below_max: u64) -> Removed;
    /// Removes an entry that is not a directory.
    fn remove(&self, name: &CStr) -> Done;
    /// Removes an empty directory.
    fn remove_dir(&self, name: &CStr) -> Done;
    /// Removes an entry and all below it, but for what is spared. Never goes into what is mounted
    /// there.
    fn remove_tree(&self, name: &CStr, spared: Spared<'_>) -> Removed;
    /// Removes an entry with a name of the reserved form, with all below it if it is known that an
    /// earlier run left it.
    fn remove_leftover(&self, name: &CStr) -> Removed;
    /// Makes the whole file system durable (syncfs).
    fn sync_all(&self) -> Done;
    /// Keeps other runs from this directory, or from its entry `name`.
    fn lock(&self, name: Option<&CStr>, reach: Reach) -> Done<Lock>;
    /// Notes that this directory, which is new, is closed to others until it is finished, or that
    /// it is finished. Where the file system keeps no attributes, nobody will know.
    fn set_unfinished(&self, is: bool) -> Done;
    /// Marks this directory as the root of a replica, durably if asked for; returns what time it
    /// was then by the file system's clock.
    fn set_mark(&self, text: &[u8], durable: bool) -> Done<Stamp>;
    /// From now on the first change in the tree that this directory belongs to waits for `act`.
    /// What marks and locks does not.
    fn before_change(&self, act: Option<BeforeChange>);
    /// From now on `sentry` is asked before each change in the tree that this directory belongs to;
    /// `None` sends it away.
    fn guard(&self, sentry: Option<Arc<dyn Sentry>>);
    /// Where the tree is changed by an agent on another host: has that look by itself, before each
    /// change, whether the mark of this directory is that of the replica `identity` and names the
    /// run of `movers`. Here the sentry does.
    fn hold(&self, _identity: u128, _movers: u128) -> Done {
        Ok(())
    }
    /// Has the sentry, if there is one, look whether the tree may still be changed: before
    /// something large is published.
    fn confirm(&self) -> Done;
    /// Owner and group that entries made here get, if this directory, which was just made, shows it
    /// without being asked.
    fn birth(&self) -> Option<(u32, u32)> {
        // New entries belong to the user and group of the process unless the file system or the
        // set-group-id bit says otherwise; a new directory that has the process's group shows that
        // they do not.
        let (made, (_, group)) = (self.first_meta(), self.user());
        (made.gid == group).then_some((made.uid, group))
    }
    /// Submits a change; its completion comes from [`Host::completions`](crate::Host::completions)
    /// with the same token. May wait until there is room for one more.
    fn submit_change(&self, _token: u64, _op: OpMut) {
        unreachable!("only directories that say so take submissions");
    }
}

/// A regular file that is being made. It stays unfinished until it is published by a rename or by
/// its directory.
pub trait WriteFile: ReadFile {
    /// Writes all of `data` at `offset`. That it arrived is known when the file is
    /// [settled](WriteFile::settle).
    fn write_at(&self, data: &[u8], offset: u64) -> Done;
    /// Waits until all that was written has arrived. Nothing may rely on it before.
    fn settle(&self) -> Done {
        Ok(())
    }
    /// Has the host on which both files are copy a range, and returns the bytes that it is asked
    /// for; `None` if they are not on one other host. That all of it was there and has been copied
    /// is known when the file is [settled](WriteFile::settle).
    fn copy_from(&self, _from: &dyn ReadFile, _range: Range<u64>) -> Option<Done<u64>> {
        None
    }
    /// Sets the length; what lies beyond the old one is a hole.
    fn set_len(&self, len: u64) -> Done;
    /// Reserves space for a range, where the file system can; running out of space is the only
    /// error.
    fn allocate(&self, range: Range<u64>) -> Done;
    /// Sets attributes. Returns what could not be set.
    fn set(&self, known: &Known, attributes: &Attributes) -> Vec<Fault>;
    /// Makes data and metadata durable.
    fn sync(&self) -> Done;
    /// Has the file system say what it says when a file is closed (close(2)): some tell of failed
    /// writes, quotas and full disks only then. For a file that others hold, too; it stays open.
    fn flush(&self) -> Done;
    /// Closes it and hears the same. A file that gets its name, or keeps it, is closed with this
    /// before.
    fn close(self: Box<Self>) -> Done;
    /// Reads what [`save_progress`](WriteFile::save_progress) kept.
    fn progress(&self) -> Option<Vec<u8>>;
    /// Keeps a note of at most 2 KiB about the progress of this unfinished file with it; `None`
    /// removes it.
    fn save_progress(&self, note: Option<&[u8]>) -> Done;
}
