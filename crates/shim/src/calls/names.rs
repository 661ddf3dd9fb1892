//! Names: made, taken away, given and exchanged.

use crate::paths::Last::Keep;
use crate::tell::{Kind, Named, tell, tell_two};
use crate::{files, linked, real};
use libc::{AT_FDCWD, c_char, c_int, c_uint, dev_t, mode_t};

type Path = *const c_char;

macro_rules! naming {
    ($($name:ident($($arg:ident: $t:ty),*) => $kind:ident, $at:expr, $path:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $t),*) -> c_int {
            let done = unsafe { real!($name($($arg => $t),*) -> c_int) };
            if done == 0 {
                unsafe { tell(Kind::$kind, Named { at: $at, path: $path }, Keep) };
            }
            done
        }
    )*};
}

// Those that begin with "__x" are of glibc before 2.33.
naming! {
    mkdir(path: Path, mode: mode_t) => Made, AT_FDCWD, path;
    mkdirat(at: c_int, path: Path, mode: mode_t) => Made, at, path;
    mknod(path: Path, mode: mode_t, device: dev_t) => Made, AT_FDCWD, path;
    mknodat(at: c_int, path: Path, mode: mode_t, device: dev_t) => Made, at, path;
    __xmknod(version: c_int, path: Path, mode: mode_t, device: *mut dev_t) => Made, AT_FDCWD, path;
    __xmknodat(version: c_int, at: c_int, path: Path, mode: mode_t, device: *mut dev_t)
        => Made, at, path;
    mkfifo(path: Path, mode: mode_t) => Made, AT_FDCWD, path;
    mkfifoat(at: c_int, path: Path, mode: mode_t) => Made, at, path;
    symlink(target: Path, path: Path) => Made, AT_FDCWD, path;
    symlinkat(target: Path, at: c_int, path: Path) => Made, at, path;
    link(from: Path, path: Path) => Made, AT_FDCWD, path;
    unlink(path: Path) => Removed, AT_FDCWD, path;
    unlinkat(at: c_int, path: Path, flags: c_int) => Removed, at, path;
    rmdir(path: Path) => Removed, AT_FDCWD, path;
    remove(path: Path) => Removed, AT_FDCWD, path;
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn linkat(
    from_at: c_int,
    from: Path,
    at: c_int,
    path: Path,
    flags: c_int,
) -> c_int {
    let done = unsafe {
        real!(linkat(
            from_at => c_int, from => Path, at => c_int, path => Path, flags => c_int
        ) -> c_int)
    };
    if done == 0 {
        let (from, to) = (
            Named {
                at: from_at,
                path: from,
            },
            Named { at, path },
        );
        unsafe {
            if let Some(fd) = linked::descriptor(from, flags) {
                linked::named(files::opening(fd), to);
            }
            tell(Kind::Made, to, Keep);
        }
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mkdtemp(path: *mut c_char) -> *mut c_char {
    let path = unsafe { real!(mkdtemp(path => *mut c_char) -> *mut c_char) };
    if !path.is_null() {
        unsafe { tell(Kind::Made, Named { at: AT_FDCWD, path }, Keep) };
    }
    path
}

unsafe fn renamed(kind: Kind, from: (c_int, Path), to: (c_int, Path)) {
    let named = |(at, path)| Named { at, path };
    unsafe { tell_two(kind, named(from), named(to)) };
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn rename(from: Path, to: Path) -> c_int {
    let done = unsafe { real!(rename(from => Path, to => Path) -> c_int) };
    if done == 0 {
        unsafe { renamed(Kind::Renamed, (AT_FDCWD, from), (AT_FDCWD, to)) };
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn renameat(from_at: c_int, from: Path, at: c_int, to: Path) -> c_int {
    let done = unsafe {
        real!(renameat(from_at => c_int, from => Path, at => c_int, to => Path) -> c_int)
    };
    if done == 0 {
        unsafe { renamed(Kind::Renamed, (from_at, from), (at, to)) };
    }
    done
}

/// With RENAME_WHITEOUT there is a node at the old name, which is announced in any case.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn renameat2(
    from_at: c_int,
    from: Path,
    at: c_int,
    to: Path,
    flags: c_uint,
) -> c_int {
    let done = unsafe {
        real!(renameat2(
            from_at => c_int, from => Path, at => c_int, to => Path, flags => c_uint
        ) -> c_int)
    };
    if done == 0 {
        let kind = match flags & libc::RENAME_EXCHANGE {
            0 => Kind::Renamed,
            _ => Kind::Exchanged,
        };
        unsafe { renamed(kind, (from_at, from), (at, to)) };
    }
    done
}
