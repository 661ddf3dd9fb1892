//! The lock that is seen by all hosts that share the locks of a file system: a file of mode 0600 in
//! the root of the replica, or beside a replica that is a single file. A run makes it before its
//! first change, and removes it when it gives up the lock. It cannot be elsewhere: the tree is all
//! that hosts, containers and users who work on it are sure to share.
//!
//! A user who cannot open the file cannot hold the lock, and cannot tell whether it is held,
//! either. So a second file stands beside it, the sign. Everybody can read the sign, and its lock
//! decides nothing: a run that sees that the sign is not locked knows that the run that left both
//! files is over, and removes them to take the lock itself. Everybody who can read a file can lock
//! it with flock(2). So the sign is locked with fcntl(2), which takes the right to write, and other
//! runs ask whether it is locked without locking it: a user who may only read it keeps nobody out.
//! Those who may write to the directory may be others before the run is over, so a run always puts
//! up the sign.
//!
//! A user who may write to the directory can remove or rename the file that is locked. So a run at
//! work looks whether its lock file is still at its name (`is_kept`).
//!
//! Earlier versions gave both files other names (`LockNames::former`). Such a lock keeps a run out
//! as long as its own run is at work, and then goes.

use crate::local::LocalDir;
use crate::local::look::{fault, meta_again, meta_of};
use crate::local::sys;
use crate::local::times::{keep_times, set_times, while_writable};
use crate::lock::names::{LOCK_TEXT, LockNames, SIGN_TEXT};
use crate::lock::{Holder, Lock};
use crate::magic::{FUSE, is_on};
use crate::temp::temp_name;
use crate::{Done, Held};
use driftless_model::{Act, Side, Stamp};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::CStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a lock file is tried that others remove or replace meanwhile.
const TRIES_MAX: u32 = 16;
/// How our files are opened: no link is followed, no fifo is waited for, and no terminal becomes
/// that of this process.
const OPEN: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A locked file in the tree.
struct FileLock {
    dir: Arc<OwnedFd>,
    names: LockNames,
    file: OwnedFd,
    /// It tells others that the lock is held.
    sign: Option<OwnedFd>,
    /// Dropped when both are closed.
    traces: Traces,
}

impl Held for FileLock {
    fn is_kept(&self) -> Done<bool> {
        let kept = fs::fstat(&self.file).and_then(|st| is_still(&self.dir, &self.names.lock, &st));
        kept.map_err(|errno| fault(Side::Replica, Act::KeepLock, errno))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        self.traces.mtime = fs::fstat(&self.dir).map(|st| meta_of(&st).mtime).ok();
        let sign = self.sign.as_ref().map(|sign| (sign, &self.names.sign));
        // The sign is removed last: other users cannot tell a lock file without a sign from that of
        // a run at work.
        for (file, name) in std::iter::once((&self.file, &self.names.lock)).chain(sign) {
            // What stands at the name now may be another run's.
            if fs::fstat(file)
                .and_then(|st| is_still(&self.dir, name, &st))
                .unwrap_or(true)
            {
                // This is the last call of a run, and nobody is there to be told of a failure, so a
                // call that fails is made once more.
                let _the_next_run_takes_it_up = remove(&self.dir, name) || remove(&self.dir, name);
                self.traces.wait = self.traces.wait.max(hidden_for(file));
            }
        }
    }
}

/// How long a file that was removed while it is open may keep a hidden name. libfuse 2 does not
/// count such a name as a link, so on a FUSE file system nobody knows whether there
/// is one.
fn hidden_for(file: &OwnedFd) -> Duration {
    match () {
        () if meta_again(file).is_ok_and(|left| left.nlink > 0) => Traces::WAIT,
        () if is_on(file, &[FUSE]) => Traces::WAIT_IN_DOUBT,
        () => Duration::ZERO,
    }
}

/// Undoes what the removal of an open file does later. NFS clients and many FUSE servers give such
/// a file a hidden name, and remove that name some time after the file was closed, which changes
/// the modification time of the directory.
struct Traces {
    dir: Arc<OwnedFd>,
    /// The modification time that the directory had, if it is known.
    mtime: Option<Stamp>,
    /// How long a file may have a name although it was removed.
    wait: Duration,
}

impl Traces {
    /// How long the removal of a hidden name is waited for, where there is one.
    const WAIT: Duration = Duration::from_secs(1);
    /// How long it is waited for where nobody knows whether there is one.
    const WAIT_IN_DOUBT: Duration = Duration::from_millis(200);
    /// How long it takes from one look at the directory to the next.
    const LOOK_INTERVAL: Duration = Duration::from_millis(10);
    /// The wait is over when nothing has happened for so long since the time was set back.
    const STILL: Duration = Duration::from_millis(100);

    fn wipe(&self, mtime: Stamp) {
        let (began, mut last) = (Instant::now(), None::<Instant>);
        while began.elapsed() < self.wait && last.is_none_or(|last| last.elapsed() < Self::STILL) {
            let now = meta_again(&*self.dir).ok();
            if let Some(now) = now.filter(|now| now.mtime != mtime) {
                if set_times(&self.dir, now.atime, mtime).is_err() {
                    return;
                }
                last = Some(Instant::now());
            }
            std::thread::sleep(Self::LOOK_INTERVAL);
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        self.mtime
            .filter(|_| !self.wait.is_zero())
            .into_iter()
            .for_each(|mtime| self.wipe(mtime));
    }
}

/// Takes the lock of a directory, or of the entry `name` in it, if no directory above is locked.
/// `makes` says that the lock file is made if there is none.
pub fn take(dir: &LocalDir, name: Option<&CStr>, makes: bool) -> Done<Lock> {
    let lock = in_tree(dir, name, makes)?;
    if matches!(lock, Lock::Taken(_)) {
        return Ok(lock);
    }
    let above = held_above(&*dir.fd()?, name.is_some())
        .map_err(|errno| fault(Side::Replica, Act::FindAbove, errno))?;
    Ok(above.map_or(lock, Lock::Taken))
}

/// Takes the lock of a directory if there is a lock file, whatever is locked above.
pub fn take_within(dir: &LocalDir) -> Done<Lock> {
    in_tree(dir, None, false)
}

fn in_tree(dir: &LocalDir, entry: Option<&CStr>, makes: bool) -> Done<Lock> {
    let (fd, former) = (dir.fd()?, LockNames::former(entry));
    match try_file(dir, &former, (false, makes))? {
        Tried::Not(lock @ (Lock::Taken(_) | Lock::Left(_))) => return Ok(lock),
        // Its run is over.
        Tried::Locked(_file) => {
            remove(&fd, &former.lock);
            remove(&fd, &former.sign);
        }
        // It was killed when it had removed its lock.
        Tried::Not(_)
            if makes && is_missing(&fd, &former.lock) && !is_missing(&fd, &former.sign) =>
        {
            remove(&fd, &former.sign);
        }
        Tried::Not(_) => {}
    }
    let names = LockNames::of(entry);
    Ok(match try_file(dir, &names, (makes, makes))? {
        Tried::Locked(file) => held(fd, names, file),
        Tried::Not(lock) => lock,
    })
}

/// What came of an attempt to lock a file.
enum Tried {
    Locked(OwnedFd),
    Not(Lock),
}

/// Locks the file of a lock. `makes` says that it is made if there is none, and `clears` that what
/// keeps nobody out is removed from its name.
fn try_file(dir: &LocalDir, names: &LockNames, (makes, clears): (bool, bool)) -> Done<Tried> {
    let (fd, lock) = (dir.fd()?, &names.lock);
    let missing = |errno: Errno| Ok(Tried::Not(Lock::Missing(errno.raw_os_error())));
    for _ in 0..TRIES_MAX {
        let (file, is_new) = match open_lock(&fd, lock, makes) {
            Ok(opened) => opened,
            Err(Errno::ACCESS) => match ask_sign(&fd, names) {
                Told::AtWork => return Ok(Tried::Not(Lock::Taken(None))),
                Told::Over | Told::Nothing if clears && clear(&fd, lock) => {
                    clear(&fd, &names.sign);
                    continue;
                }
                Told::Over if clears => {
                    return Ok(Tried::Not(Lock::Left(lock.to_bytes().to_vec())));
                }
                Told::Over | Told::Nothing => return missing(Errno::ACCESS),
            },
            // A link, a pipe, a socket, a device or a directory that somebody has put there.
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::PERM)
                if clears && clear(&fd, lock) =>
            {
                continue;
            }
            Err(errno) => return missing(errno),
        };
        let st = fs::fstat(&file).map_err(|errno| fault(Side::Replica, Act::LookAt, errno))?;
        if !is_new && !is_own_file(dir, &st) {
            if clears && clear(&fd, lock) {
                continue;
            }
            return missing(Errno::EXIST);
        }
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The run that held it before may have removed the file in between; then this lock is
            // on a file without a name.
            Ok(()) if is_still(&fd, lock, &st) != Ok(true) => {}
            Ok(()) => return Ok(Tried::Locked(file)),
            Err(Errno::WOULDBLOCK) => return Ok(Tried::Not(Lock::Taken(read_holder(&file)))),
            Err(errno) => {
                if is_new {
                    remove(&fd, lock);
                }
                return missing(errno);
            }
        }
    }
    Ok(Tried::Not(Lock::Taken(None)))
}

fn held(dir: Arc<OwnedFd>, names: LockNames, file: OwnedFd) -> Lock {
    let sign = put_sign(&dir, &names.sign);
    let since = Some(clock_gettime(ClockId::Realtime).tv_sec);
    let words = Holder {
        since,
        ..Holder::here(std::process::id())
    }
    .encode();
    let words = [&words[..], LOCK_TEXT.as_bytes()].concat();
    let _for_a_person = fs::ftruncate(&file, 0).and_then(|()| rustix::io::pwrite(&file, &words, 0));
    let traces = Traces {
        dir: dir.clone(),
        mtime: None,
        wait: Duration::ZERO,
    };
    Lock::Held(Box::new(FileLock {
        dir,
        names,
        file,
        sign,
        traces,
    }))
}

/// Opens the file, and tells whether it was made now.
fn open_lock(dir: &OwnedFd, name: &CStr, makes: bool) -> Result<(OwnedFd, bool), Errno> {
    let open =
        || fs::openat(dir, name, OPEN | OFlags::RDWR, Mode::empty()).map(|file| (file, false));
    match open() {
        Err(Errno::NOENT) if makes => {}
        other => return other,
    }
    match make(dir, name) {
        Err(Errno::EXIST) => open(),
        other => other.map(|file| (file, true)),
    }
}

/// Makes a file that nobody else can open.
fn make(dir: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let create = || {
        fs::openat(
            dir,
            name,
            OPEN | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Mode::RUSR | Mode::WUSR,
        )
    };
    keep_times(dir, || while_writable(dir, create))
}

fn remove(dir: &OwnedFd, name: &CStr) -> bool {
    keep_times(dir, || {
        while_writable(dir, || fs::unlinkat(dir, name, AtFlags::empty()))
    })
    .is_ok()
}

/// Makes room at a name; returns whether it is free. A directory may hold what its owner would
/// miss: it is renamed and becomes a leftover, of which a later run says that it is not ours.
fn clear(dir: &OwnedFd, name: &CStr) -> bool {
    let aside = || fs::renameat(dir, name, dir, &*temp_name());
    remove(dir, name) || keep_times(dir, || while_writable(dir, aside)).is_ok()
}

/// The owner of a file; `None` if it is this user's, or cannot be looked at.
fn other_owner(dir: &OwnedFd, name: &CStr) -> Option<u32> {
    let owner = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .ok()?
        .st_uid;
    (owner != geteuid().as_raw()).then_some(owner)
}

/// Makes the sign, which shows that the lock is held, in the place of what an earlier run has left.
/// It is locked before others can open it.
fn put_sign(dir: &OwnedFd, name: &CStr) -> Option<OwnedFd> {
    let sign = make(dir, name)
        .or_else(|_| {
            if clear(dir, name) {
                make(dir, name)
            } else {
                Err(Errno::EXIST)
            }
        })
        .ok()?;
    let _for_a_person = rustix::io::pwrite(&sign, SIGN_TEXT.as_bytes(), 0);
    let shown = sys::hold_alone(sign.as_fd())
        .and_then(|()| fs::fchmod(&sign, Mode::RUSR | Mode::RGRP | Mode::ROTH));
    if shown.is_err() {
        remove(dir, name);
    }
    shown.ok().map(|()| sign)
}

/// What the sign tells of a lock that this user cannot open.
enum Told {
    /// Its run is at work.
    AtWork,
    /// Its run has left it, and is over.
    Over,
    /// There is no sign of the lock's owner.
    Nothing,
}

/// What the sign of a lock tells. A lock file of root's counts as held without a sign, too: nobody
/// else can make a file of root's.
fn ask_sign(dir: &OwnedFd, names: &LockNames) -> Told {
    let Some(owner) = other_owner(dir, &names.lock) else {
        return Told::Nothing;
    };
    match look_at_sign(dir, &names.sign, owner) {
        Some(false) => Told::Over,
        Some(true) => Told::AtWork,
        None if owner == 0 => Told::AtWork,
        None => Told::Nothing,
    }
}

/// Whether the sign of a lock is locked; `None` if there is no sign of the lock's owner, or it
/// cannot be asked.
fn look_at_sign(dir: &OwnedFd, name: &CStr, owner: u32) -> Option<bool> {
    let sign = fs::openat(dir, name, OPEN | OFlags::RDONLY, Mode::empty()).ok()?;
    let is_plain = |st: &Stat| {
        FileType::from_raw_mode(st.st_mode) == FileType::RegularFile && st.st_nlink == 1
    };
    fs::fstat(&sign)
        .ok()
        .filter(|st| st.st_uid == owner && is_plain(st))?;
    sys::is_held_alone(sign.as_fd()).ok()
}

/// Who has locked a directory above this one or, with `here`, this one itself. A directory that
/// this process may not look at counts as not locked: an agent may look at nothing above its root.
fn held_above(dir: &OwnedFd, here: bool) -> Result<Option<Option<Holder>>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = fs::openat(dir, c".", flags, Mode::empty())?;
    if here && let Some(holder) = holder_in(&at) {
        return Ok(Some(holder));
    }
    loop {
        let above = match fs::openat(&at, c"..", flags, Mode::empty()) {
            Err(Errno::ACCESS) => return Ok(None),
            other => other?,
        };
        if id(&above)? == id(&at)? {
            return Ok(None);
        }
        if let Some(holder) = holder_in(&above) {
            return Ok(Some(holder));
        }
        at = above;
    }
}

/// Who has the lock of a directory, of this version or of an earlier one.
fn holder_in(dir: &OwnedFd) -> Option<Option<Holder>> {
    let all = [LockNames::of(None), LockNames::former(None)];
    all.iter().find_map(|names| holder_of(dir, names))
}

/// Who has the lock of these names. A lock file that is neither this user's nor root's keeps nobody
/// out.
fn holder_of(dir: &OwnedFd, names: &LockNames) -> Option<Option<Holder>> {
    let file = match fs::openat(dir, &*names.lock, OPEN | OFlags::RDONLY, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::ACCESS) if other_owner(dir, &names.lock) == Some(0) => {
            return (look_at_sign(dir, &names.sign, 0) == Some(true)).then_some(None);
        }
        Err(_) => return None,
    };
    fs::fstat(&file).ok().filter(|st| {
        is_single_file(st) && st.st_mode & 0o077 == 0 && st.st_uid == geteuid().as_raw()
    })?;
    let is_held = fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
    is_held.then(|| read_holder(&file))
}

fn id(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    fs::fstat(fd).map(|st| (st.st_dev, st.st_ino))
}

/// Whether nobody else can have opened a file: it is this user's, with one name and no rights for
/// others, as far as the file system knows owners and rights.
fn is_own_file(dir: &LocalDir, st: &Stat) -> bool {
    is_single_file(st) && dir.is_birth_of_own(st.st_uid, st.st_mode)
}

fn is_single_file(st: &Stat) -> bool {
    FileType::from_raw_mode(st.st_mode) == FileType::RegularFile && st.st_nlink == 1
}

/// Whether `name` is still that of the file.
fn is_still(dir: &OwnedFd, name: &CStr, st: &Stat) -> Result<bool, Errno> {
    match fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(now) => Ok((now.st_dev, now.st_ino) == (st.st_dev, st.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn is_missing(dir: &OwnedFd, name: &CStr) -> bool {
    fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)
}

fn read_holder(file: &OwnedFd) -> Option<Holder> {
    let mut text = [0; 1024];
    let got = rustix::io::pread(file, &mut text, 0).ok()?;
    Holder::decode(&text[..got])
}
