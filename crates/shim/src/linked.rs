//! Files that were opened without a name and got one while open (`O_TMPFILE`, open(2)): the kernel
//! goes on saying of their descriptors that they have none, so the name is remembered here.

use crate::buffers::{self, Buffer};
use crate::paths::{self, Last};
use crate::places::{Fate, Places};
use crate::process;
use crate::sys::{self, File};
use crate::tell::{self, Named};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use libc::c_int;

/// Names, by the opening that they are of.
static ALL: Places<32> = Places::new();
/// How many there are.
#[unsafe(link_section = ".data")]
static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// The descriptor that linkat(2) gives a name to, if it is called for one.
///
/// # Safety
/// The path ends.
pub unsafe fn descriptor(from: Named, flags: c_int) -> Option<c_int> {
    // SAFETY: by the caller.
    let path = unsafe { sys::bytes(from.path) };
    if path.is_empty() && flags & libc::AT_EMPTY_PATH != 0 {
        return Some(from.at);
    }
    if flags & libc::AT_SYMLINK_FOLLOW == 0 {
        return None;
    }
    // In /proc/self/fd, /proc/PROCESS/fd, /proc/thread-self/fd or /dev/fd.
    let begin = path.iter().rposition(|byte| *byte == b'/')?;
    let (folder, name) = (path.get(..begin)?, path.get(begin + 1..)?);
    let is_known = folder.ends_with(b"/fd") && folder.starts_with(b"/");
    number(name).filter(|_| is_known)
}

fn number(digits: &[u8]) -> Option<c_int> {
    digits.iter().try_fold(0_i32, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// An opening has got a name.
///
/// # Safety
/// The path ends.
pub unsafe fn named(of: u32, to: Named) {
    if of == 0 || process::is_borrowed() {
        return;
    }
    sys::quietly(|| {
        let Some(mut buffer) = buffers::take() else {
            return;
        };
        // SAFETY: by the caller.
        let path = unsafe { sys::bytes(to.path) };
        if let Some(len) = paths::resolve(to.at, path, Last::Keep, tell::room(&mut buffer)) {
            // Without room, the file is in doubt when it is closed.
            let is_kept = ALL.keep(of as usize, 0, tell::path(&buffer, len));
            KNOWN.fetch_add(usize::from(is_kept), Relaxed);
        }
    });
}

/// Puts the name of an opening into a buffer, if it is still that of this file.
pub fn name_of(of: u32, file: &File, buffer: &mut Buffer) -> Option<usize> {
    let mut found = None;
    ALL.each(
        |key, _| of != 0 && key == of as usize,
        |_, _, path| {
            found = tell::put_path(buffer, path);
            Fate::Stays
        },
    );
    let len = found?;
    let room = tell::room(buffer);
    *room.get_mut(len)? = 0;
    let there = sys::lstat(libc::AT_FDCWD, room.as_ptr().cast())?;
    there.is_same(file).then_some(len)
}

/// An opening is over.
pub fn is_over(of: u32) {
    if KNOWN.load(Relaxed) > 0 {
        let gone = ALL.each(|key, _| key == of as usize, |_, _, _| Fate::Goes);
        KNOWN.fetch_sub(gone, Relaxed);
    }
}
