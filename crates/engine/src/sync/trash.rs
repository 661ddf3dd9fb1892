//! The trash of a replica: what a run would remove is renamed into a folder in the replica's root,
//! where it is found by the minute in which it went and the path that it had.
//!
//! `.driftless-trash/2026-11-24T193000Z/a/b/c` is what was `a/b/c`. The folder and the directories
//! that lead to an entry are made by this user, closed to others, and have the sticky bit, which
//! tells them from what was put there. Nothing there is ever replaced: where the path is taken,
//! a further folder is made, named by the millisecond.
//!
//! Entries always go into the newest folder. A folder that was followed by another takes no entry
//! any more: a newer entry of a path must not have an older date than the one before it. The mode of
//! such a folder shows that to other processes.
//!
//! One rename puts an entry there, so it is at its name or in the trash at any moment, whole. Only
//! what is on the file system of the root can be put there.

mod aside;
pub mod bin;
pub mod date;
mod expire;
pub mod limits;
pub mod restore;
pub mod target;

use date::{Date, for_each_date};
use driftless_lock::Mutex;
use driftless_model::{Act, Fault, Kind, Meta, RelPath, Side, Stamp, TRASH, errno};
use driftless_tree::{Attributes, DirMutRef, Done, Known};
use std::ffi::{CStr, CString};

/// The mode of the folder and of the directories that lead to what is in it.
const LEADING_MODE: u32 = 0o1700;
/// The mode of a folder that was followed by another.
const FOLLOWED_MODE: u32 = 0o700;
/// Folders that are tried until one has room for a name.
const TRIES_MAX: u64 = 1000;
/// Seconds by which the date of a folder may lie ahead of the clock, so that entries still go there:
/// a clock was set back, or that of another host is ahead.
const AHEAD_MAX_SEC: i64 = 3600;

/// Where what is removed goes.
#[derive(Default)]
pub struct Trash {
    filling: Mutex<Filling>,
    /// One thread makes the folder.
    making: Mutex<()>,
}

/// An entry of the replica that goes into the trash.
#[derive(Clone, Copy)]
pub struct Going<'a> {
    /// The path of the directory that has it.
    pub path: &'a RelPath,
    /// That directory.
    pub dir: &'a DirMutRef,
    /// Its name there.
    pub name: &'a CStr,
}

/// The place that entries go to.
#[derive(Default)]
struct Filling {
    /// Date of the newest folder; `None` before the trash was listed.
    newest: Option<Date>,
    /// The directory that the last entry was put into.
    last: Option<Last>,
}

/// A directory in the trash, open.
struct Last {
    date: Date,
    path: RelPath,
    dir: DirMutRef,
}

impl Trash {
    /// Puts an entry into the trash of `root`. `now` is when.
    ///
    /// # Errors
    /// It is on another file system, or cannot be renamed; it is where it was then.
    pub fn put(&self, root: &DirMutRef, going: Going<'_>, now: Stamp) -> Done {
        let Going { path, dir, name } = going;
        let mut act = |to: &DirMutRef| lend_and_take(to, dir, name);
        match self.find_place(root, path, now, &mut act) {
            // Somebody has just emptied the trash.
            Err(fault) if fault.is_missing() && dir.look(name).is_ok() => {
                self.filling.lock().last = None;
                self.find_place(root, path, now, &mut act)
            }
            done => done,
        }
        .map_err(of_trash)
    }

    /// Gives the entry a second name in the trash, so that another can take the place of the first
    /// at once.
    ///
    /// # Errors
    /// It can have no second name.
    pub fn keep(&self, root: &DirMutRef, going: Going<'_>, there: &Meta, now: Stamp) -> Done {
        let Going { path, dir, name } = going;
        let mut act = |to: &DirMutRef| to.link(name, (&**dir, name), there.id());
        self.find_place(root, path, now, &mut act)
    }

    /// Tries the newest folder, and then further ones, until `act` finds its name free there.
    fn find_place(
        &self,
        root: &DirMutRef,
        path: &RelPath,
        now: Stamp,
        act: &mut dyn FnMut(&DirMutRef) -> Done,
    ) -> Done {
        let mut date = self.newest(root, now)?;
        for _ in 0..TRIES_MAX {
            let done = self.place(root, date, path).and_then(|to| act(&to));
            match done {
                Err(fault) if fault.errno == errno::EEXIST => date = self.follow(root, date, now),
                done => return done,
            }
        }
        Err(fault(Act::SetAside, errno::EEXIST))
    }

    /// Returns the date of the folder that takes entries: that of the minute, unless there is a newer
    /// one.
    fn newest(&self, root: &DirMutRef, now: Stamp) -> Done<Date> {
        let mut filling = self.filling.lock();
        let known = match filling.newest {
            None => newest_in(root, now)?,
            known => known,
        };
        let minute = Date::minute(now);
        let newest = known.map_or(minute, |known| known.max(minute));
        filling.newest = Some(newest);
        Ok(newest)
    }

    /// Closes a folder to further entries, and returns the date of the one that follows it.
    fn follow(&self, root: &DirMutRef, full: Date, now: Stamp) -> Date {
        let mut filling = self.filling.lock();
        if let Some(newest) = filling.newest.filter(|newest| *newest > full) {
            return newest;
        }
        let folder = open(root).and_then(|trash| trash.enter_mut(&full.name()));
        let _other_processes_may_fill_it = folder.map(|folder| set_mode(&folder, FOLLOWED_MODE));
        let next = full.next(now);
        filling.newest = Some(next);
        next
    }

    /// The directory for what was in the directory at `path`; `EEXIST` if something else stands
    /// where it would be.
    fn place(&self, root: &DirMutRef, date: Date, path: &RelPath) -> Done<DirMutRef> {
        let last = &mut self.filling.lock().last;
        if let Some(known) = last
            .as_ref()
            .filter(|last| last.date == date && last.path == *path)
        {
            return Ok(known.dir.clone());
        }
        let trash = self.opened(root)?;
        let folder = lead(&trash, &date.name())?;
        let dir = path.names().try_fold(folder, |dir, name| {
            lead(&dir, &CString::new(name).expect("names hold no NUL"))
        })?;
        *last = Some(Last {
            date,
            path: path.clone(),
            dir: dir.clone(),
        });
        Ok(dir)
    }

    /// The trash, which is made if it is not there.
    fn opened(&self, root: &DirMutRef) -> Done<DirMutRef> {
        let _one_at_a_time = self.making.lock();
        match open(root) {
            Err(fault) if fault.is_missing() => make(root),
            opened => opened,
        }
    }
}

/// Opens the trash of a replica.
///
/// # Errors
/// There is none, or it is not this user's alone.
pub fn open(root: &DirMutRef) -> Done<DirMutRef> {
    let dir = root.enter_mut(TRASH)?;
    close_to_others(&dir)?;
    Ok(dir)
}

/// Returns the date of the newest folder in the trash of a replica. A date too far ahead of `now` does
/// not count: nothing else would be put into the trash until then.
fn newest_in(root: &DirMutRef, now: Stamp) -> Done<Option<Date>> {
    let trash = match root.enter(TRASH) {
        Err(fault) if fault.is_absent() => return Ok(None),
        entered => entered?,
    };
    let until_sec = now.sec.saturating_add(AHEAD_MAX_SEC);
    let mut newest = None;
    for_each_date(&trash, &mut |date| {
        newest = newest.max(Some(date).filter(|date| date.since_sec() <= until_sec));
    })?;
    Ok(newest)
}

/// Makes the trash; the times of the root stay what they are.
fn make(root: &DirMutRef) -> Done<DirMutRef> {
    let before = root.meta()?;
    let made = lead(root, TRASH);
    let attributes = Attributes {
        mtime: Some(before.mtime),
        ..Attributes::default()
    };
    let _a_comparison_mends_it = root.set_own(&Known::of(&before), &attributes);
    made
}

/// Whoever may write there could take away what others have lost.
fn close_to_others(dir: &DirMutRef) -> Done {
    let is_open = |meta: &Meta, bits: u32| meta.uid != dir.user().0 || meta.mode & bits != 0;
    if is_open(dir.first_meta(), 0o077) {
        set_mode(dir, LEADING_MODE);
        // Some file systems have one mode for all.
        if is_open(&dir.meta()?, 0o022) {
            return Err(fault(Act::OpenTrash, errno::EPERM));
        }
    }
    Ok(())
}

/// Enters a directory that leads to what was put into the trash, or makes it; `EEXIST` if what
/// stands there was put there itself.
fn lead(above: &DirMutRef, name: &CStr) -> Done<DirMutRef> {
    let made = match above.enter_mut(name) {
        Ok(dir) if leads(dir.first_meta(), dir.user().0) => return Ok(dir),
        Err(fault) if fault.is_missing() => above.make_dir(name),
        Ok(_) => Err(fault(Act::SetAside, errno::EEXIST)),
        Err(other) if other.is_no_directory() => Err(fault(Act::SetAside, errno::EEXIST)),
        Err(fault) => Err(fault),
    };
    match made {
        // Another thread has made it.
        Err(fault) if fault.errno == errno::EEXIST => above
            .enter_mut(name)
            .ok()
            .filter(|dir| leads(dir.first_meta(), dir.user().0))
            .ok_or(fault),
        made => made.inspect(|dir| set_mode(dir, LEADING_MODE)),
    }
}

/// Whether a directory in the trash only leads to what was put there. One of root's that was put
/// there with just this mode is taken for such a one.
pub fn leads(meta: &Meta, user: u32) -> bool {
    meta.kind == Kind::Dir && meta.uid == user && meta.mode == LEADING_MODE
}

fn set_mode(dir: &DirMutRef, mode: u32) {
    let attributes = Attributes {
        mode: Some(mode),
        ..Attributes::default()
    };
    let _some_file_systems_have_one_mode_for_all = dir.set_own(&Known::default(), &attributes);
}

/// Renames an entry to the same name in another directory. An ordinary user must be allowed to
/// write to a directory whose `..` changes (rename(2)), and lends himself the right.
fn lend_and_take(to: &DirMutRef, from: &DirMutRef, name: &CStr) -> Done {
    let denied = match to.take_new(&**from, name, name) {
        Err(fault) if fault.errno == errno::EACCES => fault,
        done => return done,
    };
    let dir = from.enter_mut(name).map_err(|_| denied)?;
    let before = *dir.first_meta();
    dir.make_writable();
    let done = to.take_new(&**from, name, name);
    let attributes = Attributes {
        mode: Some(before.mode),
        ..Attributes::default()
    };
    let _the_first_error_counts = dir.set_own(&Known::default(), &attributes);
    done
}

fn fault(act: Act, errno: i32) -> Fault {
    Fault {
        side: Side::Replica,
        act,
        errno,
    }
}

/// A failed rename, told as what it was for.
fn of_trash(fault: Fault) -> Fault {
    match fault.act {
        Act::Rename | Act::Link => Fault {
            act: Act::SetAside,
            ..fault
        },
        _ => fault,
    }
}
