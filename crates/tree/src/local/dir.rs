//! A directory of this machine as a [`Dir`] and a [`DirMut`].

use crate::dir::{Dir, DirRef, ReadFile};
use crate::dir_mut::{DirMut, DirMutRef, FreeRoom, WriteFile};
use crate::gate::{BeforeChange, Sentry};
use crate::leftover::remove_leftover;
use crate::local::LocalDir;
use crate::local::attributes::Setter;
use crate::local::file::LocalFile;
use crate::local::listing::{LocalNames, opened_again, rewind};
use crate::local::look::{birthmark, fault, look_at, made_at, meta_again, meta_open};
use crate::local::remove::{Removed, Spared, count_tree, remove_tree};
use crate::local::shown::is_encrypted;
use crate::local::wanted::{Attributes, Known};
use crate::local::xattr::Target;
use crate::lock::{Lock, Reach};
use crate::mark::MarkText;
use crate::names::NameStream;
use crate::root::Ancestor;
use crate::{Done, Rights};
use driftless_model::{Act, Fault, Keep, Kind, Meta, Side, Stamp, Xattrs};
use rustix::fd::AsFd;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Dir for LocalDir {
    fn enter(&self, name: &CStr) -> Done<DirRef> {
        Ok(Arc::new(self.enter_shown(name)?))
    }

    fn leave(&self) {
        self.leave_nest();
        self.node.revive_parent();
    }

    fn first_meta(&self) -> &Meta {
        &self.first
    }

    fn meta(&self) -> Done<Meta> {
        self.fail(Act::LookAt, meta_open(&*self.fd()?))
    }

    fn meta_again(&self) -> Done<Meta> {
        self.fail(Act::LookAt, meta_again(&*self.fd()?))
    }

    fn xattrs(&self, keep: &Keep) -> Done<Xattrs> {
        self.xattrs_within(keep, u64::MAX)
            .map(Option::unwrap_or_default)
    }

    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        // A mark within a replica must be seen, whatever is kept.
        if self.side() == Side::Source && !keep.any_xattr() {
            let own = self.fd()?;
            let read = Target::Open(own.as_fd()).read_within(keep, bytes_max);
            return self.fail(Act::ReadXattrs, read);
        }
        let meets = |name: &CStr| {
            self.state
                .marked
                .store(self.is_marked() || crate::mark::is_mark(name), Relaxed)
        };
        self.fail(
            Act::ReadXattrs,
            Target::Open(self.fd()?.as_fd()).read_meeting((keep, bytes_max), meets),
        )
    }

    fn is_marked(&self) -> bool {
        self.state.marked.load(Relaxed)
    }

    fn list(&self) -> Done<Box<dyn NameStream>> {
        let own = self.fd()?;
        // This handle has one position in the listing, and an earlier listing may still be using
        // it.
        let fd = if self.state.listed.swap(true, Relaxed) {
            Arc::new(self.fail(Act::List, opened_again(&own))?)
        } else {
            self.fail(Act::List, rewind(&own))?;
            own
        };
        Ok(Box::new(LocalNames {
            fd,
            side: self.side(),
            at_root: self.node.is_root(),
            is_encrypted: is_encrypted(&self.first),
        }))
    }

    fn look(&self, name: &CStr) -> Done<Meta> {
        self.look_closely(name).map(|look| look.0)
    }

    fn peek(&self, name: &CStr) -> Done<Meta> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        self.fail(Act::LookAt, look_at(&*self.fd()?, name, flags))
            .map(|look| look.0)
    }

    fn xattrs_of(&self, name: &CStr, keep: &Keep) -> Done<Xattrs> {
        self.fail(
            Act::ReadXattrs,
            Target::Name(self.fd()?.as_fd(), name).read(keep),
        )
    }

    fn xattrs_of_within(&self, name: &CStr, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        self.fail(
            Act::ReadXattrs,
            Target::Name(self.fd()?.as_fd(), name).read_within(keep, bytes_max),
        )
    }

    fn read_link(&self, name: &CStr) -> Done<CString> {
        self.fail(
            Act::ReadLink,
            fs::readlinkat(&*self.fd()?, name, Vec::with_capacity(256)),
        )
    }

    fn open_file(&self, name: &CStr) -> Done<Box<dyn ReadFile>> {
        let fd = self.open_regular(name, OFlags::RDONLY)?;
        Ok(Box::new(LocalFile::new(fd, self.side())))
    }

    fn count_tree(&self, name: &CStr, max: u64, spared: Spared<'_>) -> Removed {
        count_tree(self, name, max, spared)
    }

    fn user(&self) -> (u32, u32) {
        (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        )
    }

    fn may_give(&self) -> bool {
        use rustix::thread::{CapabilitySet, capabilities};
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::CHOWN))
    }

    fn rights(&self) -> Rights {
        Rights::own()
    }

    fn marks(&self, above: bool) -> Done<Vec<MarkText>> {
        crate::mark::read(self, above)
    }

    fn is_unfinished(&self) -> bool {
        crate::leftover::is_unfinished(self)
    }

    fn lineage(&self) -> Done<Vec<Ancestor>> {
        self.fail(Act::FindAbove, crate::root::lineage(&*self.fd()?))
    }

    fn is_mount_root(&self) -> Option<bool> {
        self.is_mount_root
    }

    fn made_at(&self) -> Option<Stamp> {
        made_at(&*self.fd().ok()?, c"")
    }

    fn made_at_of(&self, name: &CStr) -> Option<Stamp> {
        made_at(&*self.fd().ok()?, name)
    }

    fn birthmark(&self) -> Done<Option<u128>> {
        Ok(birthmark(&*self.fd()?))
    }

    fn as_local(&self) -> Option<&LocalDir> {
        Some(self)
    }
}

impl DirMut for LocalDir {
    fn enter_mut(&self, name: &CStr) -> Done<DirMutRef> {
        Ok(Arc::new(self.enter_shown(name)?))
    }

    fn make_dir(&self, name: &CStr) -> Done<DirMutRef> {
        Ok(Arc::new(self.make_dir_local(name)?))
    }

    fn create_file(&self, name: &CStr, mode: u32) -> Done<Box<dyn WriteFile>> {
        let file = self.create(&*self.changing()?, name, mode)?;
        Ok(Box::new(file))
    }

    fn reopen_file(&self, name: &CStr) -> Done<Box<dyn WriteFile>> {
        self.node.pass_gate()?;
        let fd = self.open_regular(name, OFlags::RDWR)?;
        let st = self.fail(Act::LookAt, fs::fstat(&fd))?;
        let ours = FileType::from_raw_mode(st.st_mode) == FileType::RegularFile
            && st.st_nlink == 1
            && self.is_birth_owner(st.st_uid);
        if !ours {
            return self.fail(Act::Open, Err(Errno::STALE));
        }
        Ok(Box::new(
            LocalFile::new(fd, self.side()).behind(self.node.gate()),
        ))
    }

    fn make_symlink(&self, name: &CStr, target: &CStr) -> Done {
        self.fail(
            Act::MakeSymlink,
            fs::symlinkat(target, &*self.changing()?, name),
        )
    }

    fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> Done {
        let file_type = match kind {
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::Char => FileType::CharacterDevice,
            _ => FileType::BlockDevice,
        };
        let mode = Mode::RUSR | Mode::WUSR;
        self.fail(
            Act::MakeNode,
            fs::mknodat(&*self.changing()?, name, file_type, mode, rdev),
        )
    }

    fn link(&self, name: &CStr, (from, from_name): (&dyn Dir, &CStr), id: (u64, u64)) -> Done {
        let Some(from) = from.as_local() else {
            return self.fail(Act::Link, Err(Errno::XDEV));
        };
        self.fail(
            Act::Link,
            fs::linkat(
                &*from.fd()?,
                from_name,
                &*self.changing()?,
                name,
                AtFlags::empty(),
            ),
        )?;
        // linkat(2) goes by the name, and somebody else may have put another file there.
        let linked = self.look(name);
        if linked.as_ref().is_ok_and(|linked| linked.id() == id) {
            return Ok(());
        }
        let _not_what_was_meant = self.remove(name);
        // Where the name that was linked is still that of the inode, its other name has to be, too.
        let is_there = from.look(from_name).is_ok_and(|meta| meta.id() == id);
        let errno = if is_there {
            Errno::NOTUNIQ
        } else {
            Errno::STALE
        };
        linked.and_then(|_| self.fail(Act::Link, Err(errno)))
    }

    fn set(&self, name: &CStr, expected: &Known, attributes: &Attributes) -> Done<Vec<Fault>> {
        self.node.pass_gate()?;
        if expected.symlink && attributes.concern_links() && self.follows_links()? {
            return Ok(vec![fault(
                self.side(),
                Act::SetAttributes,
                Errno::OPNOTSUPP,
            )]);
        }
        if expected.private {
            let fd = self.fd()?;
            return Ok(Setter::apply(
                Target::Name(fd.as_fd(), name),
                self.side(),
                expected,
                attributes,
            ));
        }
        let pinned = self.pin(name, expected)?;
        Ok(Setter::apply(
            Target::Pinned(pinned.as_fd()),
            self.side(),
            expected,
            attributes,
        ))
    }

    fn set_own(&self, known: &Known, attributes: &Attributes) -> Vec<Fault> {
        // The nest goes first: its removal would change the times later, and from now on others may
        // come in.
        self.leave_nest();
        if attributes.opens() {
            self.state.given.store(true, Relaxed);
            self.state.private.store(false, Relaxed);
        }
        match self.changing() {
            Ok(fd) => {
                let set =
                    || Setter::apply(Target::Open(fd.as_fd()), self.side(), known, attributes);
                let faults = set();
                if crate::mark::makes_room(self, &faults) {
                    set()
                } else {
                    faults
                }
            }
            Err(e) => vec![e],
        }
    }

    fn make_writable(&self) {
        let Ok(fd) = self.changing() else { return };
        let Ok(st) = fs::fstat(&*fd) else { return };
        if st.st_mode & 0o700 != 0o700 && !rustix::process::geteuid().is_root() {
            let _may_fail_for_others =
                fs::fchmod(&*fd, Mode::from_raw_mode(st.st_mode & 0o7777 | 0o700));
        }
    }

    fn nest(&self, hidden: bool) -> Done<Option<DirMutRef>> {
        if self.is_private() || !hidden && self.is_guarded() {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.nest_local()?)))
    }

    fn take(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done {
        let Some(from) = from.as_local() else {
            return self.fail(Act::Rename, Err(Errno::XDEV));
        };
        self.fail(
            Act::Rename,
            fs::renameat(&*from.fd()?, name, &*self.changing()?, to),
        )
    }

    fn take_new(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done {
        let Some(local) = from.as_local() else {
            return self.fail(Act::Rename, Err(Errno::XDEV));
        };
        let (from_fd, to_fd) = (local.fd()?, self.changing()?);
        match fs::renameat_with(&*from_fd, name, &*to_fd, to, RenameFlags::NOREPLACE) {
            // Not every kernel and file system can refuse to replace (rename(2)).
            Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => match self.look(to) {
                Ok(_) => self.fail(Act::Rename, Err(Errno::EXIST)),
                Err(fault) if fault.is_missing() => self.take(from, name, to),
                Err(fault) => Err(fault),
            },
            done => self.fail(Act::Rename, done),
        }
    }

    fn exchange(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done {
        let Some(from) = from.as_local() else {
            return self.fail(Act::Rename, Err(Errno::XDEV));
        };
        let (from_fd, to_fd) = (from.fd()?, self.changing()?);
        let done = fs::renameat_with(&*from_fd, name, &*to_fd, to, RenameFlags::EXCHANGE);
        let unknown = |errno| matches!(errno, Errno::NOSYS | Errno::INVAL);
        let done = done.map_err(|errno| match unknown(errno) {
            true => Errno::OPNOTSUPP,
            false => errno,
        });
        self.fail(Act::Rename, done)
    }

    fn free_room(&self) -> Done<Option<FreeRoom>> {
        let told = self.fail(Act::LookAt, fs::fstatvfs(&*self.fd()?))?;
        // Such as ramfs, which counts nothing (statfs(2)).
        if told.f_blocks == 0 {
            return Ok(None);
        }
        Ok(Some(FreeRoom {
            bytes: told.f_bavail.saturating_mul(told.f_frsize),
            inodes: (told.f_files > 0).then_some(told.f_favail),
        }))
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Done {
        let fd = self.changing()?;
        self.fail(Act::Rename, fs::renameat(&*fd, from, &*fd, to))
    }

    fn displace(&self, from: &CStr, to: &CStr, below_max: u64) -> Removed {
        crate::local::displace::displace(self, from, to, below_max)
    }

    fn remove(&self, name: &CStr) -> Done {
        self.fail(
            Act::Remove,
            fs::unlinkat(&*self.changing()?, name, AtFlags::empty()),
        )
    }

    fn remove_dir(&self, name: &CStr) -> Done {
        let removed = match fs::unlinkat(&*self.changing()?, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.forget_root_names(name),
            other => other,
        };
        self.fail(Act::RemoveDirectory, removed)
    }

    fn remove_tree(&self, name: &CStr, spared: Spared<'_>) -> Removed {
        remove_tree(self, name, spared)
    }

    fn remove_leftover(&self, name: &CStr) -> Removed {
        remove_leftover(self, name)
    }

    fn sync_all(&self) -> Done {
        self.fail(Act::Flush, fs::syncfs(&*self.fd()?))
    }

    fn lock(&self, name: Option<&CStr>, reach: Reach) -> Done<Lock> {
        crate::lock::host::take(self, name, reach)
    }

    fn set_unfinished(&self, is: bool) -> Done {
        if is {
            crate::leftover::mark(self)
        } else {
            crate::leftover::unmark(self)
        }
    }

    fn set_mark(&self, text: &[u8], durable: bool) -> Done<Stamp> {
        crate::mark::write(self, text, durable)
    }

    fn before_change(&self, act: Option<BeforeChange>) {
        self.node.gate().set(act);
    }

    fn guard(&self, sentry: Option<Arc<dyn Sentry>>) {
        self.node.gate().guard(sentry);
    }

    fn confirm(&self) -> Done {
        if self.side() == Side::Replica {
            self.node.gate().confirm()
        } else {
            Ok(())
        }
    }
}
