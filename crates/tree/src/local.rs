//! Directories of this machine's file systems.

pub mod attributes;
pub mod dir;
pub mod displace;
pub mod file;
pub mod handles;
pub mod link_attributes;
pub mod listing;
pub mod look;
pub mod nest;
pub mod remove;
pub mod shown;
pub mod stand_in;
pub mod sys;
pub mod times;
pub mod wanted;
pub mod xattr;

use crate::Done;
use crate::ReadFile;
use crate::local::file::LocalFile;
use crate::local::handles::{Birth, HandlePool, Keeper, Node, open_dir};
use crate::local::listing::LocalNames;
use crate::local::look::{OTHERS, fault, first_look, is_own, look_at, meta_of};
use crate::local::shown::{is_encrypted, refuse_hidden};
use crate::local::times::keep_times;
use crate::local::wanted::Known;
use crate::local::xattr::proc_path;
use crate::names::{NameStream, Names};
use crate::temp::ROOT_NAMES;
use driftless_lock::Mutex;
use driftless_model::{Act, Meta, Side};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// An open directory of this machine.
#[derive(Debug, Clone)]
pub struct LocalDir {
    pub(crate) node: Arc<Node>,
    pub(crate) first: Box<Meta>,
    pub(crate) is_mount_root: Option<bool>,
    pub(crate) state: Arc<State>,
}

/// What all clones of a [`LocalDir`] share.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) listed: AtomicBool,
    /// This process has made it, and nobody else can look into it.
    pub(crate) private: AtomicBool,
    /// Its attributes were read, and a mark is among them.
    pub(crate) marked: AtomicBool,
    /// Since it was opened, it may have been given to somebody else or been opened to others.
    pub(crate) given: AtomicBool,
    pub(crate) nest: Mutex<Option<LocalDir>>,
    /// Removes the directory with its last handle, if it is a nest itself.
    _keeper: Option<Keeper>,
}

impl LocalDir {
    /// The root of a tree.
    pub fn root(pool: &Arc<HandlePool>, side: Side, fd: OwnedFd) -> Done<Self> {
        let look = first_look(&fd).map_err(|e| fault(side, Act::LookAt, e))?;
        refuse_hidden(&fd, &look.0).map_err(|e| fault(side, Act::OpenDirectory, e))?;
        Ok(Self::of(Node::root(pool, side, fd, &look.0), look))
    }

    /// The open descriptor.
    pub fn fd(&self) -> Done<Arc<OwnedFd>> {
        self.node.fd()
    }

    /// Which tree this belongs to.
    pub fn side(&self) -> Side {
        self.node.side()
    }

    pub(crate) fn fail<T>(&self, act: Act, done: Result<T, Errno>) -> Done<T> {
        done.map_err(|errno| fault(self.side(), act, errno))
    }

    /// Opens a subdirectory.
    pub fn enter_local(&self, name: &CStr) -> Done<LocalDir> {
        let fd = self.fail(Act::OpenDirectory, open_dir(&*self.fd()?, name))?;
        let look = self.fail(Act::LookAt, first_look(&fd))?;
        self.fail(Act::OpenDirectory, refuse_hidden(&fd, &look.0))?;
        Ok(Self::of(Node::child(&self.node, name, fd, &look.0), look))
    }

    /// Opens a subdirectory in whose place nothing else stands.
    pub(crate) fn enter_shown(&self, name: &CStr) -> Done<LocalDir> {
        let dir = self.enter_local(name)?;
        dir.refuse_stand_in(self)?;
        Ok(dir)
    }

    pub(crate) fn of(node: Arc<Node>, (first, is_mount_root): (Meta, Option<bool>)) -> Self {
        LocalDir {
            node,
            first: Box::new(first),
            is_mount_root,
            state: Arc::default(),
        }
    }

    /// A nest: a directory in which entries grow out of the sight of others.
    pub(crate) fn nested(node: Arc<Node>, st: &Stat, keeper: Keeper) -> Self {
        let (private, keeper) = (AtomicBool::new(true), Some(keeper));
        LocalDir {
            state: Arc::new(State {
                private,
                _keeper: keeper,
                ..State::default()
            }),
            ..Self::of(node, (meta_of(st), Some(false)))
        }
    }

    /// Makes a directory that nobody else can look into, and opens it. Where others may rename,
    /// what is opened may be another directory into which nobody else can look.
    pub(crate) fn make_and_open(&self, name: &CStr) -> Done<(OwnedFd, Stat)> {
        let here = self.changing()?;
        self.fail(Act::MakeDirectory, fs::mkdirat(&*here, name, Mode::RWXU))?;
        let fd = self.fail(Act::OpenDirectory, open_dir(&here, name))?;
        let st = self.fail(Act::LookAt, fs::fstat(&fd))?;
        let ours = if is_own(st.st_uid) {
            self.is_birth_of_own(st.st_uid, st.st_mode)
        } else {
            self.is_birth_owner(st.st_uid)
        };
        if ours {
            Ok((fd, st))
        } else {
            self.fail(Act::HoldDirectory, Err(Errno::STALE))
        }
    }

    /// The names of a directory that was just opened.
    pub(crate) fn names_of(&self, fd: &OwnedFd) -> Done<impl NameStream> {
        Ok(LocalNames {
            fd: Arc::new(self.fail(Act::Open, open_dir(fd, c"."))?),
            side: self.side(),
            at_root: false,
            is_encrypted: is_encrypted(&self.first),
        })
    }

    /// Reads at least `max` names, if there are so many, from the position `at` of the listing (0
    /// is its start), and moves `at` on. Returns whether there may be more.
    pub(crate) fn list_from(&self, at: &mut u64, names: &mut Names, max: usize) -> Done<bool> {
        let fd = self.fd()?;
        self.state.listed.store(true, Relaxed);
        self.fail(Act::List, fs::seek(&*fd, fs::SeekFrom::Start(*at)))?;
        let more = LocalNames {
            fd: fd.clone(),
            side: self.side(),
            at_root: false,
            is_encrypted: is_encrypted(&self.first),
        }
        .fill(names, max)?;
        *at = self.fail(Act::List, fs::tell(&*fd))?;
        Ok(more)
    }

    /// Whether what was just made here would belong to `uid`: the user of this process, or the one
    /// to whom a file system without owners of its own (a mapped network mount, say) gives new
    /// entries.
    pub(crate) fn is_birth_owner(&self, uid: u32) -> bool {
        is_own(uid) || self.birth().is_some_and(|birth| birth.uid == uid)
    }

    /// Whether what was just made here for this process alone would have this owner and mode: no
    /// rights for others, unless the file system has modes of its own (vfat, exfat, ntfs-3g, SMB).
    pub(crate) fn is_birth_of_own(&self, uid: u32, mode: u32) -> bool {
        let is_open = mode & OTHERS != 0;
        self.is_birth_owner(uid) && (!is_open || self.birth().is_some_and(|birth| birth.is_open))
    }

    /// What new entries look like here. A file that is made for the purpose shows it, through the
    /// handle that made it: so nobody can put another file in its place.
    pub(crate) fn birth(&self) -> Option<Birth> {
        self.node.birth(|| self.probe_birth())
    }

    fn probe_birth(&self) -> Option<Birth> {
        // This may be asked before the first change of a run, so it leaves no trace.
        let (name, fd) = (crate::temp_name(), self.fd().ok()?);
        let birth = keep_times(&fd, || {
            let probe = self.create(&fd, &name, 0o600).map_err(|_| Errno::IO)?;
            let birth = probe
                .meta()
                .map(|meta| Birth {
                    uid: meta.uid,
                    is_open: meta.mode & OTHERS != 0,
                })
                .map_err(|_| Errno::IO);
            let _the_next_run_removes_it = fs::unlinkat(&*fd, &*name, AtFlags::empty());
            birth
        });
        birth.ok()
    }

    /// What stands at a name, and whether something is mounted there, if the kernel tells.
    pub(crate) fn look_closely(&self, name: &CStr) -> Done<(Meta, Option<bool>)> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        self.fail(Act::LookAt, look_at(&*self.fd()?, name, flags))
    }

    /// Pins the inode at `name` and checks that it is the expected one, and that it is of this
    /// tree: what is mounted at a name of the replica (a bind mount of a single file, say) belongs
    /// to another place.
    pub(crate) fn pin(&self, name: &CStr, expected: &Known) -> Done<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.fail(
            Act::Open,
            fs::openat(&*self.fd()?, name, flags, Mode::empty()),
        )?;
        let (meta, is_mount_root) = self.fail(Act::LookAt, first_look(&fd))?;
        if is_mount_root == Some(true) {
            return self.fail(Act::SetMounted, Err(Errno::BUSY));
        }
        let same = expected.id.is_none_or(|id| id == meta.id());
        let ours = || meta.nlink == 1 && self.is_birth_owner(meta.uid);
        if same && (!expected.made_now || ours()) {
            Ok(fd)
        } else {
            self.fail(Act::SetAttributes, Err(Errno::STALE))
        }
    }

    pub(crate) fn open_regular(&self, name: &CStr, flags: OFlags) -> Done<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let dir = self.fd()?;
        let opened = match quietly(flags, |flags| fs::openat(&*dir, name, flags, Mode::empty())) {
            Err(Errno::AGAIN) if !self.node.passes_by_leases() => wait_for_lease(&dir, name, flags),
            other => other,
        };
        self.fail(Act::Open, opened)
    }

    /// Removes the mark, the lock and the sign in the directory `name`, and then the directory. A
    /// run that deletes entry by entry passes them over, so they are left in a directory that was
    /// the root of a replica.
    pub(crate) fn forget_root_names(&self, name: &CStr) -> Result<(), Errno> {
        let fd = self
            .fd()
            .map_err(|fault| Errno::from_raw_os_error(fault.errno))?;
        let dir = open_dir(&fd, name)?;
        for name in ROOT_NAMES {
            let _it_may_not_be_there = fs::unlinkat(&dir, name, AtFlags::empty());
        }
        fs::unlinkat(&*fd, name, AtFlags::REMOVEDIR)
    }

    /// The descriptor, for a change of the tree, which passes the gate last: a process that is
    /// stopped while it waits for a file system asks when it goes on.
    pub(crate) fn changing(&self) -> Done<Arc<OwnedFd>> {
        let fd = self.fd()?;
        self.node.pass_gate()?;
        Ok(fd)
    }

    pub(crate) fn create(&self, fd: &OwnedFd, name: &CStr, mode: u32) -> Done<LocalFile> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::openat(fd, name, flags, Mode::from_raw_mode(mode));
        Ok(LocalFile::new(self.fail(Act::Create, opened)?, self.side()).behind(self.node.gate()))
    }
}

/// Opens without touching the access time, where this user may (open(2): O_NOATIME).
fn quietly(
    flags: OFlags,
    open: impl Fn(OFlags) -> Result<OwnedFd, Errno>,
) -> Result<OwnedFd, Errno> {
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        other => other,
    }
}

/// Opens a file on which another process holds a lease (fcntl(2): a file server, another backup),
/// and waits until that process gives it up, or the kernel takes it away after a time
/// (/proc/sys/fs/lease-break-time). Only a regular file is waited for, and the very inode that was
/// found to be one: a fifo in its place might never open.
fn wait_for_lease(dir: &OwnedFd, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let found = fs::openat(
        dir,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    if FileType::from_raw_mode(fs::fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(Errno::AGAIN);
    }
    quietly(flags - OFlags::NOFOLLOW - OFlags::NONBLOCK, |flags| {
        fs::open(proc_path(found.as_fd(), None), flags, Mode::empty())
    })
}
