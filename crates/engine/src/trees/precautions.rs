//! What is asked of both trees before anything is touched: what looks like a mistake is refused.

use crate::options::Options;
use crate::trees::error::RunError;
use crate::trees::filling::{
    is_of_file_system, is_replica, says_something, was_begun_from, was_filled_from,
};
use crate::trees::folding::seen;
use crate::trees::replica::Replica;
use driftless_model::{Fault, Kind, RelPath, Side, escape};
use driftless_reconcile::{NameIndex, Refusal};
use driftless_tree::{Dir, DirMutRef, DirRef, Done, Names, descend, windows};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// Refuses a run if anything that must be there on both sides is not.
pub fn require(options: &Options, source: &DirRef, replica: &Replica) -> Result<(), RunError> {
    for path in &options.policy.required {
        require_in(source, Side::Source, path)?;
        match replica {
            Replica::There(replica) => {
                require_in(&(replica.clone() as DirRef), Side::Replica, path)?
            }
            Replica::Missing(..) => {
                return Err(lacking(Side::Replica, path, "it is not there itself").into());
            }
        }
    }
    Ok(())
}

/// Refuses a run between single files if anything below them is named.
pub fn require_nothing(options: &Options) -> Result<(), RunError> {
    if options.selection.is_some() {
        let cause = "it is no directory, and a list of paths names what is below one".into();
        return Err(RunError::Unusable {
            path: options.source.to_string(),
            cause,
        });
    }
    options.policy.required.first().map_or(Ok(()), |path| {
        Err(lacking(Side::Source, path, "it is no directory").into())
    })
}

/// Refuses a tree that lacks what must be there.
pub fn require_in(root: &DirRef, side: Side, path: &RelPath) -> Result<(), RunError> {
    let Some((above, name)) = path.split_last() else {
        return Ok(());
    };
    let name = CString::new(name).expect("names hold no NUL");
    let found = descend(root, &above).and_then(|dir| dir.look(&name));
    found
        .map(drop)
        .map_err(|fault| lacking(side, path, &fault.cause()).into())
}

fn lacking(side: Side, path: &RelPath, cause: &str) -> Refusal {
    Refusal::Lacking {
        side: side.word(),
        path: path.to_string(),
        cause: cause.to_owned(),
    }
}

/// Before deletes: a source that is empty, cannot be listed, or shares no name with the replica is
/// no reason to delete.
pub fn refuse_doubt(
    options: &Options,
    source: &DirRef,
    replica: &DirMutRef,
) -> Result<(), Refusal> {
    if !has_entries(&**replica).unwrap_or(true) {
        return Ok(());
    }
    match has_entries(&**source) {
        Ok(true) => refuse_unlike(options, source, replica),
        Ok(false) => Err(Refusal::EmptySource),
        Err(fault) => Err(Refusal::UnreadableSource(fault.cause())),
    }
}

fn has_entries(dir: &dyn Dir) -> Done<bool> {
    let mut names = Names::default();
    dir.list()?.fill(&mut names, 1).map(|_| !names.is_empty())
}

/// Refuses a copy that deletes nothing, into a directory that holds other entries and none of the
/// source's. Such a directory is probably the one above the replica: rsync makes a directory with
/// the name of the source there.
pub fn refuse_other_entries(
    options: &Options,
    source: &DirRef,
    replica: &DirMutRef,
) -> Result<(), Refusal> {
    // Few calls tell it of a replica that was filled before.
    let is_asked = options.refuses_other_entries && takes_all(options);
    if !is_asked || was_begun_from(options, source, replica) {
        return Ok(());
    }
    let held = match shared_sample(source, replica) {
        Ok(Some(false)) => unlike(options, source, replica),
        // The run itself tells that a tree cannot be listed.
        Ok(None | Some(true)) | Err(_) => Ok(None),
    };
    match held.unwrap_or_default().filter(|held| held.count > 0) {
        None => Ok(()),
        Some(held) => Err(Refusal::OtherEntries {
            source_path: options.source.to_string(),
            replica: options.replica.to_string(),
            held: held.to_string(),
            meant: meant(options, source, replica),
        }),
    }
}

/// Returns whether the source has one of the first names of the replica; `None` if the replica is
/// empty. Two directories with very many names are not listed for that.
fn shared_sample(source: &DirRef, replica: &DirMutRef) -> Done<Option<bool>> {
    let mut names = Names::default();
    replica.list()?.fill(&mut names, SAMPLE_NAMES)?;
    if names.is_empty() {
        return Ok(None);
    }
    let mut sample = (0..names.len()).map(|at| names.get(at).0);
    let is_shared = sample.any(|name| says_something(name) && source.look(name).is_ok());
    Ok(Some(is_shared))
}

/// Whether the run takes the whole source, and not the paths of a list.
fn takes_all(options: &Options) -> bool {
    let selection = options.selection.as_ref();
    selection.is_none_or(|selection| selection.whole)
}

/// What a look at the names of the replica says.
#[derive(Debug)]
enum Likeness {
    /// One of them is among those of the source.
    Alike,
    /// None is, and these would be deleted.
    Unlike(Held),
    /// None would be deleted.
    Harmless,
}

/// Names of the replica that are looked for in the source before both are listed.
const SAMPLE_NAMES: usize = 16;
/// Most names of other entries that a refusal tells.
const SHOWN_MAX: usize = 3;

/// Entries at the top of a replica that are none of the source's.
#[derive(Debug, Default)]
struct Held {
    /// The first of them, by their bytes.
    first: BTreeSet<CString>,
    /// Number of all, but for those that a file system makes.
    count: u64,
}

impl Held {
    fn add(&mut self, name: &CStr) {
        if is_of_file_system(name) {
            return;
        }
        self.count += 1;
        self.first.insert(name.to_owned());
        if self.first.len() > SHOWN_MAX {
            self.first.pop_last();
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |name: &CString| format!("\"{}\"", escape(name.to_bytes()));
        let names: Vec<String> = self.first.iter().map(shown).collect();
        write!(out, "{}", names.join(", "))?;
        match self.count - names.len() as u64 {
            0 => Ok(()),
            more => write!(out, " and {more} more"),
        }
    }
}

/// Refuses to delete from a replica whose names at the top are all other than the source's, unless
/// the mark of the replica names the source.
fn refuse_unlike(options: &Options, source: &DirRef, replica: &DirMutRef) -> Result<(), Refusal> {
    if options.policy.delete_unlike || !takes_all(options) {
        return Ok(());
    }
    let unreadable = |fault: Fault| Refusal::UnreadableSource(fault.cause());
    let held = unlike(options, source, replica).map_err(unreadable)?;
    if held.is_none() || was_filled_from(options, source, replica) {
        return Ok(());
    }
    Err(Refusal::Unlike {
        replica: options.replica.to_string(),
        meant: meant(options, source, replica),
    })
}

/// Returns the entries at the top of the replica, if the trees are not meant for each other: such
/// trees have a name in common at the top, if only for a file system that takes no heed of case. Of
/// a source with more names than are held at a time, the replica is looked through again for each
/// window, unless they are alike.
fn unlike(options: &Options, source: &DirRef, replica: &DirMutRef) -> Done<Option<Held>> {
    let mut held = None;
    for names in windows(source)? {
        // Nothing is deleted from a replica that cannot be listed, and the run says so.
        match likeness(options, &names?, replica).unwrap_or(Likeness::Harmless) {
            Likeness::Unlike(others) => held = Some(others),
            Likeness::Alike | Likeness::Harmless => return Ok(None),
        }
    }
    Ok(held)
}

fn likeness(options: &Options, names: &Names, replica: &DirMutRef) -> Done<Likeness> {
    let mut index = NameIndex::new(crate::trees::alike::random_seed());
    let bytes = |number| names.bytes(number);
    index.fill(names.len(), bytes);
    let mut held: Option<Held> = None;
    for theirs in windows(replica)? {
        let theirs = theirs?;
        for (name, kind) in (0..theirs.len())
            .map(|at| theirs.get(at))
            .filter(|(name, _)| says_something(name))
        {
            let is_one_with = |number: usize| {
                matches!(seen(replica, (name, names.get(number).0)), Ok(Some(true)))
            };
            if index.contains(name.to_bytes(), bytes)
                || index
                    .alike(name.to_bytes(), bytes)
                    .into_iter()
                    .any(is_one_with)
            {
                return Ok(Likeness::Alike);
            }
            if may_go(options, replica, name, kind) {
                held.get_or_insert_default().add(name);
            }
        }
    }
    Ok(held.map_or(Likeness::Harmless, Likeness::Unlike))
}

/// Whether an entry at the top of the replica would be deleted if the source lacks it.
fn may_go(options: &Options, replica: &DirMutRef, name: &CStr, kind: Option<Kind>) -> bool {
    if options.policy.delete_excluded || !options.policy.filter.has_rules() {
        return true;
    }
    let is_dir =
        || kind.or_else(|| replica.look(name).ok().map(|meta| meta.kind)) == Some(Kind::Dir);
    options.policy.filter.takes(name.to_bytes(), is_dir())
}

/// Returns the replica that was probably meant, as the user would type it: a user who comes from
/// rsync takes the source's name for granted. Returns `None` if that name is no directory, or if it
/// is not there and the given directory is a replica itself, in which no other belongs.
fn meant(options: &Options, source: &DirRef, replica: &DirMutRef) -> Option<Vec<u8>> {
    let typed = options
        .source
        .path
        .file_name()
        .map(|name| name.as_bytes().to_vec());
    let name = typed.or_else(|| {
        source
            .lineage()
            .ok()?
            .first()?
            .name
            .as_ref()
            .map(|name| name.as_bytes().to_vec())
    })?;
    let can_be = match replica.look(&CString::new(&name[..]).ok()?) {
        Ok(there) => there.kind == Kind::Dir,
        Err(fault) => fault.is_absent() && !is_replica(options, replica),
    };
    can_be.then(|| {
        options
            .replica
            .at(options.replica.path.join(OsStr::from_bytes(&name)))
            .to_bytes()
    })
}
