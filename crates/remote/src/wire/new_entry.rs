//! A small entry with all that it has, as it crosses a connection: the head in the message, the
//! content as the frame's data.

use crate::wire::bounds::{EXTENTS_MAX, maybe_at_most};
use crate::wire::name::Name;
use driftless_model::{Entry, Keep, Kind, Level, bounds};
use driftless_tree::{NewEntry, WHOLE_BYTES_MAX, Whole};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::ops::Range;

/// a new entry but for the bytes of its content.
#[derive(Debug, Serialize, Deserialize)]
pub struct NewEntryHead {
    name: Name,
    entry: Entry,
    #[serde(deserialize_with = "maybe_at_most::<EXTENTS_MAX, _, _>")]
    extents: Option<Vec<Range<u64>>>,
    target: Option<CString>,
    keep: Keep,
    private: bool,
    room: u64,
    #[serde(deserialize_with = "bounds::maybe_mode")]
    stood: Option<u32>,
    sync: bool,
    verify: Option<Level>,
}

impl NewEntryHead {
    /// Takes a new entry apart: what goes into the head, and the data.
    pub fn of(new: NewEntry) -> (Self, Vec<u8>) {
        let NewEntry {
            name,
            entry,
            content,
            target,
            keep,
            private,
            room,
            stood,
            sync,
            verify,
        } = new;
        let (extents, data) = content.map_or((None, Vec::new()), |whole| {
            (Some(whole.extents), whole.data)
        });
        (
            NewEntryHead {
                name: Name(name),
                entry,
                extents,
                target,
                keep,
                private,
                room,
                stood,
                sync,
                verify,
            },
            data,
        )
    }

    /// What it makes: the name and the kind.
    pub fn place(&self) -> (&CStr, Kind) {
        (&self.name.0, self.entry.meta.kind)
    }

    /// Puts it together again. `None` if the data does not fit the head.
    pub fn with(self, data: Vec<u8>) -> Option<NewEntry> {
        let NewEntryHead {
            name,
            entry,
            extents,
            target,
            keep,
            private,
            room,
            stood,
            sync,
            verify,
        } = self;
        let size = data.len() as u64;
        let kind = entry.meta.kind;
        let has_content = match &extents {
            Some(extents) => kind == Kind::File && entry.meta.size == size && within(extents, size),
            None => size == 0 && kind != Kind::File,
        };
        let fits = has_content && (kind == Kind::Symlink) == target.is_some();
        let content = extents.map(|extents| Whole {
            meta: entry.meta,
            xattrs: entry.xattrs.clone(),
            extents,
            data,
        });
        fits.then_some(NewEntry {
            name: name.0,
            entry,
            content,
            target,
            keep,
            private,
            room,
            stood,
            sync,
            verify,
        })
    }
}

/// Puts a whole file together from a reply and its data. `None` if they do not fit each other.
pub fn whole(entry: Entry, extents: Vec<Range<u64>>, data: Vec<u8>) -> Option<Whole> {
    let Entry { meta, xattrs } = entry;
    let is_small = meta.size <= WHOLE_BYTES_MAX && extents.len() <= EXTENTS_MAX;
    let fits = is_small
        && meta.kind == Kind::File
        && meta.size == data.len() as u64
        && within(&extents, meta.size);
    fits.then_some(Whole {
        meta,
        xattrs,
        extents,
        data,
    })
}

/// Whether extents are in order, not empty, and end within `size`.
fn within(extents: &[Range<u64>], size: u64) -> bool {
    let mut at = 0;
    extents.iter().all(|extent| {
        let fits = extent.start >= at && extent.start < extent.end && extent.end <= size;
        at = extent.end;
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Meta, Stamp, Unkept, Xattrs};

    fn meta(kind: Kind, size: u64) -> Meta {
        let stamp = Stamp::default();
        let (mtime, atime, ctime) = (stamp, stamp, stamp);
        Meta {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            size,
            blocks: 0,
            mtime,
            atime,
            ctime,
            nlink: 1,
            dev: 1,
            ino: 1,
            rdev: 0,
            unkept: Unkept::NONE,
        }
    }

    #[test]
    fn a_parcel_holds_what_its_kind_has_and_no_more() {
        type Extents = Option<Vec<Range<u64>>>;
        let (all, to): (Extents, Option<CString>) =
            (Some(std::iter::once(0..3).collect()), Some(c"to".into()));
        let beyond: Extents = Some(std::iter::once(0..4).collect());
        let cases: [(Kind, Extents, Option<CString>, usize, bool); 10] = [
            (Kind::File, all.clone(), None, 3, true),
            (Kind::File, all.clone(), None, 2, false),
            (Kind::File, beyond, None, 3, false),
            (Kind::File, all.clone(), to.clone(), 3, false),
            (Kind::File, None, None, 0, false),
            (Kind::Symlink, None, to.clone(), 0, true),
            (Kind::Symlink, None, None, 0, false),
            (Kind::Symlink, all, to.clone(), 3, false),
            (Kind::Fifo, None, None, 0, true),
            (Kind::Fifo, None, to, 0, false),
        ];
        for (kind, extents, target, bytes, fits) in cases {
            let context = format!("{kind:?} {extents:?} {target:?} {bytes}");
            let (entry, keep) = (
                Entry {
                    meta: meta(kind, 3),
                    xattrs: Xattrs::default(),
                },
                Keep::default(),
            );
            let name = Name(c"name".into());
            let head = NewEntryHead {
                name,
                entry,
                extents,
                target,
                keep,
                private: false,
                room: 0,
                stood: None,
                sync: false,
                verify: None,
            };
            assert_eq!(head.with(vec![1; bytes]).is_some(), fits, "{context}");
        }
    }
}
