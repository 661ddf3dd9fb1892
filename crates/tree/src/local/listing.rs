//! Listing a directory of this machine (getdents64(2)).

use crate::Done;
use crate::local::look::{fault, kind_of};
use crate::local::shown::refuse_locked;
use crate::lock::names::{HEAD_BYTES, says_lock};
use crate::names::{NameStream, Names};
use crate::temp::is_root_name;
use driftless_model::{Act, Kind, SNAPSHOTS, Side, TRASH, is_lock_name};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// The same directory with a position of its own in the listing (open(2): an open file
/// description). If the user has lost the right to open the directory since, it shares the position
/// of `dir`, which is set back to the beginning.
pub fn opened_again(dir: &OwnedFd) -> Result<OwnedFd, Errno> {
    match fs::openat(
        dir,
        c".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Err(Errno::ACCESS) => rewind(dir).and_then(|()| rustix::io::fcntl_dupfd_cloexec(dir, 0)),
        opened => opened,
    }
}

/// Sets the position of an open directory back to the beginning, before its first listing. btrfs lists
/// the entries that a directory had when it was opened or last set back (`btrfs_dir_llseek`,
/// fs/btrfs/inode.c).
pub fn rewind(dir: &OwnedFd) -> Result<(), Errno> {
    fs::seek(dir, fs::SeekFrom::Start(0)).map(drop)
}

/// Whether an open directory without links was removed: then the kernel lists nothing of it, not
/// even `.` (`IS_DEADDIR`, fs/readdir.c). File systems that count no links list what they have.
pub fn is_removed(dir: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let first = |dir: OwnedFd| match fs::RawDir::new(&dir, &mut buffer).next() {
        Some(Err(errno)) => Err(errno),
        _ => Ok(()),
    };
    opened_again(dir).and_then(first) == Err(Errno::NOENT)
}

thread_local! {
    /// One buffer a thread for getdents64(2).
    static DIRENTS: RefCell<Vec<MaybeUninit<u8>>> = RefCell::new(vec![MaybeUninit::uninit(); 32 * 1024]);
}

pub struct LocalNames {
    pub fd: Arc<OwnedFd>,
    pub side: Side,
    pub at_root: bool,
    /// The key may go while the directory is listed, and then the rest of the names is cipher text.
    pub is_encrypted: bool,
}

impl LocalNames {
    /// Whether no listing shows a name. In a root that is so for the mark, the lock and the sign of
    /// a replica, which are files, and for the directory of snapshots. Anywhere else, or of another
    /// kind, such a name is one like others; in the root of a source, so is a user's own file at the
    /// name of a lock, which would be lost in silence. In a root nothing is shown at the name of
    /// the trash, of whatever kind: what a source has there must not take the place of what a
    /// replica keeps.
    fn hides(&self, name: &CStr, kind: Option<Kind>) -> bool {
        let is_ours = || {
            let may_be = |is: Kind| kind.is_none_or(|kind| kind == is);
            may_be(Kind::File) && is_root_name(name) && !self.is_users(name)
                || may_be(Kind::Dir) && name == SNAPSHOTS
                || name == TRASH
        };
        matches!(name.to_bytes(), b"." | b"..") || self.at_root && is_ours()
    }

    /// Whether a file of the source that has the name of a lock is none. A file that cannot be read
    /// counts as a lock.
    fn is_users(&self, name: &CStr) -> bool {
        if self.side == Side::Replica || !is_lock_name(name.to_bytes()) {
            return false;
        }
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let mut head = [0; HEAD_BYTES];
        let got = fs::openat(&*self.fd, name, flags, Mode::empty())
            .and_then(|file| rustix::io::pread(&file, &mut head[..], 0));
        got.is_ok_and(|got| !says_lock(&head[..got]))
    }
}

impl NameStream for LocalNames {
    fn fill(&mut self, names: &mut Names, max: usize) -> Done<bool> {
        DIRENTS.with_borrow_mut(|buffer| {
            let mut entries = fs::RawDir::new(&*self.fd, buffer);
            while names.len() < max || !entries.is_buffer_empty() {
                match entries.next() {
                    None if self.is_encrypted => {
                        let shown = refuse_locked(&*self.fd);
                        return shown
                            .map(|()| false)
                            .map_err(|e| fault(self.side, Act::List, e));
                    }
                    None => return Ok(false),
                    Some(Err(Errno::INTR)) => {}
                    Some(Err(e)) => return Err(fault(self.side, Act::List, e)),
                    Some(Ok(entry))
                        if self.hides(entry.file_name(), kind_of(entry.file_type())) => {}
                    Some(Ok(entry)) => names.push(entry.file_name(), kind_of(entry.file_type())),
                }
            }
            Ok(true)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HandlePool;
    use std::ffi::CString;

    #[test]
    fn listings_of_one_directory_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = HandlePool::new(8);
        let Ok(crate::Place::Dir(dir)) = crate::locate_mut(folder.path(), &pool) else {
            panic!("it is there")
        };
        let name = |number: usize| CString::new(format!("name-{number}")).expect("no NUL");
        (0..5000).for_each(|number| drop(dir.create_file(&name(number), 0o600).expect("create")));
        let mut listings: Vec<(Box<dyn NameStream>, Names)> = (0..3)
            .map(|_| (dir.list().expect("list"), Names::default()))
            .collect();
        // In turn, and the last one is begun when the others are under way.
        for round in 1..=100 {
            for (stream, names) in &mut listings {
                stream.fill(names, 60 * round).expect("list");
            }
        }
        for (_, names) in listings {
            let all: std::collections::BTreeSet<&[u8]> =
                (0..names.len()).map(|number| names.bytes(number)).collect();
            assert_eq!((names.len(), all.len()), (5000, 5000), "each name once");
        }
    }
}
