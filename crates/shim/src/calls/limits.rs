//! A program that is about to forbid itself system calls (seccomp(2)). A filter may kill it for one
//! that it does not make itself, so this library makes none from then on: what is open is left to
//! the agent before, and all else that changes is counted as a gap, in memory.
//!
//! A filter comes by prctl(2), or by a system call that nobody sees, before which a program without
//! rights has to say that it gains none (`PR_SET_NO_NEW_PRIVS`), as others do as well (libseccomp).

use crate::{config, files, process, real, sys};
use libc::{c_int, c_ulong};

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn prctl(
    option: c_int,
    first: c_ulong,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
) -> c_int {
    let is_to_be = confines(option) && !sys::is_confined() && !sys::quietly(process::is_borrowed);
    if is_to_be {
        sys::quietly(|| {
            files::before_confined();
            config::confined();
        });
    }
    let done = unsafe {
        real!(prctl(
            option => c_int, first => c_ulong, second => c_ulong, third => c_ulong,
            fourth => c_ulong
        ) -> c_int)
    };
    if is_to_be && done == 0 {
        sys::confine();
    }
    done
}

/// Whether system calls may be forbidden after it.
fn confines(option: c_int) -> bool {
    [libc::PR_SET_SECCOMP, libc::PR_SET_NO_NEW_PRIVS].contains(&option)
}
