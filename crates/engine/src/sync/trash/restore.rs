//! Restores a path from the trash: everything that was deleted at it or below it, of each path the
//! newest. All of it is copied, with everything that the engine keeps, into a directory that no
//! listing shows. It gets its names when all of it is there. An entry that has such a name stays.
//! A restore that had a problem never ends as a success, and nothing leaves the trash.

mod choice;
mod gather;
mod listing;
mod merge;
mod problems;
mod reach;
mod rights;
mod room;

use super::bin::{dates, folder};
use super::date::Date;
use super::leads;
use crate::monitor::Monitor;
use crate::options::Options;
use crate::sync::ground::Ground;
use crate::sync::run::LinkGroups;
use crate::trees::error::RunError;
use driftless_model::{Act, Fault, Kind, RelPath, Side, errno, escape};
use driftless_pool::descriptors;
use driftless_tree::{
    DirMutRef, DirRef, Done, Endpoint, HandlePool, Place, RootError, descend_mut,
};
use gather::{PieceGathering, RestoreRoots};
use merge::PieceMerging;
use problems::RestoreProblems;
use reach::require_reach;
use room::RestoreRoom;
use std::collections::HashSet;
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Dates of the trash from which a path is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionDates {
    /// Every date.
    All,
    /// A single date.
    Only(Date),
    /// A date and every later one.
    Since(Date),
}

impl DeletionDates {
    /// Returns whether entries of a date are restored.
    pub fn contain(self, date: Date) -> bool {
        match self {
            DeletionDates::All => true,
            DeletionDates::Only(only) => date == only,
            DeletionDates::Since(since) => date >= since,
        }
    }
}

impl fmt::Display for DeletionDates {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeletionDates::All => Ok(()),
            DeletionDates::Only(date) => write!(out, " of {date}"),
            DeletionDates::Since(date) => write!(out, " of {date} or later"),
        }
    }
}

/// What is to be brought back.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The path that it had.
    pub path: RelPath,
    /// Dates from which it is brought back.
    pub dates: DeletionDates,
    /// Its new path below the root that it is copied to.
    pub to: RelPath,
}

/// Counts of a restored path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Entries that came back.
    pub entries: u64,
    /// Pieces of the trash that they came from: entries that were deleted as one.
    pub pieces: u64,
    /// Dates of these pieces.
    pub dates: u64,
    /// First and last of these dates.
    pub span: Option<(Date, Date)>,
    /// Entries of the trash that did not come back because the tree has entries at their names.
    pub stays: u64,
    /// Entries of the trash that did not come back because newer ones of their paths did.
    pub older: u64,
    /// Directories that were made for entries, because neither the trash nor the tree has them.
    pub made: u64,
    /// Problems that the monitor received. If there is one, not everything came back as it was.
    pub problems: u64,
}

impl Restored {
    /// Counts a date, which no date before it is older than.
    fn add_date(&mut self, date: Date) {
        self.dates += 1;
        let last = self.span.map_or(date, |(_, last)| last);
        self.span = Some((date, last));
    }
}

/// Why nothing was brought back.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A tree is out of reach.
    #[error(transparent)]
    Tree(#[from] RunError),
    /// It is not in the trash.
    #[error("\"{}\": is not in the trash{}", escape(.0.as_bytes()), .1)]
    NotThere(RelPath, DeletionDates),
    /// Something has its name.
    #[error("\"{}\": is there, and stays; name another directory with --to", escape(.0.as_bytes()))]
    Taken(RelPath),
    /// The directory that would hold it is not there.
    #[error("\"{}\": is not there to hold it; restore that first, or name another directory with --to", escape(.0.as_bytes()))]
    NoPlace(RelPath),
    /// The entry is to go where no rename from the trash of the tree leads.
    #[error(
        "\"{}\": cannot restore it there: it is on another file system than the root of the tree; \
         name a directory on that file system with --to (nothing was changed)",
        escape(.0.as_bytes())
    )]
    OtherFileSystem(RelPath),
    /// A call failed.
    #[error("\"{}\": cannot {}: {}", escape(.path.as_bytes()), .fault.act.words(), .fault.cause())]
    Failed {
        /// What it was about.
        path: RelPath,
        /// What failed.
        fault: Fault,
    },
    /// Not all of it could be copied.
    #[error(
        "\"{}\": not all of it could be copied, so nothing was brought back; \
         mend what is reported, and restore it again",
        escape(.0.as_bytes())
    )]
    Incomplete(RelPath),
    /// The user ended it before all was copied.
    #[error("\"{}\": interrupted; nothing was brought back, and the trash keeps all of it", escape(.0.as_bytes()))]
    Interrupted(RelPath),
    /// There is no directory at the path of a tree.
    #[error("\"{0}\": no such directory; make it, or mount its file system (nothing was changed)")]
    NoTree(String),
}

/// Copies all that the trash of the tree that `options` read has at a path and below it, of each
/// path the newest, to a new name below the root that they change. All of it stays in the trash. An
/// entry that cannot get its name is a problem, and the others get theirs.
///
/// # Errors
/// The trash has nothing of the path, its new name is taken or on another file system, or not all of
/// it can be copied. Nothing is left of it at its new name then.
pub fn restore(
    options: &Options,
    wanted: &Wanted,
    monitor: &dyn Monitor,
    stop: &AtomicBool,
) -> Result<Restored, RestoreError> {
    let (directories, threads_max) = descriptors();
    let pool = HandlePool::new(directories);
    let trashed = root_of(options, &pool)?;
    let dates = found(&trashed, wanted)?;
    let located = options.replica.locate_mut(&pool);
    let root = directory_at(located, &options.replica)?;
    let target = new_place(&root, wanted)?;
    let problems = RestoreProblems::new(monitor);
    let room = match RestoreRoom::open(&root) {
        Ok(room) => room,
        Err(fault) => return Err(incomplete(&problems, wanted, fault)),
    };
    let staging = room.staging();
    let gathering = PieceGathering {
        options,
        wanted,
        threads_max,
        problems: &problems,
        stop,
        ground: Ground::of(options, (trashed.clone(), Some(staging.clone()))),
        restored: Restored::default(),
        led: HashSet::new(),
        links: LinkGroups::new(),
    };
    let restored = bring_back(gathering, &dates, (&trashed, staging), &target);
    let has_left = room.close(&root);
    let restored = Restored {
        problems: problems.count(),
        ..restored?
    };
    match (has_left, &restored) {
        (true, Restored { problems: 0, .. }) => Err(incomplete(&problems, wanted, left())),
        (_, Restored { problems: 0, .. }) => require_any(&restored, wanted).map(|()| restored),
        (_, Restored { entries: 0, .. }) => Err(RestoreError::Incomplete(wanted.to.clone())),
        _ => Ok(restored),
    }
}

/// Gathers the pieces of these dates in `staging`, makes them durable, and gives them their names in
/// the directory `above` of the tree, which has this path.
fn bring_back(
    mut gathering: PieceGathering<'_>,
    dates: &[Date],
    (trashed, staging): (&DirRef, &DirMutRef),
    (above, path): &(DirMutRef, RelPath),
) -> Result<Restored, RestoreError> {
    let (wanted, problems) = (gathering.wanted, gathering.problems);
    require_reach(staging, above, &wanted.to)?;
    let roots = RestoreRoots {
        trashed,
        staging,
        above,
    };
    gathering.gather(dates, roots)?;
    let mut restored = gathering.restored;
    require_any(&restored, wanted)?;
    let synced = staging.sync_all();
    synced.map_err(|fault| incomplete(problems, wanted, fault))?;
    PieceMerging::new(problems, &mut restored).merge(staging, (above, path))?;
    Ok(restored)
}

/// Returns the fault of an entry that was gathered and got no name.
fn left() -> Fault {
    Fault {
        side: Side::Replica,
        act: Act::Rename,
        errno: errno::ENOTEMPTY,
    }
}

/// Reports why not everything can be copied, and returns the error that says so.
fn incomplete(problems: &RestoreProblems<'_>, wanted: &Wanted, fault: Fault) -> RestoreError {
    match problems.report(&wanted.to, fault) {
        Ok(()) => RestoreError::Incomplete(wanted.to.clone()),
        Err(error) => error,
    }
}

/// Fails if no entry comes back.
fn require_any(restored: &Restored, wanted: &Wanted) -> Result<(), RestoreError> {
    match restored {
        Restored { entries: 1.., .. } => Ok(()),
        Restored { stays: 1.., .. } => Err(RestoreError::Taken(wanted.to.clone())),
        _ => Err(not_there(wanted)),
    }
}

fn root_of(options: &Options, pool: &Arc<HandlePool>) -> Result<DirRef, RestoreError> {
    directory_at(options.source.locate(Side::Source, pool), &options.source)
}

/// Returns the directory that is at the path of a tree. The words for a missing root name the wrong
/// tree: what a restore changes is no replica.
fn directory_at<D>(
    located: Result<Place<D>, RootError>,
    root: &Endpoint,
) -> Result<D, RestoreError> {
    match located {
        Ok(Place::Dir(dir)) => Ok(dir),
        Ok(Place::Entry { .. }) => Err(RunError::NotTrees(root.to_string()).into()),
        Ok(Place::Missing { .. }) => Err(RestoreError::NoTree(root.to_string())),
        Err(error) if error.is_missing() => Err(RestoreError::NoTree(root.to_string())),
        Err(error) => Err(RunError::from(error).into()),
    }
}

/// Returns the dates from which the path is restored, the newest first.
fn found(root: &DirRef, wanted: &Wanted) -> Result<Vec<Date>, RestoreError> {
    let of_path = |fault| failed(&wanted.path, fault);
    let (_, name) = split(&wanted.path).ok_or_else(|| not_there(wanted))?;
    let all = dates(root).map_err(of_path)?.into_iter().rev();
    let mut found = Vec::new();
    for date in all.filter(|date| wanted.dates.contain(*date)) {
        let Some((dir, _)) = place(root, date, &wanted.path).map_err(of_path)? else {
            continue;
        };
        match dir.look(&name) {
            Ok(_) => found.push(date),
            Err(fault) if fault.is_absent() => {}
            Err(fault) => return Err(of_path(fault)),
        }
    }
    match found.is_empty() {
        true => Err(not_there(wanted)),
        false => Ok(found),
    }
}

/// Opens the directory of a date that had the entry at `path`, and tells whether it is part of a
/// piece; `None` if the date has none.
fn place(root: &DirRef, date: Date, path: &RelPath) -> Done<Option<(DirRef, bool)>> {
    let Some((above, _)) = split(path) else {
        return Ok(None);
    };
    match open_above(root, date, &above) {
        Err(fault) if fault.is_absent() => Ok(None),
        opened => opened.map(Some),
    }
}

fn open_above(root: &DirRef, date: Date, above: &RelPath) -> Done<(DirRef, bool)> {
    let (mut dir, mut is_inside) = (folder(root, date)?, false);
    for name in above.names() {
        dir = dir.enter(&CString::new(name).expect("names hold no NUL"))?;
        is_inside |= !leads(dir.first_meta(), dir.user().0);
    }
    Ok((dir, is_inside))
}

/// Opens the directory in which the path gets its new name, and returns its path. Only a directory
/// may have that name.
fn new_place(root: &DirMutRef, wanted: &Wanted) -> Result<(DirMutRef, RelPath), RestoreError> {
    let taken = || RestoreError::Taken(wanted.to.clone());
    let (above, name) = split(&wanted.to).ok_or_else(taken)?;
    let dir = descend_mut(root, &above).map_err(|fault| match fault.is_absent() {
        true => RestoreError::NoPlace(above.clone()),
        false => failed(&above, fault),
    })?;
    match dir.look(&name) {
        Ok(meta) if meta.kind == Kind::Dir => Ok((dir, above)),
        Ok(_) => Err(taken()),
        Err(fault) if fault.is_missing() => Ok((dir, above)),
        Err(fault) => Err(failed(&wanted.to, fault)),
    }
}

fn not_there(wanted: &Wanted) -> RestoreError {
    RestoreError::NotThere(wanted.path.clone(), wanted.dates)
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
