//! Directories that stand in the place of others, or show each reader something else.
//!
//! Such a directory is refused where it is entered from the one above. A removal goes by its own
//! rules, since nothing is lost with a stand-in.

use crate::Done;
use crate::local::LocalDir;
use crate::local::look::fault;
use crate::local::remove::is_empty;
use crate::mounts::{Shows, shows};
use driftless_model::Act;
use rustix::io::Errno;

/// Inode number of the empty directory that a snapshot of btrfs has in the place of a subvolume
/// (`BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`, linux/btrfs_tree.h).
const STUB_INODE: u64 = 2;

impl LocalDir {
    /// Returns a fault if this directory, which was entered from `above`, stands in the place of
    /// another one, or shows each reader something else. Such a directory has a device number of
    /// its own.
    pub(crate) fn refuse_stand_in(&self, above: &LocalDir) -> Done {
        if self.first.dev == above.first.dev || self.node.enters_stand_ins() {
            return Ok(());
        }
        let refuse = |errno| Err(fault(self.side(), Act::Enter, errno));
        match shows(self) {
            Shows::Subvolumes if self.first.ino == STUB_INODE => refuse(Errno::REMOTE),
            Shows::Kernel => refuse(Errno::MEDIUMTYPE),
            Shows::Automounts if is_empty(self)? => refuse(Errno::HOSTDOWN),
            _ => Ok(()),
        }
    }
}
