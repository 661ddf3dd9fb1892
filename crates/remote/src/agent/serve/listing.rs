//! What is told of a directory: some entries at a time, each with what its client will ask for next.

use crate::agent::objects::{Cursor, Table};
use crate::wire::{ENTRIES_MAX, Listing, Survey, Told};
use driftless_lock::Mutex;
use driftless_model::{Entry, Kind, Xattrs};
use driftless_tree::{Dir, Names};
use std::ffi::CStr;

/// Tells the next entries of a directory; none if there is no room for the names that were read
/// besides: the listing begins anew then.
pub(super) fn next_listing(
    (dir, cursor): (&dyn Dir, &Mutex<Cursor>),
    survey: Survey,
    table: &Table,
) -> Option<Listing> {
    let mut cursor = cursor.lock();
    if !cursor.goes_on {
        match dir.list() {
            Ok(stream) => {
                *cursor = Cursor {
                    stream: Some(stream),
                    goes_on: true,
                    ..Cursor::default()
                }
            }
            Err(fault) => {
                return Some(Listing {
                    fault: Some(fault.into()),
                    ..Listing::default()
                });
            }
        }
    }
    let listing = cursor.next(dir, survey);
    cursor.goes_on = listing.more;
    let keeps = cursor.keep_untold(table);
    if !keeps {
        *cursor = Cursor::default();
    }
    keeps.then_some(listing)
}

impl Cursor {
    /// Keeps no more than the names that are not told yet; `false` if there is no room for them.
    fn keep_untold(&mut self, table: &Table) -> bool {
        let (names, told) = std::mem::take(&mut self.names);
        self.names.0 = names.behind(told);
        self.room = None;
        self.room = table.untold(self.names.0.memory() as u64);
        self.room.is_some()
    }

    fn next(&mut self, dir: &dyn Dir, survey: Survey) -> Listing {
        let max = (survey.entries_max as usize).clamp(1, ENTRIES_MAX);
        let mut listing = Listing {
            more: true,
            ..Listing::default()
        };
        let mut bytes = 0;
        while listing.told.len() < max && bytes < survey.listing_bytes_max() as u64 {
            if self.names.1 == self.names.0.len() && !self.refill(max, &mut listing) {
                break;
            }
            let (name, kind) = self.names.0.get(self.names.1);
            self.names.1 += 1;
            let told = tell(dir, name, kind, &survey);
            bytes += told.strings_memory();
            listing.told.push(told);
        }
        listing
    }

    /// Reads more names; `false` if there are none.
    fn refill(&mut self, max: usize, listing: &mut Listing) -> bool {
        self.names = (Names::default(), 0);
        while let Some(stream) = &mut self.stream {
            match stream.fill(&mut self.names.0, max) {
                Ok(true) if self.names.0.is_empty() => continue,
                Ok(true) => {}
                Ok(false) => self.stream = None,
                Err(fault) => {
                    self.stream = None;
                    listing.fault = Some(fault.into());
                }
            }
            break;
        }
        listing.more = !self.names.0.is_empty();
        listing.more
    }
}

/// What a listing tells of an entry. Of a directory that is its name: it will be entered, and told
/// itself.
fn tell(dir: &dyn Dir, name: &CStr, kind: Option<Kind>, survey: &Survey) -> Told {
    let wanted = match kind {
        Some(Kind::Dir) => false,
        Some(Kind::File) => survey.files,
        _ => true,
    };
    let entry = if wanted {
        look(dir, name, survey)
    } else {
        None
    };
    let link = entry
        .as_ref()
        .is_some_and(|entry| entry.meta.kind == Kind::Symlink);
    let target = if link { dir.read_link(name).ok() } else { None };
    Told {
        name: name.into(),
        kind,
        entry,
        target,
    }
}

fn look(dir: &dyn Dir, name: &CStr, survey: &Survey) -> Option<Entry> {
    let meta = dir.look(name).ok()?;
    // What is too much for a listing is asked for by itself.
    let read = || {
        dir.xattrs_of_within(name, &survey.keep, survey.listing_bytes_max() as u64)
            .ok()
            .flatten()
    };
    let xattrs = if meta.kind == Kind::Dir {
        Xattrs::default()
    } else {
        read()?
    };
    Some(Entry { meta, xattrs })
}
