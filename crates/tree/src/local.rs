//! Directories of this machine's file systems.

use crate::attributes::{Attributes, Known, Setter};
use crate::file::LocalFile;
use crate::gate::{BeforeChange, Sentry};
use crate::handles::{Birth, HandlePool, Node, open_dir};
use crate::leftover::remove_leftover;
use crate::locks::{Lock, Reach};
use crate::mark::MarkText;
use crate::nest::Keeper;
use crate::remove::{Removed, Spared, count_tree, remove_tree};
use crate::temp::{ROOT_LOCK, ROOT_MARK, ROOT_SIGN, is_root_name};
use crate::xattr::{Target, proc_path};
use crate::{Ancestor, Dir, DirMut, DirMutRef, DirRef, Done, NameStream, Names, ReadFile, Rights, WriteFile};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Keep, Kind, Meta, Side, Stamp, Unkept, Xattrs};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A fault from an error number.
pub fn fault(side: Side, act: Act, errno: Errno) -> Fault {
    Fault { side, act, errno: errno.raw_os_error() }
}

/// Blocks of a file at most: so many have a number of bytes.
const BLOCKS_MAX: u64 = u64::MAX / 512;

/// A time as a file system tells it. What is told through FUSE is not checked by every kernel, and nanoseconds beyond a second would mean
/// something else to utimensat(2).
fn stamp(sec: i64, nsec: u32) -> Stamp {
    Stamp { sec, nsec: nsec.min(999_999_999) }
}

/// Metadata from stat(2).
pub fn meta_of(st: &Stat) -> Meta {
    Meta {
        kind: kind_of(FileType::from_raw_mode(st.st_mode)).expect("the kernel knows no other kinds"),
        mode: st.st_mode & 0o7777,
        uid: st.st_uid,
        gid: st.st_gid,
        size: st.st_size.cast_unsigned(),
        blocks: st.st_blocks.cast_unsigned().min(BLOCKS_MAX),
        mtime: stamp(st.st_mtime, st.st_mtime_nsec as u32),
        atime: stamp(st.st_atime, st.st_atime_nsec as u32),
        ctime: stamp(st.st_ctime, st.st_ctime_nsec as u32),
        nlink: st.st_nlink,
        dev: st.st_dev,
        ino: st.st_ino,
        rdev: st.st_rdev,
        unkept: Unkept::NONE,
    }
}

/// Metadata of what is open, asked of the file system and not of what a network file system or FUSE remembers of it (statx(2),
/// `AT_STATX_FORCE_SYNC`). Where nothing is remembered, that costs what fstat(2) does.
pub fn meta_again(fd: impl AsFd) -> Result<Meta, Errno> {
    look_at(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC).map(|look| look.0)
}

/// Metadata of what is open, as cheap as fstat(2).
pub fn meta_open(fd: impl AsFd) -> Result<Meta, Errno> {
    first_look(fd).map(|look| look.0)
}

/// The same for what was just opened; and whether something is mounted there, which kernels tell from 5.8 on.
fn first_look(fd: impl AsFd) -> Result<(Meta, Option<bool>), Errno> {
    look_at(fd, c"", AtFlags::EMPTY_PATH)
}

/// Metadata of an entry with the flags of its inode, which statx(2) tells with all else, and whether something is mounted there.
fn look_at(dir: impl AsFd, name: &CStr, flags: AtFlags) -> Result<(Meta, Option<bool>), Errno> {
    match fs::statx(&dir, name, flags, StatxFlags::BASIC_STATS) {
        Ok(st) => Ok((meta_of_statx(&st), crate::mounts::is_mount_root(&st))),
        // An old kernel does not have the call, and a sandbox that does not know it forbids it.
        Err(Errno::NOSYS | Errno::PERM) => {
            fs::statat(&dir, name, flags - AtFlags::STATX_FORCE_SYNC - AtFlags::STATX_DONT_SYNC).map(|st| (meta_of(&st), None))
        }
        Err(errno) => Err(errno),
    }
}

/// When an entry was made, or with no name what is open, if the file system tells.
fn made_at(fd: impl AsFd, name: &CStr) -> Option<Stamp> {
    birth_of(&fs::statx(fd, name, AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?)
}

fn birth_of(st: &Statx) -> Option<Stamp> {
    let is_told = st.stx_mask & StatxFlags::BTIME.bits() != 0;
    is_told.then(|| stamp(st.stx_btime.tv_sec, st.stx_btime.tv_nsec))
}

/// The flags that no copy gets. That of DAX is none of an entry, but says how its file system is mounted.
fn unkept_of(attributes: StatxAttributes) -> Unkept {
    const FLAGS: [(StatxAttributes, Unkept); 6] = [
        (StatxAttributes::IMMUTABLE, Unkept::IMMUTABLE),
        (StatxAttributes::APPEND, Unkept::APPEND_ONLY),
        (StatxAttributes::NODUMP, Unkept::NO_DUMP),
        (StatxAttributes::COMPRESSED, Unkept::COMPRESSED),
        (StatxAttributes::ENCRYPTED, Unkept::ENCRYPTED),
        (StatxAttributes::VERITY, Unkept::VERITY),
    ];
    // Hardly any entry has one, and this is asked of each.
    if !attributes.intersects(FLAGS.iter().fold(StatxAttributes::empty(), |all, (flag, _)| all | *flag)) {
        return Unkept::NONE;
    }
    FLAGS.iter().filter(|(flag, _)| attributes.contains(*flag)).fold(Unkept::NONE, |all, (_, unkept)| all | *unkept)
}

fn meta_of_statx(st: &Statx) -> Meta {
    let stamp = |of: StatxTimestamp| stamp(of.tv_sec, of.tv_nsec);
    let mode = u32::from(st.stx_mode);
    Meta {
        kind: kind_of(FileType::from_raw_mode(mode)).expect("the kernel knows no other kinds"),
        mode: mode & 0o7777,
        uid: st.stx_uid,
        gid: st.stx_gid,
        size: st.stx_size,
        blocks: st.stx_blocks.min(BLOCKS_MAX),
        mtime: stamp(st.stx_mtime),
        atime: stamp(st.stx_atime),
        ctime: stamp(st.stx_ctime),
        nlink: st.stx_nlink.into(),
        dev: fs::makedev(st.stx_dev_major, st.stx_dev_minor),
        ino: st.stx_ino,
        rdev: fs::makedev(st.stx_rdev_major, st.stx_rdev_minor),
        unkept: unkept_of(st.stx_attributes),
    }
}

/// The rights of group and others.
const OTHERS: u32 = 0o077;

fn is_own(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
}

fn kind_of(file_type: FileType) -> Option<Kind> {
    match file_type {
        FileType::RegularFile => Some(Kind::File),
        FileType::Directory => Some(Kind::Dir),
        FileType::Symlink => Some(Kind::Symlink),
        FileType::Fifo => Some(Kind::Fifo),
        FileType::Socket => Some(Kind::Socket),
        FileType::CharacterDevice => Some(Kind::Char),
        FileType::BlockDevice => Some(Kind::Block),
        _ => None,
    }
}

/// An open directory of this machine.
#[derive(Debug, Clone)]
pub struct LocalDir {
    pub(crate) node: Arc<Node>,
    first: Box<Meta>,
    is_mount_root: Option<bool>,
    pub(crate) state: Arc<State>,
}

/// What all that hold a directory share.
#[derive(Debug, Default)]
pub(crate) struct State {
    listed: AtomicBool,
    /// This process has made it, and nobody else can look into it.
    pub(crate) private: AtomicBool,
    /// Its attributes were read, and a mark is among them.
    marked: AtomicBool,
    /// It may belong to somebody else since it was opened, or be open to others.
    pub(crate) given: AtomicBool,
    pub(crate) nest: Mutex<Option<LocalDir>>,
    /// If it is a nest itself.
    _keeper: Option<Keeper>,
}

impl LocalDir {
    /// The root of a tree.
    pub fn root(pool: &Arc<HandlePool>, side: Side, fd: OwnedFd) -> Done<Self> {
        let look = first_look(&fd).map_err(|e| fault(side, Act::LookAt, e))?;
        Ok(Self::of(Node::root(pool, side, fd, look.0.id()), look))
    }

    /// The open descriptor.
    pub fn fd(&self) -> Done<Arc<OwnedFd>> {
        self.node.fd()
    }

    /// Which tree this belongs to.
    pub fn side(&self) -> Side {
        self.node.side()
    }

    fn fail<T>(&self, act: Act, done: Result<T, Errno>) -> Done<T> {
        done.map_err(|errno| fault(self.side(), act, errno))
    }

    /// Opens a subdirectory.
    pub fn enter_local(&self, name: &CStr) -> Done<LocalDir> {
        let fd = self.fail(Act::OpenDirectory, open_dir(&*self.fd()?, name))?;
        let look = self.fail(Act::LookAt, first_look(&fd))?;
        Ok(Self::of(Node::child(&self.node, name, fd, look.0.id()), look))
    }

    fn of(node: Arc<Node>, (first, is_mount_root): (Meta, Option<bool>)) -> Self {
        LocalDir { node, first: Box::new(first), is_mount_root, state: Arc::default() }
    }

    /// A directory in which entries grow out of sight.
    pub(crate) fn nested(node: Arc<Node>, st: &Stat, keeper: Keeper) -> Self {
        let (private, keeper) = (AtomicBool::new(true), Some(keeper));
        LocalDir { state: Arc::new(State { private, _keeper: keeper, ..State::default() }), ..Self::of(node, (meta_of(st), Some(false))) }
    }

    /// Makes a directory with mode 0700 and opens it; it is the one made.
    pub fn make_dir_local(&self, name: &CStr) -> Done<LocalDir> {
        let (fd, st) = if self.is_guarded() { self.make_and_open(name)? } else { self.hatch_dir(name)? };
        let made = Meta { unkept: self.first.unkept.inherited(), ..meta_of(&st) };
        let dir = Self::of(Node::child(&self.node, name, fd, (st.st_dev, st.st_ino)), (made, Some(false)));
        let is_closed = dir.first.mode & OTHERS == 0;
        // Set-group-id is taken over from above (inode(7)); what shows rights of others has a mode that cannot be set.
        if is_closed && dir.first.mode != 0o700 {
            self.fail(Act::SetMode, fs::fchmod(&*dir.fd()?, Mode::RWXU))?;
        }
        dir.state.private.store(is_own(dir.first.uid) && is_closed, Relaxed);
        if crate::is_temp_name(name) {
            crate::leftover::mark(&dir)?;
        }
        Ok(dir)
    }

    /// Makes a directory that nobody else can look into and opens it; where others may rename, it may be another one of that kind.
    pub(crate) fn make_and_open(&self, name: &CStr) -> Done<(OwnedFd, Stat)> {
        let here = self.changing()?;
        self.fail(Act::MakeDirectory, fs::mkdirat(&*here, name, Mode::RWXU))?;
        let fd = self.fail(Act::OpenDirectory, open_dir(&here, name))?;
        let st = self.fail(Act::LookAt, fs::fstat(&fd))?;
        let ours = if is_own(st.st_uid) { self.is_birth_of_own(st.st_uid, st.st_mode) } else { self.is_birth_owner(st.st_uid) };
        if ours { Ok((fd, st)) } else { self.fail(Act::HoldDirectory, Err(Errno::STALE)) }
    }

    /// The names of a directory that was just opened.
    pub(crate) fn names_of(&self, fd: &OwnedFd) -> Done<impl NameStream> {
        Ok(LocalNames { fd: Arc::new(self.fail(Act::Open, open_dir(fd, c"."))?), side: self.side(), at_root: false })
    }

    /// Reads at least `max` names, if there are so many, from a position of the listing, whose start is 0, and moves it on.
    pub(crate) fn list_from(&self, at: &mut u64, names: &mut Names, max: usize) -> Done<bool> {
        let fd = self.fd()?;
        self.state.listed.store(true, Relaxed);
        self.fail(Act::List, fs::seek(&*fd, fs::SeekFrom::Start(*at)))?;
        let more = LocalNames { fd: fd.clone(), side: self.side(), at_root: false }.fill(names, max)?;
        *at = self.fail(Act::List, fs::tell(&*fd))?;
        Ok(more)
    }

    /// Removes all that is in this directory, by its handle, whatever stands at its name.
    pub fn clear(&self) -> Removed {
        crate::remove::clear(self)
    }

    /// Whether what was just made here would belong to `uid`: to this process's user, or to whom a file system without
    /// owners of its own (a mapped network mount, say) gives it.
    pub(crate) fn is_birth_owner(&self, uid: u32) -> bool {
        is_own(uid) || self.birth().is_some_and(|birth| birth.uid == uid)
    }

    /// Whether what was just made here for this process alone would have this owner and mode: no rights for others, unless the file system
    /// has modes of its own (vfat, exfat, ntfs-3g, SMB).
    pub(crate) fn is_birth_of_own(&self, uid: u32, mode: u32) -> bool {
        let is_open = mode & OTHERS != 0;
        self.is_birth_owner(uid) && (!is_open || self.birth().is_some_and(|birth| birth.is_open))
    }

    /// A file made for the purpose shows that: nobody can put another in the place of what was opened when it was made.
    fn birth(&self) -> Option<Birth> {
        self.node.birth(|| self.probe_birth())
    }

    fn probe_birth(&self) -> Option<Birth> {
        // It may be asked before anything else is changed, so it leaves no trace.
        let (name, fd) = (crate::temp_name(), self.fd().ok()?);
        let birth = crate::locks::keep_times(&fd, || {
            let probe = self.create(&fd, &name, 0o600).map_err(|_| Errno::IO)?;
            let birth = probe.meta().map(|meta| Birth { uid: meta.uid, is_open: meta.mode & OTHERS != 0 }).map_err(|_| Errno::IO);
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

    /// Pins the inode at `name` and checks that it is the expected one, and that it is of this tree: what is mounted at a name of the
    /// replica (a bind mount of a single file, say) belongs to another place.
    fn pin(&self, name: &CStr, expected: &Known) -> Done<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.fail(Act::Open, fs::openat(&*self.fd()?, name, flags, Mode::empty()))?;
        let (meta, is_mount_root) = self.fail(Act::LookAt, first_look(&fd))?;
        if is_mount_root == Some(true) {
            return self.fail(Act::SetMounted, Err(Errno::BUSY));
        }
        let same = expected.id.is_none_or(|id| id == meta.id());
        let ours = || meta.nlink == 1 && self.is_birth_owner(meta.uid);
        if same && (!expected.made_now || ours()) { Ok(fd) } else { self.fail(Act::SetAttributes, Err(Errno::STALE)) }
    }

    fn open_regular(&self, name: &CStr, flags: OFlags) -> Done<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let dir = self.fd()?;
        let opened = match quietly(flags, |flags| fs::openat(&*dir, name, flags, Mode::empty())) {
            Err(Errno::AGAIN) => wait_for_lease(&dir, name, flags),
            other => other,
        };
        self.fail(Act::Open, opened)
    }

    /// What a run keeps in its root no listing shows, so nobody has removed it from a directory that goes.
    fn forget_root_names(&self, name: &CStr) -> Result<(), Errno> {
        let fd = self.fd().map_err(|fault| Errno::from_raw_os_error(fault.errno))?;
        let dir = open_dir(&fd, name)?;
        for name in [ROOT_MARK, ROOT_LOCK, ROOT_SIGN] {
            let _it_may_not_be_there = fs::unlinkat(&dir, name, AtFlags::empty());
        }
        fs::unlinkat(&*fd, name, AtFlags::REMOVEDIR)
    }

    /// The descriptor, for something that changes the tree.
    pub(crate) fn changing(&self) -> Done<Arc<OwnedFd>> {
        self.node.pass_gate()?;
        self.fd()
    }

    fn create(&self, fd: &OwnedFd, name: &CStr, mode: u32) -> Done<LocalFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = fs::openat(fd, name, flags, Mode::from_raw_mode(mode));
        Ok(LocalFile::new(self.fail(Act::Create, opened)?, self.side()).behind(self.node.gate()))
    }
}

/// The same directory with a place of its own in the listing (open(2): an open file description). Where the user has lost the right to
/// open it since, the place is that of the handle, at the beginning.
fn opened_again(dir: &OwnedFd) -> Result<OwnedFd, Errno> {
    match fs::openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::ACCESS) => fs::seek(dir, fs::SeekFrom::Start(0)).and_then(|_| rustix::io::fcntl_dupfd_cloexec(dir, 0)),
        opened => opened,
    }
}

/// Opens without touching the access time, where this user may (open(2): O_NOATIME).
fn quietly(flags: OFlags, open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        other => other,
    }
}

/// Another process holds a lease on the file (fcntl(2): a file server, another backup) and was asked to give it up; the kernel
/// takes it away when that lasts too long (/proc/sys/fs/lease-break-time). Only a regular file is waited for, and the very one that was
/// found to be one: a fifo in its place might never open.
fn wait_for_lease(dir: &OwnedFd, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let found = fs::openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fs::fstat(&found)?.st_mode) != FileType::RegularFile {
        return Err(Errno::AGAIN);
    }
    quietly(flags - OFlags::NOFOLLOW - OFlags::NONBLOCK, |flags| fs::open(proc_path(found.as_fd(), None), flags, Mode::empty()))
}

thread_local! {
    /// One buffer a thread for getdents64(2).
    static DIRENTS: RefCell<Vec<MaybeUninit<u8>>> = RefCell::new(vec![MaybeUninit::uninit(); 32 * 1024]);
}

struct LocalNames {
    fd: Arc<OwnedFd>,
    side: Side,
    at_root: bool,
}

impl LocalNames {
    /// What no listing shows: the mark and the lock of a replica, which are files in its root. Anywhere else, and of any other kind, such
    /// a name is one of the reserved form like others.
    fn hides(&self, name: &CStr, kind: Option<Kind>) -> bool {
        matches!(name.to_bytes(), b"." | b"..") || self.at_root && matches!(kind, None | Some(Kind::File)) && is_root_name(name)
    }
}

impl NameStream for LocalNames {
    fn fill(&mut self, names: &mut Names, max: usize) -> Done<bool> {
        DIRENTS.with_borrow_mut(|buffer| {
            let mut entries = fs::RawDir::new(&*self.fd, buffer);
            while names.len() < max || !entries.is_buffer_empty() {
                match entries.next() {
                    None => return Ok(false),
                    Some(Err(Errno::INTR)) => {}
                    Some(Err(e)) => return Err(fault(self.side, Act::List, e)),
                    Some(Ok(entry)) if self.hides(entry.file_name(), kind_of(entry.file_type())) => {}
                    Some(Ok(entry)) => names.push(entry.file_name(), kind_of(entry.file_type())),
                }
            }
            Ok(true)
        })
    }
}

impl Dir for LocalDir {
    fn enter(&self, name: &CStr) -> Done<DirRef> {
        Ok(Arc::new(self.enter_local(name)?))
    }

    fn leave(&self) {
        self.leave_nest();
        self.node.revive_parent();
    }

    fn first_meta(&self) -> &Meta {
        &self.first
    }

    fn meta(&self) -> Done<Meta> {
        self.fail(Act::LookAt, meta_open(&*self.fd()?))
    }

    fn meta_again(&self) -> Done<Meta> {
        self.fail(Act::LookAt, meta_again(&*self.fd()?))
    }

    fn xattrs(&self, keep: &Keep) -> Done<Xattrs> {
        self.xattrs_within(keep, u64::MAX).map(Option::unwrap_or_default)
    }

    fn xattrs_within(&self, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        // A mark within a replica must be seen, whatever is kept.
        if self.side() == Side::Source && !keep.any_xattr() {
            return Ok(Some(Xattrs::default()));
        }
        let meets = |name: &CStr| self.state.marked.store(self.is_marked() || crate::mark::is_mark(name), Relaxed);
        let read = self.fail(Act::ReadXattrs, Target::Open(self.fd()?.as_fd()).read_meeting((keep, bytes_max), meets))?;
        Ok(if keep.any_xattr() { read } else { Some(Xattrs::default()) })
    }

    fn is_marked(&self) -> bool {
        self.state.marked.load(Relaxed)
    }

    fn list(&self) -> Done<Box<dyn NameStream>> {
        let own = self.fd()?;
        // The own handle has one place in the listing, and the one before may be under way still.
        let fd = if self.state.listed.swap(true, Relaxed) { Arc::new(self.fail(Act::List, opened_again(&own))?) } else { own };
        Ok(Box::new(LocalNames { fd, side: self.side(), at_root: self.node.is_root() }))
    }

    fn look(&self, name: &CStr) -> Done<Meta> {
        self.look_closely(name).map(|look| look.0)
    }

    fn peek(&self, name: &CStr) -> Done<Meta> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        self.fail(Act::LookAt, look_at(&*self.fd()?, name, flags)).map(|look| look.0)
    }

    fn xattrs_of(&self, name: &CStr, keep: &Keep) -> Done<Xattrs> {
        self.fail(Act::ReadXattrs, Target::Name(self.fd()?.as_fd(), name).read(keep))
    }

    fn xattrs_of_within(&self, name: &CStr, keep: &Keep, bytes_max: u64) -> Done<Option<Xattrs>> {
        self.fail(Act::ReadXattrs, Target::Name(self.fd()?.as_fd(), name).read_within(keep, bytes_max))
    }

    fn read_link(&self, name: &CStr) -> Done<CString> {
        self.fail(Act::ReadLink, fs::readlinkat(&*self.fd()?, name, Vec::with_capacity(256)))
    }

    fn open_file(&self, name: &CStr) -> Done<Box<dyn ReadFile>> {
        let fd = self.open_regular(name, OFlags::RDONLY)?;
        Ok(Box::new(LocalFile::new(fd, self.side())))
    }

    fn count_tree(&self, name: &CStr, max: u64, spared: Spared<'_>) -> Removed {
        count_tree(self, name, max, spared)
    }

    fn user(&self) -> (u32, u32) {
        (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    }

    fn may_give(&self) -> bool {
        use rustix::thread::{CapabilitySet, capabilities};
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::CHOWN))
    }

    fn rights(&self) -> Rights {
        Rights::own()
    }

    fn marks(&self, above: bool) -> Done<Vec<MarkText>> {
        crate::mark::read(self, above)
    }

    fn is_unfinished(&self) -> bool {
        crate::leftover::is_unfinished(self)
    }

    fn lineage(&self) -> Done<Vec<Ancestor>> {
        self.fail(Act::FindAbove, crate::root::lineage(&*self.fd()?))
    }

    fn is_mount_root(&self) -> Option<bool> {
        self.is_mount_root
    }

    fn made_at(&self) -> Option<Stamp> {
        made_at(&*self.fd().ok()?, c"")
    }

    fn made_at_of(&self, name: &CStr) -> Option<Stamp> {
        made_at(&*self.fd().ok()?, name)
    }

    fn as_local(&self) -> Option<&LocalDir> {
        Some(self)
    }
}

impl DirMut for LocalDir {
    fn enter_mut(&self, name: &CStr) -> Done<DirMutRef> {
        Ok(Arc::new(self.enter_local(name)?))
    }

    fn make_dir(&self, name: &CStr) -> Done<DirMutRef> {
        Ok(Arc::new(self.make_dir_local(name)?))
    }

    fn create_file(&self, name: &CStr, mode: u32) -> Done<Box<dyn WriteFile>> {
        let file = self.create(&*self.changing()?, name, mode)?;
        Ok(Box::new(file))
    }

    fn reopen_file(&self, name: &CStr) -> Done<Box<dyn WriteFile>> {
        self.node.pass_gate()?;
        let fd = self.open_regular(name, OFlags::RDWR)?;
        let st = self.fail(Act::LookAt, fs::fstat(&fd))?;
        let ours = FileType::from_raw_mode(st.st_mode) == FileType::RegularFile && st.st_nlink == 1 && self.is_birth_owner(st.st_uid);
        if !ours {
            return self.fail(Act::Open, Err(Errno::STALE));
        }
        Ok(Box::new(LocalFile::new(fd, self.side()).behind(self.node.gate())))
    }

    fn make_symlink(&self, name: &CStr, target: &CStr) -> Done {
        self.fail(Act::MakeSymlink, fs::symlinkat(target, &*self.changing()?, name))
    }

    fn make_node(&self, name: &CStr, kind: Kind, rdev: u64) -> Done {
        let file_type = match kind {
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::Char => FileType::CharacterDevice,
            _ => FileType::BlockDevice,
        };
        let mode = Mode::RUSR | Mode::WUSR;
        self.fail(Act::MakeNode, fs::mknodat(&*self.changing()?, name, file_type, mode, rdev))
    }

    fn link(&self, name: &CStr, (from, from_name): (&dyn Dir, &CStr), id: (u64, u64)) -> Done {
        let Some(from) = from.as_local() else { return self.fail(Act::Link, Err(Errno::XDEV)) };
        self.fail(Act::Link, fs::linkat(&*from.fd()?, from_name, &*self.changing()?, name, AtFlags::empty()))?;
        // linkat(2) goes by the name, at which somebody else may have put another file.
        let linked = self.look(name);
        if linked.as_ref().is_ok_and(|linked| linked.id() == id) {
            return Ok(());
        }
        let _not_what_was_meant = self.remove(name);
        linked.and_then(|_| self.fail(Act::Link, Err(Errno::STALE)))
    }

    fn set(&self, name: &CStr, expected: &Known, attributes: &Attributes) -> Done<Vec<Fault>> {
        self.node.pass_gate()?;
        if expected.private {
            let fd = self.fd()?;
            return Ok(Setter::apply(Target::Name(fd.as_fd(), name), self.side(), expected, attributes));
        }
        let pinned = self.pin(name, expected)?;
        Ok(Setter::apply(Target::Pinned(pinned.as_fd()), self.side(), expected, attributes))
    }

    fn set_own(&self, known: &Known, attributes: &Attributes) -> Vec<Fault> {
        // It would change the times; and from now on others may come in.
        self.leave_nest();
        if attributes.opens() {
            self.state.given.store(true, Relaxed);
            self.state.private.store(false, Relaxed);
        }
        match self.changing() {
            Ok(fd) => {
                let set = || Setter::apply(Target::Open(fd.as_fd()), self.side(), known, attributes);
                let faults = set();
                if crate::mark::makes_room(self, &faults) { set() } else { faults }
            }
            Err(e) => vec![e],
        }
    }

    fn make_writable(&self) {
        let Ok(fd) = self.changing() else { return };
        let Ok(st) = fs::fstat(&*fd) else { return };
        if st.st_mode & 0o700 != 0o700 && !rustix::process::geteuid().is_root() {
            let _may_fail_for_others = fs::fchmod(&*fd, Mode::from_raw_mode(st.st_mode & 0o7777 | 0o700));
        }
    }

    fn nest(&self, hidden: bool) -> Done<Option<DirMutRef>> {
        if self.is_private() || !hidden && self.is_guarded() {
            return Ok(None);
        }
        Ok(Some(Arc::new(self.nest_local()?)))
    }

    fn take(&self, from: &dyn DirMut, name: &CStr, to: &CStr) -> Done {
        let Some(from) = from.as_local() else { return self.fail(Act::Rename, Err(Errno::XDEV)) };
        self.fail(Act::Rename, fs::renameat(&*from.fd()?, name, &*self.changing()?, to))
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Done {
        let fd = self.changing()?;
        self.fail(Act::Rename, fs::renameat(&*fd, from, &*fd, to))
    }

    fn displace(&self, from: &CStr, to: &CStr, below_max: u64) -> Removed {
        crate::displace::displace(self, from, to, below_max)
    }

    fn remove(&self, name: &CStr) -> Done {
        self.fail(Act::Remove, fs::unlinkat(&*self.changing()?, name, AtFlags::empty()))
    }

    fn remove_dir(&self, name: &CStr) -> Done {
        let removed = match fs::unlinkat(&*self.changing()?, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.forget_root_names(name),
            other => other,
        };
        self.fail(Act::RemoveDirectory, removed)
    }

    fn remove_tree(&self, name: &CStr, spared: Spared<'_>) -> Removed {
        remove_tree(self, name, spared)
    }

    fn remove_leftover(&self, name: &CStr) -> Removed {
        remove_leftover(self, name)
    }

    fn sync_all(&self) -> Done {
        self.fail(Act::Flush, fs::syncfs(&*self.fd()?))
    }

    fn lock(&self, name: Option<&CStr>, reach: Reach) -> Done<Lock> {
        crate::locks::take(self, name, reach)
    }

    fn set_unfinished(&self, is: bool) -> Done {
        if is { crate::leftover::mark(self) } else { crate::leftover::unmark(self) }
    }

    fn set_mark(&self, text: &[u8], durable: bool) -> Done<Stamp> {
        crate::mark::write(self, text, durable)
    }

    fn before_change(&self, act: Option<BeforeChange>) {
        self.node.gate().set(act);
    }

    fn guard(&self, sentry: Option<Arc<dyn Sentry>>) {
        self.node.gate().guard(sentry);
    }

    fn confirm(&self) -> Done {
        if self.side() == Side::Replica { self.node.gate().confirm() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HandlePool;

    #[test]
    fn listings_of_one_directory_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = HandlePool::new(8);
        let Ok(crate::Place::Dir(dir)) = crate::locate_mut(folder.path(), &pool) else { panic!("it is there") };
        let name = |number: usize| CString::new(format!("name-{number}")).expect("no NUL");
        (0..5000).for_each(|number| drop(dir.create_file(&name(number), 0o600).expect("create")));
        let mut listings: Vec<(Box<dyn NameStream>, Names)> = (0..3).map(|_| (dir.list().expect("list"), Names::default())).collect();
        // In turn, and the last one is begun when the others are under way.
        for round in 1..=100 {
            for (stream, names) in &mut listings {
                stream.fill(names, 60 * round).expect("list");
            }
        }
        for (_, mut names) in listings {
            names.sort();
            let all: std::collections::BTreeSet<&[u8]> = (0..names.len()).map(|number| names.bytes(number)).collect();
            assert_eq!((names.len(), all.len()), (5000, 5000), "each name once");
        }
    }

    #[test]
    fn both_ways_to_look_at_an_inode_say_the_same() {
        for path in [c"/", c"/dev/null", c"/proc/self/stat", c"/etc"] {
            let fd = fs::openat(fs::CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("open");
            let first = fs::fstat(&fd).map(|st| meta_of(&st)).expect("look");
            let again = meta_again(&fd).expect("look again");
            assert_eq!(again, Meta { atime: again.atime, unkept: again.unkept, ..first }, "{path:?}");
        }
    }

    #[test]
    fn the_time_when_something_was_made_has_no_more_nanoseconds_than_a_second_has() {
        let mut st = fs::statx(fs::CWD, c"/", AtFlags::empty(), StatxFlags::BTIME).expect("look");
        st.stx_mask = StatxFlags::BTIME.bits();
        (st.stx_btime.tv_sec, st.stx_btime.tv_nsec) = (7, 1_000_000_000);
        assert_eq!(birth_of(&st), Some(Stamp { sec: 7, nsec: 999_999_999 }));
        st.stx_mask = 0;
        assert_eq!(birth_of(&st), None, "not every file system tells");
    }
}
