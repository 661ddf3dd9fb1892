//! The inodes and open files that the kernel knows by number, each a handle on the backing
//! directory.
//!
//! A node holds an `O_PATH` handle, so it stays the same inode whatever happens to its names, and
//! hard links share it.

use super::wire::{Attr, pack_device};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of the root (`FUSE_ROOT_ID`).
const ROOT: u64 = 1;

/// One inode.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) fd: OwnedFd,
    /// The name it was last looked up by; rules ask for it.
    name: Mutex<Vec<u8>>,
}

impl Node {
    pub(super) fn name(&self) -> Vec<u8> {
        lock(&self.name).clone()
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(&self.fd)
    }

    /// A path that leads to the inode itself, even if that is a symbolic link.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(CWD, self.path(), flags | OFlags::CLOEXEC, Mode::empty())
    }
}

/// Something open.
#[derive(Debug)]
pub(super) enum Handle {
    File(OwnedFd),
    /// What was in the directory when it was listed from the start.
    Directory(Mutex<Vec<Listed>>),
}

/// An entry of a listing.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) ino: u64,
    pub(super) kind: FileType,
}

#[derive(Debug, Default)]
struct Tables {
    /// Each node with how often the kernel was told of it.
    nodes: HashMap<u64, (Arc<Node>, u64)>,
    by_inode: HashMap<(u64, u64), u64>,
    handles: HashMap<u64, Arc<Handle>>,
    last: u64,
}

impl Tables {
    /// Notes that the kernel is told of a node once more.
    fn tell(&mut self, id: u64, fd: OwnedFd, name: &[u8]) -> Arc<Node> {
        let new = || {
            (
                Arc::new(Node {
                    id,
                    fd,
                    name: Mutex::default(),
                }),
                0,
            )
        };
        let (node, lookups) = self.nodes.entry(id).or_insert_with(new);
        *lookups += 1;
        *lock(&node.name) = name.to_vec();
        node.clone()
    }
}

/// All that the kernel knows by number.
#[derive(Debug)]
pub(super) struct Nodes(Mutex<Tables>);

impl Nodes {
    /// The backing directory alone.
    pub(super) fn new(backing: &Path) -> Nodes {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, backing, flags, Mode::empty())
            .expect("open the backing directory");
        let nodes = Nodes(Mutex::new(Tables {
            last: ROOT - 1,
            ..Tables::default()
        }));
        nodes.know(fd, b"").expect("look at the backing directory");
        nodes
    }

    pub(super) fn node(&self, id: u64) -> Result<Arc<Node>, Errno> {
        lock(&self.0)
            .nodes
            .get(&id)
            .map(|(node, _)| node.clone())
            .ok_or(Errno::STALE)
    }

    /// The node of an inode, which the kernel is told of once more.
    pub(super) fn know(&self, fd: OwnedFd, name: &[u8]) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        let tables = &mut *lock(&self.0);
        let id = *tables
            .by_inode
            .entry((stat.st_dev, stat.st_ino))
            .or_insert_with(|| {
                tables.last += 1;
                tables.last
            });
        Ok((tables.tell(id, fd, name), stat))
    }

    /// Makes a further node of an inode: the kernel lets no directory that it knows be in itself.
    pub(super) fn know_apart(&self, fd: OwnedFd, name: &[u8]) -> Result<(Arc<Node>, Stat), Errno> {
        let stat = rustix::fs::fstat(&fd)?;
        let tables = &mut *lock(&self.0);
        tables.last += 1;
        let id = tables.last;
        Ok((tables.tell(id, fd, name), stat))
    }

    /// The kernel gives back so many of its lookups.
    pub(super) fn forget(&self, id: u64, count: u64) {
        let tables = &mut *lock(&self.0);
        let Some((_, lookups)) = tables.nodes.get_mut(&id) else {
            return;
        };
        *lookups = lookups.saturating_sub(count);
        if *lookups == 0 && id != ROOT {
            tables.nodes.remove(&id);
            tables.by_inode.retain(|_, known| *known != id);
        }
    }

    /// A file system is gone, and another may get its number while the kernel still knows nodes of
    /// it: btrfs frees the number of a subvolume as soon as it is deleted.
    pub(super) fn lose_device(&self, device: u64) {
        let tables = &mut *lock(&self.0);
        tables.by_inode.retain(|(of, _), _| *of != device);
    }

    pub(super) fn hold(&self, handle: Handle) -> u64 {
        let tables = &mut *lock(&self.0);
        tables.last += 1;
        tables.handles.insert(tables.last, Arc::new(handle));
        tables.last
    }

    pub(super) fn handle(&self, id: u64) -> Result<Arc<Handle>, Errno> {
        lock(&self.0).handles.get(&id).cloned().ok_or(Errno::BADF)
    }

    /// Whether an inode of the backing directory is open as a file.
    pub(super) fn is_open(&self, id: (u64, u64)) -> bool {
        let is_it = |file: &OwnedFd| {
            rustix::fs::fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == id)
        };
        lock(&self.0)
            .handles
            .values()
            .any(|handle| matches!(&**handle, Handle::File(file) if is_it(file)))
    }

    pub(super) fn release(&self, id: u64) {
        lock(&self.0).handles.remove(&id);
    }
}

/// The entries of a directory, `.` and `..` among them.
pub(super) fn list(node: &Node) -> Result<Vec<Listed>, Errno> {
    let fd = node.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
    let listed = |entry: rustix::fs::DirEntry| Listed {
        name: entry.file_name().to_bytes().to_vec(),
        ino: entry.ino(),
        kind: entry.file_type(),
    };
    rustix::fs::Dir::read_from(&fd)?
        .map(|entry| entry.map(listed))
        .collect()
}

/// Opens a name itself.
pub(super) fn reach(parent: &Node, name: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        &parent.fd,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Whether a name is there.
pub(super) fn is_there(parent: &Node, name: &[u8]) -> bool {
    rustix::fs::statat(&parent.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// A `stat` as the kernel wants it.
pub(super) fn attr(stat: &Stat) -> Attr {
    let (major, minor) = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    let time = |seconds: i64, nanoseconds: u64| (seconds, nanoseconds as u32);
    Attr {
        ino: stat.st_ino,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        times: [
            time(stat.st_atime, stat.st_atime_nsec),
            time(stat.st_mtime, stat.st_mtime_nsec),
            time(stat.st_ctime, stat.st_ctime_nsec),
        ],
        mode: stat.st_mode,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: pack_device(major, minor),
        blksize: stat.st_blksize as u32,
    }
}

/// A test that panicked in another thread says what went wrong; the server goes on for it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
