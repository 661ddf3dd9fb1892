//! Removing the entries that an interrupted run left under a name of the reserved form, as far as
//! they are known to be ours.
//!
//! A user who may rename in a directory can give such a name to anything in it. If that is not a
//! directory, its removal does no harm: he could have removed it himself. A directory is removed
//! with all that is in it, and he may have no right to do that himself; so it must be known that
//! this program made the directory. That is known if nobody else can rename where it lies, or if it
//! has our mark: only its owner can have given it that mark, and its owner is this very user.

use crate::DirMut;
use crate::Done;
use crate::dir::Dir;
use crate::local::LocalDir;
use crate::local::look::fault;
use crate::local::remove::{Removed, clear, enter_same};
use driftless_model::{Act, Kind, Meta, Side};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;
use std::ffi::CStr;

/// The attributes that mark such a directory, in the order in which they are tried: the first is
/// root's alone, and is there in file systems that lack the other.
const MARKS: [&CStr; 2] = [
    c"trusted.driftless.unfinished",
    c"user.driftless.unfinished",
];

/// Marks a directory that was just made, under a name of the reserved form or to be finished later.
pub fn mark(dir: &LocalDir) -> Done {
    let fd = dir.fd()?;
    let _or_it_is_not_known_later = MARKS
        .iter()
        .any(|mark| fsetxattr(fd.as_fd(), *mark, b"1", XattrFlags::empty()).is_ok());
    Ok(())
}

/// Removes that mark.
pub fn unmark(dir: &LocalDir) -> Done {
    let fd = dir.changing()?;
    for mark in MARKS {
        let _it_may_not_be_there = fremovexattr(fd.as_fd(), mark);
    }
    Ok(())
}

/// Removes `name` in `dir`, with all below it if it is known to be ours.
pub fn remove_leftover(dir: &LocalDir, name: &CStr) -> Removed {
    let gone = |done: Done| match done {
        Ok(()) => Ok(Removed {
            entries: 1,
            ..Removed::default()
        }),
        Err(fault) if fault.is_missing() => Ok(Removed::default()),
        Err(fault) => Err(fault),
    };
    match gone(dir.remove(name)) {
        Ok(removed) => return removed,
        // If it is not a directory, no other call tells more.
        Err(fault) if dir.look(name).is_ok_and(|there| there.kind != Kind::Dir) => {
            return Removed::failed(name, fault);
        }
        Err(_) => {}
    }
    if let Ok(removed) = gone(dir.remove_dir(name)) {
        return removed;
    }
    // What is in it is removed through its handle: somebody may put another directory at the name.
    let emptied = enter_ours(dir, name).map(|ours| clear(&ours));
    match emptied {
        Ok(removed) if removed.stays() => below(name, removed),
        Ok(removed) => match dir.remove_dir(name) {
            Ok(()) => Removed {
                entries: removed.entries + 1,
                ..removed
            },
            Err(fault) => Removed::failed(name, fault),
        },
        Err(fault) => Removed::failed(name, fault),
    }
}

/// Opens a directory that is known to be ours.
fn enter_ours(dir: &LocalDir, name: &CStr) -> Done<LocalDir> {
    let below = enter_same(dir, name)?;
    let ours = is_ours_alone(dir, &dir.meta()?, &below) || is_marked(&below);
    if ours {
        Ok(below)
    } else {
        Err(fault(dir.side(), Act::RemoveForeign, Errno::PERM))
    }
}

/// Whether nobody but this user can have given the directory its name. An ACL gives nobody else
/// more than the group bits of the mode show, which are its mask (acl(5)).
fn is_ours_alone(dir: &LocalDir, meta: &Meta, below: &LocalDir) -> bool {
    const STICKY: u32 = 0o1000;
    const WRITABLE: u32 = 0o022;
    let others_cannot = meta.mode & WRITABLE == 0
        || meta.mode & STICKY != 0 && dir.is_birth_owner(below.first_meta().uid);
    others_cannot && dir.is_birth_owner(meta.uid)
}

fn is_marked(dir: &LocalDir) -> bool {
    let (meta, Ok(fd)) = (dir.first_meta(), dir.fd()) else {
        return false;
    };
    has_mark(fd.as_fd()) && dir.is_birth_of_own(meta.uid, meta.mode)
}

fn has_mark(fd: BorrowedFd<'_>) -> bool {
    MARKS
        .iter()
        .any(|mark| fgetxattr(fd, *mark, &mut [0u8; 8]).is_ok())
}

/// Whether a directory of the replica is closed to others, and this very user has marked it as
/// unfinished. To find out its owner may take a file that is made for that, so this is asked last.
pub fn is_unfinished(dir: &LocalDir) -> bool {
    let meta = dir.first_meta();
    let is_closed = dir.side() == Side::Replica && meta.mode & 0o077 == 0;
    is_closed && dir.fd().is_ok_and(|fd| has_mark(fd.as_fd())) && dir.is_birth_owner(meta.uid)
}

/// Puts `name` in front of the paths of what is stuck: they are told from the directory in which
/// the removal began.
pub fn below(name: &CStr, mut removed: Removed) -> Removed {
    for (path, _) in &mut removed.stuck {
        *path = driftless_model::RelPath::from_names(
            std::iter::once(name.to_bytes()).chain(path.names()),
        );
    }
    removed
}
