//! Replicas within a replica, which earlier runs have left unfinished.

use driftless_lock::Mutex;
use driftless_model::{RelPath, errno};
use driftless_reconcile::Mark;
use driftless_tree::{DirMutRef, Done, Lock, MarkText, Reach};
use std::collections::BTreeMap;

/// Replicas within a replica whose marks are settled by one run; more are settled by later ones.
pub const NESTED_MAX: usize = 1024;

/// A replica within the replica, which an earlier run has left unfinished.
pub struct Nested {
    /// Its root.
    pub dir: DirMutRef,
    /// Its marks as they were read.
    pub texts: Vec<MarkText>,
    /// What they say together.
    pub mark: Mark,
}

/// Those that a run has met, by their paths.
#[derive(Default)]
pub struct NestedMarks(pub Mutex<BTreeMap<RelPath, Nested>>);

impl Nested {
    /// Writes the mark, unless a run of another host is at work there, or was meanwhile.
    pub fn write(&self, mark: &Mark) -> Done {
        let lock = self.dir.lock(None, Reach::Within)?;
        if matches!(lock, Lock::Held(_) | Lock::Missing(errno::ENOENT))
            && self.dir.marks(false)? == self.texts
        {
            self.dir.set_mark(&mark.encode(), false)?;
        }
        Ok(())
    }
}
