//! A draft of a deposit: its lock, its content, and the rename that makes it a deposit.
//!
//! What must hold: a process changes a draft only while it holds the lock, and the name of a deposit
//! has the whole content or none, whatever ends the process.

use crate::DepositError;
use crate::folder::HomeFolder;
use crate::sweep::sweep;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat, chmodat, flock, fstat,
    fsync, mkdirat, openat, renameat, renameat_with, statat, syncfs, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Begin of the name of a draft's folder.
pub(crate) const DRAFT: &str = ".put-";
/// Files of a draft beside its content: the lock, and the description of its origin.
pub(crate) const DRAFT_FILES: [&str; 2] = [LOCK, ORIGIN];
/// Lock of a draft.
pub(crate) const LOCK: &str = ".lock";
/// Description of the origin of a draft.
const ORIGIN: &str = ".origin";
/// Name of a deposit that was taken out of the home.
const WITHDRAWN: &str = ".withdrawn";
/// Begin of the name of a deposit that is removed without a draft. No deposit begins with a dot.
const REMOVED: &str = ".removed-";
/// Attempts to lock a draft that other processes remove meanwhile.
const LOCKS_MAX: u32 = 100;
/// Attempts to rename a draft while other programs change the home.
const RENAMES_MAX: u32 = 100;
/// Permissions of the owner. A directory that moves to another one needs that to write.
const OWNER_ALL: u32 = 0o700;
/// Mode of a directory that holds several sources. The home keeps other users out.
const GROUP_MODE: u32 = 0o755;
/// Bits of chmod(2).
const MODE_BITS: u32 = 0o7777;

/// A deposit that is being made. Dropping the value keeps the draft on disk and releases its lock.
#[derive(Debug)]
pub struct DepositDraft {
    home: HomeFolder,
    folder: OwnedFd,
    /// Lock of the draft, until the value is dropped.
    _lock: File,
    name: OsString,
}

/// A deposit that has its name.
#[derive(Debug)]
pub struct CommittedDeposit {
    /// Path of the deposit.
    pub path: PathBuf,
    /// Error of the removal of the replaced deposit. The next draft in this home removes it.
    pub leftover: Option<DepositError>,
}

/// Locks the draft of a deposit, and creates its folder if it is missing.
pub(crate) fn take(home: &HomeFolder, name: &OsStr) -> Result<DepositDraft, DepositError> {
    let entry = draft_of(name);
    let path = home.path().join(&entry);
    for _ in 0..LOCKS_MAX {
        match mkdirat(home.handle(), &*entry, Mode::from_raw_mode(OWNER_ALL)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(DepositError::call(&path, "create the directory")(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match openat(home.handle(), &*entry, flags, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            folder => folder.map_err(DepositError::call(&path, "open the directory"))?,
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = match openat(&folder, LOCK, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::NOENT) => continue,
            lock => lock.map_err(DepositError::call(&path, "create the lock"))?,
        };
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(DepositError::Busy(home.path().join(name))),
            Err(errno) => return Err(DepositError::call(&path, "lock it")(errno)),
        }
        // The process that held the lock may have removed the draft.
        let is_there = is_same(&lock, statat(&folder, LOCK, AtFlags::SYMLINK_NOFOLLOW))
            && is_same(
                &folder,
                statat(home.handle(), &*entry, AtFlags::SYMLINK_NOFOLLOW),
            );
        if is_there {
            return Ok(DepositDraft {
                home: home.clone(),
                folder,
                _lock: File::from(lock),
                name: name.to_owned(),
            });
        }
    }
    Err(DepositError::Busy(home.path().join(name)))
}

fn is_same(handle: impl AsFd, named: rustix::io::Result<Stat>) -> bool {
    let Ok(named) = named else { return false };
    fstat(handle).is_ok_and(|own| (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino))
}

impl DepositDraft {
    /// Returns the path at which the content must be created: a file or a directory.
    pub fn path(&self) -> PathBuf {
        self.folder_path().join(&self.name)
    }

    /// Creates the content as an empty file that only the user can read.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create_file(&self) -> Result<File, DepositError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.folder, &*self.name, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(DepositError::call(&self.path(), "create the file"))?;
        Ok(File::from(file))
    }

    /// Creates the content as a directory. The directory of a draft that is continued stays.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create_directory(&self) -> Result<(), DepositError> {
        match mkdirat(&self.folder, &*self.name, Mode::from_raw_mode(GROUP_MODE)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(DepositError::call(&self.path(), "create the directory")(
                errno,
            )),
        }
    }

    /// Makes the content durable, and renames it to the name of the deposit. With `replaces`, an
    /// existing deposit makes room for it at the same moment, and is removed.
    ///
    /// # Errors
    /// The content is missing; the name exists, and `replaces` is not set; the file system cannot
    /// exchange two names; a system call failed. The draft then stays.
    pub fn commit(self, replaces: bool) -> Result<CommittedDeposit, DepositError> {
        let path = self.home.path().join(&self.name);
        if !self.has(&self.name) {
            return Err(DepositError::Missing(self.path()));
        }
        syncfs(&self.folder).map_err(DepositError::call(&self.path(), "make it durable"))?;
        // After the rename, the folder can have the content of an older deposit: no later draft may
        // take it for its own.
        self.forget_origin()?;
        self.rename(&path, replaces)?;
        fsync(self.home.handle()).map_err(DepositError::call(&path, "make its name durable"))?;
        let leftover = self.discard().err();
        Ok(CommittedDeposit { path, leftover })
    }

    /// Removes the draft and its content.
    ///
    /// # Errors
    /// An entry cannot be removed.
    pub fn discard(self) -> Result<(), DepositError> {
        let (entry, path) = (draft_of(&self.name), self.folder_path());
        remove_draft(&self.home, (self.folder.as_fd(), &entry), &path)
    }

    /// Keeps the content if it has this origin, and removes it otherwise.
    pub(crate) fn begin(&self, origin: Option<&[u8]>) -> Result<(), DepositError> {
        let path = self.folder_path();
        if origin.is_some() && self.origin().as_deref() == origin {
            return Ok(());
        }
        sweep(self.folder.as_fd(), &path, LOCK)?;
        let Some(origin) = origin else { return Ok(()) };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.folder, ORIGIN, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(DepositError::call(&path, "create its description"))?;
        let written = File::from(file).write_all(origin);
        written.map_err(|cause| {
            let errno = Errno::from_io_error(&cause).unwrap_or(Errno::IO);
            DepositError::call(&path, "write its description")(errno)
        })
    }

    /// Moves the deposit of this name into the draft.
    pub(crate) fn withdraw(&self) -> Result<(), DepositError> {
        let path = self.home.path().join(&self.name);
        let take = || renameat(self.home.handle(), &*self.name, &self.folder, WITHDRAWN);
        match self.with_write_permission(&take) {
            // The name had a draft alone.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(DepositError::call(&path, "take it away")(errno)),
        }
    }

    fn rename(&self, path: &Path, replaces: bool) -> Result<(), DepositError> {
        for _ in 0..RENAMES_MAX {
            let flags = match replaces && self.home.has(&self.name) {
                true => RenameFlags::EXCHANGE,
                false => RenameFlags::NOREPLACE,
            };
            match self.try_rename(flags) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) if !replaces => {
                    return Err(DepositError::Exists(path.to_owned()));
                }
                // Another program created or removed the name meanwhile.
                Err(Errno::EXIST | Errno::NOENT) if self.has(&self.name) => {}
                // renameat2(2): the file system does not know the flag.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
                    if flags == RenameFlags::EXCHANGE =>
                {
                    return Err(DepositError::NoExchange(path.to_owned()));
                }
                Err(errno) => {
                    return Err(DepositError::call(path, "rename the draft to it")(errno));
                }
            }
        }
        Err(DepositError::call(path, "rename the draft to it")(
            Errno::AGAIN,
        ))
    }

    fn try_rename(&self, flags: RenameFlags) -> rustix::io::Result<()> {
        let (name, home) = (&*self.name, self.home.handle());
        let rename = || renameat_with(&self.folder, name, home, name, flags);
        let done = self.with_write_permission(&rename);
        let is_unknown = matches!(done, Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP));
        if !is_unknown || flags != RenameFlags::NOREPLACE {
            return done;
        }
        // NFS knows no flags. The lock of the draft keeps other drafts of this name away.
        if self.home.has(name) {
            return Err(Errno::EXIST);
        }
        let rename = || renameat(&self.folder, name, home, name);
        self.with_write_permission(&rename)
    }

    /// Renames. A user cannot move a directory to another one without the permission to write to it
    /// (rename(2), `EACCES`), so directories get this permission for the rename.
    fn with_write_permission(
        &self,
        rename: &dyn Fn() -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        match rename() {
            Err(Errno::ACCESS) => {}
            done => return done,
        }
        let mut restored = None;
        for folder in [self.folder.as_fd(), self.home.handle()] {
            let meta = statat(folder, &*self.name, AtFlags::SYMLINK_NOFOLLOW);
            let Ok(meta) = meta else { continue };
            if FileType::from_raw_mode(meta.st_mode) != FileType::Directory {
                continue;
            }
            let mode = Mode::from_raw_mode(meta.st_mode & MODE_BITS | OWNER_ALL);
            chmodat(folder, &*self.name, mode, AtFlags::empty())?;
            // The draft has its own mode as a deposit. The other directory is about to be removed.
            restored.get_or_insert((meta.st_ino, meta.st_mode & MODE_BITS));
        }
        let done = rename();
        if let Some((inode, mode)) = restored {
            for folder in [self.folder.as_fd(), self.home.handle()] {
                let meta = statat(folder, &*self.name, AtFlags::SYMLINK_NOFOLLOW);
                if meta.is_ok_and(|meta| meta.st_ino == inode) {
                    let mode = Mode::from_raw_mode(mode);
                    chmodat(folder, &*self.name, mode, AtFlags::empty())?;
                }
            }
        }
        done
    }

    fn forget_origin(&self) -> Result<(), DepositError> {
        match unlinkat(&self.folder, ORIGIN, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => {
                let path = self.folder_path();
                return Err(DepositError::call(&path, "remove its description")(errno));
            }
        }
        let synced = fsync(&self.folder);
        synced.map_err(DepositError::call(&self.folder_path(), "make it durable"))
    }

    fn has(&self, name: &OsStr) -> bool {
        statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn origin(&self) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, ORIGIN, flags, Mode::empty()).ok()?;
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn folder_path(&self) -> PathBuf {
        self.home.path().join(draft_of(&self.name))
    }
}

/// Removes a deposit from a home that has no room for a draft. A directory gets a name that only this
/// act uses, at the top of the home, so the deposit disappears at once.
pub(crate) fn remove_without_draft(home: &HomeFolder, name: &OsStr) -> Result<(), DepositError> {
    let path = home.path().join(name);
    match unlinkat(home.handle(), name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // unlink(2): Linux says so of a directory, POSIX `EPERM`.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(DepositError::call(&path, "remove it")(errno)),
    }
    let removed = rename_to_removed(home, name)
        .map_err(DepositError::call(&path, "rename it to remove it"))?;
    let path = home.path().join(&removed);
    let mode = Mode::from_raw_mode(OWNER_ALL);
    chmodat(home.handle(), &*removed, mode, AtFlags::empty())
        .map_err(DepositError::call(&path, "open it to its owner"))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(home.handle(), &*removed, flags, Mode::empty())
        .map_err(DepositError::call(&path, "open the directory"))?;
    sweep(folder.as_fd(), &path, "")?;
    unlinkat(home.handle(), &*removed, AtFlags::REMOVEDIR)
        .map_err(DepositError::call(&path, "remove the directory"))?;
    // A lock that found no room has left the folder of its draft.
    let _it_has_content = unlinkat(home.handle(), draft_of(name), AtFlags::REMOVEDIR);
    Ok(())
}

/// Renames a deposit to the first free name of a draft that no deposit can have.
fn rename_to_removed(home: &HomeFolder, name: &OsStr) -> rustix::io::Result<OsString> {
    for number in 0..RENAMES_MAX {
        let removed = draft_of(OsStr::new(&format!("{REMOVED}{number}")));
        match renameat(home.handle(), name, home.handle(), &*removed) {
            Ok(()) => return Ok(removed),
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::EXIST)
}

/// Returns the name of the folder of a draft.
pub(crate) fn draft_of(name: &OsStr) -> OsString {
    let mut draft = OsString::from(DRAFT);
    draft.push(name);
    draft
}

/// Removes the folder of a draft; its lock goes last.
fn remove_draft(
    home: &HomeFolder,
    (folder, entry): (BorrowedFd<'_>, &OsStr),
    path: &Path,
) -> Result<(), DepositError> {
    sweep(folder, path, LOCK)?;
    let unlinked = unlinkat(folder, LOCK, AtFlags::empty());
    unlinked.map_err(DepositError::call(path, "remove the lock"))?;
    match unlinkat(home.handle(), entry, AtFlags::REMOVEDIR) {
        // Another process has begun a draft of this name.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(errno) => Err(DepositError::call(path, "remove the directory")(errno)),
    }
}
