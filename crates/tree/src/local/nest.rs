//! A private directory in which entries grow out of the sight of others, before they are moved to
//! where they belong.
//!
//! What has no handle (a link, a fifo, a device) is made by its name, and so is a directory: where
//! others may rename, something else may stand at that name a moment later, and would get the
//! attributes that were meant for the new entry. And a user who may look into the directory could
//! open a file that was given to him, and write to it, before the file has the mode that it is to
//! have. One nest serves all that is made in a directory; it is removed before the directory gets
//! its own attributes, or with the last handle on it.

use crate::DirMut;
use crate::Done;
use crate::NameStream;
use crate::dir::Dir;
use crate::local::LocalDir;
use crate::local::handles::{Keeper, Node};
use crate::local::look::meta_of;
use crate::local::look::{OTHERS, fault, is_own};
use crate::names::Names;
use crate::temp::temp_name;
use driftless_model::Act;
use driftless_model::Meta;
use rustix::fd::OwnedFd;
use rustix::fs;
use rustix::fs::Mode;
use rustix::fs::{RenameFlags, Stat, fstat, renameat_with};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

impl LocalDir {
    /// Whether nobody else can look into this directory: this process has made it, and has not
    /// given it away yet.
    pub fn is_private(&self) -> bool {
        self.state.private.load(Relaxed)
    }

    /// Whether nobody else can put anything in the place of what is made here. An ACL gives nobody
    /// more than the group bits of the mode show, which are its mask (acl(5)); in a sticky
    /// directory a user can rename only what is his own.
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
        // This comes before the lock is taken: what is done before the first change may itself ask
        // for a nest.
        self.changing()?;
        let mut slot = self.state.nest.lock();
        if let Some(nest) = &*slot
            && fstat(&*nest.fd()?).is_ok_and(|st| st.st_nlink > 0)
        {
            return Ok(nest.clone());
        }
        let name = temp_name();
        let made = self.make_and_open(&name)?;
        let keeper = Keeper {
            above: self.node.clone(),
            name: name.clone(),
        };
        let nest = LocalDir::nested(
            Node::child(&self.node, &name, made.0, &meta_of(&made.1)),
            &made.1,
            keeper,
        );
        crate::leftover::mark(&nest)?;
        *slot = Some(nest.clone());
        Ok(nest)
    }

    /// Lets go of the nest. A thread that is using it keeps it.
    pub fn leave_nest(&self) {
        let nest = self.state.nest.lock().take();
        drop(nest);
    }

    /// Makes a directory with mode 0700 and opens it; it is the one made.
    pub fn make_dir_local(&self, name: &CStr) -> Done<LocalDir> {
        let (fd, st) = if self.is_guarded() {
            self.make_and_open(name)?
        } else {
            self.hatch_dir(name)?
        };
        let made = Meta {
            unkept: self.first.unkept.inherited(),
            ..meta_of(&st)
        };
        let dir = Self::of(
            Node::child(&self.node, name, fd, &made),
            (made, Some(false)),
        );
        let is_closed = dir.first.mode & OTHERS == 0;
        // The directory may have taken over set-group-id from above (inode(7)). If it shows rights
        // for others, the file system has modes of its own, which cannot be set.
        if is_closed && dir.first.mode != 0o700 {
            self.fail(Act::SetMode, fs::fchmod(&*dir.fd()?, Mode::RWXU))?;
        }
        dir.state
            .private
            .store(is_own(dir.first.uid) && is_closed, Relaxed);
        if crate::is_temp_name(name) {
            crate::leftover::mark(&dir)?;
        }
        Ok(dir)
    }

    /// Makes a directory in the nest and moves it to `name` here, at which nothing may stand.
    pub fn hatch_dir(&self, name: &CStr) -> Done<(OwnedFd, Stat)> {
        let (nest, temp) = (self.nest_local()?, temp_name());
        let made = nest.make_and_open(&temp)?;
        let moved = renameat_with(
            &*nest.fd()?,
            &*temp,
            &*self.changing()?,
            name,
            RenameFlags::NOREPLACE,
        );
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

    /// Makes a directory here, where others may put another one in its place. If that is not empty,
    /// it is a fault; if it is empty, nothing is lost.
    fn make_in_sight(&self, name: &CStr) -> Done<(OwnedFd, Stat)> {
        let made = self.make_and_open(name)?;
        let mut names = Names::default();
        self.names_of(&made.0)?.fill(&mut names, 1)?;
        if names.is_empty() {
            Ok(made)
        } else {
            Err(fault(self.side(), Act::HoldDirectory, Errno::STALE))
        }
    }
}
