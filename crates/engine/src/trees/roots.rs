//! Opening the two roots, and refusing what would go wrong before anything is touched.

use crate::options::Options;
use crate::trees::error::RunError;
use crate::trees::overlap::refuse_overlap;
use crate::trees::precautions::{require, require_nothing};
use crate::trees::replica::Replica;
use driftless_model::{Kind, Meta, Side};
use driftless_tree::{Dir, DirMutRef, DirRef, Endpoint, HandlePool, Place};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The roots of a run.
pub enum Roots {
    /// Two directories; the replica's is missing yet if there is none.
    Trees {
        /// The source.
        source: DirRef,
        /// The replica, or where it is to be made.
        replica: Replica,
    },
    /// Two single entries, in their directories.
    Entries {
        /// Directory and name of the source.
        source: (DirRef, CString),
        /// Directory and name of the replica.
        replica: (DirMutRef, CString),
    },
}

/// Opens both roots and refuses pairs that make no sense.
pub fn open_roots(options: &Options, pool: &Arc<HandlePool>) -> Result<Roots, RunError> {
    let roots = find(options, pool)?;
    match &roots {
        Roots::Trees { source, replica } => {
            refuse_overlap(options, source, replica)?;
            require(options, source, replica)?;
        }
        Roots::Entries {
            source: (dir, name),
            replica: (replica_dir, replica_name),
        } => {
            require_nothing(options)?;
            if options.is_one_machine()
                && dir.first_meta().id() == replica_dir.first_meta().id()
                && name == replica_name
            {
                return Err(RunError::Same(options.source.to_string()));
            }
        }
    }
    Ok(roots)
}

/// Finds both roots. The caller knows that they do not overlap where the run goes.
pub fn find(options: &Options, pool: &Arc<HandlePool>) -> Result<Roots, RunError> {
    // Of another file system that is left out, the replica gets the directory alone.
    if options.enters_stubs || options.policy.one_file_system {
        pool.enter_stand_ins();
    }
    let source = options.source.locate(Side::Source, pool)?;
    let replica = options.replica.locate_mut(pool)?;
    refuse_other(options, (Side::Source, &options.source), &source)?;
    refuse_other(options, (Side::Replica, &options.replica), &replica)?;
    match (source, replica) {
        (Place::Missing { .. }, _) => Err(RunError::NoSource(options.source.to_string())),
        (Place::Dir(source), replica) => open_trees(options, source, replica),
        (Place::Entry { parent, name, meta }, replica) => {
            open_entries(options, (parent, name, meta), replica)
        }
    }
}

/// Refuses a root that is not the one that the first pass of the run found.
fn refuse_other<D: Dir + ?Sized>(
    options: &Options,
    (side, path): (Side, &Endpoint),
    place: &Place<Arc<D>>,
) -> Result<(), RunError> {
    let Some(first) = &options.first_roots else {
        return Ok(());
    };
    match first.is_first((side, path.machine()), place) {
        Ok(true) => Ok(()),
        Ok(false) => Err(RunError::OtherRoot(path.to_string())),
        Err(fault) => Err(RunError::Unusable {
            path: path.to_string(),
            cause: fault.to_string(),
        }),
    }
}

fn open_trees(
    options: &Options,
    source: DirRef,
    replica: Place<DirMutRef>,
) -> Result<Roots, RunError> {
    let replica = match replica {
        Place::Dir(dir) => Replica::There(dir),
        Place::Missing { parent, name } => Replica::Missing(parent, name),
        Place::Entry { meta, .. } => {
            return Err(other_type(options, Kind::Dir, meta.kind, String::new()));
        }
    };
    Ok(Roots::Trees { source, replica })
}

fn open_entries(
    options: &Options,
    source: (DirRef, CString, Meta),
    replica: Place<DirMutRef>,
) -> Result<Roots, RunError> {
    let (dir, name, meta) = source;
    let replica = match replica {
        Place::Missing { parent, name } => (parent, name),
        Place::Entry {
            parent,
            name,
            meta: there,
        } if there.kind == meta.kind => (parent, name),
        Place::Entry { meta: there, .. } => {
            return Err(other_type(options, meta.kind, there.kind, String::new()));
        }
        Place::Dir(_) => {
            let meant = options.replica.at(options
                .replica
                .path
                .join(std::ffi::OsStr::from_bytes(name.to_bytes())));
            return Err(other_type(
                options,
                meta.kind,
                Kind::Dir,
                format!(", such as \"{meant}\""),
            ));
        }
    };
    Ok(Roots::Entries {
        source: (dir, name),
        replica,
    })
}

fn other_type(options: &Options, source: Kind, replica: Kind, hint: String) -> RunError {
    RunError::OtherType {
        source_kind: source.phrase(),
        replica_kind: replica.phrase(),
        path: options.replica.to_string(),
        hint,
    }
}
