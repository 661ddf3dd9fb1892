//! How a run begins: the replica is locked and made, and its root is met.

use crate::options::Options;
use crate::sync::closed::{forget_inherited, mark_closed};
use crate::sync::run::Run;
use crate::sync::visit::{Sides, Visit};
use crate::trees::changes::scope;
use crate::trees::earlier_copy::refuse_changed_copy;
use crate::trees::error::RunError;
use crate::trees::locks::{Locks, hold};
use crate::trees::marks::Marks;
use crate::trees::precautions::{refuse_doubt, refuse_other_entries};
use crate::trees::replica::Replica;
use driftless_model::{Fault, Selection, Side, errno};
use driftless_tree::{DirMutRef, DirRef, HandlePool, Place};
use std::sync::Arc;

/// Locks the replica, refuses it on doubt, makes it if it is missing; tells whether it was made.
pub fn prepare_replica(
    options: &Options,
    source: &DirRef,
    replica: Replica,
) -> Result<(Option<DirMutRef>, bool, Locks), RunError> {
    refuse_other(options, &replica)?;
    let mut locks = match &replica {
        // The lock of a replica that is lent is with the process that lends it.
        _ if !options.applies() || options.lent.is_some() => Locks::default(),
        Replica::There(dir) => hold(options, dir, None)?,
        // Who works on a tree that it would lie in is found before it is made.
        Replica::Missing(parent, name) => hold(options, parent, Some(name))?,
    };
    if let (false, Replica::There(replica)) = (options.compares(), &replica) {
        if options.policy.delete {
            refuse_doubt(options, source, replica)?;
        } else {
            refuse_other_entries(options, source, replica)?;
        }
    }
    let (replica, made) = open_replica(options, source, replica)?;
    if let Some(new) = replica.as_ref().filter(|_| made) {
        locks = hold(options, new, None)?.beside(locks);
        if let Some(first) = &options.first_roots {
            unusable(options, first.note_made(options.replica.machine(), new))?;
        }
    }
    Ok((replica, made, locks))
}

/// Refuses what is not the replica that is meant, before anything of it is touched: the directory
/// that a file system is mounted on, say.
fn refuse_other(options: &Options, replica: &Replica) -> Result<(), RunError> {
    if options.known_replica.is_none() && !options.refuses_active {
        return Ok(());
    }
    let mark = match replica {
        Replica::There(dir) => unusable(options, Marks::read_own(dir, scope(options)))?,
        Replica::Missing(..) => None,
    };
    let path = options.replica.to_string();
    let identity = mark.as_ref().map(|mark| mark.identity);
    if options.known_replica.is_some() && options.known_replica != identity {
        return Err(RunError::OtherReplica(path));
    }
    match mark.and_then(|mark| mark.active) {
        Some(since) if options.refuses_active => Err(RunError::Active { path, since }),
        _ => Ok(()),
    }
}

/// The root, as it is now, as a visit of a part of a run.
pub fn begin_root(run: &Run<'_>, selection: Selection, weight: u64) -> Result<Visit, RunError> {
    let (source, replica) = run.roots.clone();
    let before = match &replica {
        Some(replica) => Some((
            unusable(run.options, replica.meta())?,
            unusable(run.options, replica.xattrs(&run.options.policy.keep))?,
        )),
        None => None,
    };
    let sides = Sides {
        source,
        replica,
        before,
    };
    let mut visit = Visit::root(sides, Arc::new(selection), weight);
    run.part.assign(&mut visit);
    run.find_closed(&mut visit);
    visit.narrowing = run.narrowing_of(&visit);
    if run.renamed.is_some() {
        (visit.borrowed, visit.renamed) = (true, run.renamed.clone());
    }
    Ok(visit)
}

/// Opens the earlier copy that the run links to, if one is named. A copy that the run would change
/// is refused.
pub fn open_basis(
    options: &Options,
    source: &DirRef,
    replica: &Replica,
) -> Result<Option<DirRef>, RunError> {
    let Some(path) = &options.link_dest else {
        return Ok(None);
    };
    let basis = options.replica.at(path.clone());
    match basis.locate(Side::Replica, &HandlePool::new(64))? {
        Place::Dir(dir) => {
            refuse_changed_copy(options, (&dir, &basis), source, replica)?;
            Ok(Some(dir))
        }
        _ => Err(RunError::Unusable {
            path: basis.to_string(),
            cause: "--link-dest names no directory".into(),
        }),
    }
}

/// Opens or makes the replica's root; tells whether it was made.
fn open_replica(
    options: &Options,
    source: &DirRef,
    replica: Replica,
) -> Result<(Option<DirMutRef>, bool), RunError> {
    match replica {
        Replica::There(dir) => Ok((Some(dir), false)),
        Replica::Missing(..) if options.compares() => {
            Err(RunError::NoReplica(options.replica.to_string()))
        }
        Replica::Missing(..) if !options.applies() => Ok((None, true)),
        Replica::Missing(parent, name) => {
            // A source that cannot be listed leaves no empty replica behind.
            source.list().map_err(|fault| RunError::Unusable {
                path: options.source.to_string(),
                cause: fault.to_string(),
            })?;
            // Over a line, whether it was made is heard of with the first answer.
            let made = parent
                .make_dir(&name)
                .and_then(|dir| forget_inherited(&dir).map(|()| dir));
            let made = made.and_then(|dir| mark_closed(options, &dir).map(|()| dir));
            match made {
                // A moment ago it was not there.
                Err(fault) if fault.errno == errno::EEXIST => Err(RunError::Locked {
                    path: options.replica.to_string(),
                    holder: None,
                }),
                made => Ok((Some(unusable(options, made)?), true)),
            }
        }
    }
}

pub fn unusable<T>(options: &Options, done: Result<T, Fault>) -> Result<T, RunError> {
    done.map_err(|fault| RunError::Unusable {
        path: options.replica.to_string(),
        cause: fault.to_string(),
    })
}
