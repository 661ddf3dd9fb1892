//! What is in the trash of a replica: listed, measured, and removed when it is old or too much.
//!
//! What was put there belongs to whom it belonged to before, who may still hold directories of it
//! open. So nothing is believed of what was seen a moment ago, no symbolic link is followed, and
//! what is removed is removed as anything else on a replica is.

use super::date::{Date, for_each_date};
use super::expire::{FolderRemoval, expire, expired, remove_expired};
use super::leads;
use super::limits::{Limits, Size};
use crate::clock::now;
use crate::options::Options;
use crate::trees::error::RunError;
use driftless_model::{Fault, Kind, Meta, RelPath, TRASH};
use driftless_tree::{Dir, DirMutRef, DirRef, Done, HandlePool, Place, windows};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// What a block is that stat(2) counts.
const BLOCK_BYTES: u64 = 512;
/// Directories of the trash that are open at a time.
const HANDLES_MAX: usize = 64;

/// An entry in the trash.
#[derive(Debug, Clone)]
pub struct Gone {
    /// When it went.
    pub date: Date,
    /// The path that it had.
    pub path: RelPath,
    /// What it is like.
    pub meta: Meta,
    /// How much it is, with all below it.
    pub size: Size,
}

/// What a purge did.
#[derive(Debug, Clone, Default)]
pub struct Purged {
    /// Entries that are gone for good.
    pub removed: u64,
    /// What could not be removed, by its path in the trash, and why: the first of it.
    pub stuck: Vec<(RelPath, Fault)>,
    /// What is left.
    pub left: Size,
}

/// How much is in folders that nothing is put into any more.
pub type Sizes = BTreeMap<Date, Size>;

/// The dated folders of the trash of a replica, the oldest first; none if there is no trash.
pub(super) fn dates<D: Dir + ?Sized>(root: &Arc<D>) -> Done<Vec<Date>> {
    let trash = match root.enter(TRASH) {
        Ok(trash) => trash,
        Err(fault) if fault.is_missing() => return Ok(Vec::new()),
        Err(fault) => return Err(fault),
    };
    let mut dates = Vec::new();
    for_each_date(&trash, &mut |date| dates.push(date))?;
    dates.sort_unstable();
    Ok(dates)
}

/// Opens a dated folder.
pub(super) fn folder<D: Dir + ?Sized>(root: &Arc<D>, date: Date) -> Done<DirRef> {
    root.enter(TRASH)?.enter(&date.name())
}

/// Tells `each` of what went at a time, directories whole.
fn for_each<D: Dir + ?Sized>(root: &Arc<D>, date: Date, each: &mut dyn FnMut(Gone)) -> Done {
    for_each_in(folder(root, date)?, date, each)
}

/// Tells `each` of the entries in the folder of a date, directories whole.
fn for_each_in(folder: DirRef, date: Date, each: &mut dyn FnMut(Gone)) -> Done {
    let mut waiting = vec![(RelPath::root(), folder)];
    while let Some((path, dir)) = waiting.pop() {
        for names in windows(&dir)? {
            let names = names?;
            for (name, _) in (0..names.len()).map(|index| names.get(index)) {
                let Ok(meta) = dir.look(name) else { continue };
                let path = path.join(name.to_bytes());
                if leads(&meta, dir.user().0) {
                    waiting.push((path, dir.enter(name)?));
                    continue;
                }
                let size = measure(&dir, name, &meta);
                let gone = Gone {
                    date,
                    path,
                    meta,
                    size,
                };
                each(gone);
            }
        }
    }
    Ok(())
}

/// How much an entry is, with all below it that can be seen.
fn measure(dir: &DirRef, name: &CStr, meta: &Meta) -> Size {
    let mut size = size_of(meta);
    let mut within = vec![(dir.clone(), vec![CString::from(name)])];
    if meta.kind != Kind::Dir {
        return size;
    }
    while let Some((dir, subdirs)) = within.last_mut() {
        let Some(name) = subdirs.pop() else {
            dir.leave();
            within.pop();
            continue;
        };
        let Ok(inner) = dir.enter(&name) else {
            continue;
        };
        let (inside, subdirs) = look_through(&inner);
        size = size.and(inside);
        within.push((inner, subdirs));
    }
    size
}

/// How much is in a directory without what is below its subdirectories, and these.
fn look_through(dir: &DirRef) -> (Size, Vec<CString>) {
    let (mut size, mut subdirs) = (Size::default(), Vec::new());
    let Ok(windows) = windows(dir) else {
        return (size, subdirs);
    };
    for names in windows.map_while(Result::ok) {
        for (name, _) in (0..names.len()).map(|index| names.get(index)) {
            let Ok(meta) = dir.look(name) else { continue };
            size = size.and(size_of(&meta));
            if meta.kind == Kind::Dir {
                subdirs.push(name.into());
            }
        }
    }
    (size, subdirs)
}

fn size_of(meta: &Meta) -> Size {
    Size {
        entries: 1,
        bytes: meta.blocks.saturating_mul(BLOCK_BYTES),
    }
}

fn purge(
    root: &DirMutRef,
    limits: Limits,
    known: &mut Sizes,
    is_over: &dyn Fn() -> bool,
) -> Done<Purged> {
    let now_sec = now().sec;
    let mut done = FolderRemoval::default();
    remove_expired(root, &mut done, is_over)?;
    let folders = measured(root, now_sec, known, is_over)?;
    for date in limits.what_goes(&folders, now_sec) {
        if is_over() {
            break;
        }
        expire(root, date, &mut done, is_over)?;
        known.remove(&date);
    }
    let left = measured(root, now_sec, known, is_over)?;
    let left = left.into_values().fold(Size::default(), Size::and);
    let mut purged = Purged {
        removed: done.removed,
        stuck: done.stuck,
        left,
    };
    if !is_over() {
        let mut add = |gone: Gone| purged.left = purged.left.and(gone.size);
        for_each_expired(root, &mut add)?;
    }
    Ok(purged)
}

/// Tells `each` of the entries that a removal has left.
fn for_each_expired(root: &DirMutRef, each: &mut dyn FnMut(Gone)) -> Done {
    let trash = match root.enter(TRASH) {
        Err(fault) if fault.is_absent() => return Ok(()),
        entered => entered?,
    };
    for (date, name) in expired(&trash)? {
        match trash
            .enter(&name)
            .and_then(|folder| for_each_in(folder, date, each))
        {
            Err(fault) if fault.is_missing() => {}
            done => done?,
        }
    }
    Ok(())
}

/// How much is in each folder. What nothing can be put into any more is measured once.
fn measured(
    root: &DirMutRef,
    now_sec: i64,
    known: &mut Sizes,
    is_over: &dyn Fn() -> bool,
) -> Done<Sizes> {
    let mut folders = Sizes::new();
    for date in dates(root)?.into_iter().take_while(|_| !is_over()) {
        let size = match known.get(&date) {
            Some(size) => *size,
            None => {
                let mut sum = Size::default();
                let counted = for_each(root, date, &mut |gone| sum = sum.and(gone.size));
                if counted.is_ok() && now_sec > date.until_sec() {
                    known.insert(date, sum);
                }
                sum
            }
        };
        folders.insert(date, size);
    }
    known.retain(|date, _| folders.contains_key(date));
    Ok(folders)
}

/// The trash of a replica, which no run need have open.
pub struct Bin {
    root: DirMutRef,
}

impl Bin {
    /// The trash of the tree that `options` change.
    ///
    /// # Errors
    /// It is out of reach, or no directory.
    pub fn of(options: &Options) -> Result<Bin, RunError> {
        match options.replica.locate_mut(&HandlePool::new(HANDLES_MAX))? {
            Place::Dir(root) => Ok(Bin { root }),
            _ => Err(RunError::NoReplica(options.replica.to_string())),
        }
    }

    /// Tells `each` of all that is there, the oldest first.
    ///
    /// # Errors
    /// It cannot be opened or listed.
    pub fn for_each(&self, each: &mut dyn FnMut(Gone)) -> Done {
        dates(&self.root)?
            .into_iter()
            .try_for_each(|date| match for_each(&self.root, date, each) {
                // It was just emptied.
                Err(fault) if fault.is_missing() => Ok(()),
                done => done,
            })
    }

    /// Returns whether the trash has anything to list or to purge.
    ///
    /// # Errors
    /// It cannot be opened or listed.
    pub fn has_any(&self) -> Done<bool> {
        let mut has_any = false;
        self.for_each(&mut |_| has_any = true)?;
        for_each_expired(&self.root, &mut |_| has_any = true)?;
        Ok(has_any)
    }

    /// Removes what `limits` do not allow. `known` has the sizes of folders that were measured
    /// before, and is brought up to date; `is_over` ends it early.
    ///
    /// # Errors
    /// It cannot be opened or listed.
    pub fn purge(
        &self,
        limits: Limits,
        known: &mut Sizes,
        is_over: &dyn Fn() -> bool,
    ) -> Done<Purged> {
        purge(&self.root, limits, known, is_over)
    }
}
