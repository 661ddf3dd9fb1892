//! System calls that the library makes for itself: by number, so that nothing that stands in the
//! place of the C library's functions, this library included, is called, and no thread is cancelled
//! in them.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use libc::{c_char, c_int, c_long, c_uint, c_void};

/// The longest path, its end included (limits.h, `PATH_MAX`).
pub const PATH_MAX: usize = 4096;

/// Whether this process may have given up the system calls of this library: it makes none then.
#[unsafe(link_section = ".data")]
static IS_CONFINED: AtomicBool = AtomicBool::new(false);

/// Whether no system call is made any more.
pub fn is_confined() -> bool {
    IS_CONFINED.load(Relaxed)
}

/// From here on no system call is made.
pub fn confine() {
    IS_CONFINED.store(true, Relaxed);
}

/// Makes a system call, unless none is made any more; then it fails.
macro_rules! kernel {
    ($($arg:expr),* $(,)?) => {
        if is_confined() {
            c_long::from(fail(libc::EPERM))
        } else {
            libc::syscall($($arg),*)
        }
    };
}

/// Does what it does without a change of errno.
pub fn quietly<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: it is this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = act();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

/// Which thread this is: an address that no other one of the process has, and that a child of
/// fork(2) keeps.
pub fn own_thread() -> usize {
    // SAFETY: it takes nothing.
    unsafe { libc::__errno_location() as usize }
}

pub fn errno() -> c_int {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Fails as a call does.
pub fn fail(errno: c_int) -> c_int {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Copies bytes to a place in others and says where they end; none if they do not fit.
pub fn put(into: &mut [u8], at: usize, bytes: &[u8]) -> Option<usize> {
    let room = into.get_mut(at..)?.get_mut(..bytes.len())?;
    room.copy_from_slice(bytes);
    Some(at + bytes.len())
}

/// Reads where a link leads; none if it is no link, or leads too far (`ENAMETOOLONG`).
pub fn readlink(path: *const c_char, into: &mut [u8]) -> Option<usize> {
    let (at, room) = (into.as_mut_ptr(), into.len());
    // SAFETY: the path ends, and so many bytes are there.
    let count = unsafe { kernel!(libc::SYS_readlinkat, libc::AT_FDCWD, path, at, room) };
    let count = usize::try_from(count).ok()?;
    if count >= room {
        // A target that fills all of it may be longer.
        fail(libc::ENAMETOOLONG);
        return None;
    }
    Some(count)
}

/// The working directory of this thread, without its end; none if it has none that has a path.
pub fn getcwd(into: &mut [u8]) -> Option<usize> {
    // SAFETY: so many bytes are there.
    let count = unsafe { kernel!(libc::SYS_getcwd, into.as_mut_ptr(), into.len()) };
    usize::try_from(count).ok()?.checked_sub(1)
}

/// What is asked of a file.
///
/// Not its times: since Linux 6.13, the next write after somebody has looked at them gives the file
/// others, which costs more than all that this library does (multigrain timestamps). And not what
/// another host would have to be asked for: what is known here will do.
#[derive(Clone, Copy)]
pub struct File {
    /// Kind and permissions, as in inode(7).
    pub mode: u32,
    pub owner: u32,
    pub bytes: u64,
    pub device: u64,
    pub inode: u64,
    /// How many names it has.
    pub names: u64,
}

impl File {
    /// Whether it is of a kind, such as `S_IFREG`.
    pub fn is(&self, kind: u32) -> bool {
        self.mode & libc::S_IFMT == kind
    }

    /// Whether two are one file.
    pub fn is_same(&self, other: &File) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// What is open as a descriptor.
pub fn fstat(fd: c_int) -> Option<File> {
    file_at(fd, c"".as_ptr(), libc::AT_EMPTY_PATH)
}

/// What stands at a path; of a link the link itself.
pub fn lstat(at: c_int, path: *const c_char) -> Option<File> {
    file_at(at, path, libc::AT_SYMLINK_NOFOLLOW)
}

fn file_at(at: c_int, path: *const c_char, flags: c_int) -> Option<File> {
    const WANTED: c_uint = libc::STATX_TYPE
        | libc::STATX_MODE
        | libc::STATX_UID
        | libc::STATX_SIZE
        | libc::STATX_INO
        | libc::STATX_NLINK;
    let mut found = MaybeUninit::<libc::statx>::uninit();
    let how = flags | libc::AT_STATX_DONT_SYNC;
    // SAFETY: the path ends, and the kernel fills the rest if it succeeds.
    let found = unsafe {
        match kernel!(libc::SYS_statx, at, path, how, WANTED, found.as_mut_ptr()) {
            0 => found.assume_init(),
            _ if [libc::ENOSYS, libc::EPERM].contains(&errno()) => return older(at, path, flags),
            _ => return None,
        }
    };
    Some(File {
        mode: found.stx_mode.into(),
        owner: found.stx_uid,
        bytes: found.stx_size,
        device: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        names: found.stx_nlink.into(),
    })
}

/// For Linux before 4.11, and where a filter of system calls does not know statx(2).
fn older(at: c_int, path: *const c_char, flags: c_int) -> Option<File> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path ends, and the kernel fills the rest if it succeeds.
    let found = unsafe {
        let done = kernel!(libc::SYS_newfstatat, at, path, found.as_mut_ptr(), flags);
        (done == 0).then(|| found.assume_init())
    }?;
    Some(File {
        mode: found.st_mode,
        owner: found.st_uid,
        bytes: found.st_size as u64,
        device: found.st_dev,
        inode: found.st_ino,
        names: u64::from(found.st_nlink as u32),
    })
}

pub fn fcntl(fd: c_int, command: c_int, value: c_long) -> c_int {
    // SAFETY: none of the commands that are used here takes a pointer.
    unsafe { kernel!(libc::SYS_fcntl, fd, command, value) as c_int }
}

/// Which of the first `COUNT` descriptors are open (poll(2), `POLLNVAL`).
pub fn open_among_first<const COUNT: usize>() -> [bool; COUNT] {
    let mut asked = [libc::pollfd {
        fd: 0,
        events: 0,
        revents: 0,
    }; COUNT];
    for (fd, one) in (0..).zip(&mut asked) {
        one.fd = fd;
    }
    let (now, none) = ([0_i64; 2], ptr::null::<c_void>());
    // SAFETY: so many are there; it waits for nothing.
    unsafe {
        kernel!(
            libc::SYS_ppoll,
            asked.as_mut_ptr(),
            COUNT,
            now.as_ptr(),
            none,
            0_usize,
        )
    };
    asked.map(|one| one.revents & libc::POLLNVAL == 0)
}

/// Opens a file that is not passed on to other programs.
pub fn open(path: *const c_char, flags: c_int) -> Option<c_int> {
    const OWN: libc::mode_t = 0o600;
    let flags = flags | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path ends.
    let fd = unsafe { kernel!(libc::SYS_openat, libc::AT_FDCWD, path, flags, OWN) };
    (fd >= 0).then_some(fd as c_int)
}

/// The user whose rights count.
pub fn user() -> u32 {
    // SAFETY: it takes nothing.
    unsafe { kernel!(libc::SYS_geteuid) as u32 }
}

/// Writes a number in decimal digits at a place and says where they end; none if they do not fit.
pub fn put_number(into: &mut [u8], at: usize, number: u32) -> Option<usize> {
    let (mut rest, mut digits) = (number, 1);
    while rest >= 10 {
        (rest, digits) = (rest / 10, digits + 1);
    }
    let room = into.get_mut(at..)?.get_mut(..digits)?;
    rest = number;
    for byte in room.iter_mut().rev() {
        (*byte, rest) = (b'0' + (rest % 10) as u8, rest / 10);
    }
    Some(at + digits)
}

pub fn close(fd: c_int) {
    // SAFETY: it is this library's own.
    unsafe { kernel!(libc::SYS_close, fd) };
}

/// Whether all the bytes were written.
pub fn write(fd: c_int, bytes: &[u8]) -> bool {
    // SAFETY: the bytes are there.
    let count = unsafe { kernel!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
    usize::try_from(count) == Ok(bytes.len())
}

/// The largest file that this process may write (`RLIMIT_FSIZE`), in bytes.
pub fn file_bytes_max() -> u64 {
    limit_of(libc::RLIMIT_FSIZE)
}

/// A local socket of datagrams (unix(7)).
pub fn socket() -> Option<c_int> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: it takes numbers only.
    let fd = unsafe { kernel!(libc::SYS_socket, libc::AF_UNIX, kind, 0) };
    (fd >= 0).then_some(fd as c_int)
}

/// Whether a socket leads there now.
pub fn connect(fd: c_int, to: &libc::sockaddr_un) -> bool {
    let (to, bytes) = (ptr::from_ref(to), size_of::<libc::sockaddr_un>());
    // SAFETY: the address is whole.
    unsafe { kernel!(libc::SYS_connect, fd, to, bytes) == 0 }
}

/// Sends a datagram whole, to where its socket leads, and without waiting; says whether it was
/// taken.
pub fn send(fd: c_int, bytes: &[u8]) -> bool {
    // SAFETY: there is no address.
    unsafe { sent(fd, bytes, ptr::null(), 0) }
}

/// Sends a datagram whole and without waiting, and says whether it was taken.
pub fn send_to(fd: c_int, bytes: &[u8], to: &libc::sockaddr_un) -> bool {
    // SAFETY: the address is whole.
    unsafe { sent(fd, bytes, to, size_of::<libc::sockaddr_un>()) }
}

/// # Safety
/// The address has so many bytes.
unsafe fn sent(fd: c_int, bytes: &[u8], to: *const libc::sockaddr_un, to_bytes: usize) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (at, len) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the bytes are there, and the address by the caller.
    let count = unsafe { kernel!(libc::SYS_sendto, fd, at, len, flags, to, to_bytes) };
    usize::try_from(count) == Ok(len)
}

/// Maps a file, so that all who map it see what one writes.
pub fn map(fd: c_int, len: usize, protection: c_int) -> Option<*mut u8> {
    let anywhere = ptr::null_mut::<c_void>();
    let shared = libc::MAP_SHARED;
    // It lies on the stack, where a shorter number would leave half of it undefined.
    let begin: c_long = 0;
    // SAFETY: a new place is asked for.
    let at = unsafe { kernel!(libc::SYS_mmap, anywhere, len, protection, shared, fd, begin) };
    // As a number, an error is one of the last 4095 addresses.
    (at as usize <= usize::MAX - 4095).then_some(at as *mut u8)
}

pub fn unmap(at: *mut u8, len: usize) {
    // SAFETY: it is this library's own.
    unsafe { kernel!(libc::SYS_munmap, at, len) };
}

/// Adds 1 to a number that others may have mapped too, and may have cut off meanwhile: the kernel
/// does it and fails where this process would be killed (SIGBUS). Where no system call is made any
/// more nothing guards against that, but it was [`is_there`] before.
pub fn add_one(at: *mut u32) {
    if is_confined() {
        // SAFETY: it is mapped, and aligned.
        unsafe { AtomicU32::from_ptr(at) }.fetch_add(1, Relaxed);
    } else {
        let _it_may_be_cut_off = is_added(at, 1);
    }
}

/// Whether a number is there that is mapped, and has its place on the disk from here on.
pub fn is_there(at: *mut u32) -> bool {
    is_added(at, 0)
}

/// Whether the kernel has added something to a number (futex(2), `FUTEX_WAKE_OP`).
fn is_added(at: *mut u32, what: c_int) -> bool {
    let add = (libc::FUTEX_OP_ADD << 28) | (what << 12);
    // SAFETY: the kernel checks the address; nobody waits there who could be woken.
    let done = unsafe {
        kernel!(
            libc::SYS_futex,
            at,
            libc::FUTEX_WAKE_OP,
            0,
            0_usize,
            at,
            add,
        )
    };
    done >= 0
}

/// The number of this process; asked of the kernel, since a child of vfork(2) shares all memory
/// with its parent.
pub fn own_process() -> c_int {
    // SAFETY: it takes nothing.
    unsafe { kernel!(libc::SYS_getpid) as c_int }
}

/// The time by a clock (clock_gettime(2), which a signal handler may call): seconds and
/// nanoseconds.
pub fn time(clock: libc::clockid_t) -> (i64, i64) {
    // Some clocks of some machines take a system call.
    if is_confined() {
        return (0, 0);
    }
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: all zeros are a time, which the call changes.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    (time.tv_sec, time.tv_nsec)
}

/// How many descriptors this process may have.
pub fn descriptors_max() -> u64 {
    limit_of(libc::RLIMIT_NOFILE)
}

/// A limit of this process that holds now (prlimit(2)); 0 if the kernel does not say.
fn limit_of(kind: libc::__rlimit_resource_t) -> u64 {
    let mut limit = MaybeUninit::<libc::rlimit64>::zeroed();
    let none = ptr::null::<c_void>();
    // SAFETY: all zeros are a limit, which the kernel changes; none is set.
    unsafe {
        kernel!(libc::SYS_prlimit64, 0, kind, none, limit.as_mut_ptr());
        limit.assume_init().rlim_cur
    }
}

/// The bytes of a string of C's; at most those of a path.
///
/// # Safety
/// It ends, or is null.
pub unsafe fn bytes<'s>(text: *const c_char) -> &'s [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: by the caller.
    unsafe { core::slice::from_raw_parts(text.cast(), libc::strnlen(text, PATH_MAX)) }
}
