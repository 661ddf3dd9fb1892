//! Files that are written through memory: what is announced of them when they are unmapped, which
//! may be long after their descriptors were closed.

use crate::buffers;
use crate::config::{Gap, watched};
use crate::files;
use crate::paths::Where;
use crate::places::{Fate, Places};
use crate::process;
use crate::sys;
use crate::tell::{self, Kind};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use libc::{c_int, c_void};

/// Mappings that are known at a time, by where they begin.
static ALL: Places<128> = Places::new();
/// How many there are.
#[unsafe(link_section = ".data")]
static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// A file that may be written was mapped, so that others see it.
pub fn mapped(at: *mut c_void, len: usize, fd: c_int) {
    if !files::is_marked(fd) || process::is_borrowed() {
        return;
    }
    sys::quietly(|| {
        let Some(map) = watched() else { return };
        if sys::is_confined() {
            // Of what is written later nobody hears.
            return map.count_gap(Gap::Anywhere);
        }
        let Some(mut buffer) = buffers::take() else {
            return map.count_gap(Gap::Anywhere);
        };
        let Where::At(bytes) = files::path_of(&map, fd, &mut buffer) else {
            return;
        };
        let path = tell::path(&buffer, bytes);
        if !keep(at, len, path) {
            map.count_gap(map.tree_of(path).map_or(Gap::Anywhere, Gap::Of));
        }
    });
}

fn keep(at: *mut c_void, len: usize, path: &[u8]) -> bool {
    let is_kept = ALL.keep(at as usize, len, path);
    KNOWN.fetch_add(usize::from(is_kept), Relaxed);
    is_kept
}

/// Whether nothing of this library's is there that could be unmapped.
fn is_nothing_known() -> bool {
    !has_any() || process::is_borrowed()
}

/// A part of memory is no file's any more.
pub fn unmapped(at: *mut c_void, len: usize) {
    if is_nothing_known() {
        return;
    }
    let gone = at as usize..(at as usize).saturating_add(len);
    sys::quietly(|| {
        announce(
            |begin, len| begin < gone.end && begin + len > gone.start,
            |begin, len| left_of(begin..begin + len, &gone),
        );
    });
}

/// What is left to be known of a mapping when a part of it has gone.
fn left_of(all: Range<usize>, gone: &Range<usize>) -> Fate {
    let (is_begin, is_end) = (gone.start <= all.start, gone.end >= all.end);
    match (is_begin, is_end) {
        (true, true) => Fate::Goes,
        (true, false) => Fate::StaysAs {
            key: gone.end,
            len: all.end - gone.end,
        },
        (false, true) => Fate::StaysAs {
            key: all.start,
            len: gone.start - all.start,
        },
        // Of two parts with a hole both are known by the range of all.
        (false, false) => Fate::Stays,
    }
}

/// A part of memory was written to its file (msync(2)).
pub fn synced(at: *mut c_void, len: usize) {
    if is_nothing_known() {
        return;
    }
    let part = at as usize..(at as usize).saturating_add(len);
    sys::quietly(|| {
        announce(
            |begin, len| begin < part.end && begin + len > part.start,
            |_, _| Fate::Stays,
        );
    });
}

/// A mapping has another place and another length. Of length 0, the old one stays where it was as
/// well (mremap(2)).
pub fn moved(from: *mut c_void, old_len: usize, to: *mut c_void, len: usize) {
    if is_nothing_known() {
        return;
    }
    let begin = from as usize;
    sys::quietly(|| {
        let mut is_lost = false;
        let is_meant = |key: usize, bytes: usize| (key..key + bytes.max(1)).contains(&begin);
        ALL.each(is_meant, |key, bytes, path| {
            if old_len > 0 && key == begin && old_len >= bytes {
                return Fate::StaysAs {
                    key: to as usize,
                    len,
                };
            }
            // A part has moved away, or there are two now: both are known.
            is_lost |= !keep(to, len, path);
            Fate::Stays
        });
        if let Some(map) = watched().filter(|_| is_lost) {
            map.count_gap(Gap::Anywhere);
        }
    });
}

/// Whether any mapping is known.
pub fn has_any() -> bool {
    KNOWN.load(Relaxed) > 0
}

/// The process ends, or runs another program.
pub fn end() {
    if has_any() {
        announce(|_, _| true, |_, _| Fate::Stays);
    }
}

fn announce(is_meant: impl Fn(usize, usize) -> bool, fate: impl Fn(usize, usize) -> Fate) {
    let gone = ALL.each(is_meant, |key, len, path| {
        let said = buffers::take().and_then(|mut buffer| {
            let bytes = tell::put_path(&mut buffer, path)?;
            tell::send_one(Kind::Written, buffer, bytes);
            Some(())
        });
        if let Some(map) = watched().filter(|_| said.is_none()) {
            map.count_gap(Gap::Anywhere);
        }
        fate(key, len)
    });
    KNOWN.fetch_sub(gone, Relaxed);
}
