//! Attributes: modes, owners, times, extended attributes, and with them ACLs (setfacl(1)).

use crate::paths::Last::{self, Follow, Keep};
use crate::tell::{Kind, Named, tell};
use crate::{files, real};
use libc::{
    AT_FDCWD, c_char, c_int, c_void, gid_t, mode_t, size_t, timespec, timeval, uid_t, utimbuf,
};

type Path = *const c_char;
type Value = *const c_void;

macro_rules! by_path {
    ($($name:ident($($arg:ident: $t:ty),*) => $at:expr, $path:ident, $last:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $t),*) -> c_int {
            let done = unsafe { real!($name($($arg => $t),*) -> c_int) };
            if done == 0 {
                unsafe { told(Named { at: $at, path: $path }, $last) };
            }
            done
        }
    )*};
}

macro_rules! by_number {
    ($($name:ident($($arg:ident: $t:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(fd: c_int, $($arg: $t),*) -> c_int {
            let done = unsafe { real!($name(fd => c_int, $($arg => $t),*) -> c_int) };
            if done == 0 {
                files::changed(fd, Kind::Attributes);
            }
            done
        }
    )*};
}

/// Some calls mean the open file itself if they are given no path.
unsafe fn told(named: Named, last: Last) {
    if named.path.is_null() || unsafe { *named.path } == 0 {
        files::changed(named.at, Kind::Attributes);
    } else {
        unsafe { tell(Kind::Attributes, named, last) };
    }
}

fn last(flags: c_int) -> Last {
    if flags & libc::AT_SYMLINK_NOFOLLOW == 0 {
        Follow
    } else {
        Keep
    }
}

by_path! {
    chmod(path: Path, mode: mode_t) => AT_FDCWD, path, Follow;
    lchmod(path: Path, mode: mode_t) => AT_FDCWD, path, Keep;
    fchmodat(at: c_int, path: Path, mode: mode_t, flags: c_int) => at, path, last(flags);
    chown(path: Path, user: uid_t, group: gid_t) => AT_FDCWD, path, Follow;
    lchown(path: Path, user: uid_t, group: gid_t) => AT_FDCWD, path, Keep;
    fchownat(at: c_int, path: Path, user: uid_t, group: gid_t, flags: c_int)
        => at, path, last(flags);
    utime(path: Path, times: *const utimbuf) => AT_FDCWD, path, Follow;
    utimes(path: Path, times: *const timeval) => AT_FDCWD, path, Follow;
    lutimes(path: Path, times: *const timeval) => AT_FDCWD, path, Keep;
    futimesat(at: c_int, path: Path, times: *const timeval) => at, path, Follow;
    utimensat(at: c_int, path: Path, times: *const timespec, flags: c_int) => at, path, last(flags);
    setxattr(path: Path, name: Path, value: Value, size: size_t, flags: c_int)
        => AT_FDCWD, path, Follow;
    lsetxattr(path: Path, name: Path, value: Value, size: size_t, flags: c_int)
        => AT_FDCWD, path, Keep;
    removexattr(path: Path, name: Path) => AT_FDCWD, path, Follow;
    lremovexattr(path: Path, name: Path) => AT_FDCWD, path, Keep;
}

by_number! {
    fchmod(mode: mode_t);
    fchown(user: uid_t, group: gid_t);
    futimes(times: *const timeval);
    futimens(times: *const timespec);
    fsetxattr(name: Path, value: Value, size: size_t, flags: c_int);
    fremovexattr(name: Path);
}
