//! A file system that misbehaves on order: a backing directory seen through `/dev/fuse`, with
//! errors, lies and delays.
//!
//! A [`Mood`] is how it is as a whole (coarse times, names without case, no attributes, listings
//! without kinds, a cache of attributes); a [`Rule`] is what goes wrong with single requests, by
//! kind, name and number. Both can be changed while it is mounted. Without a rule, in a healthy
//! mood, it holds what the file system below it holds, and caches nothing: what a test changes in
//! the backing directory shows at once.
//!
//! ```no_run
//! use driftless_testkit::fuse::{Fuse, Mood, Op, Rule};
//! use rustix::io::Errno;
//!
//! let fuse = Fuse::mount(Mood::whole_seconds());
//! let dst = fuse.dir("dst");
//! fuse.order(Rule::fail(Op::Flush, Errno::DQUOT).named("data").after(1).times(2));
//! fuse.order(Rule::fail(Op::Opendir, Errno::STALE).named("vol2"));
//! // ... run something on `dst`, look at `fuse.backing()`, ask `fuse.calls(Op::Read)` ...
//! fuse.forgive();
//! drop(fuse); // unmounted, threads ended, folders gone; a panic does the same
//! ```
//!
//! [`door`] with [`wire`] is the protocol alone, and serves any [`door::Server`]. `syncfs` never
//! reaches a FUSE server that is not on a block device (`fs/fuse/inode.c`, `fuse_sync_fs`), so no
//! rule can make it fail; `Fsync` and `Flush` do arrive. The kernel asks again by itself after
//! `ESTALE` of a lookup or an open, so such a rule is met twice.

mod ceph;
pub mod door;
mod mood;
mod nodes;
mod tree;
pub mod wire;

pub use mood::{Mood, Rule};
pub use wire::Op;

use crate::scratch::scratch_folder;
use door::Door;
use mood::Orders;
use nodes::lock;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tree::Tree;

/// A mounted file system that misbehaves; unmounted on drop.
#[derive(Debug)]
pub struct Fuse {
    // Fields are dropped in this order: nothing may be mounted when the folder goes.
    door: Door,
    tree: Arc<Tree>,
    backing: PathBuf,
    mount: PathBuf,
    _folder: tempfile::TempDir,
}

impl Fuse {
    /// Mounts one whose backing directory is a new one in memory; needs root.
    pub fn mount(mood: Mood) -> Fuse {
        let folder = scratch_folder();
        let backing = folder.path().join("backing");
        fs::create_dir(&backing).expect("backing directory");
        Fuse::mount_in(folder, backing, mood)
    }

    /// Mounts one over a directory that is there already; needs root.
    pub fn over(backing: &Path, mood: Mood) -> Fuse {
        Fuse::mount_in(scratch_folder(), backing.to_owned(), mood)
    }

    fn mount_in(folder: tempfile::TempDir, backing: PathBuf, mood: Mood) -> Fuse {
        let mount = folder.path().join("mnt");
        fs::create_dir(&mount).expect("mount point");
        let tree = Arc::new(Tree::new(&backing, Orders::new(mood)));
        let door = Door::open(&mount, tree.clone());
        Fuse {
            door,
            tree,
            backing,
            mount,
            _folder: folder,
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// The directory that it shows, as it really is.
    pub fn backing(&self) -> &Path {
        &self.backing
    }

    /// Makes a directory in it and returns its path.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.mount.join(name);
        fs::create_dir(&path).unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
        path
    }

    /// Changes its mood from now on.
    pub fn change(&self, change: impl FnOnce(&mut Mood)) {
        change(&mut lock(&self.tree.orders).mood);
    }

    /// Adds a rule.
    pub fn order(&self, rule: Rule) {
        lock(&self.tree.orders).rules.push(rule);
    }

    /// Drops all rules.
    pub fn forgive(&self) {
        lock(&self.tree.orders).rules.clear();
    }

    /// How often this was asked so far.
    pub fn calls(&self, op: Op) -> u64 {
        lock(&self.tree.orders).calls.get(&op).copied().unwrap_or(0)
    }

    /// Dies: all that waits for an answer, and all that is asked from now on, fails.
    pub fn cut(&mut self) {
        self.door.cut();
    }
}

#[cfg(test)]
mod tests;
