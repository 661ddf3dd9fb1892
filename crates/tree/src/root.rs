//! Finding the roots that a user names, before anything is touched.
//!
//! These are the only paths that are taken from the user as they are: symbolic links in them are
//! followed, since he chose them. What is found is held by handle from then on.

use crate::Done;
use crate::dir::{Dir, DirRef};
use crate::dir_mut::DirMutRef;
use crate::local::LocalDir;
use crate::local::handles::HandlePool;
use crate::local::listing::is_removed;
use crate::local::look::meta_of;
use driftless_model::{Act, EntryName, Fault, Meta, RelPath, Side, cause_of, quote};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{CString, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of the longest path of one call (limits.h, `PATH_MAX`, without the NUL at its end).
const PATH_BYTES_MAX: usize = 4095;

/// A root that cannot be used: the path, what was tried, and why it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootError {
    path: PathBuf,
    act: Act,
    /// An error number (errno(3)), or [`LINE_LOST`](driftless_model::LINE_LOST).
    errno: i32,
    /// What else is known of the cause.
    hint: Option<String>,
}

impl RootError {
    /// An act on a path that failed with an error number.
    pub fn from_errno(path: &Path, act: Act, errno: i32) -> Self {
        RootError {
            path: path.to_owned(),
            act,
            errno,
            hint: None,
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was tried, and the error number.
    pub fn parts(&self) -> (Act, i32) {
        (self.act, self.errno)
    }

    fn new(path: &Path, act: Act, errno: Errno) -> Self {
        RootError::from_errno(path, act, errno.raw_os_error())
    }

    /// The same error, with what else is known of its cause.
    pub fn with_hint(self, hint: String) -> Self {
        RootError {
            hint: Some(hint),
            ..self
        }
    }

    /// Whether there is nothing at the path.
    pub fn is_missing(&self) -> bool {
        [Errno::NOENT, Errno::NOTDIR]
            .iter()
            .any(|errno| errno.raw_os_error() == self.errno)
    }

    /// What was tried and why it failed, without the path.
    pub fn reason(&self) -> String {
        let advice = match self.act {
            Act::OpenAbove if self.is_missing() => Some("make it first"),
            Act::BeginAtHome => Some("mend that, or give a path that begins with a slash"),
            _ => None,
        };
        let hint = self
            .hint
            .as_deref()
            .or(advice)
            .map(|hint| format!("; {hint}"))
            .unwrap_or_default();
        // To a root, symbolic links are followed.
        let cause = match self.errno {
            errno if errno == Errno::LOOP.raw_os_error() => "too many symbolic links".to_owned(),
            errno => cause_of(self.act, errno),
        };
        format!("cannot {}: {cause}{hint}", self.act.words())
    }
}

impl fmt::Display for RootError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", quote(&self.path), self.reason())
    }
}

impl std::error::Error for RootError {}

/// What stands at a path that the user named.
pub enum Place<D = DirRef> {
    /// A directory.
    Dir(D),
    /// Something else: the directory that holds it, its name and its metadata.
    Entry {
        /// The directory that holds it.
        parent: D,
        /// Its name there.
        name: CString,
        /// Its metadata.
        meta: Meta,
    },
    /// Nothing: the directory that would hold it and its name there.
    Missing {
        /// The directory that would hold it.
        parent: D,
        /// Its name there.
        name: CString,
    },
}

impl<D> Place<D> {
    /// This place, with its directory turned into another type by `dir`.
    pub fn map<E>(self, dir: impl FnOnce(D) -> E) -> Place<E> {
        match self {
            Place::Dir(found) => Place::Dir(dir(found)),
            Place::Entry { parent, name, meta } => Place::Entry {
                parent: dir(parent),
                name,
                meta,
            },
            Place::Missing { parent, name } => Place::Missing {
                parent: dir(parent),
                name,
            },
        }
    }

    /// The directory itself, or the one that holds the entry or would hold it.
    pub fn dir(&self) -> &D {
        let (Place::Dir(dir)
        | Place::Entry { parent: dir, .. }
        | Place::Missing { parent: dir, .. }) = self;
        dir
    }
}

/// Looks at what stands at `path`, to read it. Symbolic links in the path and at its end are
/// followed.
///
/// # Errors
/// It cannot be opened, or its directory cannot.
pub fn locate(path: &Path, side: Side, pool: &Arc<HandlePool>) -> Result<Place, RootError> {
    Ok(locate_local(path, side, pool)?.map(|dir| Arc::new(dir) as DirRef))
}

/// Looks at what stands at `path`, in a replica that may be changed. Symbolic links in the path and
/// at its end are followed.
///
/// # Errors
/// It cannot be opened, or its directory cannot.
pub fn locate_mut(path: &Path, pool: &Arc<HandlePool>) -> Result<Place<DirMutRef>, RootError> {
    Ok(locate_local(path, Side::Replica, pool)?.map(|dir| Arc::new(dir) as DirMutRef))
}

fn locate_local(
    path: &Path,
    side: Side,
    pool: &Arc<HandlePool>,
) -> Result<Place<LocalDir>, RootError> {
    let fail = |act, errno| RootError::new(path, act, errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match at(path, |above, rest| {
        fs::openat(above, rest, flags, Mode::empty())
    }) {
        Ok(fd) => root_dir(path, side, pool, fd).map(Place::Dir),
        Err(Errno::NOENT | Errno::NOTDIR) => locate_entry(path, side, pool),
        Err(errno) => Err(fail(Act::Open, errno)),
    }
}

/// Calls `act` with a path and the directory that it begins in. A path that is longer than the
/// kernel takes at once (path_resolution(7), `PATH_MAX`) is walked in parts; symbolic links in it
/// are followed, as they are in a short one.
fn at<T>(
    path: &Path,
    act: impl FnOnce(BorrowedFd<'_>, &Path) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let (mut above, mut rest): (Option<OwnedFd>, &[u8]) = (None, path.as_os_str().as_bytes());
    while rest.len() > PATH_BYTES_MAX {
        let cut = rest[..PATH_BYTES_MAX]
            .iter()
            .rposition(|byte| *byte == b'/')
            .ok_or(Errno::NAMETOOLONG)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let part = OsStr::from_bytes(&rest[..=cut]);
        above = Some(fs::openat(begin(&above), part, flags, Mode::empty())?);
        rest = &rest[cut..];
        rest = &rest[rest.iter().take_while(|byte| **byte == b'/').count()..];
    }
    let rest = if rest.is_empty() { b"." } else { rest };
    act(begin(&above), Path::new(OsStr::from_bytes(rest)))
}

/// Returns the directory that a relative path begins in.
fn begin(above: &Option<OwnedFd>) -> BorrowedFd<'_> {
    above.as_ref().map_or(fs::CWD, AsFd::as_fd)
}

/// A directory that was removed while something else held it, such as a mount of it at a second
/// place, is no root: it looks like an empty one.
fn root_dir(
    path: &Path,
    side: Side,
    pool: &Arc<HandlePool>,
    fd: OwnedFd,
) -> Result<LocalDir, RootError> {
    let refused = |fault: Fault| RootError::from_errno(path, Act::Open, fault.errno);
    let dir = LocalDir::root(pool, side, fd).map_err(refused)?;
    if dir.first_meta().nlink == 0 && is_removed(&*dir.fd().map_err(refused)?) {
        return Err(RootError::new(path, Act::Open, Errno::STALE));
    }
    Ok(dir)
}

fn locate_entry(
    path: &Path,
    side: Side,
    pool: &Arc<HandlePool>,
) -> Result<Place<LocalDir>, RootError> {
    let path = &followed(path);
    let name = path
        .file_name()
        .ok_or_else(|| RootError::new(path, Act::Use, Errno::NOENT))?;
    let above = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let act = if side == Side::Replica {
        Act::OpenAbove
    } else {
        Act::Open
    };
    let fd = at(above, |from, rest| {
        fs::openat(from, rest, flags, Mode::empty())
    })
    .map_err(|e| RootError::new(above, act, e))?;
    let parent = LocalDir::root(pool, side, fd)
        .map_err(|e| RootError::from_errno(above, Act::Open, e.errno))?;
    let name =
        CString::new(name.as_bytes()).map_err(|_| RootError::new(path, Act::Use, Errno::INVAL))?;
    let fd = parent
        .fd()
        .map_err(|e| RootError::from_errno(above, Act::Open, e.errno))?;
    match fs::statat(&*fd, &*name, fs::AtFlags::SYMLINK_NOFOLLOW) {
        // A moment ago no directory could be opened here; a file system has just been mounted, say.
        // Taken for an entry, it would be compared without what is in it.
        Ok(st) if fs::FileType::from_raw_mode(st.st_mode).is_dir() => {
            Err(RootError::new(path, Act::Open, Errno::STALE))
        }
        Ok(st) => Ok(Place::Entry {
            parent,
            name,
            meta: meta_of(&st),
        }),
        Err(Errno::NOENT) => Ok(Place::Missing { parent, name }),
        Err(errno) => Err(RootError::new(path, Act::LookAt, errno)),
    }
}

/// Where a chain of symbolic links at the end of a path leads; the path itself if there is no link
/// or it leads to nothing.
fn followed(path: &Path) -> PathBuf {
    let trimmed = trim_slashes(path);
    match at(trimmed, |above, rest| {
        fs::readlinkat(above, rest, Vec::new())
    }) {
        Ok(_) => resolve(trimmed).unwrap_or_else(|| trimmed.to_owned()),
        Err(_) => trimmed.to_owned(),
    }
}

fn resolve(path: &Path) -> Option<PathBuf> {
    let fd = at(path, |above, rest| {
        fs::openat(above, rest, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    })
    .ok()?;
    let real = fs::readlink(
        crate::local::xattr::proc_path(rustix::fd::AsFd::as_fd(&fd), None),
        Vec::new(),
    )
    .ok()?;
    Some(PathBuf::from(OsStr::from_bytes(real.as_bytes())))
}

fn trim_slashes(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes
        .iter()
        .rposition(|b| *b != b'/')
        .map_or(1.min(bytes.len()), |last| last + 1);
    Path::new(OsStr::from_bytes(&bytes[..end]))
}

/// A directory, or one above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// Device and inode.
    pub id: (u64, u64),
    /// Its name in the directory above it; `None` for the root of the name space, and where the
    /// name cannot be known.
    pub name: Option<EntryName>,
}

/// A directory and all above it, up to the root of the name space, or to where this user may look
/// no further: nothing that he names, or that a run of his enters, lies beyond.
pub(crate) fn lineage(dir: &OwnedFd) -> Result<Vec<Ancestor>, Errno> {
    let mut fd = fs::openat(
        dir,
        c".",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut ids = vec![id(&fd)?];
    loop {
        fd = match fs::openat(
            &fd,
            c"..",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Err(Errno::ACCESS) => break,
            other => other?,
        };
        let above = id(&fd)?;
        if ids.last() == Some(&above) {
            break;
        }
        ids.push(above);
    }
    // The kernel gives one path to the directory. If that has another number of names than there
    // are directories above, it is not the way that was gone up here.
    let names = names_of(dir)
        .filter(|names| names.len() + 1 == ids.len())
        .unwrap_or_default();
    let names = names
        .into_iter()
        .rev()
        .map(Some)
        .chain(std::iter::repeat(None));
    Ok(ids
        .into_iter()
        .zip(names)
        .map(|(id, name)| Ancestor { id, name })
        .collect())
}

/// The names on the way to an open directory, outermost first.
fn names_of(dir: &OwnedFd) -> Option<Vec<EntryName>> {
    let path = fs::readlink(
        crate::local::xattr::proc_path(rustix::fd::AsFd::as_fd(dir), None),
        Vec::new(),
    )
    .ok()?;
    let path = path.as_bytes().strip_prefix(b"/")?;
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .map(|name| EntryName::try_from(name.to_vec()).ok())
        .collect()
}

fn id(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    fs::fstat(fd).map(|st| (st.st_dev, st.st_ino))
}

/// Whether a path of this machine leads to the directory with this device and inode number, and
/// that was not removed.
pub fn leads_to(path: &Path, id: (u64, u64)) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_there = || fs::open(path, flags, Mode::empty()).is_ok_and(|dir| !is_removed(&dir));
    fs::stat(path)
        .is_ok_and(|now| (now.st_dev, now.st_ino) == id && (now.st_nlink > 0 || is_there()))
}

/// Opens the directory at `path` below `root`, name by name.
pub fn descend(root: &DirRef, path: &RelPath) -> Done<DirRef> {
    path.names().try_fold(root.clone(), |dir, name| {
        dir.enter(&CString::new(name).expect("names hold no NUL"))
    })
}

/// Opens the directory at `path` below `root`, name by name, to change it.
///
/// # Errors
/// One of the names is missing, is not that of a directory, or cannot be entered.
pub fn descend_mut(root: &DirMutRef, path: &RelPath) -> Done<DirMutRef> {
    path.names().try_fold(root.clone(), |dir, name| {
        dir.enter_mut(&CString::new(name).expect("names hold no NUL"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_directory_that_was_removed_is_no_root_though_a_path_leads_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = fs::open(folder.path(), OFlags::RDONLY, Mode::empty()).expect("open");
        let path = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        let found = || locate(&path, Side::Source, &HandlePool::new(8));
        let leads = || {
            let now = fs::fstat(&open).expect("it is open");
            leads_to(&path, (now.st_dev, now.st_ino))
        };
        assert!(matches!(found(), Ok(Place::Dir(_))) && leads());
        assert!(!is_removed(&open));
        fs::rmdir(folder.path()).expect("removed");
        assert!(is_removed(&open) && !leads());
        let refused = found().err().map(|error| error.parts());
        assert_eq!(refused, Some((Act::Open, Errno::STALE.raw_os_error())));
    }
}
