//! Opening, copying and closing descriptors.

use crate::files::{self, Closing};
use crate::{real, sys, tell};
use core::ops::Range;
use core::ptr;
use libc::{FILE, c_char, c_int, c_long, c_uint, c_void, mode_t, size_t};

/// `PTHREAD_CANCEL_DISABLE` (pthread.h).
const NOT_CANCELLED: c_int = 1;
const CREATES: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// Calls what makes a descriptor; where none is left but that of this library, once more without
/// that. A call that has failed so (EMFILE) has done nothing.
macro_rules! making {
    ($call:expr, $has_failed:expr) => {{
        let made = $call;
        if $has_failed(made) && tell::gives_way() {
            $call
        } else {
            made
        }
    }};
}

fn is_none(fd: c_int) -> bool {
    fd < 0
}

fn is_no_stream(stream: *mut FILE) -> bool {
    stream.is_null()
}

macro_rules! opening {
    ($($name:ident($($arg:ident: $t:ty),*), $flags:expr, $path:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $t),*) -> c_int {
            let fd = unsafe { making!(real!($name($($arg => $t),*) -> c_int), is_none) };
            unsafe { files::opened(fd, $flags, $path) };
            fd
        }
    )*};
}

/// The same of calls that change what they were given, and cannot be made twice.
macro_rules! opening_once {
    ($($name:ident($path:ident $(, $arg:ident)*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($path: *mut c_char $(, $arg: c_int)*) -> c_int {
            let fd = unsafe {
                real!($name($path => *mut c_char $(, $arg => c_int)*) -> c_int)
            };
            unsafe { files::opened(fd, CREATES, $path) };
            fd
        }
    )*};
}

opening! {
    open(path: *const c_char, flags: c_int, mode: mode_t), flags, path;
    open64(path: *const c_char, flags: c_int, mode: mode_t), flags, path;
    __open_2(path: *const c_char, flags: c_int), flags, path;
    __open64_2(path: *const c_char, flags: c_int), flags, path;
    openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t), flags, from_here(at, path);
    openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t), flags,
        from_here(at, path);
    __openat_2(at: c_int, path: *const c_char, flags: c_int), flags, from_here(at, path);
    __openat64_2(at: c_int, path: *const c_char, flags: c_int), flags, from_here(at, path);
    openat2(at: c_int, path: *const c_char, how: *const libc::open_how, size: size_t),
        (*how).flags as c_int, from_here(at, path);
    open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int), flags, ptr::null();
    creat(path: *const c_char, mode: mode_t), CREATES, path;
    creat64(path: *const c_char, mode: mode_t), CREATES, path;
}

opening_once! {
    mkstemp(path);
    mkstemp64(path);
    mkostemp(path, flags);
    mkostemp64(path, flags);
    mkstemps(path, suffix);
    mkstemps64(path, suffix);
    mkostemps(path, suffix, flags);
    mkostemps64(path, suffix, flags);
}

/// The path, if the directory that it starts at is the working directory.
fn from_here(at: c_int, path: *const c_char) -> *const c_char {
    match at {
        libc::AT_FDCWD => path,
        _ => ptr::null(),
    }
}

/// A stream was opened by a path, or none, in a mode of fopen(3).
unsafe fn stream(stream: *mut FILE, path: *const c_char, mode: *const c_char) {
    if stream.is_null() {
        return;
    }
    let is_writing = unsafe { sys::bytes(mode) }
        .iter()
        .any(|byte| b"wa+".contains(byte));
    let flags = if is_writing {
        libc::O_RDWR
    } else {
        libc::O_RDONLY
    };
    unsafe { files::opened(number_of(stream), flags, path) };
}

unsafe fn number_of(stream: *mut FILE) -> c_int {
    if stream.is_null() {
        return -1;
    }
    sys::quietly(|| unsafe { libc::fileno(stream) })
}

macro_rules! streams {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            unsafe {
                let opened = making!(real!($name(
                    path => *const c_char, mode => *const c_char
                ) -> *mut FILE), is_no_stream);
                stream(opened, path, mode);
                opened
            }
        }
    )*};
}

streams! { fopen; fopen64; }

/// Calls what closes a descriptor, and announces it after that. A thread that is to be cancelled
/// meanwhile is cancelled after that as well, or nothing would be announced.
macro_rules! closing {
    ($closing:ident, $call:expr) => {{
        let before = $closing.map(|_| cancelled(NOT_CANCELLED));
        let done = $call;
        files::closed($closing);
        if let Some(before) = before {
            cancelled(before);
            sys::quietly(|| real!(pthread_testcancel() -> c_int));
        }
        done
    }};
}

/// Whether this thread can be cancelled from here on, and whether it could until now
/// (pthread_setcancelstate(3)).
unsafe fn cancelled(state: c_int) -> c_int {
    let mut before = 0;
    sys::quietly(|| unsafe {
        real!(pthread_setcancelstate(state => c_int, &raw mut before => *mut c_int) -> c_int)
    });
    before
}

macro_rules! again {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            path: *const c_char,
            mode: *const c_char,
            before: *mut FILE,
        ) -> *mut FILE {
            unsafe {
                let was = files::closes(number_of(before));
                let opened = closing!(was, real!($name(
                    path => *const c_char, mode => *const c_char, before => *mut FILE
                ) -> *mut FILE));
                stream(opened, path, mode);
                opened
            }
        }
    )*};
}

again! { freopen; freopen64; }

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fclose(stream: *mut FILE) -> c_int {
    unsafe {
        let was = files::closes(number_of(stream));
        closing!(was, real!(fclose(stream => *mut FILE) -> c_int))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if tell::is_own(fd) {
        return sys::fail(libc::EBADF);
    }
    let was = files::closes(fd);
    unsafe { closing!(was, real!(close(fd => c_int) -> c_int)) }
}

/// What is buffered of streams is lost with their descriptors, so nothing is written after this.
fn before_range(numbers: &Range<usize>) {
    files::close_all(numbers);
    tell::let_go_within(numbers);
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // Other flags than these do not close, or are none.
    if flags & !(libc::CLOSE_RANGE_UNSHARE as c_int) == 0 && first <= last {
        before_range(&(first as usize..last as usize + 1));
    }
    unsafe { real!(close_range(first => c_uint, last => c_uint, flags => c_int) -> c_int) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    before_range(&(first.max(0) as usize..usize::MAX));
    // It returns nothing, so that what is taken for its result is anything.
    unsafe { real!(closefrom(first => c_int) -> c_int) };
}

/// A descriptor was or was not made a copy of another one, which closed it first.
fn copied(from: c_int, fd: c_int, was: Option<Closing>) {
    if fd < 0 {
        return files::stays(was);
    }
    files::closed(was);
    files::is_copy(from, fd);
}

macro_rules! copying {
    ($($name:ident($($arg:ident: $t:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(from: c_int, to: c_int $(, $arg: $t)*) -> c_int {
            if from != to && tell::is_own(to) {
                sys::quietly(tell::let_go);
            }
            let was = if from == to { None } else { files::closes(to) };
            let fd = unsafe { real!($name(from => c_int, to => c_int $(, $arg => $t)*) -> c_int) };
            copied(from, fd, was);
            fd
        }
    )*};
}

copying! { dup2(); dup3(flags: c_int); }

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup(from: c_int) -> c_int {
    let fd = unsafe { making!(real!(dup(from => c_int) -> c_int), is_none) };
    files::copied(from, fd);
    fd
}

macro_rules! controlling {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, command: c_int, value: c_long) -> c_int {
            let copies = command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC;
            let has_failed = |done| copies && is_none(done);
            let done = unsafe {
                making!(
                    real!($name(fd => c_int, command => c_int, value => c_long) -> c_int),
                    has_failed
                )
            };
            if copies {
                files::copied(fd, done);
            }
            done
        }
    )*};
}

controlling! { fcntl; fcntl64; }
