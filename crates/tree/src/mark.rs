//! Where the mark of a replica is kept: in an extended attribute of its root or, if the file system
//! has no attributes or no room for one, in a file in the root.
//!
//! The text of a mark is made and understood elsewhere (`reconcile/mark.rs`). Root keeps it, where
//! the file system allows that, in an attribute that ordinary users can neither read nor change.
//! Writing the mark leaves the modification time of the root as it is. The room for attributes may
//! be small, and belongs to the user: if the mark does not fit beside his attributes, it becomes a
//! file and stays one.

use crate::Done;
use crate::local::LocalDir;
use crate::local::look::{fault, meta_of};
use crate::local::times::{keep_times, while_writable};
use crate::local::xattr::{Target, proc_path};
use crate::temp::{MARK_ATTRIBUTES, ROOT_MARK, temp_name};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Side, Stamp};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::CStr;

/// The most bytes that are read of a mark; one that a run writes is at most half as long
/// (`reconcile/mark.rs`).
const MARK_BYTES_MAX: usize = 4096;
/// Errors of file systems that keep no attribute of ours.
const WITHOUT_ATTRIBUTES: [Errno; 3] = [Errno::OPNOTSUPP, Errno::PERM, Errno::NOSYS];
/// Errors of file systems that have no room for an attribute (setxattr(2); f2fs says E2BIG).
const WITHOUT_ROOM: [Errno; 3] = [Errno::NOSPC, Errno::TOOBIG, Errno::DQUOT];

/// A mark that stands on a directory, or on one above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkText {
    /// The path of the directory above; empty for the directory itself.
    pub above: Vec<u8>,
    /// What it says; empty if it is longer than any of ours.
    pub text: Vec<u8>,
}

/// Whether an attribute is a mark.
pub fn is_mark(attribute: &CStr) -> bool {
    MARK_ATTRIBUTES.contains(&attribute)
}

/// Reads the marks of a directory, wherever they stand: in root's attribute, in its owner's, and in
/// the file. There may be several: a run may have ended while it moved the mark to the file. With
/// `above`, also reads the marks of all directories above it.
pub fn read(dir: &LocalDir, above: bool) -> Done<Vec<MarkText>> {
    let fd = dir.fd()?;
    let fail = |errno| fault(dir.side(), Act::ReadMark, errno);
    let is_birth_owner = |uid| dir.side() == Side::Replica && dir.is_birth_owner(uid);
    let texts = texts_at(&fd, &is_birth_owner).map_err(fail)?;
    let mut found: Vec<MarkText> = texts
        .into_iter()
        .map(|text| MarkText {
            above: Vec::new(),
            text,
        })
        .collect();
    if above {
        let fail = |errno| fault(dir.side(), Act::ReadMarksAbove, errno);
        found.extend(read_above(&fd).map_err(fail)?);
    }
    Ok(found)
}

fn texts_at(fd: &OwnedFd, is_birth_owner: &dyn Fn(u32) -> bool) -> Result<Vec<Vec<u8>>, Errno> {
    let mut texts = Vec::new();
    for name in MARK_ATTRIBUTES {
        texts.extend(read_attribute(Target::Open(fd.as_fd()), name)?);
    }
    texts.extend(read_file(fd, is_birth_owner)?);
    Ok(texts)
}

fn read_attribute(target: Target<'_>, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
    let mut text = vec![0; MARK_BYTES_MAX];
    match target.get(name, &mut text) {
        Ok(size) => Ok(Some(text[..size].to_vec())),
        // Longer than any of ours: damaged.
        Err(Errno::RANGE) => Ok(Some(Vec::new())),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::NOSYS) => {
            Ok(None)
        }
        Err(errno) => Err(errno),
    }
}

/// Reads the marks of all directories above one, up to the root of the name space or to what this
/// user may not pass. Nothing is made there to find out an owner: most are nobody's replica.
fn read_above(dir: &OwnedFd) -> Result<Vec<MarkText>, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut fd = fs::openat(dir, c".", flags | OFlags::PATH, Mode::empty())?;
    let (mut below, mut found) = (fs::fstat(&fd)?, Vec::new());
    loop {
        // A directory that may be passed but not read, or that is out of a confined process's
        // reach, is opened as a path only (O_PATH), and its attributes are read by way of /proc.
        let (above, is_open) = match fs::openat(&fd, c"..", flags | OFlags::RDONLY, Mode::empty()) {
            Err(Errno::ACCESS) => (
                fs::openat(&fd, c"..", flags | OFlags::PATH, Mode::empty()),
                false,
            ),
            other => (other, true),
        };
        fd = match above {
            Err(Errno::ACCESS) => return Ok(found),
            other => other?,
        };
        let st = fs::fstat(&fd)?;
        if id(&st) == id(&below) {
            return Ok(found);
        }
        let target = if is_open {
            Target::Open(fd.as_fd())
        } else {
            Target::Pinned(fd.as_fd())
        };
        let mut texts = Vec::new();
        for name in MARK_ATTRIBUTES {
            texts.extend(read_attribute(target, name)?);
        }
        texts.extend(read_file(&fd, &|_| false)?.or_else(|| out_of_reach(id(&st))));
        if !texts.is_empty() {
            let above = fs::readlink(proc_path(fd.as_fd(), None), Vec::new())
                .map_or_else(|_| b"..".to_vec(), |path| path.into_bytes());
            found.extend(texts.into_iter().map(|text| MarkText {
                above: above.clone(),
                text,
            }));
        }
        below = st;
    }
}

fn id(st: &Stat) -> (u64, u64) {
    (st.st_dev, st.st_ino)
}

fn read_file(fd: &OwnedFd, is_birth_owner: &dyn Fn(u32) -> bool) -> Result<Option<Vec<u8>>, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match fs::openat(fd, ROOT_MARK, flags, Mode::empty()) {
        Ok(file) => file,
        // Nothing is there, or something that no run has made. No run takes a lease on the file
        // either (fcntl(2): EWOULDBLOCK).
        Err(
            Errno::NOENT
            | Errno::LOOP
            | Errno::NXIO
            | Errno::ACCESS
            | Errno::PERM
            | Errno::WOULDBLOCK,
        ) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let (st, dir) = (fs::fstat(&file)?, fs::fstat(fd)?);
    // The owner of the directory can write into its mark what he likes: a false one costs him a
    // comparison.
    let owner = st.st_uid;
    let is_trusted = owner == rustix::process::geteuid().as_raw()
        || owner == dir.st_uid
        || is_birth_owner(owner);
    if FileType::from_raw_mode(st.st_mode) != FileType::RegularFile || !is_trusted {
        return Ok(None);
    }
    let mut text = vec![0; MARK_BYTES_MAX + 1];
    let got = rustix::io::pread(&file, &mut text[..], 0)?;
    Ok(Some(if got > MARK_BYTES_MAX {
        Vec::new()
    } else {
        text[..got].to_vec()
    }))
}

/// Marks that are files above a root, read before this process confined itself: by device and inode
/// of their directories.
static READ_BEFORE: Mutex<Option<HashMap<(u64, u64), Vec<u8>>>> = Mutex::new(None);

/// Reads the marks that are files in the directories above `dir`, and keeps them: a process that
/// confines itself cannot read them later.
pub fn prepare_marks(dir: &LocalDir) {
    let Ok(fd) = dir.fd() else { return };
    let Ok(lineage) = crate::root::lineage(&fd) else {
        return;
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = fs::openat(&*fd, c".", flags, Mode::empty());
    for above in lineage.iter().skip(1) {
        at = at.and_then(|at| fs::openat(&at, c"..", flags, Mode::empty()));
        let Ok(at) = &at else { return };
        if let Ok(Some(text)) = read_file(at, &|_| false) {
            READ_BEFORE
                .lock()
                .get_or_insert_default()
                .insert(above.id, text);
        }
    }
}

fn out_of_reach(id: (u64, u64)) -> Option<Vec<u8>> {
    READ_BEFORE.lock().as_ref()?.get(&id).cloned()
}

/// Writes the mark, durably if asked for; returns what time it was then by the file system's clock.
pub fn write(dir: &LocalDir, text: &[u8], durable: bool) -> Done<Stamp> {
    let fd = dir.fd()?;
    let written = if is_file(&fd) {
        Err(Errno::NOSPC)
    } else {
        write_attribute(&fd, text)
    };
    let stamp = match written {
        Err(errno) if WITHOUT_ATTRIBUTES.contains(&errno) => in_file(&fd, text, durable),
        Err(errno) if WITHOUT_ROOM.contains(&errno) => {
            in_file(&fd, text, durable).inspect(|_| remove_attributes(&fd))
        }
        Ok(()) => fs::fstat(&*fd).map(|st| meta_of(&st).ctime),
        Err(errno) => Err(errno),
    };
    let stamp = stamp.map_err(|errno| fault(dir.side(), Act::Mark, errno))?;
    if durable {
        sync(dir, &fd)?;
    }
    Ok(stamp)
}

fn sync(dir: &LocalDir, fd: &OwnedFd) -> Done {
    match fs::fsync(fd) {
        // Some file systems have nothing to do for a directory, and say so (fsync(2)).
        Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF) => Ok(()),
        Err(errno) => Err(fault(dir.side(), Act::FlushMark, errno)),
    }
}

/// Makes room for the user's attributes, if `faults` say that there was none: a mark that is an
/// attribute becomes a file. Returns whether one did.
pub fn makes_room(dir: &LocalDir, faults: &[Fault]) -> bool {
    let lacks = |fault: &Fault| {
        WITHOUT_ROOM
            .iter()
            .any(|errno| errno.raw_os_error() == fault.errno)
    };
    if !faults.iter().any(lacks) {
        return false;
    }
    let Ok(fd) = dir.fd() else { return false };
    let Some(text) = MARK_ATTRIBUTES.iter().find_map(|name| {
        read_attribute(Target::Open(fd.as_fd()), name)
            .ok()
            .flatten()
    }) else {
        return false;
    };
    let moved = in_file(&fd, &text, true).is_ok() && sync(dir, &fd).is_ok();
    if moved {
        remove_attributes(&fd);
    }
    moved
}

fn is_file(dir: &OwnedFd) -> bool {
    let found = fs::statat(dir, ROOT_MARK, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|st| {
        FileType::from_raw_mode(st.st_mode) == FileType::RegularFile
            && st.st_uid == rustix::process::geteuid().as_raw()
    })
}

/// Removes the marks that are attributes: what the file says is newer.
fn remove_attributes(dir: &OwnedFd) {
    for name in MARK_ATTRIBUTES {
        let _then_more_is_compared = Target::Open(dir.as_fd()).unset(name);
    }
}

fn write_attribute(fd: &OwnedFd, text: &[u8]) -> Result<(), Errno> {
    let target = Target::Open(fd.as_fd());
    match target.set(MARK_ATTRIBUTES[0], text) {
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
        // A mark of an ordinary user has been read and taken over, so the new text takes its place
        // if there is one.
        Ok(()) => {
            let _there_is_none =
                fs::fsetxattr(fd, MARK_ATTRIBUTES[1], text, fs::XattrFlags::REPLACE);
            return Ok(());
        }
        Err(errno) => return Err(errno),
    }
    match target.set(MARK_ATTRIBUTES[1], text) {
        // Who may not write to his own directory may not give it such attributes either (xattr(7)).
        Err(Errno::ACCESS) => while_writable(fd, || target.set(MARK_ATTRIBUTES[1], text)),
        other => other,
    }
}

fn in_file(fd: &OwnedFd, text: &[u8], durable: bool) -> Result<Stamp, Errno> {
    while_writable(fd, || write_file(fd, text, durable))
}

/// Writes the mark as a file that is there whole or not at all; returns its change time.
fn write_file(dir: &OwnedFd, text: &[u8], durable: bool) -> Result<Stamp, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let temp = temp_name();
    keep_times(dir, || {
        let file = fs::openat(dir, &*temp, flags, Mode::RUSR | Mode::WUSR)?;
        let written = rustix::io::pwrite(&file, text, 0).and_then(|bytes| {
            if bytes == text.len() {
                Ok(())
            } else {
                Err(Errno::NOSPC)
            }
        });
        let synced = written.and_then(|()| if durable { fs::fsync(&file) } else { Ok(()) });
        let named = synced.and_then(|()| fs::renameat(dir, &*temp, dir, ROOT_MARK));
        if named.is_err() {
            let _the_first_error_counts = fs::unlinkat(dir, &*temp, AtFlags::empty());
        }
        named?;
        fs::fstat(&file).map(|st| meta_of(&st).ctime)
    })
}
