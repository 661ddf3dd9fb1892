//! Removes dated folders of the trash. The removal of millions of entries takes long, so a folder
//! first gets a name that is no date: no list and no restore shows the rest of a folder whose removal
//! has begun. What a killed or stopped removal has left under such a name is removed by the next one.

use super::date::Date;
use super::open;
use driftless_model::{Act, Fault, RelPath, TRASH, errno};
use driftless_tree::{Dir, DirMutRef, Done, Spared, windows};
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// Text between the date and the number in the name of a folder that is being removed.
const EXPIRED: &str = ".expired-";
/// Names that are tried for a folder. More than one is needed where a clock was set back.
const NAMES_MAX: u32 = 1000;

/// Counts of a removal of folders.
#[derive(Default)]
pub struct FolderRemoval {
    /// Entries that are gone for good.
    pub removed: u64,
    /// Entries that could not be removed, by their paths in the trash, and why.
    pub stuck: Vec<(RelPath, Fault)>,
}

/// Returns dates and names of the folders whose removal has begun.
pub fn expired<D: Dir + ?Sized>(trash: &Arc<D>) -> Done<Vec<(Date, CString)>> {
    let mut found = Vec::new();
    for names in windows(trash)? {
        let names = names?;
        let all = (0..names.len()).map(|index| names.get(index).0);
        found.extend(all.filter_map(|name| Some((expired_date(name)?, name.into()))));
    }
    Ok(found)
}

/// Removes what earlier removals have left.
pub fn remove_expired(
    root: &DirMutRef,
    done: &mut FolderRemoval,
    is_over: &dyn Fn() -> bool,
) -> Done {
    let trash = match root.enter(TRASH) {
        Err(fault) if fault.is_absent() => return Ok(()),
        entered => entered?,
    };
    for (_, name) in expired(&trash)? {
        remove(&open(root)?, &name, done, is_over);
    }
    Ok(())
}

/// Removes the folder of a date. If the disk has no room for another name, the folder keeps its own
/// until it is removed. After any other failed rename, it stays.
pub fn expire(
    root: &DirMutRef,
    date: Date,
    done: &mut FolderRemoval,
    is_over: &dyn Fn() -> bool,
) -> Done {
    let trash = open(root)?;
    match renamed(&trash, date) {
        Ok(name) => remove(&trash, &name, done, is_over),
        Err(fault) if fault.lacks_room() => remove(&trash, &date.name(), done, is_over),
        // Another process has removed it.
        Err(fault) if fault.is_missing() => {}
        Err(fault) => {
            let path = RelPath::from_names([date.name().to_bytes()]);
            done.stuck.push((in_trash(&path), kept(fault)));
        }
    }
    Ok(())
}

/// Gives the folder of a date a name that is no date, and returns that.
fn renamed(trash: &DirMutRef, date: Date) -> Done<CString> {
    let mut number = 0;
    loop {
        let name = expired_name(date, number);
        match trash.take_new(&**trash, &date.name(), &name) {
            Err(fault) if fault.errno == errno::EEXIST && number < NAMES_MAX => number += 1,
            done => return done.map(|()| name),
        }
    }
}

fn remove(trash: &DirMutRef, name: &CStr, done: &mut FolderRemoval, is_over: &dyn Fn() -> bool) {
    let spared = Spared {
        is_over: Some(is_over),
        ..Spared::NOTHING
    };
    let removed = trash.remove_tree(name, spared);
    // The folder itself is no entry.
    let is_gone = u64::from(!removed.stays());
    done.removed += removed.entries.saturating_sub(is_gone);
    let stuck = removed.stuck.into_iter();
    done.stuck
        .extend(stuck.map(|(path, fault)| (in_trash(&path), fault)));
}

/// Returns a failed rename as what it was for.
fn kept(fault: Fault) -> Fault {
    Fault {
        act: Act::RemoveDirectory,
        ..fault
    }
}

fn in_trash(path: &RelPath) -> RelPath {
    RelPath::from_names([TRASH.to_bytes()].into_iter().chain(path.names()))
}

fn expired_name(date: Date, number: u32) -> CString {
    CString::new(format!("{date}{EXPIRED}{number}")).expect("digits and letters")
}

/// Reads the date in the name of a folder that is being removed; `None` for other names.
fn expired_date(name: &CStr) -> Option<Date> {
    let (date, number) = name.to_str().ok()?.split_once(EXPIRED)?;
    number.parse::<u32>().ok()?;
    Date::parse(date.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_names_are_no_dates() {
        let date = Date::parse(b"2026-11-24T193012.345Z").expect("a date");
        let name = expired_name(date, 7);
        assert_eq!(expired_date(&name), Some(date));
        assert_eq!(Date::parse(name.to_bytes()), None);
        for other in [
            c"2026-11-24T193000Z",
            c"a.expired-1",
            c"2026-11-24T193000Z.expired-a",
        ] {
            assert_eq!(expired_date(other), None, "{other:?}");
        }
    }
}
