//! What a path is in the end: absolute, without links, `.` and `..`. Only the kernel is asked, and
//! nothing is opened for it: another thread could close a descriptor, and a file that is closed
//! loses the locks that its process has on it (fcntl(2), "Record locking").

use crate::buffers::{self, Buffer};
use crate::sys::{self, PATH_MAX};
use libc::c_int;

/// More links than so many lead nowhere (path_resolution(7)).
const LINKS_MAX: usize = 40;
const DELETED: &[u8] = b" (deleted)";
/// A number of 10 digits behind `/proc/thread-self/fd/`, and an end.
const NAME_BYTES: usize = 40;

/// Whether the last name of a path is followed if it is a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    Follow,
    Keep,
}

/// Where something open is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// At the path of so many bytes.
    At(usize),
    /// At no name that it was opened by; it may have others.
    Unlinked,
    /// It is not in a tree of files, or not open.
    Nowhere,
    /// It cannot be told.
    Unknown,
}

/// The name below /proc of an open file, with its end.
fn proc_name(begins: &[u8], fd: c_int) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    let (mut rest, mut digits) = (fd.unsigned_abs(), 1);
    while let Some(_more @ 1..) = rest.checked_div(10) {
        (rest, digits) = (rest / 10, digits + 1);
    }
    let end = sys::put(&mut name, 0, begins).unwrap_or(0) + digits;
    let mut rest = fd.unsigned_abs();
    for byte in name.iter_mut().take(end).rev().take(digits) {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

/// Where an open file or directory is, or the working directory (`AT_FDCWD`).
pub fn of_open(fd: c_int, into: &mut [u8]) -> Where {
    let len = if fd == libc::AT_FDCWD {
        sys::getcwd(into)
    } else {
        link_of(fd, into)
    };
    let Some(path) = len.and_then(|len| into.get(..len)) else {
        return unread(fd);
    };
    if path.first() != Some(&b'/') {
        let is_unreachable = path.starts_with(b"(unreachable)");
        return if is_unreachable {
            Where::Unknown
        } else {
            Where::Nowhere
        };
    }
    let len = path.len();
    if path.ends_with(DELETED) && !is_called_so(fd, into, len) {
        return Where::Unlinked;
    }
    Where::At(len)
}

/// Reads the link below /proc; where the main thread has ended, or shares no descriptors with this
/// one, it is another one.
fn link_of(fd: c_int, into: &mut [u8]) -> Option<usize> {
    let of_process = proc_name(b"/proc/self/fd/", fd);
    let len = sys::readlink(of_process.as_ptr().cast(), into);
    if len.is_some() || sys::errno() == libc::ENAMETOOLONG {
        return len;
    }
    let of_thread = proc_name(b"/proc/thread-self/fd/", fd);
    sys::readlink(of_thread.as_ptr().cast(), into)
}

fn unread(fd: c_int) -> Where {
    // Its path may be too long, or /proc not be there.
    let is_open = fd == libc::AT_FDCWD || sys::fstat(fd).is_some();
    if is_open {
        Where::Unknown
    } else {
        Where::Nowhere
    }
}

/// Whether a file has a name that ends as the kernel lets the path of one end that has none.
fn is_called_so(fd: c_int, into: &mut [u8], len: usize) -> bool {
    let Some(end) = into.get_mut(len) else {
        return false;
    };
    *end = 0;
    let found = sys::lstat(libc::AT_FDCWD, into.as_ptr().cast());
    found
        .zip(sys::fstat(fd))
        .is_some_and(|(there, open)| there.is_same(&open))
}

/// What `path`, as a call takes it together with the directory `at`, is; none if it cannot be told.
/// Its end is written behind it.
pub fn resolve(at: c_int, path: &[u8], last: Last, into: &mut [u8]) -> Option<usize> {
    let into = into.get_mut(..PATH_MAX)?;
    let mut rest = Rest::of(path)?;
    let mut len = if path.first() == Some(&b'/') {
        0
    } else {
        match of_open(at, into) {
            // The root has its slash already.
            Where::At(1) => 0,
            Where::At(len) => len,
            _ => return None,
        }
    };
    let mut links = 0;
    while let Some(kind) = rest.step(into, &mut len)? {
        if kind == Step::Stayed || rest.is_over() && last == Last::Keep {
            continue;
        }
        let mut target = buffers::take()?;
        let room = target.get_mut(..PATH_MAX)?;
        let Some(count) = sys::readlink(into.as_ptr().cast(), room) else {
            continue;
        };
        links += 1;
        if links > LINKS_MAX || !rest.put_before(target, count) {
            return None;
        }
        len = if rest.is_absolute() {
            0
        } else {
            parent(into, len)?
        };
    }
    if len == 0 {
        *into.first_mut()? = b'/';
        len = 1;
    }
    *into.get_mut(len)? = 0;
    Some(len)
}

/// How many bytes of a path its parent has.
fn parent(path: &[u8], len: usize) -> Option<usize> {
    path.get(..len)?.iter().rposition(|byte| *byte == b'/')
}

/// What the next name of a path did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It leads no further down.
    Stayed,
    Entered,
}

/// What is left of a path.
struct Rest {
    bytes: Buffer,
    at: usize,
    end: usize,
}

impl Rest {
    fn of(path: &[u8]) -> Option<Rest> {
        if path.is_empty() || path.len() >= PATH_MAX {
            return None;
        }
        let mut bytes = buffers::take()?;
        let end = sys::put(&mut bytes[..], 0, path)?;
        Some(Rest { bytes, at: 0, end })
    }

    /// Takes the next name and goes there; the inner value is none at the end, the outer one if the
    /// path is too long.
    #[expect(clippy::option_option, reason = "two ends, of which one is a failure")]
    fn step(&mut self, into: &mut [u8], len: &mut usize) -> Option<Option<Step>> {
        self.skip(|byte| byte == b'/');
        let from = self.at;
        self.skip(|byte| byte != b'/');
        let name = self.bytes.get(from..self.at)?;
        match name {
            b"" => return Some(None),
            b"." => return Some(Some(Step::Stayed)),
            b".." => {
                // That of the root is the root.
                *len = parent(into, *len).unwrap_or(0);
                return Some(Some(Step::Stayed));
            }
            _ => {}
        }
        let end = sys::put(into, *len, b"/").and_then(|at| sys::put(into, at, name))?;
        *into.get_mut(end)? = 0;
        *len = end;
        Some(Some(Step::Entered))
    }

    fn skip(&mut self, is_meant: impl Fn(u8) -> bool) {
        let left = self.bytes.get(self.at..self.end).unwrap_or_default();
        self.at += left.iter().take_while(|byte| is_meant(**byte)).count();
    }

    /// Whether nothing is left; a path that ends with a slash means what its last name leads to.
    fn is_over(&self) -> bool {
        self.at >= self.end
    }

    fn is_absolute(&self) -> bool {
        self.bytes.get(self.at) == Some(&b'/')
    }

    /// Puts the target of a link before what is left; false if that is too long.
    fn put_before(&mut self, mut target: Buffer, count: usize) -> bool {
        let left = self.bytes.get(self.at..self.end).unwrap_or_default();
        if count + 1 + left.len() >= PATH_MAX {
            return false;
        }
        // Without a rest, the last name of the target is the last.
        let end = match left {
            b"" => Some(count),
            _ => sys::put(&mut target[..], count, b"/")
                .and_then(|at| sys::put(&mut target[..], at, left)),
        };
        let Some(end) = end else { return false };
        (self.bytes, self.at, self.end) = (target, 0, end);
        true
    }
}
