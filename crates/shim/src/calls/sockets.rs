//! Sockets: one that has a name in a tree, and descriptors that come through one.

use crate::paths::Last::Keep;
use crate::tell::{Kind, Named, tell};
use crate::{files, real, sys};
use core::mem::offset_of;
use libc::{AT_FDCWD, c_char, c_int, msghdr, sockaddr, sockaddr_un, socklen_t, ssize_t};

/// A socket has a name.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let done =
        unsafe { real!(bind(fd => c_int, address => *const sockaddr, len => socklen_t) -> c_int) };
    if done == 0
        && let Some(path) = unsafe { local_name(address, len) }
    {
        let named = Named {
            at: AT_FDCWD,
            path: path.as_ptr(),
        };
        unsafe { tell(Kind::Made, named, Keep) };
    }
    done
}

/// The path of the address of a local socket, with an end (unix(7)).
unsafe fn local_name(address: *const sockaddr, len: socklen_t) -> Option<[c_char; 109]> {
    let begins = offset_of!(sockaddr_un, sun_path);
    let len = (len as usize).min(size_of::<sockaddr_un>());
    let count = len.checked_sub(begins).filter(|count| *count > 0)?;
    let mut path = [0; 109];
    unsafe {
        if c_int::from((*address).sa_family) != libc::AF_UNIX {
            return None;
        }
        let bytes = address.cast::<c_char>().add(begins);
        for (at, byte) in path.iter_mut().take(count).enumerate() {
            *byte = *bytes.add(at);
        }
    }
    // A name that begins with NUL is none of a file.
    (path[0] != 0).then_some(path)
}

/// Descriptors may have come with a message (cmsg(3), `SCM_RIGHTS`).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let count =
        unsafe { real!(recvmsg(fd => c_int, message => *mut msghdr, flags => c_int) -> ssize_t) };
    if count >= 0 && unsafe { (*message).msg_controllen } > 0 {
        sys::quietly(|| unsafe { received(message) });
    }
    count
}

unsafe fn received(message: *const msghdr) {
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(message);
        while let Some(head) = part.as_ref() {
            if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(part);
                let before = data.addr() - part.addr();
                let count = head.cmsg_len.saturating_sub(before) / size_of::<c_int>();
                for number in 0..count {
                    files::received(data.cast::<c_int>().add(number).read_unaligned());
                }
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
}
