//! Where the mark of a replica is kept: an attribute of its root, or a file there where there are no attributes.
//!
//! What it says is text that others write and read (`reconcile/mark.rs`). Root keeps it where ordinary users can neither read nor change
//! it. Writing it leaves the times of the root as they are.

use crate::Done;
use crate::local::{LocalDir, fault, meta_of};
use crate::locks::{keep_times, while_writable};
use crate::temp::{ROOT_MARK, temp_name};
use crate::xattr::Target;
use driftless_model::{Act, Stamp};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;

/// In this order: `trusted.*` is root's alone (xattr(7)).
const ATTRIBUTES: [&CStr; 2] = [c"trusted.driftless.mark", c"user.driftless.mark"];
/// A mark is at most half as long (`reconcile/mark.rs`).
const MARK_BYTES_MAX: usize = 4096;

/// Reads the mark, if there is one.
pub fn read(dir: &LocalDir) -> Done<Option<Vec<u8>>> {
    let fd = dir.fd()?;
    let fail = |errno| fault(dir.side(), Act::ReadMark, errno);
    for name in ATTRIBUTES {
        let mut text = vec![0; MARK_BYTES_MAX];
        match fs::fgetxattr(&*fd, name, &mut text[..]) {
            Ok(size) => return Ok(Some(text[..size].to_vec())),
            // Longer than any of ours: damaged.
            Err(Errno::RANGE) => return Ok(Some(Vec::new())),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(fail(errno)),
        }
    }
    read_file(dir, &fd).map_err(fail)
}

fn read_file(dir: &LocalDir, fd: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match fs::openat(fd, ROOT_MARK, flags, Mode::empty()) {
        Ok(file) => file,
        // Nothing, or something that we have not made; nobody of us takes a lease on it either (fcntl(2)).
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS | Errno::PERM | Errno::WOULDBLOCK) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let st = fs::fstat(&file)?;
    let is_ours = FileType::from_raw_mode(st.st_mode) == FileType::RegularFile && dir.is_birth_owner(st.st_uid);
    let mut text = vec![0; MARK_BYTES_MAX];
    let got = if is_ours { rustix::io::pread(&file, &mut text[..], 0)? } else { 0 };
    Ok(is_ours.then(|| text[..got].to_vec()))
}

/// Writes the mark, durably if that is asked for, and returns what time it was then by the clock of the file system.
pub fn write(dir: &LocalDir, text: &[u8], durable: bool) -> Done<Stamp> {
    let fd = dir.fd()?;
    let fail = |errno| fault(dir.side(), Act::Mark, errno);
    let stamp = match write_attribute(&fd, text) {
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::NOSYS) => while_writable(&fd, || write_file(&fd, text, durable)),
        Ok(()) => fs::fstat(&*fd).map(|st| meta_of(&st).ctime),
        Err(errno) => Err(errno),
    };
    let stamp = stamp.map_err(fail)?;
    if durable {
        match fs::fsync(&*fd) {
            // There are file systems that have nothing to do for a directory, and say so (fsync(2)).
            Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF) => {}
            Err(errno) => return Err(fault(dir.side(), Act::FlushMark, errno)),
        }
    }
    Ok(stamp)
}

fn write_attribute(fd: &OwnedFd, text: &[u8]) -> Result<(), Errno> {
    let target = Target::Open(fd.as_fd());
    match target.set(ATTRIBUTES[0], text) {
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
        other => return other,
    }
    match target.set(ATTRIBUTES[1], text) {
        // Who may not write to his own directory may not give it such attributes either (xattr(7)).
        Err(Errno::ACCESS) => while_writable(fd, || target.set(ATTRIBUTES[1], text)),
        other => other,
    }
}

/// A file that is there whole or not at all.
fn write_file(dir: &OwnedFd, text: &[u8], durable: bool) -> Result<Stamp, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let temp = temp_name();
    keep_times(dir, || {
        let file = fs::openat(dir, &*temp, flags, Mode::RUSR | Mode::WUSR)?;
        let written = rustix::io::pwrite(&file, text, 0).and_then(|bytes| if bytes == text.len() { Ok(()) } else { Err(Errno::NOSPC) });
        let synced = written.and_then(|()| if durable { fs::fsync(&file) } else { Ok(()) });
        let named = synced.and_then(|()| fs::renameat(dir, &*temp, dir, ROOT_MARK));
        if named.is_err() {
            let _the_first_error_counts = fs::unlinkat(dir, &*temp, AtFlags::empty());
        }
        named?;
        fs::fstat(&file).map(|st| meta_of(&st).ctime)
    })
}
