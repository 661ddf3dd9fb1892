//! System calls that the libraries do not wrap yet: the `*xattrat` family (Linux 6.13, include/uapi/linux/xattr.h).
//!
//! One call relative to a directory handle, where older kernels need a walk through `/proc/self/fd/N/name`, which costs
//! three times as much. The only unsafe code of this crate stands here; every function checks nothing but passes on
//! slices whose lengths it takes from the slices themselves.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

// The generic system call numbers (asm-generic/unistd.h), the same on x86-64 and arm64.
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;
const SYS_REMOVEXATTRAT: libc::c_long = 466;
const NOFOLLOW: libc::c_int = libc::AT_SYMLINK_NOFOLLOW;

/// `struct xattr_args` of linux/xattr.h.
#[repr(C, align(8))]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

static MISSING: AtomicBool = AtomicBool::new(false);

fn check(returned: libc::c_long) -> Result<usize, Errno> {
    match usize::try_from(returned) {
        Ok(n) => Ok(n),
        Err(_) => {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            if errno == libc::ENOSYS {
                MISSING.store(true, Relaxed);
            }
            Err(Errno::from_raw_os_error(errno))
        }
    }
}

/// Whether this kernel has said that it lacks these calls (ENOSYS); then take the road through `/proc/self/fd`.
pub fn xattrat_is_missing() -> bool {
    MISSING.load(Relaxed)
}

/// Lists the attribute names of `name` in `dir` into `list`, without following a symlink.
pub fn listxattrat(dir: BorrowedFd<'_>, name: &CStr, list: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the pointers are valid for the lengths given and live across the call.
    check(unsafe { libc::syscall(SYS_LISTXATTRAT, dir.as_raw_fd(), name.as_ptr(), NOFOLLOW, list.as_mut_ptr(), list.len()) })
}

/// Reads one attribute of `name` in `dir` into `value`.
pub fn getxattrat(dir: BorrowedFd<'_>, name: &CStr, attr: &CStr, value: &mut [u8]) -> Result<usize, Errno> {
    let args = XattrArgs { value: value.as_mut_ptr() as u64, size: value.len() as u32, flags: 0 };
    let size = size_of::<XattrArgs>();
    // SAFETY: as above; `args` has the kernel's layout and names a buffer of the length it states.
    check(unsafe { libc::syscall(SYS_GETXATTRAT, dir.as_raw_fd(), name.as_ptr(), NOFOLLOW, attr.as_ptr(), &args, size) })
}

/// Sets one attribute of `name` in `dir`.
pub fn setxattrat(dir: BorrowedFd<'_>, name: &CStr, attr: &CStr, value: &[u8]) -> Result<usize, Errno> {
    let args = XattrArgs { value: value.as_ptr() as u64, size: value.len() as u32, flags: 0 };
    let size = size_of::<XattrArgs>();
    // SAFETY: as above.
    check(unsafe { libc::syscall(SYS_SETXATTRAT, dir.as_raw_fd(), name.as_ptr(), NOFOLLOW, attr.as_ptr(), &args, size) })
}

/// Removes one attribute of `name` in `dir`.
pub fn removexattrat(dir: BorrowedFd<'_>, name: &CStr, attr: &CStr) -> Result<usize, Errno> {
    // SAFETY: as above.
    check(unsafe { libc::syscall(SYS_REMOVEXATTRAT, dir.as_raw_fd(), name.as_ptr(), NOFOLLOW, attr.as_ptr()) })
}
