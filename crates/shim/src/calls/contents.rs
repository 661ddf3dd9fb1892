//! Contents that are cut off, given room, or copied by the kernel. What is changed through a
//! descriptor is announced when that is closed.

use crate::paths::Last::Follow;
use crate::tell::{Kind, Named, tell};
use crate::{files, real};
use libc::{AT_FDCWD, c_char, c_int, c_uint, off_t, size_t, ssize_t};

macro_rules! cutting {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(path: *const c_char, len: off_t) -> c_int {
            let done = unsafe { real!($name(path => *const c_char, len => off_t) -> c_int) };
            if done == 0 {
                unsafe { tell(Kind::Written, Named { at: AT_FDCWD, path }, Follow) };
            }
            done
        }
    )*};
}

cutting! { truncate; truncate64; }

macro_rules! changing {
    ($($name:ident($($arg:ident: $t:ty),*) -> $r:ty, $fd:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $t),*) -> $r {
            files::touched($fd);
            unsafe { real!($name($($arg => $t),*) -> $r) }
        }
    )*};
}

type Offset = *mut off_t;

changing! {
    ftruncate(fd: c_int, len: off_t) -> c_int, fd;
    ftruncate64(fd: c_int, len: off_t) -> c_int, fd;
    fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int, fd;
    fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int, fd;
    copy_file_range(from: c_int, at: Offset, to: c_int, to_at: Offset, len: size_t,
        flags: c_uint) -> ssize_t, to;
    sendfile(to: c_int, from: c_int, at: Offset, len: size_t) -> ssize_t, to;
    sendfile64(to: c_int, from: c_int, at: Offset, len: size_t) -> ssize_t, to;
    splice(from: c_int, at: Offset, to: c_int, to_at: Offset, len: size_t,
        flags: c_uint) -> ssize_t, to;
}

macro_rules! giving_room {
    ($($name:ident;)*) => {$(
        /// It returns its error, and does not set errno.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, at: off_t, len: off_t) -> c_int {
            files::touched(fd);
            match unsafe { real!($name(fd => c_int, at => off_t, len => off_t) -> c_int) } {
                -1 => libc::ENOSYS,
                done => done,
            }
        }
    )*};
}

giving_room! { posix_fallocate; posix_fallocate64; }
