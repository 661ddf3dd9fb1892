//! Unsafe code: the calls of fanotify(7) and open_by_handle_at(2), which no library wraps with the
//! flags that are needed here.
//!
//! These functions check nothing but pass on slices whose lengths they take from the slices
//! themselves, and take descriptors that the kernel has just made.
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CStr;

fn check(returned: libc::c_long) -> Result<i32, Errno> {
    if returned >= 0 {
        return Ok(returned as i32);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_raw_os_error(
        error.raw_os_error().unwrap_or(libc::EIO),
    ))
}

/// A group of marks and its queue (fanotify_init(2)).
pub fn init(flags: u32) -> Result<OwnedFd, Errno> {
    let for_events = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_LARGEFILE) as u32;
    // SAFETY: takes two numbers.
    let group = check(libc::c_long::from(unsafe {
        libc::fanotify_init(flags, for_events)
    }))?;
    // SAFETY: the kernel has just made this descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(group) })
}

/// Marks the whole file system of an open directory (fanotify_mark(2)).
pub fn mark_file_system(
    group: BorrowedFd<'_>,
    mask: u64,
    dir: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    let here: &CStr = c".";
    // SAFETY: the path is terminated and lives across the call.
    let done = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            flags,
            mask,
            dir.as_raw_fd(),
            here.as_ptr(),
        )
    };
    check(libc::c_long::from(done)).map(drop)
}

/// `struct file_handle` (open_by_handle_at(2)) with room for the longest handle there is
/// (`MAX_HANDLE_SZ`).
#[repr(C, align(8))]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES_MAX],
}

/// `MAX_HANDLE_SZ` of include/linux/exportfs.h.
pub const HANDLE_BYTES_MAX: usize = 128;

/// Opens, for its path alone, what a handle names on the file system of `mount`. Needs
/// CAP_DAC_READ_SEARCH. ESTALE: it is gone.
pub fn open_by_handle(mount: BorrowedFd<'_>, kind: i32, handle: &[u8]) -> Result<OwnedFd, Errno> {
    if handle.len() > HANDLE_BYTES_MAX {
        return Err(Errno::INVAL);
    }
    let mut whole = FileHandle {
        bytes: handle.len() as u32,
        kind,
        handle: [0; HANDLE_BYTES_MAX],
    };
    whole.handle[..handle.len()].copy_from_slice(handle);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: `whole` has the kernel's layout, states how many bytes of it are used, and lives
    // across the call.
    let opened = check(unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw const whole,
            flags,
        )
    })?;
    // SAFETY: the kernel has just made this descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Whether a name in a directory is that of what the handle names (name_to_handle_at(2)).
pub fn is_named(
    dir: BorrowedFd<'_>,
    name: &CStr,
    (kind, handle): (i32, &[u8]),
) -> Result<bool, Errno> {
    let mut whole = FileHandle {
        bytes: HANDLE_BYTES_MAX as u32,
        kind: 0,
        handle: [0; HANDLE_BYTES_MAX],
    };
    let mut mount: libc::c_int = 0;
    // SAFETY: the name is terminated, and `whole` has the kernel's layout and states how much room
    // it has; all of them live across the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            name.as_ptr(),
            &raw mut whole,
            &raw mut mount,
            0,
        )
    })?;
    let length = (whole.bytes as usize).min(HANDLE_BYTES_MAX);
    Ok(whole.kind == kind && whole.handle[..length] == *handle)
}
