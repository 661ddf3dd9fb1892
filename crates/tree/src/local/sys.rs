//! Unsafe code: system calls that the libraries do not wrap yet, closing a file, locks on
//! bytes of a file, and files mapped into memory.
//!
//! The `*xattrat` family (Linux 6.13, include/uapi/linux/xattr.h) is one call relative to a
//! directory handle, where older kernels need a walk through `/proc/self/fd/N/name`, which costs
//! three times as much. These functions check nothing. They pass on slices, with lengths that come
//! from the slices themselves.
//!
//! Others may cut off a mapped file while it is read, which the kernel answers with SIGBUS
//! (mmap(2)). The signal is caught: zeros take the place of what is missing, and the reader is told
//! ([`Mapping::read`]).
#![allow(unsafe_code)]

use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::CStr;
use std::ops::Range;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

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
            let errno = std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO);
            if errno == libc::ENOSYS {
                MISSING.store(true, Relaxed);
            }
            Err(Errno::from_raw_os_error(errno))
        }
    }
}

/// Whether this kernel has said that it lacks these calls (ENOSYS); then callers go through
/// `/proc/self/fd`.
pub fn xattrat_is_missing() -> bool {
    MISSING.load(Relaxed)
}

/// Lists the attribute names of `name` in `dir` into `list`, without following a symlink.
pub fn listxattrat(dir: BorrowedFd<'_>, name: &CStr, list: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the pointers are valid for the lengths given and live across the call.
    check(unsafe {
        libc::syscall(
            SYS_LISTXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            NOFOLLOW,
            list.as_mut_ptr(),
            list.len(),
        )
    })
}

/// Reads one attribute of `name` in `dir` into `value`.
pub fn getxattrat(
    dir: BorrowedFd<'_>,
    name: &CStr,
    attr: &CStr,
    value: &mut [u8],
) -> Result<usize, Errno> {
    let args = XattrArgs {
        value: value.as_mut_ptr() as u64,
        size: value.len() as u32,
        flags: 0,
    };
    let size = size_of::<XattrArgs>();
    // SAFETY: as above; `args` has the kernel's layout and names a buffer of the length it states.
    check(unsafe {
        libc::syscall(
            SYS_GETXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            NOFOLLOW,
            attr.as_ptr(),
            &args,
            size,
        )
    })
}

/// Sets one attribute of `name` in `dir`.
pub fn setxattrat(
    dir: BorrowedFd<'_>,
    name: &CStr,
    attr: &CStr,
    value: &[u8],
) -> Result<usize, Errno> {
    let args = XattrArgs {
        value: value.as_ptr() as u64,
        size: value.len() as u32,
        flags: 0,
    };
    let size = size_of::<XattrArgs>();
    // SAFETY: as above.
    check(unsafe {
        libc::syscall(
            SYS_SETXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            NOFOLLOW,
            attr.as_ptr(),
            &args,
            size,
        )
    })
}

/// Closes a descriptor and returns what the file system says to that (close(2)), which the
/// libraries drop. The descriptor is gone after an error, too: on Linux a call that was interrupted
/// must not be made again.
pub fn close(fd: OwnedFd) -> Result<(), Errno> {
    // SAFETY: the descriptor was owned, and is given up here and nowhere else.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(Errno::from_raw_os_error(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )),
    }
}

/// Removes one attribute of `name` in `dir`.
pub fn removexattrat(dir: BorrowedFd<'_>, name: &CStr, attr: &CStr) -> Result<usize, Errno> {
    // SAFETY: as above.
    check(unsafe {
        libc::syscall(
            SYS_REMOVEXATTRAT,
            dir.as_raw_fd(),
            name.as_ptr(),
            NOFOLLOW,
            attr.as_ptr(),
        )
    })
}

/// Argument of `FS_IOC_GET_ENCRYPTION_POLICY_EX` (linux/fscrypt.h).
#[repr(C)]
struct PolicyArgs {
    size: u64,
    policy: [u8; 24],
}

/// Argument of `FS_IOC_GET_ENCRYPTION_KEY_STATUS` (linux/fscrypt.h).
#[repr(C)]
struct KeyStatusArgs {
    key_type: u32,
    reserved: u32,
    key: [u8; 32],
    reserved_in: [u32; 6],
    status: u32,
    flags: u32,
    users: u32,
    reserved_out: [u32; 13],
}

/// Reads the fscrypt policy of an open directory: `fscrypt_policy_v1` or `fscrypt_policy_v2`, as
/// the first byte says.
pub fn encryption_policy(dir: BorrowedFd<'_>) -> Result<[u8; 24], Errno> {
    // The kernel's header gives the size of the number and of the version byte alone.
    const REQUEST: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<[u8; 9]>(b'f', 22);
    let mut args = PolicyArgs {
        size: 24,
        policy: [0; 24],
    };
    // SAFETY: `args` has the kernel's layout, states its length and lives across the call.
    match unsafe { libc::ioctl(dir.as_raw_fd(), REQUEST as _, &mut args) } {
        0 => Ok(args.policy),
        _ => Err(last_errno()),
    }
}

/// Reads the state of an fscrypt key of the file system of an open directory
/// (`FSCRYPT_KEY_STATUS_*`).
pub fn encryption_key_status(dir: BorrowedFd<'_>, key_type: u32, key: &[u8]) -> Result<u32, Errno> {
    const REQUEST: rustix::ioctl::Opcode =
        rustix::ioctl::opcode::read_write::<KeyStatusArgs>(b'f', 26);
    let mut args = KeyStatusArgs {
        key_type,
        reserved: 0,
        key: [0; 32],
        reserved_in: [0; 6],
        status: 0,
        flags: 0,
        users: 0,
        reserved_out: [0; 13],
    };
    args.key[..key.len()].copy_from_slice(key);
    // SAFETY: `args` has the kernel's layout and lives across the call.
    match unsafe { libc::ioctl(dir.as_raw_fd(), REQUEST as _, &mut args) } {
        0 => Ok(args.status),
        _ => Err(last_errno()),
    }
}

/// Whether the keyrings of this process hold a logon key of this description (request_key(2)).
pub fn has_logon_key(description: &CStr) -> bool {
    // SAFETY: the strings live across the call; without callout information the kernel starts no
    // program.
    let found = unsafe {
        libc::syscall(
            libc::SYS_request_key,
            c"logon".as_ptr(),
            description.as_ptr(),
            ptr::null::<libc::c_char>(),
            0,
        )
    };
    found > 0
}

/// How a byte of a file is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteLock {
    /// Not at all, or not any more.
    None,
    /// Together with others.
    Shared,
    /// Alone.
    Exclusive,
}

fn byte(at: u64, kind: ByteLock) -> libc::flock {
    // SAFETY: it holds numbers only, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = match kind {
        ByteLock::None => libc::F_UNLCK,
        ByteLock::Shared => libc::F_RDLCK,
        ByteLock::Exclusive => libc::F_WRLCK,
    } as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (at.cast_signed(), 1);
    lock
}

/// Locks one byte of a file for this process, without waiting (fcntl(2), F_SETLK).
pub fn lock_byte(file: BorrowedFd<'_>, at: u64, kind: ByteLock) -> Result<(), Errno> {
    let lock = byte(at, kind);
    // SAFETY: `lock` lives across the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The process whose lock keeps this process from such a lock (fcntl(2), F_GETLK), if there is one
/// and it has a number in this process's name space.
pub fn byte_holder(file: BorrowedFd<'_>, at: u64, kind: ByteLock) -> Option<u32> {
    let mut lock = byte(at, kind);
    // SAFETY: as above.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut lock) };
    let found = done == 0 && i32::from(lock.l_type) != libc::F_UNLCK && lock.l_pid > 0;
    found.then(|| lock.l_pid.cast_unsigned())
}

/// Locks a file (its first byte) exclusively as long as this handle of it is open, without waiting
/// (fcntl(2), F_OFD_SETLK). The file must be open for writing.
pub fn hold_alone(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let lock = byte(0, ByteLock::Exclusive);
    // SAFETY: as above.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Whether a file is locked with [`hold_alone`] by way of another handle. Nothing is locked to find
/// out, and rights to read are enough (fcntl(2), F_OFD_GETLK).
pub fn is_held_alone(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut lock = byte(0, ByteLock::Shared);
    // SAFETY: as above.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    if done == 0 {
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    } else {
        Err(last_errno())
    }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

/// Sets the mode of `name` in `dir`, and never that of what a symbolic link there leads to (Linux
/// 6.6).
pub fn fchmodat2(dir: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<(), Errno> {
    const SYS_FCHMODAT2: libc::c_long = 452;
    // SAFETY: the pointer is valid and lives across the call.
    let done = unsafe {
        libc::syscall(
            SYS_FCHMODAT2,
            dir.as_raw_fd(),
            name.as_ptr(),
            mode,
            NOFOLLOW,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(Errno::from_raw_os_error(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        ))
    }
}

/// A range of a file, mapped for reading. Unmapped when it is dropped.
#[derive(Debug)]
pub struct Mapping {
    /// The first page, and the bytes from there to the end of the range.
    base: *mut libc::c_void,
    length: usize,
    /// Where the range begins in the first page.
    skip: usize,
}

thread_local! {
    /// The addresses of the mapping that this thread is reading; an empty range if it reads none.
    static READING: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Whether some of that mapping was not there.
    static WAS_CUT: Cell<bool> = const { Cell::new(false) };
}

/// Pages that mincore(2) is asked about at a time.
const MINCORE_PAGES: usize = 4096;

static CATCH_SIGBUS: Once = Once::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

fn page_bytes() -> usize {
    PAGE_BYTES.load(Relaxed)
}

impl Mapping {
    /// Maps a range, which must not be empty.
    pub fn new(file: BorrowedFd<'_>, range: Range<u64>) -> Result<Self, Errno> {
        CATCH_SIGBUS.call_once(catch_sigbus);
        let skip = range.start % page_bytes() as u64;
        let length =
            usize::try_from(range.end - range.start + skip).map_err(|_| Errno::OVERFLOW)?;
        let offset = libc::off_t::try_from(range.start - skip).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in
        // use.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(check(-1).expect_err("it failed"));
        }
        Ok(Mapping {
            base,
            length,
            skip: skip as usize,
        })
    }

    /// Whether all of it is in the page cache (mincore(2)). In a file system that lives in the page
    /// cache, such as tmpfs, holes are not in it, and must not be touched: to read a hole through a
    /// mapping fills it.
    pub fn is_cached(&self) -> bool {
        let mut pages = [0u8; MINCORE_PAGES];
        (0..self.length)
            .step_by(MINCORE_PAGES * page_bytes())
            .all(|offset| {
                let length = (self.length - offset).min(MINCORE_PAGES * page_bytes());
                // SAFETY: the pages belong to the mapping, and there is one byte for each.
                let done = unsafe {
                    libc::mincore(
                        self.base.cast::<u8>().add(offset).cast(),
                        length,
                        pages.as_mut_ptr(),
                    )
                };
                done == 0
                    && pages[..length.div_ceil(page_bytes())]
                        .iter()
                        .all(|page| page & 1 == 1)
            })
    }

    /// Hands over the bytes; `false` if some of them could not be read and were replaced by zeros.
    pub fn read(&self, use_bytes: impl FnOnce(&[u8])) -> bool {
        let start = self.base as usize;
        READING.set((start, start + self.length));
        WAS_CUT.set(false);
        // SAFETY: the pages stay mapped as long as `self` lives, also when the handler replaces
        // some. Others may write to the file meanwhile; the bytes are only hashed or compared, and
        // no value of them is relied upon.
        use_bytes(unsafe {
            std::slice::from_raw_parts(
                self.base.cast::<u8>().add(self.skip),
                self.length - self.skip,
            )
        });
        READING.set((0, 0));
        !WAS_CUT.get()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `new`, and nothing refers to it any more.
        unsafe { libc::munmap(self.base, self.length) };
    }
}

fn catch_sigbus() {
    // SAFETY: a zeroed `sigaction` is a valid one; the handler only does what signal-safety(7)
    // allows.
    unsafe {
        PAGE_BYTES.store(libc::sysconf(libc::_SC_PAGESIZE) as usize, Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

/// Handles SIGBUS: puts zeros in the place of the rest of the mapping that this thread reads. A
/// SIGBUS from anywhere else ends the process, as it would without this handler.
extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid `info`. The pages that are replaced belong to the mapping
    // that this thread is reading, so they are not used by anybody else; system calls are all that
    // is done.
    unsafe {
        let at = (*info).si_addr() as usize;
        let (start, end) = READING.get();
        let page = at - at % page_bytes();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let ours = (start..end).contains(&at);
        if !ours
            || libc::mmap(
                page as *mut libc::c_void,
                end - page,
                libc::PROT_READ,
                flags,
                -1,
                0,
            ) == libc::MAP_FAILED
        {
            libc::signal(signal, libc::SIG_DFL);
        }
        WAS_CUT.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::io::Write;

    #[test]
    fn a_file_that_is_cut_off_while_it_is_read_is_noticed() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 100_000]).expect("write");
        let mapping = Mapping::new(file.as_fd(), 5..100_000).expect("map");
        let mut seen = Vec::new();
        assert!(mapping.is_cached() && mapping.read(|bytes| seen = bytes.to_vec()));
        assert_eq!(seen, [7; 99_995]);
        file.set_len(50_000).expect("cut");
        assert!(!mapping.read(|bytes| seen = bytes.to_vec()));
        assert_eq!((seen.len(), seen[40_000], seen[99_994]), (99_995, 7, 0));
    }
}
