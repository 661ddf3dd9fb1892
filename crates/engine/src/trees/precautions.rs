//! What is asked of both trees before anything is touched: what looks like a mistake is refused.

use crate::options::Options;
use crate::trees::error::RunError;
use crate::trees::filling::{is_replica, says_something, was_filled_from};
use crate::trees::folding::seen;
use crate::trees::replica::Replica;
use driftless_model::{Kind, RelPath, Side};
use driftless_reconcile::{NameIndex, Refusal};
use driftless_tree::{Dir, DirMutRef, DirRef, Names, descend, windows};
use std::ffi::{CStr, CString, OsStr};
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

fn require_in(root: &DirRef, side: Side, path: &RelPath) -> Result<(), RunError> {
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
    let has_entries = |dir: &dyn Dir| {
        let mut names = Names::default();
        dir.list()?.fill(&mut names, 1).map(|_| !names.is_empty())
    };
    if !has_entries(&**replica).unwrap_or(true) {
        return Ok(());
    }
    match has_entries(&**source) {
        Ok(true) => refuse_unlike(options, source, replica),
        Ok(false) => Err(Refusal::EmptySource),
        Err(fault) => Err(Refusal::UnreadableSource(fault.cause())),
    }
}

/// What a look at the names of the replica says.
#[derive(Debug, PartialEq, Eq)]
enum Likeness {
    /// One of them is among those of the source.
    Alike,
    /// None is, and some would be deleted.
    Unlike,
    /// None would be deleted.
    Harmless,
}

/// Two trees that are meant for each other have a name in common at the top, if only for a file
/// system that takes no heed of case, or the mark of the replica names the source. Of a source with
/// more names than are held at a time, the replica is looked through again for each window, unless
/// they are alike.
fn refuse_unlike(options: &Options, source: &DirRef, replica: &DirMutRef) -> Result<(), Refusal> {
    let is_whole = options
        .selection
        .as_ref()
        .is_none_or(|selection| selection.whole);
    if options.policy.delete_unlike || !is_whole {
        return Ok(());
    }
    let unreadable = |fault: driftless_model::Fault| Refusal::UnreadableSource(fault.cause());
    for names in windows(source).map_err(unreadable)? {
        let names = names.map_err(unreadable)?;
        // Nothing is deleted from a replica that cannot be listed, and the run says so.
        if likeness(options, &names, replica).unwrap_or(Likeness::Harmless) != Likeness::Unlike {
            return Ok(());
        }
    }
    if was_filled_from(options, source, replica) {
        return Ok(());
    }
    Err(Refusal::Unlike {
        replica: options.replica.to_string(),
        meant: meant(options, source, replica),
    })
}

fn likeness(
    options: &Options,
    names: &Names,
    replica: &DirMutRef,
) -> driftless_tree::Done<Likeness> {
    let mut index = NameIndex::new(crate::trees::alike::random_seed());
    let bytes = |number| names.bytes(number);
    index.fill(names.len(), bytes);
    let mut found = Likeness::Harmless;
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
            if found == Likeness::Harmless && may_go(options, replica, name, kind) {
                found = Likeness::Unlike;
            }
        }
    }
    Ok(found)
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
