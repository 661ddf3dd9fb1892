//! A tree as a value: every entry with everything that a replica must reproduce.
//!
//! The walk holds one directory handle, goes down by name and up by `..`, and keeps its own stack.
//! So neither the length of a path, nor the depth of a tree, nor the limit of open files matters,
//! and it shares no idea with driftless' walk, which holds a stack of handles. It is for trees at
//! rest.

use crate::hash::Hash;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Contents and hole maps are looked at in blocks of this many bytes.
pub const BLOCK_BYTES: u64 = 4096;
const READ_BYTES: usize = 1 << 20;
const XATTR_BYTES_MAX: usize = 65536;

/// What a root says of itself as a replica is no part of the tree: an attribute, or a file where
/// there are none.
const MARKS: [&[u8]; 2] = [b"trusted.driftless.mark", b"user.driftless.mark"];
/// See above.
pub(crate) const MARK_FILE: &[u8] = b".driftless-tmp-00000000000000000000000000000001";

/// Names in a root that are no part of the tree: its mark, the folder of its snapshots, its trash.
const NO_PART: [&[u8]; 3] = [MARK_FILE, b".driftless-snapshots", b".driftless-trash"];

/// One entry of a scanned tree.
#[derive(Debug)]
pub struct Node {
    /// The index of the directory that holds it; the root holds itself.
    pub parent: usize,
    /// Its name in that directory; empty for the root.
    pub name: Vec<u8>,
    /// The raw `stat` of the name itself.
    pub stat: Stat,
    /// Where a symbolic link points to.
    pub target: Option<Vec<u8>>,
    /// All user, trusted, capability and ACL xattrs, sorted by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// A hash over the blocks that are not all zero, so that holes do not show in it.
    pub content: u128,
    /// The data extents, rounded outwards to whole blocks and merged.
    pub extents: Vec<(u64, u64)>,
    /// The indices of a directory's entries, sorted by name.
    pub children: Vec<usize>,
}

impl Node {
    /// The type bits of the mode.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// The permission bits with setuid, setgid and sticky.
    pub fn mode(&self) -> u32 {
        self.stat.st_mode & 0o7777
    }

    /// The mtime in seconds and nanoseconds.
    pub fn mtime(&self) -> (i64, u64) {
        (self.stat.st_mtime, self.stat.st_mtime_nsec)
    }
}

/// How deep a scan looks.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// Read the contents of files.
    pub content: bool,
    /// Ask for the hole map of files.
    pub holes: bool,
}

/// A scanned tree; index 0 is its root.
#[derive(Debug)]
pub struct Scan {
    /// All entries.
    pub nodes: Vec<Node>,
}

struct Frame {
    node: usize,
    directories: Vec<usize>,
}

impl Scan {
    /// Reads the whole tree below `root`, which may also be a single file.
    pub fn of(root: &Path, depth: Depth) -> io::Result<Scan> {
        let stat = rustix::fs::statat(CWD, root, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut scan = Scan { nodes: Vec::new() };
        let name = std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str());
        scan.nodes.push(read_node(CWD, name, stat, depth)?);
        scan.nodes[0].name.clear();
        scan.nodes[0]
            .xattrs
            .retain(|(name, _)| !MARKS.contains(&&name[..]));
        if scan.nodes[0].kind() == FileType::Directory {
            let fd = open_dir(CWD, name)?;
            scan.walk(fd, depth)?;
        }
        Ok(scan)
    }

    fn walk(&mut self, root: OwnedFd, depth: Depth) -> io::Result<()> {
        let mut here = root;
        let mut stack = vec![Frame {
            node: 0,
            directories: self.list(0, &here, depth)?,
        }];
        while let Some(frame) = stack.last_mut() {
            if let Some(next) = frame.directories.pop() {
                here = open_dir(here.as_fd(), &self.nodes[next].name)?;
                let directories = self.list(next, &here, depth)?;
                stack.push(Frame {
                    node: next,
                    directories,
                });
            } else {
                let left = stack.pop().map(|frame| frame.node);
                if left != Some(0) {
                    here = open_dir(here.as_fd(), b"..")?;
                }
            }
        }
        Ok(())
    }

    /// Adds the entries of one directory and returns those that are directories.
    fn list(&mut self, parent: usize, fd: &OwnedFd, depth: Depth) -> io::Result<Vec<usize>> {
        let mut directories = Vec::new();
        for name in list_names(fd)?
            .into_iter()
            .filter(|name| parent != 0 || !NO_PART.contains(&&name[..]))
        {
            let stat = rustix::fs::statat(fd, &name[..], AtFlags::SYMLINK_NOFOLLOW)?;
            let mut node = read_node(fd.as_fd(), &name, stat, depth)?;
            node.parent = parent;
            let index = self.nodes.len();
            if node.kind() == FileType::Directory {
                directories.push(index);
            }
            self.nodes[parent].children.push(index);
            self.nodes.push(node);
        }
        Ok(directories)
    }

    /// The path of an entry relative to the root; `.` is the root.
    pub fn path(&self, index: usize) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut at = index;
        while at != 0 {
            parts.push(&self.nodes[at].name[..]);
            at = self.nodes[at].parent;
        }
        parts.reverse();
        if parts.is_empty() {
            b".".to_vec()
        } else {
            parts.join(&b'/')
        }
    }
}

/// The names in a directory without `.` and `..`, sorted.
pub(crate) fn list_names(fd: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(fd)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Opens a directory by one name without following a link and without touching its atime.
pub(crate) fn open_dir(at: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(at, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => Ok(rustix::fs::openat(at, name, flags, Mode::empty())?),
        other => Ok(other?),
    }
}

fn read_node(at: BorrowedFd<'_>, name: &[u8], stat: Stat, depth: Depth) -> io::Result<Node> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let mut node = Node {
        parent: 0,
        name: name.to_vec(),
        stat,
        target: None,
        xattrs: read_xattrs(at, name)?,
        content: 0,
        extents: Vec::new(),
        children: Vec::new(),
    };
    match kind {
        FileType::Symlink => {
            node.target = Some(rustix::fs::readlinkat(at, name, Vec::new())?.into_bytes())
        }
        FileType::RegularFile if depth.content || depth.holes => read_file(at, &mut node, depth)?,
        _ => (),
    }
    Ok(node)
}

fn read_xattrs(at: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(at, name, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let mut names = vec![0u8; XATTR_BYTES_MAX];
    let length = match rustix::fs::listxattr(&path[..], &mut names[..]) {
        Err(Errno::NOTSUP) => 0,
        other => other?,
    };
    let mut xattrs = Vec::new();
    for key in names[..length]
        .split(|byte| *byte == 0)
        .filter(|key| is_replicated(key))
    {
        let mut value = vec![0u8; XATTR_BYTES_MAX];
        let length = rustix::fs::getxattr(&path[..], key, &mut value[..])?;
        value.truncate(length);
        xattrs.push((key.to_vec(), value));
    }
    xattrs.sort();
    Ok(xattrs)
}

fn is_replicated(key: &[u8]) -> bool {
    // XFS shows root the ACLs once more, as they stand on its disk.
    let is_acl_of_xfs = key.starts_with(b"trusted.SGI_ACL_");
    let kept = key.starts_with(b"user.")
        || key.starts_with(b"trusted.")
        || key.starts_with(b"system.posix_acl_");
    kept && !is_acl_of_xfs || key == b"security.capability"
}

fn read_file(at: BorrowedFd<'_>, node: &mut Node, depth: Depth) -> io::Result<()> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(at, &node.name[..], flags, Mode::empty())?;
    if depth.holes {
        // Cached pages over unwritten extents, left by whoever read them, would show as data.
        rustix::fs::fadvise(&fd, 0, None, Advice::DontNeed)?;
    }
    let extents = data_extents(&fd, node.stat.st_size as u64)?;
    if depth.content {
        node.content = hash_content(&fd, &extents)?;
    }
    if depth.holes {
        node.extents = extents;
    }
    Ok(())
}

/// The data extents of an open file, rounded outwards to whole blocks and merged.
pub fn data_extents(fd: &OwnedFd, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut extents: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            other => other?,
        };
        at = rustix::fs::seek(fd, SeekFrom::Hole(start))?;
        let start = start / BLOCK_BYTES * BLOCK_BYTES;
        let end = at.div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
        match extents.last_mut() {
            Some(last) if last.1 >= start => last.1 = end,
            _ => extents.push((start, end)),
        }
    }
    Ok(extents)
}

fn hash_content(fd: &OwnedFd, extents: &[(u64, u64)]) -> io::Result<u128> {
    let mut hash = Hash::new();
    let mut buffer = vec![0u8; READ_BYTES];
    for &(start, end) in extents {
        let mut at = start;
        while at < end {
            let want = READ_BYTES.min((end - at) as usize);
            let got = read_fully(fd, &mut buffer[..want], at)?;
            hash_blocks(&mut hash, &buffer[..got], at);
            if got < want {
                break;
            }
            at += got as u64;
        }
    }
    Ok(hash.finish())
}

fn read_fully(fd: &OwnedFd, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[done..], at + done as u64)? {
            0 => break,
            got => done += got,
        }
    }
    Ok(done)
}

fn hash_blocks(hash: &mut Hash, data: &[u8], at: u64) {
    for (index, block) in data.chunks(BLOCK_BYTES as usize).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            hash.word(at / BLOCK_BYTES + index as u64);
            let used = block.len() - block.iter().rev().take_while(|byte| **byte == 0).count();
            hash.bytes(&block[..used]);
        }
    }
}
