//! Each request carried out on the backing directory, and the lies that a mood tells.
//!
//! Right answers come from the file system below; the server acts as root, and what it makes gets
//! the caller's owner and mode.

use super::door::Server;
use super::mood::{Deed, MODE_BITS, Orders};
use super::nodes::{Handle, Listed, Node, Nodes, attr, is_there, list, lock, reach};
use super::wire::{Answer, Attr, Call, FEATURE_ACLS, Fields, Op, Words, add_entry, unpack_device};
use crate::attrs::ACL_DEFAULT;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const XATTR_BYTES_MAX: usize = 65536;
/// Bits of `fuse_setattr_in.valid`.
const SET_MODE: u32 = 1;
const SET_UID: u32 = 1 << 1;
const SET_GID: u32 = 1 << 2;
const SET_SIZE: u32 = 1 << 3;
const SET_ATIME: u32 = 1 << 4;
const SET_MTIME: u32 = 1 << 5;
const BY_HANDLE: u32 = 1 << 6;
const ATIME_NOW: u32 = 1 << 7;
const MTIME_NOW: u32 = 1 << 8;
/// `FOPEN_DIRECT_IO`.
const DIRECT_IO: u32 = 1;
/// `SEEK_DATA`, `SEEK_HOLE` (lseek(2)).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

pub(super) type Done = Result<Vec<u8>, Errno>;

/// A backing directory seen through a mood.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: Nodes,
    pub(super) orders: Mutex<Orders>,
    hidden: Mutex<Vec<Hidden>>,
}

/// An open file whose name was removed.
#[derive(Debug)]
struct Hidden {
    /// Device and inode.
    id: (u64, u64),
    parent: Arc<Node>,
    /// The name that it has instead.
    name: String,
}

impl Server for Tree {
    fn features(&self) -> u32 {
        if lock(&self.orders).mood.acls {
            FEATURE_ACLS
        } else {
            0
        }
    }

    fn flags(&self) -> MountFlags {
        if lock(&self.orders).mood.read_only {
            MountFlags::RDONLY
        } else {
            MountFlags::empty()
        }
    }

    fn answer(&self, call: &Call<'_>) -> Answer {
        let Some(op) = call.op else {
            return Answer::Failed(Errno::NOSYS);
        };
        let names = self.names(op, call);
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let deeds = lock(&self.orders).judge(op, &names);
        for deed in deeds {
            if let Some(answer) = misbehave(op, call, deed) {
                return answer;
            }
        }
        match op {
            Op::Forget | Op::BatchForget | Op::Interrupt => {
                self.forget(op, call);
                Answer::Silence
            }
            _ => self.carry_out(op, call).into(),
        }
    }
}

/// What a rule makes of a call; none if it goes on.
fn misbehave(op: Op, call: &Call<'_>, deed: Deed) -> Option<Answer> {
    let mut fields = call.fields();
    match deed {
        Deed::Fail(errno) => Some(Answer::Failed(errno)),
        Deed::FailNonblocking(errno) => {
            let flags = OFlags::from_bits_retain(fields.u32());
            flags
                .contains(OFlags::NONBLOCK)
                .then_some(Answer::Failed(errno))
        }
        Deed::Slow(delay) => {
            std::thread::sleep(delay);
            None
        }
        Deed::Never => Some(Answer::Silence),
        Deed::Lose => {
            let (_handle, _offset, size) = (fields.u64(), fields.u64(), fields.u32());
            (op == Op::Write).then(|| Answer::Done(Words::new().u32(size).u32(0).0))
        }
        Deed::EndAt(end) => {
            let (_handle, offset) = (fields.u64(), fields.u64());
            (offset >= end).then_some(Answer::Done(Vec::new()))
        }
        Deed::Omit => None,
    }
}

impl Tree {
    pub(super) fn new(backing: &Path, orders: Orders) -> Tree {
        Tree {
            nodes: Nodes::new(backing),
            orders: Mutex::new(orders),
            hidden: Mutex::default(),
        }
    }

    /// The names that a rule may mean.
    fn names(&self, op: Op, call: &Call<'_>) -> Vec<Vec<u8>> {
        let mut fields = call.fields();
        let own = self
            .nodes
            .node(call.node)
            .map(|node| node.name())
            .unwrap_or_default();
        let (skip, count) = match op {
            Op::Lookup | Op::Unlink | Op::Rmdir | Op::Symlink => (0, 1),
            Op::Mknod | Op::Create => (16, 1),
            Op::Mkdir | Op::Link => (8, 1),
            Op::Rename => (8, 2),
            Op::Rename2 => (16, 2),
            Op::Setxattr | Op::Getxattr => (8, 1),
            Op::Removexattr => (0, 1),
            _ => return vec![own],
        };
        fields.bytes(skip);
        let named = (0..count).map(|_| fields.name().to_vec());
        let is_attribute = matches!(op, Op::Setxattr | Op::Getxattr | Op::Removexattr);
        if is_attribute {
            named.chain([own]).collect()
        } else {
            named.collect()
        }
    }

    fn forget(&self, op: Op, call: &Call<'_>) {
        let mut fields = call.fields();
        if op == Op::Forget {
            self.nodes.forget(call.node, fields.u64());
        } else if op == Op::BatchForget {
            let (count, _) = (fields.u32(), fields.u32());
            (0..count).for_each(|_| self.nodes.forget(fields.u64(), fields.u64()));
        }
    }

    fn carry_out(&self, op: Op, call: &Call<'_>) -> Done {
        let node = self.nodes.node(call.node)?;
        if let Some(done) = self.on_ceph(op, &node, call) {
            return done;
        }
        let mut fields = call.fields();
        match op {
            Op::Lookup => self.look_up(&node, fields.name()),
            Op::Getattr => self.told(&node.stat()?),
            Op::Setattr => self.set(&node, fields),
            Op::Readlink => Ok(rustix::fs::readlinkat(&node.fd, c"", Vec::new())?.into_bytes()),
            Op::Symlink | Op::Mknod | Op::Mkdir | Op::Link => self.make(op, &node, call),
            Op::Create => self.create(&node, call),
            Op::Unlink => self.unlink(&node, &self.spelled(&node, fields.name())?),
            Op::Rmdir => removed(
                &node,
                &self.spelled(&node, fields.name())?,
                AtFlags::REMOVEDIR,
            ),
            Op::Rename | Op::Rename2 => self.rename(op, &node, fields),
            Op::Open => self.open(&node, fields),
            Op::Opendir => Ok(opened(self.nodes.hold(Handle::Directory(Mutex::default())))),
            Op::Readdir => self.read_directory(&node, fields),
            Op::Release | Op::Releasedir => {
                self.nodes.release(fields.u64());
                self.remove_hidden();
                Ok(Vec::new())
            }
            Op::Statfs => statfs(&node),
            Op::Setxattr | Op::Getxattr | Op::Listxattr | Op::Removexattr => {
                self.attribute(op, &node, fields)
            }
            Op::Read | Op::Write | Op::Fsync | Op::Fallocate | Op::Lseek => {
                self.on_file(op, fields)
            }
            Op::Flush | Op::Fsyncdir | Op::Syncfs => Ok(Vec::new()),
            _ => Err(Errno::NOSYS),
        }
    }

    /// How the backing directory spells a name.
    fn spelled(&self, parent: &Node, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let (folds, strips) = {
            let mood = &lock(&self.orders).mood;
            (mood.folds, mood.strips)
        };
        let name = strips.map_or(name, |end| without_end(name, end));
        if !folds || is_there(parent, name) {
            return Ok(name.to_vec());
        }
        let known = list(parent)?
            .into_iter()
            .find(|entry| fold(&entry.name) == fold(name));
        Ok(known.map_or_else(|| name.to_vec(), |entry| entry.name))
    }

    /// Removes a name. What is open may keep a hidden one.
    fn unlink(&self, parent: &Arc<Node>, name: &[u8]) -> Done {
        let stat = rustix::fs::fstat(reach(parent, name)?)?;
        let id = (stat.st_dev, stat.st_ino);
        if !lock(&self.orders).mood.hides || !self.nodes.is_open(id) {
            return removed(parent, name, AtFlags::empty());
        }
        let hidden = Hidden {
            id,
            parent: parent.clone(),
            name: format!(".fuse_hidden{:016x}", stat.st_ino),
        };
        rustix::fs::renameat(&parent.fd, name, &parent.fd, &*hidden.name)?;
        lock(&self.hidden).push(hidden);
        Ok(Vec::new())
    }

    fn remove_hidden(&self) {
        let mut hidden = lock(&self.hidden);
        for closed in hidden.extract_if(.., |hidden| !self.nodes.is_open(hidden.id)) {
            let _it_may_be_gone =
                rustix::fs::unlinkat(&closed.parent.fd, &*closed.name, AtFlags::empty());
        }
    }

    fn look_up(&self, parent: &Node, name: &[u8]) -> Done {
        let loops = lock(&self.orders).mood.loops;
        if loops && name == b"loop" {
            let dir = parent.open(OFlags::PATH | OFlags::DIRECTORY)?;
            let (node, stat) = self.nodes.know_apart(dir, name)?;
            let (attr, valid) = self.shown(&stat);
            return Ok(attr.entry(node.id, valid));
        }
        self.entry(parent, &self.spelled(parent, name)?)
    }

    fn entry(&self, parent: &Node, name: &[u8]) -> Done {
        self.entry_of(reach(parent, name)?, name)
    }

    /// Where the backing directory is.
    pub(super) fn root_path(&self) -> Result<PathBuf, Errno> {
        std::fs::read_link(self.nodes.node(1)?.path()).map_err(|_| Errno::IO)
    }

    pub(super) fn entry_of(&self, fd: OwnedFd, name: &[u8]) -> Done {
        let (node, stat) = self.nodes.know(fd, name)?;
        let (attr, valid) = self.shown(&stat);
        Ok(attr.entry(node.id, valid))
    }

    fn told(&self, stat: &Stat) -> Done {
        let (attr, valid) = self.shown(stat);
        Ok(attr.out(valid))
    }

    fn shown(&self, stat: &Stat) -> (Attr, Duration) {
        let is_hidden = lock(&self.hidden)
            .iter()
            .any(|hidden| hidden.id == (stat.st_dev, stat.st_ino));
        let mood = &lock(&self.orders).mood;
        let mut attr = attr(stat);
        attr.nlink -= u32::from(mood.hides_count && is_hidden).min(attr.nlink);
        attr.mode = mood.shown(attr.mode);
        attr.times = attr.times.map(|time| mood.cut(time));
        attr.blocks *= u64::from(mood.blocks);
        if FileType::from_raw_mode(attr.mode).is_file() {
            attr.size = attr.size.saturating_sub(mood.hidden_bytes);
        }
        if !mood.change_times {
            attr.times[2] = attr.times[1];
        }
        if mood.stamps {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.expect("a clock after 1970");
            attr.times[2] = (now.as_secs() as i64, now.subsec_nanos());
        }
        (attr, mood.remembers)
    }

    /// `fuse_setattr_in`: owner before mode, which a change of owner would clear; times last.
    fn set(&self, node: &Node, mut fields: Fields<'_>) -> Done {
        let (valid, _) = (fields.u32(), fields.u32());
        let (handle, size, _lock_owner) = (fields.u64(), fields.u64(), fields.u64());
        let (atime, mtime, _ctime) = (fields.u64() as i64, fields.u64() as i64, fields.u64());
        let (atime_ns, mtime_ns, _ctime_ns) = (fields.u32(), fields.u32(), fields.u32());
        let (mode, _, uid, gid) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        if valid & (SET_UID | SET_GID) != 0 {
            let uid = (valid & SET_UID != 0).then(|| Uid::from_raw(uid));
            let gid = (valid & SET_GID != 0).then(|| Gid::from_raw(gid));
            self.at(node, |fd, path, flags| {
                rustix::fs::chownat(fd, path, uid, gid, flags)
            })?;
        }
        if valid & SET_MODE != 0 {
            let shown = lock(&self.orders).mood.shown(node.stat()?.st_mode) & MODE_BITS;
            if lock(&self.orders).mood.fixed_mode.is_some() && mode & MODE_BITS != shown {
                return Err(Errno::PERM);
            }
            rustix::fs::chmod(node.path(), Mode::from_raw_mode(mode & MODE_BITS))?;
        }
        if valid & SET_SIZE != 0 {
            self.resize(node, (valid & BY_HANDLE != 0).then_some(handle), size)?;
        }
        let (times, both) = (valid & (SET_ATIME | SET_MTIME), SET_ATIME | SET_MTIME);
        if times == both || times != 0 && !lock(&self.orders).mood.both_times {
            let last_access = timespec(valid, (SET_ATIME, ATIME_NOW), (atime, atime_ns));
            let last_modification = timespec(valid, (SET_MTIME, MTIME_NOW), (mtime, mtime_ns));
            let times = Timestamps {
                last_access,
                last_modification,
            };
            self.at(node, |fd, path, flags| {
                rustix::fs::utimensat(fd, path, &times, flags)
            })?;
        }
        self.told(&node.stat()?)
    }

    /// Acts on a node, or on what its path leads to where links are followed.
    fn at(
        &self,
        node: &Node,
        act: impl FnOnce(BorrowedFd<'_>, &Path, AtFlags) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if !lock(&self.orders).mood.follows_links {
            return act(node.fd.as_fd(), Path::new(""), AtFlags::EMPTY_PATH);
        }
        let path = std::fs::read_link(node.path()).map_err(|_| Errno::IO)?;
        act(CWD, &path, AtFlags::empty())
    }

    fn resize(&self, node: &Node, handle: Option<u64>, size: u64) -> Result<(), Errno> {
        match handle
            .map(|handle| self.nodes.handle(handle))
            .transpose()?
            .as_deref()
        {
            Some(Handle::File(file)) => rustix::fs::ftruncate(file, size),
            _ => rustix::fs::ftruncate(node.open(OFlags::WRONLY)?, size),
        }
    }

    /// Anything that is made without being opened.
    fn make(&self, op: Op, parent: &Arc<Node>, call: &Call<'_>) -> Done {
        let mut fields = call.fields();
        let made = match op {
            Op::Symlink => {
                let (name, target) = (fields.name(), fields.name());
                let name = self.spelled(parent, name)?;
                rustix::fs::symlinkat(target, &parent.fd, &name[..])?;
                (name, None)
            }
            Op::Mkdir => {
                let (mode, umask) = (fields.u32(), fields.u32());
                let name = self.spelled(parent, fields.name())?;
                rustix::fs::mkdirat(&parent.fd, &name[..], Mode::from_raw_mode(mode & MODE_BITS))?;
                (name, Some(mode & !umask))
            }
            Op::Mknod => {
                let (mode, device, umask, _) = (
                    fields.u32(),
                    unpack_device(fields.u32()),
                    fields.u32(),
                    fields.u32(),
                );
                let name = self.spelled(parent, fields.name())?;
                let device = rustix::fs::makedev(device.0, device.1);
                let bits = Mode::from_raw_mode(mode & MODE_BITS);
                rustix::fs::mknodat(
                    &parent.fd,
                    &name[..],
                    FileType::from_raw_mode(mode),
                    bits,
                    device,
                )?;
                (name, Some(mode & !umask))
            }
            _ => {
                let old = self.nodes.node(fields.u64())?;
                let name = self.spelled(parent, fields.name())?;
                rustix::fs::linkat(&old.fd, c"", &parent.fd, &name[..], AtFlags::EMPTY_PATH)?;
                return self.entry(parent, &name);
            }
        };
        hand_over(parent, &made.0, made.1, call)?;
        self.entry(parent, &made.0)
    }

    /// `fuse_create_in`; the answer is an entry and an open file.
    fn create(&self, parent: &Arc<Node>, call: &Call<'_>) -> Done {
        let mut fields = call.fields();
        let (flags, mode, umask, _) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        let name = self.spelled(parent, fields.name())?;
        let is_new = !is_there(parent, &name);
        let flags = plain(flags) | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(
            &parent.fd,
            &name[..],
            flags,
            Mode::from_raw_mode(mode & MODE_BITS),
        )?;
        if is_new {
            hand_over(parent, &name, Some(mode & !umask), call)?;
        }
        let entry = self.entry(parent, &name)?;
        Ok([entry, opened(self.nodes.hold(Handle::File(file)))].concat())
    }

    fn open(&self, node: &Node, mut fields: Fields<'_>) -> Done {
        let file = node.open(plain(fields.u32()))?;
        let handle = self.nodes.hold(Handle::File(file));
        let hides = lock(&self.orders).mood.hidden_bytes > 0;
        Ok(opened_with(handle, if hides { DIRECT_IO } else { 0 }))
    }

    fn rename(&self, op: Op, parent: &Node, mut fields: Fields<'_>) -> Done {
        let to = self.nodes.node(fields.u64())?;
        let flags = if op == Op::Rename2 {
            (fields.u32(), fields.u32()).0
        } else {
            0
        };
        // What stands at the new name gives way and leaves its spelling; the kernel renames no
        // inode to itself.
        let (old, new) = (
            self.spelled(parent, fields.name())?,
            self.spelled(&to, fields.name())?,
        );
        rustix::fs::renameat_with(
            &parent.fd,
            &old[..],
            &to.fd,
            &new[..],
            RenameFlags::from_bits_retain(flags),
        )?;
        Ok(Vec::new())
    }

    /// `fuse_read_in`; the offset is the number of the entry, and the start is listed anew.
    fn read_directory(&self, node: &Node, mut fields: Fields<'_>) -> Done {
        let (handle, offset, size) = (
            self.nodes.handle(fields.u64())?,
            fields.u64() as usize,
            fields.u32() as usize,
        );
        let Handle::Directory(listed) = &*handle else {
            return Err(Errno::NOTDIR);
        };
        let mut listed = lock(listed);
        if offset == 0 {
            *listed = self.listing(node)?;
        }
        let unknown = lock(&self.orders).mood.unknown_kinds;
        let mut answer = Vec::new();
        for (index, entry) in listed.iter().enumerate().skip(offset) {
            let kind = if unknown {
                0
            } else {
                entry.kind.as_raw_mode() >> 12
            };
            if !add_entry(
                &mut answer,
                size,
                (entry.ino, index as u64 + 1, kind, &entry.name),
            ) {
                break;
            }
        }
        Ok(answer)
    }

    fn listing(&self, node: &Node) -> Result<Vec<Listed>, Errno> {
        let mut all = list(node)?;
        let mut orders = lock(&self.orders);
        all.retain(|entry| !orders.omits(&entry.name));
        if orders.mood.doubles {
            all.extend_from_within(..);
        }
        Ok(all)
    }

    fn attribute(&self, op: Op, node: &Node, mut fields: Fields<'_>) -> Done {
        let mood = lock(&self.orders).mood.clone();
        if op == Op::Listxattr {
            if !mood.attributes {
                return Err(Errno::NOTSUP);
            }
            let size = fields.u32() as usize;
            let mut names = vec![0; XATTR_BYTES_MAX];
            let length = rustix::fs::listxattr(node.path(), &mut names[..])?;
            let is_kept = |name: &&[u8]| mood.acls || !name.starts_with(b"system.posix_acl");
            let kept: Vec<u8> = names[..length]
                .split_inclusive(|byte| *byte == 0)
                .filter(is_kept)
                .flatten()
                .copied()
                .collect();
            return sized(kept, size);
        }
        let (size, flags) = if op == Op::Removexattr {
            (0, 0)
        } else {
            (fields.u32() as usize, fields.u32())
        };
        let name = fields.name();
        let is_acl = name.starts_with(b"system.posix_acl");
        if !mood.attributes && !is_acl || !mood.acls && is_acl {
            return Err(Errno::NOTSUP);
        }
        match op {
            Op::Setxattr => rustix::fs::setxattr(
                node.path(),
                name,
                fields.bytes(size),
                XattrFlags::from_bits_retain(flags),
            )?,
            Op::Removexattr => rustix::fs::removexattr(node.path(), name)?,
            _ => {
                let mut value = vec![0; XATTR_BYTES_MAX];
                let length = rustix::fs::getxattr(node.path(), name, &mut value[..])?;
                value.truncate(length);
                return sized(value, size);
            }
        }
        Ok(Vec::new())
    }

    /// Requests that begin with the number of an open file.
    fn on_file(&self, op: Op, mut fields: Fields<'_>) -> Done {
        let handle = self.nodes.handle(fields.u64())?;
        let Handle::File(file) = &*handle else {
            return Err(Errno::BADF);
        };
        match op {
            Op::Read => {
                let (offset, size) = (fields.u64(), fields.u32());
                read_fully(file, offset, size as usize)
            }
            Op::Write => {
                let (offset, size) = (fields.u64(), fields.u32());
                let _rest_of_the_header = fields.bytes(20);
                write_fully(file, offset, fields.bytes(size as usize))?;
                Ok(Words::new().u32(size).u32(0).0)
            }
            Op::Fsync => rustix::fs::fsync(file).map(|()| Vec::new()),
            Op::Fallocate => {
                let (offset, length, mode) = (fields.u64(), fields.u64(), fields.u32());
                rustix::fs::fallocate(file, FallocateFlags::from_bits_retain(mode), offset, length)
                    .map(|()| Vec::new())
            }
            _ => {
                let offset = fields.u64();
                let whence = match fields.u32() {
                    SEEK_DATA => SeekFrom::Data(offset),
                    SEEK_HOLE => SeekFrom::Hole(offset),
                    _ => return Err(Errno::INVAL),
                };
                Ok(Words::new().u64(rustix::fs::seek(file, whence)?).0)
            }
        }
    }
}

fn opened(handle: u64) -> Vec<u8> {
    opened_with(handle, 0)
}

/// `fuse_open_out`.
fn opened_with(handle: u64, flags: u32) -> Vec<u8> {
    Words::new().u64(handle).u32(flags).u32(0).0
}

/// The flags with which the backing file is opened: offsets come with each request, in any
/// alignment.
fn plain(flags: u32) -> OFlags {
    let flags = OFlags::from_bits_retain(flags);
    let kept =
        flags.difference(OFlags::APPEND | OFlags::DIRECT | OFlags::NONBLOCK | OFlags::NOFOLLOW);
    // Partial pages may be read before they are written.
    if flags.contains(OFlags::WRONLY) {
        kept.difference(OFlags::WRONLY) | OFlags::RDWR
    } else {
        kept
    }
}

/// Gives what root made to the caller, with the mode that the caller's umask leaves, unless a
/// default ACL has decided.
fn hand_over(parent: &Node, name: &[u8], mode: Option<u32>, call: &Call<'_>) -> Result<(), Errno> {
    let takes_group = parent.stat()?.st_mode & 0o2000 != 0;
    if call.uid != 0 || call.gid != 0 {
        let gid = (!takes_group).then(|| Gid::from_raw(call.gid));
        rustix::fs::chownat(
            &parent.fd,
            name,
            Some(Uid::from_raw(call.uid)),
            gid,
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
    }
    let inherits = rustix::fs::getxattr(parent.path(), ACL_DEFAULT, &mut [0u8; 0][..]).is_ok();
    if let Some(mode) = mode.filter(|_| !inherits) {
        let is_directory = FileType::from_raw_mode(
            rustix::fs::statat(&parent.fd, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode,
        )
        .is_dir();
        let inherited = if takes_group && is_directory {
            0o2000
        } else {
            0
        };
        rustix::fs::chmodat(
            &parent.fd,
            name,
            Mode::from_raw_mode(mode & MODE_BITS | inherited),
            AtFlags::empty(),
        )?;
    }
    Ok(())
}

fn removed(parent: &Node, name: &[u8], flags: AtFlags) -> Done {
    rustix::fs::unlinkat(&parent.fd, name, flags).map(|()| Vec::new())
}

/// A name without this character at its end; one of it alone stays.
fn without_end(name: &[u8], end: u8) -> &[u8] {
    let length = name
        .iter()
        .rposition(|byte| *byte != end)
        .map_or(name.len(), |last| last + 1);
    &name[..length]
}

/// A name without case, where it is text.
fn fold(name: &[u8]) -> Vec<u8> {
    std::str::from_utf8(name).map_or_else(
        |_| name.to_ascii_lowercase(),
        |text| text.to_lowercase().into_bytes(),
    )
}

fn timespec(valid: u32, (set, now): (u32, u32), (seconds, nanoseconds): (i64, u32)) -> Timespec {
    let tv_nsec = match () {
        () if valid & set == 0 => rustix::fs::UTIME_OMIT,
        () if valid & now != 0 => rustix::fs::UTIME_NOW,
        () => nanoseconds.into(),
    };
    Timespec {
        tv_sec: seconds,
        tv_nsec,
    }
}

/// The value, or its size where that is asked for (`fuse_getxattr_out`).
pub(super) fn sized(value: Vec<u8>, size: usize) -> Done {
    match size {
        0 => Ok(Words::new().u32(value.len() as u32).u32(0).0),
        _ if value.len() > size => Err(Errno::RANGE),
        _ => Ok(value),
    }
}

fn read_fully(file: &OwnedFd, offset: u64, size: usize) -> Done {
    let mut data = vec![0; size];
    let mut done = 0;
    while done < size {
        match rustix::io::pread(file, &mut data[done..], offset + done as u64)? {
            0 => break,
            got => done += got,
        }
    }
    data.truncate(done);
    Ok(data)
}

fn write_fully(file: &OwnedFd, offset: u64, data: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < data.len() {
        done += rustix::io::pwrite(file, &data[done..], offset + done as u64)?;
    }
    Ok(())
}

/// `fuse_statfs_out`.
fn statfs(node: &Node) -> Done {
    let stat = rustix::fs::statfs(node.path())?;
    let words = Words::new()
        .u64(stat.f_blocks)
        .u64(stat.f_bfree)
        .u64(stat.f_bavail)
        .u64(stat.f_files)
        .u64(stat.f_ffree);
    let mut all = words
        .u32(stat.f_bsize as u32)
        .u32(stat.f_namelen as u32)
        .u32(stat.f_frsize as u32)
        .0;
    all.resize(80, 0);
    Ok(all)
}
