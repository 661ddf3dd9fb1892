//! Which descriptors may have been written through, and what is announced of them when they are
//! closed.
//!
//! A descriptor is marked when it is opened, if a file in one of the trees could be written through
//! it, and where that file is the kernel is asked when it is closed: by then it may have another
//! name than it was opened by, as may the directories above it.

use crate::buffers::{self, Buffer};
use crate::config::{Gap, Map, watched};
use crate::linked;
use crate::nearby;
use crate::paths::{self, Where};
use crate::process;
use crate::sys::{self, File};
use crate::tell::{self, Kind};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use libc::{c_char, c_int};

/// Descriptors that are told apart.
const DESCRIPTORS_MAX: usize = 65_536;
/// Copies of a descriptor are looked for among so many.
const COPIES_MAX: usize = 64;
/// Descriptors that a program begins with may be written through if they are below this number.
const INHERITED_MAX: usize = 20;

/// Of each descriptor the opening that it is of; 0 if nothing was written through it.
static OPENING: [AtomicU32; DESCRIPTORS_MAX] = [const { AtomicU32::new(0) }; DESCRIPTORS_MAX];
#[unsafe(link_section = ".data")]
static LAST: AtomicU32 = AtomicU32::new(0);
/// No descriptor from here on was ever marked.
#[unsafe(link_section = ".data")]
static BOUND: AtomicUsize = AtomicUsize::new(0);
/// Whether those were looked at that the program began with.
#[unsafe(link_section = ".data")]
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// Whether a marked descriptor was ever copied.
#[unsafe(link_section = ".data")]
static HAS_COPIES: AtomicBool = AtomicBool::new(false);

fn slot(fd: c_int) -> Option<&'static AtomicU32> {
    OPENING.get(usize::try_from(fd).ok()?)
}

/// The opening that a descriptor is of, if it is marked; 0 if it is not.
pub fn opening(fd: c_int) -> u32 {
    slot(fd).map_or(0, |slot| slot.load(Relaxed))
}

/// Whether a file in one of the trees may have been written through a descriptor.
pub fn is_marked(fd: c_int) -> bool {
    opening(fd) != 0
}

/// Whether something may be written by a file that is opened with these flags.
fn writes(flags: c_int) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_TRUNC | libc::O_CREAT) != 0
}

/// A file was opened with these flags, and by this path if it is one from the working directory on.
///
/// # Safety
/// The path ends, or is null.
pub unsafe fn opened(fd: c_int, flags: c_int, path: *const c_char) {
    is_new(fd);
    if fd >= 0 && writes(flags) {
        // SAFETY: by the caller.
        unsafe { written(fd, path) };
    }
}

/// A file was changed by a descriptor, which may be one of those of which nobody knows how they
/// came here. Its closing is announced.
pub fn touched(fd: c_int) {
    if fd >= 0 && !is_marked(fd) {
        // SAFETY: there is no path.
        unsafe { written(fd, ptr::null()) };
    }
}

/// A descriptor has come from another process; which flags it has is its own.
pub fn received(fd: c_int) {
    is_new(fd);
    let flags = sys::quietly(|| sys::fcntl(fd, libc::F_GETFL, 0));
    if flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
        // SAFETY: there is no path.
        unsafe { written(fd, ptr::null()) };
    }
}

/// A number is that of a new descriptor. If it is still marked, the one before was closed past this
/// library, by a plain system call say, and what was written through it was not announced.
fn is_new(fd: c_int) {
    tell::make_room(fd);
    let of = opening(fd);
    if of == 0 || sys::quietly(process::is_borrowed) {
        return;
    }
    forget(fd);
    if let Some(map) = watched().filter(|_| !has_copy(of)) {
        sys::quietly(|| map.count_gap(Gap::Anywhere));
    }
}

/// # Safety
/// The path ends, or is null.
unsafe fn written(fd: c_int, path: *const c_char) {
    if let Some(map) = watched() {
        sys::quietly(|| {
            if sys::is_confined() {
                // SAFETY: by the caller.
                return mark_by_text(&map, fd, unsafe { sys::bytes(path) });
            }
            if !HAS_BEGUN.load(Relaxed) {
                begin();
            }
            if let Some((of, file)) = mark(&map, fd) {
                // SAFETY: by the caller.
                unsafe { nearby::opened(fd, of, &file, path) };
            }
        });
    }
}

/// Marks a descriptor of a file in one of the trees, and says which opening it is of.
fn mark(map: &Map, fd: c_int) -> Option<(u32, File)> {
    let file = sys::fstat(fd)?;
    let is_elsewhere = !file.is(libc::S_IFREG) || !map.has_device(file.device);
    if is_elsewhere || process::is_borrowed() {
        return None;
    }
    if slot(fd).is_none() {
        // Its end will not be seen.
        map.count_gap(Gap::On(file.device));
        return None;
    }
    let of = LAST.fetch_add(1, Relaxed) | 1 << 31;
    put(fd, of);
    Some((of, file))
}

/// Marks a descriptor that may be one of a file in one of the trees, by what the path says: the
/// kernel is not asked any more.
fn mark_by_text(map: &Map, fd: c_int, path: &[u8]) {
    let is_elsewhere = path.first() == Some(&b'/')
        && map.tree_of(path).is_none()
        && !path.split(|byte| *byte == b'/').any(|name| name == b"..");
    if !is_elsewhere {
        put(fd, LAST.fetch_add(1, Relaxed) | 1 << 31);
    }
}

/// The program is about to forbid itself system calls, perhaps. What it has open in the trees is left
/// to the agent; what the agent does not hear of is a gap when it is closed.
pub fn before_confined() {
    let Some(map) = watched() else { return };
    for (fd, _) in marked(&(0..DESCRIPTORS_MAX)) {
        let Some(mut buffer) = buffers::take() else {
            return;
        };
        let is_known = match path_of(&map, fd, &mut buffer) {
            Where::At(len) => tell::is_left(&map, buffer, len),
            Where::Nowhere => true,
            // One that gets a name later is told as that.
            Where::Unlinked => sys::fstat(fd).is_some_and(|file| file.names == 0),
            Where::Unknown => false,
        };
        if is_known {
            forget(fd);
        }
    }
}

fn put(fd: c_int, of: u32) {
    if let Some(slot) = slot(fd) {
        slot.store(of, Relaxed);
        BOUND.fetch_max(fd as usize + 1, Relaxed);
    }
}

fn forget(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.store(0, Relaxed);
    }
}

/// Marks what a program begins with, as soon as there is something to announce.
pub fn begin() {
    let Some(map) = watched() else { return };
    HAS_BEGUN.store(true, Relaxed);
    let open = (0..).zip(sys::open_among_first::<INHERITED_MAX>());
    for (fd, _) in open.filter(|(fd, is_open)| *is_open && !is_marked(*fd)) {
        let flags = sys::fcntl(fd, libc::F_GETFL, 0);
        if flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
            let _of = mark(&map, fd);
        }
    }
}

/// A new descriptor is another's copy.
pub fn copied(from: c_int, to: c_int) {
    is_new(to);
    is_copy(from, to);
}

/// A descriptor whose end was seen is another's copy now.
pub fn is_copy(from: c_int, to: c_int) {
    let of = opening(from);
    if of != 0 && to >= 0 && from != to && !sys::quietly(process::is_borrowed) {
        HAS_COPIES.store(true, Relaxed);
        put(to, of);
    }
}

fn has_copy(of: u32) -> bool {
    if !HAS_COPIES.load(Relaxed) {
        return false;
    }
    let mut copies = OPENING.iter().take(COPIES_MAX);
    copies.any(|other| other.load(Relaxed) == of)
}

/// What is known of a descriptor that is about to be closed. It is none that has to be dropped: a
/// thread may be cancelled in the call that closes.
#[derive(Clone, Copy)]
pub struct Closing {
    fd: c_int,
    of: u32,
    /// The number of the buffer that has the path, and its bytes.
    path: Option<(usize, usize)>,
    /// Nobody can be asked for the path.
    is_gap: bool,
}

/// A descriptor is about to be closed; none if nobody has to hear of it.
pub fn closes(fd: c_int) -> Option<Closing> {
    match opening(fd) {
        0 => None,
        of => sys::quietly(|| ends(fd, of)),
    }
}

fn ends(fd: c_int, of: u32) -> Option<Closing> {
    // The parent, whose memory this is, still has it.
    if process::is_borrowed() {
        return None;
    }
    forget(fd);
    let is_gap = sys::is_confined() && !has_copy(of);
    let path = if has_copy(of) || is_gap {
        None
    } else {
        found(fd, of)
    };
    Some(Closing {
        fd,
        of,
        path,
        is_gap,
    })
}

/// Writes the path of a file that is in one of the trees into a buffer. Where it cannot be told, a
/// gap is counted.
fn found(fd: c_int, of: u32) -> Option<(usize, usize)> {
    let map = watched()?;
    let Some(mut buffer) = buffers::take() else {
        in_doubt(&map, fd);
        return None;
    };
    if let Some(len) = nearby::path_of(fd, of, tell::room(&mut buffer)) {
        let is_in = map.tree_of(tell::path(&buffer, len)).is_some();
        return is_in.then(|| (buffer.into_number(), len));
    }
    let len = match path_of(&map, fd, &mut buffer) {
        Where::At(len) => len,
        Where::Nowhere => return None,
        Where::Unlinked => by_other_name(&map, (fd, of), &mut buffer)?,
        Where::Unknown => {
            in_doubt(&map, fd);
            return None;
        }
    };
    Some((buffer.into_number(), len))
}

/// A file without the name that it was opened by may have got one since, or have had others.
fn by_other_name(map: &Map, (fd, of): (c_int, u32), buffer: &mut Buffer) -> Option<usize> {
    let file = sys::fstat(fd).filter(|file| file.names > 0)?;
    let len = linked::name_of(of, &file, buffer);
    if len.is_none() && map.has_device(file.device) {
        map.count_gap(Gap::On(file.device));
    }
    len
}

/// Writes where an open file is into a buffer; nowhere is also what is in none of the trees.
pub fn path_of(map: &Map, fd: c_int, buffer: &mut Buffer) -> Where {
    let place = paths::of_open(fd, tell::room(buffer));
    match place {
        Where::At(len) if map.tree_of(tell::path(buffer, len)).is_none() => Where::Nowhere,
        place => place,
    }
}

/// Something has happened to a file, and it cannot be told where that is.
fn in_doubt(map: &Map, fd: c_int) {
    if let Some(file) = sys::fstat(fd).filter(|file| map.has_device(file.device)) {
        map.count_gap(Gap::On(file.device));
    }
}

/// It is closed.
pub fn closed(closing: Option<Closing>) {
    let Some(closing) = closing else { return };
    sys::quietly(|| {
        linked::is_over(closing.of);
        if let Some((number, len)) = closing.path {
            tell::send_one(Kind::Written, Buffer::of(number), len);
        }
        if closing.is_gap {
            count_gap();
        }
    });
}

/// Something has happened, and it is not asked where.
fn count_gap() {
    if let Some(map) = watched() {
        map.count_gap(Gap::Anywhere);
    }
}

/// It was not closed after all.
pub fn stays(closing: Option<Closing>) {
    let Some(closing) = closing else { return };
    put(closing.fd, closing.of);
    if let Some((number, _)) = closing.path {
        drop(Buffer::of(number));
    }
}

/// All descriptors of a range are about to be closed, or the process ends.
pub fn close_all(numbers: &Range<usize>) {
    for (fd, of) in marked(numbers) {
        closed(sys::quietly(|| ends(fd, of)));
    }
}

/// The marked descriptors of a range, and what they are of.
fn marked(numbers: &Range<usize>) -> impl Iterator<Item = (c_int, u32)> {
    let end = BOUND.load(Relaxed).min(numbers.end);
    let range = OPENING.get(numbers.start..end).unwrap_or_default();
    let all = (numbers.start as c_int..).zip(range);
    all.map(|(fd, slot)| (fd, slot.load(Relaxed)))
        .filter(|(_, of)| *of != 0)
}

/// Whether anything may have been written that is not closed yet.
pub fn has_any() -> bool {
    marked(&(0..DESCRIPTORS_MAX)).next().is_some()
}

/// Another program is about to take the place of this one: what it does not get is closed then, and
/// it does not look at all that it gets. The marks stay, since the call may fail.
pub fn replaced() {
    if sys::is_confined() {
        return count_gap();
    }
    for (fd, of) in marked(&(0..DESCRIPTORS_MAX)) {
        let is_closed = || sys::fcntl(fd, libc::F_GETFD, 0) & libc::FD_CLOEXEC != 0;
        if (fd >= INHERITED_MAX as c_int || is_closed())
            && let Some((number, len)) = found(fd, of)
        {
            tell::send_one(Kind::Written, Buffer::of(number), len);
        }
    }
}

/// The attributes of something open were changed.
pub fn changed(fd: c_int, kind: Kind) {
    if watched().is_none() {
        return;
    }
    sys::quietly(|| {
        if sys::is_confined() {
            return count_gap();
        }
        if let Some((number, len)) = found(fd, opening(fd)) {
            tell::send_one(kind, Buffer::of(number), len);
        }
    });
}
