//! The beginning and the end of a process, and its children.

use crate::{buffers, config, files, mapped, process, sys};
use libc::c_int;

unsafe extern "C" {
    /// Writes what streams hold back, as exit(3) does right after the functions of libraries, and
    /// waits for no thread that holds one of them (fcloseall(3)).
    fn fcloseall() -> c_int;
    fn at_quick_exit(function: extern "C" fn()) -> c_int;
}

extern "C" fn begin() {
    sys::quietly(|| {
        if !config::begin() {
            return;
        }
        process::owns();
        // SAFETY: the functions stay.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
            // The first one that is registered is called last.
            at_quick_exit(ends);
        }
        if config::is_known() {
            files::begin();
        }
    });
}

/// This is a child with a copy of its parent's memory.
pub unsafe extern "C" fn forked() {
    sys::quietly(|| {
        process::owns();
        buffers::forked();
        config::forked();
    });
}

/// Whether this process ends with something written. Where it does not, no system call is made: a
/// program may have given up all but a few (seccomp(2)).
fn is_to_be_told() -> bool {
    (files::has_any() || mapped::has_any()) && !process::is_borrowed()
}

/// What the program has left open is closed by the kernel. What it has not written of its streams
/// is written after this, so it is written here.
extern "C" fn end() {
    sys::quietly(|| {
        if files::has_any() && is_to_be_told() {
            // SAFETY: it takes nothing.
            unsafe { fcloseall() };
        }
        ends();
    });
}

/// The process ends at once.
pub extern "C" fn ends() {
    sys::quietly(|| {
        if is_to_be_told() {
            files::close_all(&(0..usize::MAX));
            mapped::end();
        }
    });
}

/// Another program is about to take the place of this one.
pub fn replaced() {
    sys::quietly(|| {
        if is_to_be_told() {
            files::replaced();
            mapped::end();
        }
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
