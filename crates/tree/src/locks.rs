//! Locks that keep other runs from a replica, and that no other user can take or hold.
//!
//! Whoever can open a directory can lock it (flock(2)), so a lock on the replica's root itself would be anybody's. There are two of our
//! own.
//!
//! *On this host*: a file in a folder that nobody else can enter, in which each directory of the host is one byte, found by the hash of
//! its device and inode. A run locks the byte of its root, and shares those of all directories above: so runs on overlapping trees keep
//! each other out, and runs side by side do not. Nothing is written to the tree.
//!
//! *Everywhere*: a file in the root, as far as its file system shares locks between hosts (`lockfile`).

use crate::local::{LocalDir, fault};
use crate::sys::{self, ByteLock};
use crate::temp::fnv1a;
use crate::{Done, Held, Hold};
use driftless_model::{Act, Side};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How far a lock reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// Runs on this host, those on a tree above or below this one included.
    Host,
    /// Runs on all hosts that share the locks of the file system.
    Everywhere,
    /// The same where such a lock is, or was left by a run that was killed: no file is made.
    Found,
    /// The same for a run that has locked a directory above.
    Within,
}

/// What came of a lock.
pub enum Lock {
    /// It is held until this is dropped.
    Held(Hold),
    /// Another run has it: who, as far as that can be told.
    Taken(Option<Holder>),
    /// A run that is over has left the file of this name, which this user may not remove.
    Left(Vec<u8>),
    /// There is none to be had, and why (errno(3)).
    Missing(i32),
}

/// Who has a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The number of its process.
    pub process: u32,
    /// The name of its host.
    pub host: Vec<u8>,
}

impl Holder {
    pub(crate) fn here(process: u32) -> Holder {
        Holder { process, host: rustix::system::uname().nodename().to_bytes().to_vec() }
    }

    /// What is written into a lock file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [format!("{} ", self.process).as_bytes(), &self.host, b"\n"].concat()
    }

    pub(crate) fn decode(text: &[u8]) -> Option<Holder> {
        let line = text.strip_suffix(b"\n")?;
        let space = line.iter().position(|byte| *byte == b' ')?;
        let process = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
        Some(Holder { process, host: line[space + 1..].to_vec() })
    }
}

/// Opens the file of this host's locks, if that was not done yet: a process that confines itself does so before.
pub fn prepare_locks() {
    host_file();
}

/// Takes a lock on a directory, or on the entry `name` of it.
pub fn take(dir: &LocalDir, name: Option<&CStr>, reach: Reach) -> Done<Lock> {
    match reach {
        Reach::Host => on_host(&*dir.fd()?, name).map_err(|errno| fault(Side::Replica, Act::Lock, errno)),
        Reach::Everywhere | Reach::Found => crate::lockfile::take(dir, name, reach == Reach::Everywhere),
        Reach::Within => crate::lockfile::take_within(dir),
    }
}

/// Bytes of the host's file. They are this process's, so they are held by one at a time.
struct HostLock(Vec<u64>);

impl Held for HostLock {
    fn is_kept(&self) -> Done<bool> {
        Ok(true)
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        for at in self.0.drain(..) {
            let _it_ends_with_the_process = host_file().map(|file| sys::lock_byte(file, at, ByteLock::None));
        }
    }
}

fn on_host(dir: &OwnedFd, name: Option<&CStr>) -> Result<Lock, Errno> {
    let Some(file) = host_file() else { return Ok(Lock::Missing(Errno::NOENT.raw_os_error())) };
    let above: Vec<u64> = crate::root::lineage(dir)?.into_iter().map(|above| byte_of(above.id, c"")).collect();
    let (own, above) = match name {
        Some(name) => (byte_of(id_of(dir)?, name), &above[..]),
        None => (above[0], &above[1..]),
    };
    let mut lock = HostLock(Vec::new());
    let wanted = std::iter::once((own, ByteLock::Exclusive)).chain(above.iter().map(|at| (*at, ByteLock::Shared)));
    for (at, kind) in wanted {
        match sys::lock_byte(file, at, kind) {
            Ok(()) => lock.0.push(at),
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(Lock::Taken(sys::byte_holder(file, at, kind).map(Holder::here))),
            Err(errno) => return Ok(Lock::Missing(errno.raw_os_error())),
        }
    }
    Ok(Lock::Held(Box::new(lock)))
}

fn id_of(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    fs::fstat(fd).map(|st| (st.st_dev, st.st_ino))
}

/// The byte of a directory, or of an entry of it.
fn byte_of((device, inode): (u64, u64), name: &CStr) -> u64 {
    /// Offsets are signed, and a byte has one behind it.
    const OFFSET_MAX: u128 = (1 << 62) - 1;
    let id = [&device.to_le_bytes()[..], &inode.to_le_bytes(), name.to_bytes()].concat();
    (fnv1a(&id) & OFFSET_MAX) as u64
}

fn host_file() -> Option<BorrowedFd<'static>> {
    static FILE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    FILE.get_or_init(open_host_file).as_ref().map(AsFd::as_fd)
}

/// The file in the first place that is this user's own. It is never closed: that would give up all locks on it (fcntl(2)).
fn open_host_file() -> Option<OwnedFd> {
    let folder = places().into_iter().find_map(|(base, folders)| private_folder(&base, folders))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(&folder, c"locks", flags, Mode::RUSR | Mode::WUSR).ok()
}

type Folders = &'static [&'static CStr];

/// Where a user has state that is his own (file-hierarchy(7), XDG Base Directory Specification).
fn places() -> Vec<(PathBuf, Folders)> {
    const OURS: Folders = &[c"driftless"];
    let variable = |name: &str| std::env::var_os(name).filter(|path: &OsString| Path::new(path).is_absolute()).map(PathBuf::from);
    let uid = geteuid();
    let run = if uid.is_root() { "/run".into() } else { PathBuf::from(format!("/run/user/{}", uid.as_raw())) };
    let mut places = vec![(run, OURS)];
    places.extend(variable("XDG_RUNTIME_DIR").map(|path| (path, OURS)));
    places.extend(variable("XDG_STATE_HOME").map(|path| (path, OURS)));
    places.extend(variable("HOME").map(|path| (path, &[c".local", c"state", c"driftless"][..])));
    places
}

/// Enters folders one within the other, making those that are missing; `None` unless all are this user's alone to change.
fn private_folder(base: &Path, folders: Folders) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Our own folder, no part of a replicated tree.
    let mut folder = fs::openat(fs::CWD, base.as_os_str().as_bytes(), flags, Mode::empty()).ok().filter(is_ours)?;
    for name in folders {
        let _it_may_be_there = fs::mkdirat(&folder, *name, Mode::RWXU);
        folder = fs::openat(&folder, *name, flags | OFlags::NOFOLLOW, Mode::empty()).ok().filter(is_ours)?;
    }
    Some(folder)
}

fn is_ours(folder: &OwnedFd) -> bool {
    fs::fstat(folder).is_ok_and(|st| st.st_uid == geteuid().as_raw() && st.st_mode & 0o022 == 0)
}

/// Does something in a directory that leaves no trace in its times; nothing, if these cannot be read. The end of a run, where the last lock
/// goes, has nobody to tell what failed, so both calls are made once more then.
pub fn keep_times<T>(dir: &OwnedFd, act: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let st = fs::fstat(dir).or_else(|_| fs::fstat(dir))?;
    let done = act()?;
    let mtime = Timespec { tv_sec: st.st_mtime, tv_nsec: st.st_mtime_nsec as _ };
    let times = Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: mtime };
    let _only_its_owner_can = fs::futimens(dir, &times).or_else(|_| fs::futimens(dir, &times));
    Ok(done)
}

/// Does something that only who may write to a directory can do. Its owner, who may not, lends himself the right.
pub fn while_writable<T>(dir: &OwnedFd, mut act: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mode = match act() {
        // What root may not do is not a matter of modes.
        Err(Errno::ACCESS) if !geteuid().is_root() => fs::fstat(dir)?.st_mode & 0o7777,
        other => return other,
    };
    fs::fchmod(dir, Mode::from_raw_mode(mode | 0o300)).map_err(|_| Errno::ACCESS)?;
    let done = act();
    fs::fchmod(dir, Mode::from_raw_mode(mode))?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_as_it_was_written() {
        let holder = Holder { process: 17, host: b"node \xff".to_vec() };
        assert_eq!(Holder::decode(&holder.encode()), Some(holder));
        for bad in [&b""[..], b"17\n", b"x node\n", b"17 node"] {
            assert_eq!(Holder::decode(bad), None);
        }
    }

    #[test]
    fn directories_and_entries_have_bytes_of_their_own() {
        let bytes = [byte_of((1, 2), c""), byte_of((2, 1), c""), byte_of((1, 2), c"a"), byte_of((1, 2), c"b")];
        let distinct: std::collections::BTreeSet<u64> = bytes.into_iter().collect();
        assert_eq!(distinct.len(), bytes.len());
        assert!(bytes.iter().all(|at| i64::try_from(at + 1).is_ok()));
    }
}
