//! The hands: the only crate that opens the files of a replicated tree.
//!
//! A tree is met through its directories. [`Dir`] is the interface to one that is only read: an
//! open directory in which entries are listed, looked at and read by their names. [`DirMut`] is the
//! interface to a directory in which entries are made and removed as well. Names are single
//! components, no symbolic link is ever followed, and every act goes through an open handle, so
//! nobody who owns a part of a tree can lead an act out of it. [`LocalDir`] is the implementation
//! on this machine's file systems. A directory on another machine answers after a round trip: so it
//! can be told beforehand what it will be asked ([`Dir::expect`]), and takes operations whose
//! completions come later ([`Dir::submit`]).
#![deny(missing_docs)]

mod copy;
mod dir;
mod dir_mut;
mod endpoint;
#[cfg(feature = "fake")]
pub mod fake;
mod gate;
mod leftover;
mod lend;
mod levels;
mod local;
mod lock;
mod magic;
mod mark;
mod mounts;
mod names;
mod root;
mod submit;
mod temp;
mod unmapped;
mod whole;
mod windows;

pub use copy::compare::{DIFFERENCE_BYTES, HASHED_BYTES, differing_pieces};
pub use copy::{Copier, Halt, Ladder, Pace};
pub use dir::{Dir, DirRef, ReadFile};
pub use dir_mut::{DirMut, DirMutRef, FreeRoom, WriteFile};
pub use endpoint::{Endpoint, Host, Loss, plain_path, random_id, random_secret, this_machine};
pub use gate::{BeforeChange, Gate, Sentry};
pub use lend::Lent;
pub use levels::{Level, Levels};
pub use local::LocalDir;
pub use local::attributes::narrower;
pub use local::file::LocalFile;
pub use local::handles::HandlePool;
pub use local::remove::{Removed, STUCK_MAX, Spared};
pub use local::wanted::{Attributes, Known, Lends, Stood};
pub use lock::host::{prepare_holder, prepare_locks};
pub use lock::names::is_lock_of_run;
pub use lock::{Holder, Lock, Reach};
pub use magic::may_be_shared;
pub use mark::{MarkText, prepare_marks};
pub use mounts::{
    MountPoint, MountTable, copies_up, has_common_inodes, has_names_as_given, lacks_to_ask_server,
    mounts_below, shares_blocks, shown_below, shown_twice, shows_changes_at_once,
};
pub use names::{NameHashes, NameStream, Names};
pub use root::{Ancestor, Place, RootError, descend, descend_mut, leads_to, locate, locate_mut};
pub use submit::{Completion, NewEntry, Op, OpMut};
pub use temp::{
    ROOT_MARK, between_name, is_between_name, is_root_name, is_temp_name, own_temp_name,
    own_temp_number, stable_temp_name, temp_name, temp_names_given,
};
pub use unmapped::Unmapped;
pub use whole::{WHOLE_BYTES_MAX, WHOLE_XATTRS_BYTES_MAX, Whole};
pub use windows::{WINDOW_NAMES, windows};

use driftless_model::{CAPABILITY, Fault};
use serde::{Deserialize, Serialize};

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
    /// The rights of this process.
    pub fn own() -> Rights {
        use rustix::process::{getegid, geteuid, getgroups};
        use rustix::thread::CapabilitySet;
        let held = rustix::thread::capabilities(None).map(|held| held.effective);
        let has = |capability| held.map_or(geteuid().is_root(), |held| held.contains(capability));
        let groups = getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(|group| group.as_raw())
            .collect();
        Rights {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups,
            any_owner: has(CapabilitySet::CHOWN),
            capabilities: has(CapabilitySet::SETFCAP),
            trusted: has(CapabilitySet::SYS_ADMIN),
        }
    }

    /// Whether this user may set the extended attribute `xattr` of an entry of his own (xattr(7)).
    pub fn may_set(&self, xattr: &[u8]) -> bool {
        match () {
            () if xattr == CAPABILITY => self.capabilities,
            () if xattr.starts_with(b"trusted.") => self.trusted,
            () => true,
        }
    }

    /// Whether this user may give an entry of his own to the group `gid`, and have it lend the
    /// group's rights (set-group-id).
    pub fn may_give_to(&self, gid: u32) -> bool {
        self.any_owner || self.gid == gid || self.groups.contains(&gid)
    }
}

/// A lock, which is held until it is dropped.
pub type Hold = Box<dyn Held>;

/// A lock that is held.
pub trait Held: Send + Sync {
    /// Whether the lock still keeps other runs out. A lock may be on a file, and a user who may
    /// write to its directory can remove or rename that file.
    fn is_kept(&self) -> Done<bool>;
}

/// The result of an act on a tree. A fault says on which side it was, what was tried, and with
/// which error number it failed.
pub type Done<T = ()> = Result<T, Fault>;
