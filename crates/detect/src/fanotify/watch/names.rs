//! Files that are changed through a name that is of no use: it is gone, or outside of the source, or
//! one of several.
//!
//! A process changes a file through the name by which it opened it, and the kernel tells of that
//! name alone. What can be known of the others without looking for them is told.

use super::{DELETED, Found, Looked, Paths, path_of};
use crate::detector::{Heard, Seen, Unnamed};
use crate::fanotify::event::{Event, Handle, Place};
use crate::fanotify::sys;
use driftless_model::{Change, RelPath};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Stat, fstat};
use std::ffi::CString;

/// Where a file is whose name an event has told in vain.
enum Whereabouts {
    /// It has this name in the source.
    Here(RelPath),
    /// The one name that it has is outside of the source.
    Elsewhere,
    Unknown,
}

impl<'a> Paths<'a> {
    /// Tells of a file that was changed, if it has or may have other names than the event's.
    pub(super) fn find_names(&mut self, event: &Event<'a>, heard: &mut Heard) {
        const CHANGES: u64 = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE | libc::FAN_ATTRIB;
        let is_of_dir = event.mask & libc::FAN_ONDIR != 0;
        let (Some(place), Some(object)) = (event.place, event.object) else {
            return;
        };
        if is_of_dir || event.mask & CHANGES == 0 || self.renamed.contains(&place) {
            return;
        }
        let is_written = event.mask & libc::FAN_MODIFY != 0;
        let is_below = match self.found(place.dir) {
            Some(dir) if dir.is_above => return,
            Some(dir) if has(dir.fd.as_fd(), place.name, object) => {
                return heard.unnamed.extend(dir.one_of_several(place, is_written));
            }
            Some(_) => true,
            None => matches!(self.known[&place.dir], Looked::Gone),
        };
        // Once for each reading of events.
        let is_told = self.unnamed.contains(&(object, true));
        if is_told || !self.unnamed.insert((object, is_written)) {
            return;
        }
        if let Some((meta, whereabouts)) = self.look(place, object) {
            tell((&meta, is_written), whereabouts, is_below, heard);
        }
    }

    /// Looks where a file is that an event has named `place`; `None` if it has no name any more.
    fn look(&self, place: Place<'a>, object: Handle<'a>) -> Option<(Stat, Whereabouts)> {
        let first = self.look_once(place, object)?;
        match first.1 {
            // A name that went just then was held by the look itself.
            Whereabouts::Unknown => self.look_once(place, object),
            _ => Some(first),
        }
    }

    fn look_once(&self, place: Place<'a>, object: Handle<'a>) -> Option<(Stat, Whereabouts)> {
        let opened = sys::open_by_handle(self.root, object.kind, object.bytes);
        let file = self.sure(opened)?;
        // Names may go meanwhile. The one that it had before is that of its path, if that is there
        // still; and if it has none after, nothing is lost.
        let had_one = fstat(&file).is_ok_and(|meta| meta.st_nlink == 1);
        let path = path_of(file.as_fd()).ok();
        let meta = fstat(&file).ok().filter(|meta| meta.st_nlink > 0)?;
        let whereabouts = match path.filter(|path| is_named(path)) {
            Some(path) => match self.below_root(&path) {
                Some(here) => Whereabouts::Here(here),
                None if had_one => Whereabouts::Elsewhere,
                None => Whereabouts::Unknown,
            },
            None if had_one && self.is_at(place, object) => Whereabouts::Elsewhere,
            None => Whereabouts::Unknown,
        };
        Some((meta, whereabouts))
    }

    /// Whether a name that may be outside of the source is that of an object.
    fn is_at(&self, place: Place<'a>, object: Handle<'a>) -> bool {
        let dir = sys::open_by_handle(self.root, place.dir.kind, place.dir.bytes);
        dir.is_ok_and(|dir| has(dir.as_fd(), place.name, object))
    }
}

/// Whether a path is one that is there. What was opened by its handle alone may have no name yet, as
/// far as the kernel knows.
fn is_named(path: &[u8]) -> bool {
    let has_name = path.iter().any(|byte| *byte != b'/');
    path.starts_with(b"/") && has_name && !path.ends_with(DELETED)
}

/// Tells of a file that was changed through a name that is gone or outside of the source.
fn tell(
    (meta, is_written): (&Stat, bool),
    whereabouts: Whereabouts,
    is_below: bool,
    heard: &mut Heard,
) {
    let here = match whereabouts {
        Whereabouts::Here(path) => Some(path),
        Whereabouts::Elsewhere => return,
        Whereabouts::Unknown => None,
    };
    // Of one outside that has several names, those in the source are known.
    let may_be_here = is_below || meta.st_nlink == 1;
    heard.unnamed.push(Unnamed {
        is_lost: may_be_here && here.is_none(),
        ..unnamed(meta, is_written)
    });
    heard.seen.extend(here.map(|path| Seen {
        is_written,
        size: u64::try_from(meta.st_size).unwrap_or(0),
        ..Seen::closed(Change::entry(path))
    }));
}

fn unnamed(meta: &Stat, is_written: bool) -> Unnamed {
    Unnamed {
        inode: (meta.st_dev, meta.st_ino),
        is_written,
        names: meta.st_nlink,
        at: None,
        is_lost: false,
    }
}

/// Whether a name in a directory is that of an object.
fn has(dir: BorrowedFd<'_>, name: &[u8], object: Handle<'_>) -> bool {
    let name = CString::new(name).unwrap_or_default();
    sys::is_named(dir, &name, (object.kind, object.bytes)).unwrap_or(false)
}

impl Found {
    /// The file of a name that was changed, if it has others: the name may be left out of what is
    /// mirrored, and they not.
    fn one_of_several(&self, place: Place<'_>, is_written: bool) -> Option<Unnamed> {
        let meta = self.file(place.name).filter(|meta| meta.st_nlink > 1)?;
        Some(Unnamed {
            at: Some(self.named(place.name)?),
            ..unnamed(&meta, is_written)
        })
    }
}
