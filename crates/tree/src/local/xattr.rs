//! Extended attributes and POSIX ACLs, whichever way an entry is held.

use crate::local::sys;
use crate::temp::MARK_ATTRIBUTES;
use crate::{Rights, Unmapped};
use driftless_model::{ACL_ACCESS, Keep, RIGHTS, Unkept, Xattrs, gives_rights, mode_without_acl};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// Bytes of the largest list of names and of the largest value that Linux allows (XATTR_LIST_MAX,
/// XATTR_SIZE_MAX of linux/limits.h).
const XATTR_BYTES_MAX: usize = 65536;
/// Bytes that most lists and values fit into. The kernel allocates as much memory as it is offered,
/// and above two pages that costs more than all the rest of the call.
const XATTR_BYTES_MOSTLY: usize = 512;

/// How an entry is held.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// A handle that was opened with O_PATH.
    Pinned(BorrowedFd<'a>),
    /// A name in an open directory, which nobody else can write to or which is only read.
    Name(BorrowedFd<'a>, &'a CStr),
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; XATTR_BYTES_MAX]);
}

/// `/proc/self/fd/N`, or the entry `name` in it. The kernel leads this path to the very inode that
/// is open.
pub fn proc_path(fd: BorrowedFd<'_>, name: Option<&CStr>) -> CString {
    let mut path = format!("/proc/self/fd/{}", fd.as_raw_fd()).into_bytes();
    if let Some(name) = name {
        path.push(b'/');
        path.extend_from_slice(name.to_bytes());
    }
    CString::new(path).expect("names hold no NUL")
}

/// Offers `call` a small part of the buffer, and all of it when that does not do.
fn offer(
    buffer: &mut [u8],
    mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    match call(&mut buffer[..XATTR_BYTES_MOSTLY]) {
        Err(Errno::RANGE) => call(buffer),
        other => other,
    }
}

/// Returns whether the kernel leaves attributes `trusted.*` out of the lists that it gives this
/// process (xattr(7)): it shows them to those alone who may set them, outside of user namespaces.
fn hides_trusted() -> bool {
    static HIDES: OnceLock<bool> = OnceLock::new();
    *HIDES.get_or_init(|| !Rights::own().trusted || Unmapped::here() != Unmapped::default())
}

/// Returns what was read of an attribute, if the entry has it.
fn if_there<T>(read: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Target<'_> {
    fn list(self, list: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Target::Open(fd) => fs::flistxattr(fd, list),
            Target::Pinned(fd) => fs::listxattr(proc_path(fd, None), list),
            Target::Name(dir, name) if sys::xattrat_is_missing() => {
                fs::llistxattr(proc_path(dir, Some(name)), list)
            }
            Target::Name(dir, name) => match sys::listxattrat(dir, name, list) {
                Err(Errno::NOSYS) => self.list(list),
                other => other,
            },
        }
    }

    /// Reads one attribute into `value`; returns its length.
    pub fn get(self, attr: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Target::Open(fd) => fs::fgetxattr(fd, attr, value),
            Target::Pinned(fd) => fs::getxattr(proc_path(fd, None), attr, value),
            Target::Name(dir, name) if sys::xattrat_is_missing() => {
                fs::lgetxattr(proc_path(dir, Some(name)), attr, value)
            }
            Target::Name(dir, name) => match sys::getxattrat(dir, name, attr, value) {
                Err(Errno::NOSYS) => self.get(attr, value),
                other => other,
            },
        }
    }

    /// Sets one attribute.
    pub fn set(self, attr: &CStr, value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        match self {
            Target::Open(fd) => fs::fsetxattr(fd, attr, value, flags),
            Target::Pinned(fd) => fs::setxattr(proc_path(fd, None), attr, value, flags),
            Target::Name(dir, name) if sys::xattrat_is_missing() => {
                fs::lsetxattr(proc_path(dir, Some(name)), attr, value, flags)
            }
            Target::Name(dir, name) => match sys::setxattrat(dir, name, attr, value) {
                Err(Errno::NOSYS) => self.set(attr, value),
                other => other.map(drop),
            },
        }
    }

    /// Removes one attribute; one that is not there is no error.
    pub fn unset(self, attr: &CStr) -> Result<(), Errno> {
        let done = match self {
            Target::Open(fd) => fs::fremovexattr(fd, attr),
            Target::Pinned(fd) => fs::removexattr(proc_path(fd, None), attr),
            Target::Name(dir, name) if sys::xattrat_is_missing() => {
                fs::lremovexattr(proc_path(dir, Some(name)), attr)
            }
            Target::Name(dir, name) => match sys::removexattrat(dir, name, attr) {
                Err(Errno::NOSYS) => self.unset(attr),
                other => other.map(drop),
            },
        };
        if done == Err(Errno::NODATA) {
            Ok(())
        } else {
            done
        }
    }

    /// Reads the attributes that are kept, sorted by name. A file system without attributes has
    /// none.
    pub fn read(self, keep: &Keep) -> Result<Xattrs, Errno> {
        self.read_within(keep, u64::MAX)
            .map(Option::unwrap_or_default)
    }

    /// Reads the attributes that are kept; `None` if they take more than `bytes_max` bytes of
    /// memory. Reading ends with the attribute that is too much.
    pub fn read_within(self, keep: &Keep, bytes_max: u64) -> Result<Option<Xattrs>, Errno> {
        if !keep.any_xattr() {
            let without_acl = self.without_acl()?;
            return Ok(Some(Xattrs::default().lacking_acl(without_acl)));
        }
        self.read_meeting((keep, bytes_max), |_| {})
    }

    /// Reads the attributes that are kept; `None` if they take more than `bytes_max` bytes of
    /// memory. Tells `meets` the names of all attributes that are there, also of those that are not
    /// kept.
    pub fn read_meeting(
        self,
        (keep, bytes_max): (&Keep, u64),
        mut meets: impl FnMut(&CStr),
    ) -> Result<Option<Xattrs>, Errno> {
        let read = BUFFER.with_borrow_mut(|buffer| {
            let length = match offer(buffer, |list| self.list(list)) {
                Err(Errno::OPNOTSUPP) => 0,
                Err(Errno::TOOBIG) => {
                    self.meet_marks(meets);
                    return self.read_unlisted((keep, bytes_max), buffer);
                }
                other => other?,
            };
            if length == 0 {
                return Ok(Some(Xattrs::default()));
            }
            let list = buffer[..length].to_vec();
            list.split_inclusive(|byte| *byte == 0)
                .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
                .for_each(&mut meets);
            self.read_listed(&list, (keep, bytes_max), buffer)
        })?;
        Ok(read.map(|xattrs| xattrs.hiding_trusted(keep.xattrs && hides_trusted())))
    }

    /// Tells `meets` which of our own marks are there, where the names cannot be listed.
    fn meet_marks(self, mut meets: impl FnMut(&CStr)) {
        let is_there = |name: &&CStr| {
            let mut nothing = [];
            !matches!(
                self.get(name, &mut nothing),
                Err(Errno::NODATA | Errno::OPNOTSUPP)
            )
        };
        let marks = MARK_ATTRIBUTES.into_iter();
        marks.filter(is_there).for_each(&mut meets);
    }

    /// Reads the attributes that decide who may do what, by their names: the names of all do not
    /// fit into the list that the kernel gives.
    fn read_unlisted(
        self,
        (keep, bytes_max): (&Keep, u64),
        buffer: &mut [u8],
    ) -> Result<Option<Xattrs>, Errno> {
        let names: Vec<u8> = RIGHTS
            .iter()
            .flat_map(|name| name.to_bytes_with_nul().iter().copied())
            .collect();
        let read = self.read_listed(&names, (keep, bytes_max), buffer)?;
        Ok(read.map(|mut read| {
            if keep.xattrs {
                read.unkept = read.unkept | Unkept::TOO_LONG;
            }
            read
        }))
    }

    fn read_listed(
        self,
        list: &[u8],
        (keep, bytes_max): (&Keep, u64),
        buffer: &mut [u8],
    ) -> Result<Option<Xattrs>, Errno> {
        let (mut found, mut unkept, mut bytes) = (Vec::new(), Unkept::NONE, 0);
        let mut without_acl = None;
        for name in list.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else {
                continue;
            };
            if name.to_bytes() == ACL_ACCESS && !keep.acls {
                let acl = offer(buffer, |value| self.get(name, value))
                    .map(|size| mode_without_acl(&buffer[..size]));
                without_acl = if_there(acl)?;
            }
            if !keep.wants_xattr(name.to_bytes()) {
                unkept = unkept
                    | if keep.acls {
                        Unkept::of_xattr(name.to_bytes())
                    } else {
                        Unkept::NONE
                    };
                continue;
            }
            match offer(buffer, |value| self.get(name, value)) {
                Ok(size) => {
                    bytes += Xattrs::memory_of_one(name.to_bytes(), &buffer[..size]);
                    if bytes > bytes_max {
                        return Ok(None);
                    }
                    found.push((name.to_bytes().into(), buffer[..size].into()));
                }
                Err(Errno::NODATA) => {}
                Err(Errno::OPNOTSUPP) if gives_rights(name.to_bytes()) => {}
                Err(e) => match Unkept::of_unread(e.raw_os_error()) {
                    unread if unread == Unkept::NONE || gives_rights(name.to_bytes()) => {
                        return Err(e);
                    }
                    unread => unkept = unkept | unread,
                },
            }
        }
        Ok(Some(Xattrs::new(found, unkept).lacking_acl(without_acl)))
    }

    /// Reads the permission bits that the entry has without its ACL; `None` if it has none.
    fn without_acl(self) -> Result<Option<u32>, Errno> {
        BUFFER.with_borrow_mut(|buffer| {
            let acl = offer(buffer, |value| self.get(c"system.posix_acl_access", value))
                .map(|size| mode_without_acl(&buffer[..size]));
            if_there(acl)
        })
    }

    /// Reads one attribute that is our own, if it is there.
    pub fn read_one(self, attr: &CStr) -> Option<Vec<u8>> {
        BUFFER.with_borrow_mut(|buffer| {
            offer(buffer, |value| self.get(attr, value))
                .ok()
                .map(|size| buffer[..size].to_vec())
        })
    }
}
