//! Names of files that were opened in the working directory, as most programs do with most files.
//!
//! To ask the kernel for the path of a descriptor takes longer than all else that is done when a
//! file is closed. Where the file is still found under its name in the working directory, the path
//! of that and the name are its path, whatever was renamed meanwhile: the path of the working
//! directory is asked for anew, it has no links, and the name is looked at without following one.

use crate::paths::{self, Where};
use crate::sys::{self, File};
use core::cell::UnsafeCell;
use libc::{c_char, c_int};

/// Descriptors that are told apart.
const COUNT: usize = 64;
/// Longer names, with their end, are not remembered.
const NAME_BYTES_MAX: usize = 48;

struct Name {
    of: u32,
    device: u64,
    inode: u64,
    bytes: [u8; NAME_BYTES_MAX],
}

struct Names(UnsafeCell<[Name; COUNT]>);

// SAFETY: a name is written and read by threads that open and close the same descriptor, of which
// one is after the other. A name that was torn all the same leads to another file, or to none.
unsafe impl Sync for Names {}

static NAMES: Names = Names(UnsafeCell::new(
    [const {
        Name {
            of: 0,
            device: 0,
            inode: 0,
            bytes: [0; NAME_BYTES_MAX],
        }
    }; COUNT],
));

fn place(fd: c_int) -> Option<*mut Name> {
    let number = usize::try_from(fd).ok().filter(|number| *number < COUNT)?;
    // SAFETY: there are so many.
    Some(unsafe { NAMES.0.get().cast::<Name>().add(number) })
}

/// An opening of a file was asked for by this path.
///
/// # Safety
/// The path ends, or is null.
pub unsafe fn opened(fd: c_int, of: u32, file: &File, path: *const c_char) {
    // SAFETY: by the caller.
    let name = unsafe { sys::bytes(path) };
    let is_short = !name.is_empty() && name.len() < NAME_BYTES_MAX;
    let Some(place) = place(fd).filter(|_| is_short && !name.contains(&b'/')) else {
        return;
    };
    // SAFETY: as said of the names.
    let place = unsafe { &mut *place };
    let end = sys::put(&mut place.bytes, 0, name).unwrap_or(0);
    place
        .bytes
        .iter_mut()
        .skip(end)
        .take(1)
        .for_each(|byte| *byte = 0);
    (place.of, place.device, place.inode) = (of, file.device, file.inode);
}

/// Writes the path of an opening, if it is still where it was found; none if it has to be asked
/// for.
pub fn path_of(fd: c_int, of: u32, into: &mut [u8]) -> Option<usize> {
    let place = place(fd)?;
    // SAFETY: as said of the names.
    let name = unsafe { &*place };
    if name.of != of {
        return None;
    }
    let Where::At(len) = paths::of_open(libc::AT_FDCWD, into) else {
        return None;
    };
    let bytes = name.bytes.split(|byte| *byte == 0).next()?;
    // The root has its slash already.
    let len = if len == 1 { 0 } else { len };
    let end = sys::put(into, len, b"/").and_then(|at| sys::put(into, at, bytes))?;
    *into.get_mut(end)? = 0;
    // By its whole path, since another thread may change the working directory meanwhile.
    let found = sys::lstat(libc::AT_FDCWD, into.as_ptr().cast())?;
    let is_there = (found.device, found.inode) == (name.device, name.inode);
    is_there.then_some(end)
}
