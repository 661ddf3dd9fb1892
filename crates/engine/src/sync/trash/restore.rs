//! Bringing back what is in the trash: it is copied, with all that the engine keeps, to where
//! nobody sees it, and gets its name when all of it is there. What has that name stays.

use super::bin::{dates, folder};
use super::date::Date;
use super::{leads, lend_and_take, make, open};
use crate::monitor::Monitor;
use crate::options::Options;
use crate::sync::ending::{End, make_durable, sum_up};
use crate::sync::ground::Ground;
use crate::sync::run::Run;
use crate::sync::stages::walk;
use crate::sync::visit::{Sides, Visit};
use crate::tally::{Counts, WHOLE_WALK};
use crate::trees::error::RunError;
use driftless_model::{Fault, RelPath, Scope, Selection, Side, TRASH, Work, Xattrs, escape};
use driftless_pool::descriptors;
use driftless_tree::{DirMutRef, DirRef, Done, HandlePool, Place, descend, descend_mut, temp_name};
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is to be brought back.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The path that it had.
    pub path: RelPath,
    /// When it went; at last, if this does not say.
    pub date: Option<Date>,
    /// Its new path below the root that it is copied to.
    pub to: RelPath,
}

/// Why nothing was brought back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A tree is out of reach.
    #[error(transparent)]
    Tree(#[from] RunError),
    /// It is not in the trash.
    #[error("\"{}\": is not in the trash{}", escape(.0.as_bytes()), at(.1.as_ref()))]
    NotThere(RelPath, Option<Date>),
    /// Only what was below it is.
    #[error("\"{}\": was not deleted itself; what was deleted below it is listed by \"trash list\"", escape(.0.as_bytes()))]
    OnlyBelow(RelPath),
    /// Something has its name.
    #[error("\"{}\": is there, and stays; name another directory with --to", escape(.0.as_bytes()))]
    Taken(RelPath),
    /// The directory that would hold it is not there.
    #[error("\"{}\": is not there to hold it; restore that first, or name another directory with --to", escape(.0.as_bytes()))]
    NoPlace(RelPath),
    /// A call failed.
    #[error("\"{}\": cannot {}: {}", escape(.path.as_bytes()), .fault.act.words(), .fault.cause())]
    Failed {
        /// What it was about.
        path: RelPath,
        /// What failed.
        fault: Fault,
    },
    /// Not all of it could be copied.
    #[error("\"{}\": not all of it could be copied, so nothing was brought back", escape(.0.as_bytes()))]
    Incomplete(RelPath),
}

fn at(date: Option<&Date>) -> String {
    date.map(|date| format!(" of {date}")).unwrap_or_default()
}

/// Copies an entry from the trash of the tree that `options` read to a new name below the root that
/// they change. It stays in the trash.
///
/// # Errors
/// It is not there, its new name is taken, or not all of it can be copied; then nothing is left of
/// it at its new name.
pub fn restore(
    options: &Options,
    wanted: &Wanted,
    monitor: &dyn Monitor,
    stop: &AtomicBool,
) -> Result<Counts, RestoreError> {
    let (directories, threads_max) = descriptors();
    let pool = HandlePool::new(directories);
    let (from, name) = found(&root_of(options, &pool)?, wanted)?;
    let root = match options.replica.locate_mut(&pool).map_err(RunError::from)? {
        Place::Dir(root) => root,
        _ => return Err(RunError::NoReplica(options.replica.to_string()).into()),
    };
    let failed = |fault| failed(&wanted.to, fault);
    let (above, new) = new_place(&root, wanted)?;
    let (trash, room) = open_room(&root).map_err(failed)?;
    let staging = trash.make_dir(&room).map_err(failed)?;
    let copying = Copying {
        options,
        threads_max,
        monitor,
        stop,
    };
    let copied = copying.copy((&from, &name), &staging);
    let copied = copied.map_err(RestoreError::from).and_then(|counts| {
        let counts = counts.ok_or_else(|| RestoreError::Incomplete(wanted.path.clone()))?;
        staging.make_writable();
        publish((&staging, &name), (&above, &new)).map_err(|fault| told(wanted, fault))?;
        Ok(counts)
    });
    let _what_is_left_of_it_was_told = trash.remove_tree(&room, driftless_tree::Spared::NOTHING);
    let _the_trash_of_a_replica_is_not_empty = root.remove_dir(TRASH);
    copied
}

fn root_of(options: &Options, pool: &Arc<HandlePool>) -> Result<DirRef, RunError> {
    match options.source.locate(Side::Source, pool)? {
        Place::Dir(root) => Ok(root),
        _ => Err(RunError::NoReplica(options.source.to_string())),
    }
}

/// The directory in the trash that has what is wanted, and its name there.
fn found(root: &DirRef, wanted: &Wanted) -> Result<(DirRef, CString), RestoreError> {
    let (above, name) = split(&wanted.path)
        .ok_or_else(|| RestoreError::NotThere(wanted.path.clone(), wanted.date))?;
    let mut only_below = false;
    let dates = dates(root).map_err(|fault| failed(&wanted.path, fault))?;
    let newest = dates.into_iter().rev();
    for date in newest.filter(|date| wanted.date.is_none_or(|wanted| wanted == *date)) {
        let place = folder(root, date).and_then(|folder| descend(&folder, &above));
        let look = place.and_then(|dir| dir.look(&name).map(|meta| (dir, meta)));
        match look {
            Ok((dir, meta)) if leads(&meta, dir.user().0) => only_below = true,
            Ok((dir, _)) => return Ok((dir, name)),
            Err(fault) if fault.is_absent() => {}
            Err(fault) => return Err(failed(&wanted.path, fault)),
        }
    }
    Err(match only_below {
        true => RestoreError::OnlyBelow(wanted.path.clone()),
        false => RestoreError::NotThere(wanted.path.clone(), wanted.date),
    })
}

/// The directory for the new entry, and its name, which nothing has.
fn new_place(root: &DirMutRef, wanted: &Wanted) -> Result<(DirMutRef, CString), RestoreError> {
    let taken = || RestoreError::Taken(wanted.to.clone());
    let (above, name) = split(&wanted.to).ok_or_else(taken)?;
    let dir = descend_mut(root, &above).map_err(|fault| match fault.is_absent() {
        true => RestoreError::NoPlace(above.clone()),
        false => failed(&above, fault),
    })?;
    match dir.look(&name) {
        Ok(_) => Err(taken()),
        Err(fault) if fault.is_missing() => Ok((dir, name)),
        Err(fault) => Err(failed(&wanted.to, fault)),
    }
}

/// A place that no listing shows and nobody else can enter, and a name in it.
fn open_room(root: &DirMutRef) -> Done<(DirMutRef, CString)> {
    let trash = match open(root) {
        Err(fault) if fault.is_missing() => make(root)?,
        opened => opened?,
    };
    Ok((trash, temp_name()))
}

/// How something is copied.
struct Copying<'a> {
    options: &'a Options,
    threads_max: usize,
    monitor: &'a dyn Monitor,
    stop: &'a AtomicBool,
}

impl Copying<'_> {
    /// Copies an entry into a directory that is ours alone, durably; `None` if not all of it could be.
    fn copy(
        &self,
        (from, name): (&DirRef, &CStr),
        staging: &DirMutRef,
    ) -> Result<Option<Counts>, RunError> {
        let ground = Ground::of(self.options, (from.clone(), Some(staging.clone())));
        let mut run = Run::new(self.options, self.monitor, self.stop, ground);
        let selection = Selection::of(&[Work {
            path: RelPath::from_names([name.to_bytes()]),
            scope: Scope::Subtree,
        }]);
        let sides = Sides {
            source: from.clone(),
            replica: Some(staging.clone()),
            before: Some((*staging.first_meta(), Xattrs::default())),
        };
        let mut visit = Visit::root(sides, Arc::new(selection), WHOLE_WALK);
        // It stays what it is, and counts for nothing.
        visit.borrowed = true;
        walk(&mut run, visit, self.threads_max)?;
        run.report_split_groups();
        make_durable(&run);
        let summary = sum_up(&run, End::Complete);
        let is_whole = summary.end == End::Complete
            && summary.counts.failed == 0
            && summary.counts.skipped() == 0
            && staging.look(name).is_ok();
        Ok(is_whole.then_some(summary.counts))
    }
}

/// Gives what was copied its new name, durably.
fn publish((staging, name): (&DirMutRef, &CStr), (above, new): (&DirMutRef, &CStr)) -> Done {
    // It is called there as it was.
    debug_assert_eq!(name, new, "restore keeps the name");
    lend_and_take(above, staging, name)?;
    above.sync_all()
}

fn told(wanted: &Wanted, fault: Fault) -> RestoreError {
    match fault.errno {
        driftless_model::errno::EEXIST => RestoreError::Taken(wanted.to.clone()),
        _ => failed(&wanted.to, fault),
    }
}

fn failed(path: &RelPath, fault: Fault) -> RestoreError {
    RestoreError::Failed {
        path: path.clone(),
        fault,
    }
}

fn split(path: &RelPath) -> Option<(RelPath, CString)> {
    let (dir, name) = path.split_last()?;
    Some((dir, CString::new(name).expect("names hold no NUL")))
}
