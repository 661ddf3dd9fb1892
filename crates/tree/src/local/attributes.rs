//! Making the attributes of one entry equal: owner, extended attributes and ACLs, mode, times, in
//! this order.
//!
//! The order matters. A change of owner drops set-id bits and `security.capability`, and an ACL
//! changes the mode. The modification time is last, so that an entry that was left half done
//! differs from its source.

use crate::Rights;
use crate::local::look::{fault, meta_of};
use crate::local::sys;
use crate::local::wanted::{Attributes, Known, Lends, SETID_BITS, Stood};
use crate::local::xattr::{Target, proc_path};
use driftless_model::{
    ACL_ACCESS, Act, Fault, Keep, SETGID, SETUID, Side, Stamp, Unkept, Xattrs, gives_rights,
    mode_for_other_group, mode_within, mode_without_acl,
};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Nsecs, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    Uid,
};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

const GROUP_BITS: u32 = 0o070;
/// The bits of a mode that an ACL has, too.
const ACL_BITS: u32 = 0o777;

/// An entry whose attributes are being set.
pub struct Setter<'a> {
    target: Target<'a>,
    side: Side,
    faults: Vec<Fault>,
    owner_failed: bool,
    acl_failed: bool,
    mode_touched: bool,
    /// The mode was changed for a moment and must be set in any case.
    mode_lent: bool,
    /// The mode that lets in nobody new while owner, group or ACL change; `None` if the present one
    /// lets in nobody new.
    narrower: Option<u32>,
    narrowed: bool,
}

impl<'a> Setter<'a> {
    /// Sets `attributes` on `target` and returns what could not be set.
    pub fn apply(
        target: Target<'a>,
        side: Side,
        known: &Known,
        attributes: &Attributes,
    ) -> Vec<Fault> {
        let faults = Vec::new();
        let (owner_failed, acl_failed, mode_touched, mode_lent, narrowed) =
            (false, false, false, false, false);
        let narrower = known
            .mode
            .zip(attributes.mode)
            .and_then(|(now, wanted)| narrower(now, wanted))
            .filter(|_| !known.symlink);
        let mut setter = Setter {
            target,
            side,
            faults,
            owner_failed,
            acl_failed,
            mode_touched,
            mode_lent,
            narrower,
            narrowed,
        };
        setter.own(known, attributes);
        let narrowed = setter
            .is_of_other_group(known, attributes)
            .then(|| attributes.for_other_group());
        let attributes = narrowed.as_ref().unwrap_or(attributes);
        if let Some((xattrs, keep)) = &attributes.xattrs {
            setter.xattrs(known, xattrs, keep);
        }
        let mode = attributes.mode.or(known.mode.filter(|_| setter.mode_lent));
        if let Some(mode) = mode.filter(|_| !known.symlink) {
            setter.mode(known, mode, attributes);
        }
        if attributes.mtime.is_some() || attributes.atime.is_some() {
            setter.times(known, attributes);
        }
        setter.faults
    }

    fn note<T>(&mut self, act: Act, done: Result<T, Errno>) -> bool {
        if let Err(errno) = done {
            self.faults.push(fault(self.side, act, errno));
            return false;
        }
        true
    }

    fn own(&mut self, known: &Known, wanted: &Attributes) {
        let uid = wanted
            .uid
            .filter(|uid| known.owner.is_none_or(|now| now.0 != *uid));
        let gid = wanted
            .gid
            .filter(|gid| known.owner.is_none_or(|now| now.1 != *gid));
        if uid.is_none() && gid.is_none() {
            return;
        }
        self.narrow();
        let done = self.chown(uid, gid);
        let is_refused = done == Err(Errno::PERM);
        let gives_group =
            is_refused && uid.is_some() && gid.is_some() && self.chown(None, gid).is_ok();
        // A change that was refused leaves the mode as it is.
        self.mode_touched = !is_refused || gives_group;
        let act = if uid.is_some() {
            Act::SetOwner
        } else {
            Act::SetGroup
        };
        self.owner_failed = !self.note(act, done);
    }

    /// Whether the entry belongs to another group than the one whom the rights of the group are meant
    /// for, and that matters.
    fn is_of_other_group(&self, known: &Known, wanted: &Attributes) -> bool {
        let differs = |mode: u32| mode_for_other_group(mode) != mode;
        let matters = wanted.mode.is_some_and(differs) || wanted.acl().is_some();
        let is_given = wanted.gid.is_some() && !self.owner_failed;
        let Some(group) = wanted
            .group
            .filter(|_| matters && !is_given && !known.symlink)
        else {
            return false;
        };
        let kept = known.owner.filter(|_| wanted.gid.is_none());
        let now = kept.map_or_else(|| self.look().map(|now| now.st_gid), |(_, gid)| Ok(gid));
        now != Ok(group)
    }

    /// Sets the narrower mode, before owner, group or ACL change. From that change until the mode
    /// is set, and also if the run ends between the two, nobody may have rights who had none before
    /// and is to get none. So the rights of the group wait. With an ACL they are its mask, so
    /// nobody whom the ACL names has any meanwhile (acl(5)).
    fn narrow(&mut self) {
        if let Some(mode) = self.narrower.take() {
            // A user who may not set this mode can change nothing else either, or is told when that
            // fails.
            self.narrowed = self.chmod(mode).is_ok();
        }
    }

    fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self.target {
            Target::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            Target::Pinned(fd) => rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH),
            Target::Name(dir, name) => {
                rustix::fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    fn xattrs(&mut self, known: &Known, wanted: &Xattrs, keep: &Keep) {
        if known.clean && wanted.is_empty() {
            return;
        }
        let left = if known.clean {
            Ok(Xattrs::default())
        } else {
            self.target
                .read(keep)
                .and_then(|now| self.remove_others(known, now, wanted, keep))
        };
        if let (Ok(left), true) = (&left, wanted.is_whole())
            && let Err(fault) = left.clone().all_read(self.side)
            && left.unkept.has(Unkept::TOO_LONG)
        {
            self.faults.push(fault);
        }
        let left = match left {
            Ok(left) => left,
            Err(errno) => {
                self.note(Act::ReadXattrs, Err::<(), _>(errno));
                return;
            }
        };
        for (name, value) in wanted.iter().filter(|pair| !left.contains(pair)) {
            if **name == *ACL_ACCESS {
                self.narrow();
            }
            // Another host may have read them: an attribute that is not to be kept is not set,
            // either.
            let set = |name: CString| self.with_right(known, |target| target.set(&name, value));
            let done = if keep.wants_xattr(name) {
                c_name(name).and_then(set)
            } else {
                Err(Errno::INVAL)
            };
            match done {
                // A privileged attribute can be done without. Not so if the entry still has another
                // value of it, which would be more than the source has.
                Err(Errno::PERM)
                    if !Rights::own().may_set(name)
                        && !left.iter().any(|(other, _)| other == name) =>
                {
                    self.note(Act::SetPrivileged, done)
                }
                done => self.xattr_done(Act::SetXattr, name, done),
            };
        }
    }

    /// Removes what is not wanted, and returns what is left. The removal of one attribute may take
    /// a second one with it, of which it is another form: so what is equal is judged by what is
    /// left.
    fn remove_others(
        &mut self,
        known: &Known,
        now: Xattrs,
        wanted: &Xattrs,
        keep: &Keep,
    ) -> Result<Xattrs, Errno> {
        let mut removed = false;
        for (name, _) in now
            .iter()
            .filter(|(name, _)| !wanted.iter().any(|(n, _)| n == name))
            .filter(|(name, _)| wanted.is_whole() || gives_rights(name))
            .filter(|(name, _)| wanted.is_known(name))
        {
            if **name == *ACL_ACCESS {
                self.narrow();
            }
            let done =
                c_name(name).and_then(|name| self.with_right(known, |target| target.unset(&name)));
            self.xattr_done(Act::RemoveXattr, name, done);
            removed = true;
        }
        if removed {
            self.target.read(keep)
        } else {
            Ok(now)
        }
    }

    /// Makes a change of extended attributes. An owner who may not write to his entry may not
    /// change its `user.*` attributes either (xattr(7)): he lends himself the right, with a mode
    /// that lets nobody else in. The mode that the entry is to have is set afterwards.
    fn with_right(
        &mut self,
        known: &Known,
        change: impl Fn(Target<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let done = change(self.target);
        if done != Err(Errno::ACCESS) || self.mode_lent || known.symlink {
            return done;
        }
        self.mode_lent = self.chmod(0o700).is_ok();
        change(self.target)
    }

    fn xattr_done(&mut self, act: Act, name: &[u8], done: Result<(), Errno>) -> bool {
        self.mode_touched |= name == ACL_ACCESS && done.is_ok();
        self.acl_failed |= name == ACL_ACCESS && done.is_err();
        let act = if name.starts_with(b"system.posix_acl") {
            Act::SetAcl
        } else {
            act
        };
        self.note(act, done)
    }

    /// Sets the mode, never wider than the source's: without the source's user no set-user-id,
    /// without its group no set-group-id. Without its ACL the group has no rights, since they are
    /// the ACL's mask, and others have none that the ACL denies to somebody.
    fn mode(&mut self, known: &Known, wanted: u32, attributes: &Attributes) {
        let of_acl = attributes.mode_of_acl().filter(|_| !self.acl_failed);
        let base = attributes
            .stood
            .map_or(wanted, |stood| self.mode_of_stood(known, stood, wanted));
        let mut mode = of_acl.map_or(base, |bits| base & !ACL_BITS | bits);
        if let Some(lends) = attributes.lends.filter(|_| mode & SETID_BITS != 0) {
            mode &= !self.foreign_bits(lends, attributes.gid.is_some() && mode & SETGID != 0);
        }
        if self.acl_failed {
            mode = mode_within(mode, attributes.acl().map_or(mode, mode_without_acl)) & !GROUP_BITS;
        }
        let right = known.mode == Some(mode) && !(self.mode_touched && self.needs_mode_again(mode));
        if !right || self.mode_lent || self.narrowed {
            let done = self.chmod(mode).and_then(|()| self.check_setid(mode));
            self.note(
                Act::SetMode,
                if attributes.mode_is_plain {
                    done.or_else(unless_fixed)
                } else {
                    done
                },
            );
        }
    }

    /// Returns the mode of an entry where modes are not kept. An owner or a group that changed, and
    /// new content, end what the mode gives and the source does not. A file with new content, or of
    /// another owner, lends no rights, either.
    fn mode_of_stood(&self, known: &Known, stood: Stood, wanted: u32) -> u32 {
        if !stood.is_changed && !self.mode_touched {
            return stood.mode;
        }
        let is_dir = |st: Stat| FileType::from_raw_mode(st.st_mode) == FileType::Directory;
        let lends = !known.made_now && self.look().is_ok_and(is_dir);
        let lent = if lends { 0 } else { SETID_BITS };
        mode_within(stood.mode, wanted) & !lent
    }

    /// A set-id bit may be dropped without an error: by the kernel where the caller is not of the
    /// file's group (chmod(2)), by servers of network file systems. Few entries have such a bit;
    /// these are looked at.
    fn check_setid(&self, mode: u32) -> Result<(), Errno> {
        if mode & SETID_BITS == 0 {
            return Ok(());
        }
        if mode & SETID_BITS & !self.look()?.st_mode == 0 {
            Ok(())
        } else {
            Err(Errno::PERM)
        }
    }

    fn look(&self) -> Result<Stat, Errno> {
        match self.target {
            Target::Open(fd) | Target::Pinned(fd) => rustix::fs::fstat(fd),
            Target::Name(dir, name) => rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    /// The set-id bits that an entry must not get: those that would lend the rights of somebody
    /// else than `lends`, and set-group-id if the kernel would drop it without an error, because
    /// the user is not of the group (chmod(2)). In the second case, a group that was to be `given`
    /// counts as not given.
    fn foreign_bits(&mut self, lends: Lends, given: bool) -> u32 {
        let now = match self.look() {
            Ok(now) => now,
            Err(errno) => {
                self.note(Act::LookAt, Err::<(), _>(errno));
                return SETID_BITS;
            }
        };
        let (foreign_user, foreign_group) = (
            lends.uid.is_some_and(|uid| uid != now.st_uid),
            lends.gid.is_some_and(|gid| gid != now.st_gid),
        );
        let dropped = given && !foreign_group && !Rights::own().may_give_to(now.st_gid);
        if dropped && !self.owner_failed {
            self.note(Act::SetGroup, Err::<(), _>(Errno::PERM));
        }
        (u32::from(foreign_user) * SETUID) | (u32::from(foreign_group || dropped) * SETGID)
    }

    fn chmod(&self, mode: u32) -> Result<(), Errno> {
        let raw = Mode::from_raw_mode(mode);
        match self.target {
            Target::Open(fd) => rustix::fs::fchmod(fd, raw),
            Target::Pinned(fd) => rustix::fs::chmod(proc_path(fd, None), raw),
            Target::Name(dir, name) => chmod_no_link(dir, name, raw),
        }
    }

    /// Whether a mode that was right has to be set again: a change of owner drops the set-id bits,
    /// and an ACL that was set or removed changes the group bits.
    fn needs_mode_again(&self, mode: u32) -> bool {
        mode & SETID_BITS != 0 || !self.owner_failed && mode & GROUP_BITS != 0 || self.acl_failed
    }

    /// Sets both times: file systems of libfuse 2 pass over a request for the modification time
    /// alone, without an error (`flag_utime_omit_ok` of fuse.h). So an access time that is not asked
    /// for stays what it is.
    fn times(&mut self, known: &Known, wanted: &Attributes) {
        let times = Timestamps {
            last_access: spec(wanted.atime.or(known.atime), UTIME_NOW),
            last_modification: spec(wanted.mtime, UTIME_OMIT),
        };
        let done = match self.target {
            Target::Open(fd) => rustix::fs::futimens(fd, &times),
            Target::Pinned(fd) => rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH),
            Target::Name(dir, name) => {
                rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        };
        let done = done.and_then(|()| {
            wanted
                .mtime
                .filter(|mtime| !mtime.is_kept_everywhere())
                .map_or(Ok(()), |mtime| self.kept(mtime))
        });
        self.note(Act::SetTimes, done);
    }

    /// Checks that a time was kept: the kernel replaces one that the file system cannot keep by the
    /// first or last that it can, and says nothing. Those are judged as in a later run, however near
    /// they are.
    fn kept(&self, wanted: Stamp) -> Result<(), Errno> {
        /// FAT keeps times in steps of two seconds.
        const GRAIN_SEC_MAX: u64 = 2;
        let now = meta_of(&self.look()?).mtime;
        if now.sec.abs_diff(wanted.sec) > GRAIN_SEC_MAX || wanted.is_beyond(now) {
            Err(Errno::RANGE)
        } else {
            Ok(())
        }
    }
}

/// Returns a mode between `now` and `wanted`: others have the rights that both modes give them, and
/// the group has those of its rights in both that others have, too. `None` if group and others have
/// just these rights now.
pub fn narrower(now: u32, wanted: u32) -> Option<u32> {
    let both = now & wanted;
    let mode = now & 0o1700 | both & (both & 0o007) << 3 | both & 0o007;
    (now & 0o077 != mode & 0o077).then_some(mode)
}

/// No error where a file system has modes of its own, so that no other mode can be set (vfat
/// refuses with EPERM, others with EOPNOTSUPP; mount(8), ntfs-3g(8)).
fn unless_fixed(errno: Errno) -> Result<(), Errno> {
    if matches!(errno, Errno::PERM | Errno::OPNOTSUPP) {
        Ok(())
    } else {
        Err(errno)
    }
}

/// Sets the mode of an entry that is no symbolic link; `ELOOP` if it is one on a kernel without
/// fchmodat2(2). fchmodat(2) would follow a link that somebody has put in its place.
fn chmod_no_link(dir: BorrowedFd<'_>, name: &CStr, mode: Mode) -> Result<(), Errno> {
    match sys::fchmodat2(dir, name, mode.as_raw_mode()) {
        Err(Errno::NOSYS) => {}
        done => return done,
    }
    let pinned = rustix::fs::openat(
        dir,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    if FileType::from_raw_mode(rustix::fs::fstat(&pinned)?.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    rustix::fs::chmod(proc_path(pinned.as_fd(), None), mode)
}

/// A time, or what utimensat(2) is to do without one.
fn spec(stamp: Option<Stamp>, without: Nsecs) -> Timespec {
    stamp.map_or(
        Timespec {
            tv_sec: 0,
            tv_nsec: without,
        },
        |stamp| Timespec {
            tv_sec: stamp.sec,
            tv_nsec: stamp.nsec.into(),
        },
    )
}

/// A name from another host may hold a NUL, which no attribute's name can.
fn c_name(name: &[u8]) -> Result<CString, Errno> {
    CString::new(name).map_err(|_| Errno::INVAL)
}
