//! Locks that keep other runs from a replica, and that no other user can take or hold.
//!
//! Whoever can open a directory can lock it (flock(2)), so a lock on the replica's root itself
//! would be anybody's. So there are two locks of our own.
//!
//! *On this host*: a file that nobody else can open, in a folder that nobody else can change.
//! (Others may look into root's folder: mirrors listen for posts there.) In this file each
//! directory of the host has one byte, found by the hash of its device and inode. A run locks the
//! byte of its root alone, and takes shared locks on the bytes of all directories above: so runs on
//! overlapping trees keep each other out, and runs side by side do not. Nothing is written to the
//! tree.
//!
//! *Everywhere*: a file in the root, as far as its file system shares locks between hosts
//! (`lock/file.rs`).

use crate::local::LocalDir;
use crate::local::look::fault;
use crate::local::sys::{self, ByteLock};
use crate::lock::{Holder, Lock, Reach};
use crate::temp::fnv1a;
use crate::{Done, Held};
use driftless_model::{Act, Side};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Finds out which process has a directory locked on this host, if one has, and keeps since when
/// that process runs: a process that confines itself cannot find that out later.
pub fn prepare_holder(dir: &LocalDir) {
    let Ok(fd) = dir.fd() else { return };
    let above = crate::root::lineage(&fd)
        .unwrap_or_default()
        .into_iter()
        .map(|above| byte_of(above.id, c""));
    let kinds = std::iter::once(ByteLock::Exclusive).chain(std::iter::repeat(ByteLock::Shared));
    for (at, kind) in above.zip(kinds) {
        let holders = host_files()
            .iter()
            .filter_map(|file| sys::byte_holder(file.as_fd(), at, kind));
        holders.for_each(crate::lock::started::remember);
    }
}

/// Opens the files of this host's locks, if that was not done yet. A process that confines itself
/// cannot open them later.
pub fn prepare_locks() {
    host_files();
}

/// Takes a lock on a directory, or on the entry `name` of it.
pub fn take(dir: &LocalDir, name: Option<&CStr>, reach: Reach) -> Done<Lock> {
    match reach {
        Reach::Host => {
            on_host(&*dir.fd()?, name).map_err(|errno| fault(Side::Replica, Act::Lock, errno))
        }
        Reach::Everywhere | Reach::Found => {
            crate::lock::file::take(dir, name, reach == Reach::Everywhere)
        }
        Reach::Within => crate::lock::file::take_within(dir),
        Reach::Seen => seen(&*dir.fd()?).map_err(|errno| fault(Side::Replica, Act::Lock, errno)),
    }
}

/// Locked bytes of the host's files. Such locks belong to the process and not to this value
/// (fcntl(2)): of two values with the same byte, the first that is dropped gives it up for both. So
/// a process holds one value at a time.
struct HostLock(Vec<(BorrowedFd<'static>, u64)>);

impl Held for HostLock {
    fn is_kept(&self) -> Done<bool> {
        Ok(true)
    }
}

impl Drop for HostLock {
    fn drop(&mut self) {
        for (file, at) in self.0.drain(..) {
            let _it_ends_with_the_process = sys::lock_byte(file, at, ByteLock::None);
        }
    }
}

fn on_host(dir: &OwnedFd, name: Option<&CStr>) -> Result<Lock, Errno> {
    let above: Vec<u64> = crate::root::lineage(dir)?
        .into_iter()
        .map(|above| byte_of(above.id, c""))
        .collect();
    let (own, above) = match name {
        Some(name) => (byte_of(id_of(dir)?, name), &above[..]),
        None => (above[0], &above[1..]),
    };
    let (mut lock, mut missing) = (HostLock(Vec::new()), Errno::NOENT);
    let wanted = || {
        std::iter::once((own, ByteLock::Exclusive))
            .chain(above.iter().map(|at| (*at, ByteLock::Shared)))
    };
    for (file, (at, kind)) in host_files()
        .iter()
        .flat_map(|file| wanted().map(move |wanted| (file.as_fd(), wanted)))
    {
        match sys::lock_byte(file, at, kind) {
            Ok(()) => lock.0.push((file, at)),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                return Ok(Lock::Taken(
                    sys::byte_holder(file, at, kind).map(Holder::here),
                ));
            }
            // A home on a server may have no locks; the other files have.
            Err(errno) => missing = errno,
        }
    }
    Ok(if lock.0.is_empty() {
        Lock::Missing(missing.raw_os_error())
    } else {
        Lock::Held(Box::new(lock))
    })
}

/// Who has the lock of this host on a directory; [`Lock::Missing`] with 0 if nobody has.
fn seen(dir: &OwnedFd) -> Result<Lock, Errno> {
    let own = byte_of(id_of(dir)?, c"");
    let holder = host_files()
        .iter()
        .find_map(|file| sys::byte_holder(file.as_fd(), own, ByteLock::Exclusive));
    Ok(holder.map_or(Lock::Missing(0), |process| {
        Lock::Taken(Some(Holder::here(process)))
    }))
}

fn id_of(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    fs::fstat(fd).map(|st| (st.st_dev, st.st_ino))
}

/// The byte of a directory, or of an entry of it.
fn byte_of((device, inode): (u64, u64), name: &CStr) -> u64 {
    /// The largest offset of such a byte: offsets are signed, and the end of the byte is one, too.
    const OFFSET_MAX: u128 = (1 << 62) - 1;
    let id = [
        &device.to_le_bytes()[..],
        &inode.to_le_bytes(),
        name.to_bytes(),
    ]
    .concat();
    (fnv1a(&id) & OFFSET_MAX) as u64
}

/// The files of this host's locks. They are never closed: that would give up all locks on them
/// (fcntl(2)).
fn host_files() -> &'static [OwnedFd] {
    static FILES: OnceLock<Vec<OwnedFd>> = OnceLock::new();
    FILES.get_or_init(open_host_files)
}

/// Opens one file in each place that is this user's own: some places come when he logs in and go
/// when he logs out, while his runs go on. Root's first place is always there, and is enough.
fn open_host_files() -> Vec<OwnedFd> {
    let mut files: Vec<OwnedFd> = Vec::new();
    for (base, folders, name) in places() {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |folder| fs::openat(&folder, &*name, flags, Mode::RUSR | Mode::WUSR).ok();
        let Some(file) = private_folder(&base, folders).and_then(open) else {
            continue;
        };
        // Two paths may lead to one place. The second file is closed again, which gives up all
        // locks of this process on it (fcntl(2)); there are none yet.
        if !files.iter().any(|known| id_of(known) == id_of(&file)) {
            files.push(file);
        }
        if geteuid().is_root() {
            break;
        }
    }
    files
}

type Folders = &'static [&'static CStr];

/// Where a user has state that is his own (file-hierarchy(7), XDG Base Directory Specification),
/// and the name of the file there. Hosts may share a home, and have the same numbers for different
/// devices and inodes: there, each host has a file of its own.
fn places() -> Vec<(PathBuf, Folders, CString)> {
    const OURS: Folders = &[c"driftless"];
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|path: &OsString| Path::new(path).is_absolute())
            .map(PathBuf::from)
    };
    let uid = geteuid();
    let run = if uid.is_root() {
        "/run".into()
    } else {
        PathBuf::from(format!("/run/user/{}", uid.as_raw()))
    };
    let host = fnv1a(rustix::system::uname().nodename().to_bytes());
    let (locks, locks_of_host) = (
        c"locks".to_owned(),
        CString::new(format!("locks-{host:032x}")).expect("digits hold no NUL"),
    );
    let mut places = vec![(run, OURS, locks.clone())];
    places.extend(variable("XDG_RUNTIME_DIR").map(|path| (path, OURS, locks)));
    places.extend(variable("XDG_STATE_HOME").map(|path| (path, OURS, locks_of_host.clone())));
    places.extend(variable("HOME").map(|path| {
        (
            path,
            &[c".local", c"state", c"driftless"][..],
            locks_of_host,
        )
    }));
    places
}

/// Enters folders one within the other, and makes those that are missing; `None` unless nobody but
/// this user can change any of them.
fn private_folder(base: &Path, folders: Folders) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Our own folder, no part of a replicated tree.
    let mut folder = fs::openat(fs::CWD, base.as_os_str().as_bytes(), flags, Mode::empty())
        .ok()
        .filter(is_ours)?;
    for name in folders {
        let _it_may_be_there = fs::mkdirat(&folder, *name, Mode::RWXU);
        folder = fs::openat(&folder, *name, flags | OFlags::NOFOLLOW, Mode::empty())
            .ok()
            .filter(is_ours)?;
    }
    Some(folder)
}

fn is_ours(folder: &OwnedFd) -> bool {
    fs::fstat(folder).is_ok_and(|st| st.st_uid == geteuid().as_raw() && st.st_mode & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_read_as_it_was_written() {
        let holder = Holder {
            process: 17,
            host: b"node \xff".to_vec(),
            since: Some(1_700_000_000),
        };
        assert_eq!(Holder::decode(&holder.encode()), Some(holder.clone()));
        let of_earlier_form = Holder {
            since: None,
            ..holder
        };
        assert_eq!(
            Holder::decode(b"17 node \xff\n"),
            Some(of_earlier_form.clone())
        );
        assert_eq!(
            Holder::decode(b"17 node \xff\nsoon\n"),
            Some(of_earlier_form)
        );
        for bad in [&b""[..], b"17\n", b"x node\n", b"17 node"] {
            assert_eq!(Holder::decode(bad), None);
        }
    }

    #[test]
    fn directories_and_entries_have_bytes_of_their_own() {
        let bytes = [
            byte_of((1, 2), c""),
            byte_of((2, 1), c""),
            byte_of((1, 2), c"a"),
            byte_of((1, 2), c"b"),
        ];
        let distinct: std::collections::BTreeSet<u64> = bytes.into_iter().collect();
        assert_eq!(distinct.len(), bytes.len());
        assert!(bytes.iter().all(|at| i64::try_from(at + 1).is_ok()));
    }
}
