//! File systems that follow a symbolic link when they set its attributes.
//!
//! The server of a file system may set owner and times by path and follow links there, whatever
//! the kernel of its client was asked for: sshfs does. Then the entry that a link leads to would
//! change, also outside of the replica. So the first attributes of a link are tried with a link and
//! a target of our own, in a private directory, once for each file system. Local file systems, and
//! those whose clients name an inode, are known and are not tried.

use crate::Done;
use crate::local::LocalDir;
use crate::local::look::look_at;
use crate::local::times::keep_times;
use crate::local::wanted::Attributes;
use crate::mounts::sets_by_inode;
use crate::temp_name;
use driftless_model::Act;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::CStr;

const TARGET: &CStr = c"target";
const LINK: &CStr = c"link";
/// A time that no new file has: 9 September 2001.
const LONG_AGO: i64 = 1_000_000_000;
/// The user and group `nobody` of Debian, to whom the target would go.
const OTHER: u32 = 65534;

impl Attributes {
    /// Whether anything of a symbolic link would be set.
    pub(crate) fn concern_links(&self) -> bool {
        let sets_xattrs = self.xattrs.as_ref().is_some_and(|(all, _)| !all.is_empty());
        let is_owned = self.uid.is_some() || self.gid.is_some();
        is_owned || self.mtime.is_some() || self.atime.is_some() || sets_xattrs
    }
}

impl LocalDir {
    /// Whether the file system of this directory sets attributes of what a link leads to in the
    /// place of the link's own.
    pub(crate) fn follows_links(&self) -> Done<bool> {
        self.node.follows_links(self.first.dev, || {
            if sets_by_inode(self) {
                return Ok(false);
            }
            self.try_links()
        })
    }

    /// Tries it in a private directory that is gone afterwards, and leaves no trace in the times of
    /// this one.
    fn try_links(&self) -> Done<bool> {
        let (fd, mut tried) = (self.changing()?, None);
        let kept = keep_times(&fd, || {
            tried = Some(self.try_links_in_nest());
            Ok(())
        });
        self.fail(Act::SetAttributes, kept)?;
        tried.expect("the directory's times could be read")
    }

    fn try_links_in_nest(&self) -> Done<bool> {
        let name = temp_name();
        let (dir, _) = self.make_and_open(&name)?;
        let tried = self.fail(Act::SetAttributes, follows(&dir, self.may_give_here()));
        for name in [LINK, TARGET] {
            let _the_next_run_removes_it = fs::unlinkat(&dir, name, AtFlags::empty());
        }
        let _the_next_run_removes_it = fs::unlinkat(&*self.fd()?, &*name, AtFlags::REMOVEDIR);
        tried
    }

    fn may_give_here(&self) -> bool {
        use crate::Dir;
        self.may_give()
    }
}

/// Sets time and owner of a link in an empty directory, and returns whether its target has them.
fn follows(dir: &OwnedFd, may_give: bool) -> Result<bool, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    drop(fs::openat(dir, TARGET, flags, mode)?);
    fs::symlinkat(TARGET, dir, LINK)?;
    let before = seen(dir)?;
    let time = Timespec {
        tv_sec: LONG_AGO,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    let _not_every_file_system_can = fs::utimensat(dir, LINK, &times, nofollow);
    let (uid, gid) = (
        may_give.then_some(Uid::from_raw(OTHER)),
        other_group(may_give, before.2),
    );
    if uid.is_some() || gid.is_some() {
        let _not_every_file_system_can = fs::chownat(dir, LINK, uid, gid, nofollow);
    }
    // A server's client forgets what it remembers of an entry that it changes itself.
    fs::chmodat(dir, TARGET, mode, AtFlags::empty())?;
    Ok(seen(dir)? != before)
}

/// Returns modification time, owner and group of the target, asked of the server.
fn seen(dir: &OwnedFd) -> Result<(i64, u32, u32), Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    let (meta, _) = look_at(dir, TARGET, flags)?;
    Ok((meta.mtime.sec, meta.uid, meta.gid))
}

/// Returns a group that the link can be given, and that the target does not have.
fn other_group(may_give: bool, now: u32) -> Option<Gid> {
    if may_give {
        return Some(Gid::from_raw(OTHER));
    }
    let groups = rustix::process::getgroups().unwrap_or_default();
    groups.into_iter().find(|group| group.as_raw() != now)
}
