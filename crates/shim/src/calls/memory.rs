//! Files in memory.

use crate::{mapped, real};
use libc::{c_int, c_void, off_t, size_t};

macro_rules! mapping {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(
            at: *mut c_void,
            len: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            let placed = unsafe {
                real!($name(
                    at => *mut c_void, len => size_t, protection => c_int, flags => c_int,
                    fd => c_int, offset => off_t
                ) -> *mut c_void)
            };
            if placed != libc::MAP_FAILED {
                // What was there before has gone.
                if flags & libc::MAP_FIXED != 0 {
                    mapped::unmapped(placed, len);
                }
                if flags & libc::MAP_SHARED != 0 && fd >= 0 {
                    mapped::mapped(placed, len, fd);
                }
            }
            placed
        }
    )*};
}

mapping! { mmap; mmap64; }

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn munmap(at: *mut c_void, len: size_t) -> c_int {
    let done = unsafe { real!(munmap(at => *mut c_void, len => size_t) -> c_int) };
    if done == 0 {
        mapped::unmapped(at, len);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int {
    let done = unsafe { real!(msync(at => *mut c_void, len => size_t, flags => c_int) -> c_int) };
    if done == 0 {
        mapped::synced(at, len);
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mremap(
    from: *mut c_void,
    old_len: size_t,
    len: size_t,
    flags: c_int,
    place: *mut c_void,
) -> *mut c_void {
    let placed = unsafe {
        real!(mremap(
            from => *mut c_void, old_len => size_t, len => size_t, flags => c_int,
            place => *mut c_void
        ) -> *mut c_void)
    };
    if placed != libc::MAP_FAILED {
        mapped::moved(from, old_len, placed, len);
    }
    placed
}
