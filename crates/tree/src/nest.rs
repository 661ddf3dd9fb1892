//! A private directory in which entries grow out of the sight of others, before they are moved to where they belong.
//!
//! What has no handle (a link, a fifo, a device) is made by its name, and so is a directory: where others may rename, something else may
//! stand at that name a moment later, and would get the attributes that were meant for the new entry. And who may look into the
//! directory may open a file that was given to him, and write to it, before it has the rights that its content is to have. One nest
//! does for all that is made in a directory; it goes before the directory gets its own attributes, or with the last handle on it.

use crate::handles::Node;
use crate::local::{LocalDir, fault};
use crate::{Dir, DirMut, Done, NameStream, Names, temp_name};
use driftless_model::Act;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, RenameFlags, Stat, fstat, renameat_with, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Removes a nest when nobody uses it any more.
#[derive(Debug)]
pub struct Keeper {
    above: Arc<Node>,
    name: CString,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Who may not change the tree any more leaves it to the next run.
        if self.above.pass_gate().is_ok()
            && let Ok(above) = self.above.fd()
        {
            let _or_the_next_run_does = unlinkat(&*above, &*self.name, AtFlags::REMOVEDIR);
        }
    }
}

impl LocalDir {
    /// Whether nobody else can look into this directory: this process has made it, and has not given it away yet.
    pub fn is_private(&self) -> bool {
        self.state.private.load(Relaxed)
    }

    /// Whether nobody else can put anything in the place of what is made here. The group's rights bound those of an ACL (acl(5)); in a
    /// sticky directory everybody renames what is his alone.
    pub fn is_guarded(&self) -> bool {
        const STICKY: u32 = 0o1000;
        const WRITABLE: u32 = 0o022;
        let meta = self.first_meta();
        let trusted = meta.uid == 0 || meta.uid == rustix::process::geteuid().as_raw();
        let guarded = trusted && (meta.mode & WRITABLE == 0 || meta.mode & STICKY != 0);
        self.is_private() || guarded && !self.state.given.load(Relaxed)
    }

    /// The nest in this directory, made if there is none.
    pub fn nest_local(&self) -> Done<LocalDir> {
        // What has to be done before the first change may come by here, too.
        self.changing()?;
        let mut slot = self.state.nest.lock();
        if let Some(nest) = &*slot
            && fstat(&*nest.fd()?).is_ok_and(|st| st.st_nlink > 0)
        {
            return Ok(nest.clone());
        }
        let name = temp_name();
        let made = self.make_and_open(&name)?;
        let keeper = Keeper { above: self.node.clone(), name: name.clone() };
        let nest = LocalDir::nested(Node::child(&self.node, &name, made.0, (made.1.st_dev, made.1.st_ino)), &made.1, keeper);
        crate::leftover::mark(&nest)?;
        *slot = Some(nest.clone());
        Ok(nest)
    }

    /// Lets go of the nest. Whoever is using it keeps it.
    pub fn leave_nest(&self) {
        let nest = self.state.nest.lock().take();
        drop(nest);
    }

    /// Makes a directory in the nest and moves it here, where nothing may stand at its name.
    pub fn hatch_dir(&self, name: &CStr) -> Done<(OwnedFd, Stat)> {
        let (nest, temp) = (self.nest_local()?, temp_name());
        let made = nest.make_and_open(&temp)?;
        let moved = renameat_with(&*nest.fd()?, &*temp, &*self.changing()?, name, RenameFlags::NOREPLACE);
        if moved.is_err() {
            let _the_first_error_counts = nest.remove_dir(&temp);
        }
        match moved {
            Ok(()) => Ok(made),
            // Not every file system can refuse to replace (rename(2)).
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.make_in_sight(name),
            Err(errno) => Err(fault(self.side(), Act::MakeDirectory, errno)),
        }
    }

    /// What somebody else has put in the place of a new directory is not empty, or no loss.
    fn make_in_sight(&self, name: &CStr) -> Done<(OwnedFd, Stat)> {
        let made = self.make_and_open(name)?;
        let mut names = Names::default();
        self.names_of(&made.0)?.fill(&mut names, 1)?;
        if names.is_empty() { Ok(made) } else { Err(fault(self.side(), Act::HoldDirectory, Errno::STALE)) }
    }
}
