//! Opening the two roots, and refusing what would go wrong before anything is touched.

use crate::options::Options;
use crate::trees::overlap::refuse_overlap;
use crate::trees::precautions::{require, require_nothing};
use driftless_model::{Kind, Meta, Side};
use driftless_reconcile::Refusal;
use driftless_tree::{DirRef, HandlePool, Holder, Place, RootError};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Why a run did not begin, so that nothing was touched; or, where that is said, did not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A root cannot be opened.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The source is not there.
    #[error("\"{0}\": no such file or directory (the source)")]
    NoSource(String),
    /// There is nothing to compare with.
    #[error("\"{0}\": no such replica")]
    NoReplica(String),
    /// The same entry twice.
    #[error("source and replica are the same: \"{0}\"")]
    Same(String),
    /// One within the other.
    #[error("the {inner} \"{path}\" lies inside the {outer}: the run would copy into itself{hint}")]
    Inside {
        /// Which one lies inside.
        inner: &'static str,
        /// Which one it lies in.
        outer: &'static str,
        /// Its path.
        path: String,
        /// What can be done about it.
        hint: String,
    },
    /// The replica is of another type.
    #[error("the source is {source_kind}, the replica \"{path}\" is {replica_kind}: name another{hint}")]
    OtherType {
        /// What the source is.
        source_kind: &'static str,
        /// What the replica is.
        replica_kind: &'static str,
        /// Path of the replica.
        path: String,
        /// What could have been meant.
        hint: String,
    },
    /// The directory that would hold the replica is missing or cannot be used.
    #[error("\"{path}\": {cause}")]
    Unusable {
        /// Path of the root.
        path: String,
        /// Why, with what was tried.
        cause: String,
    },
    /// The program that moves content cannot be used.
    #[error("{0}")]
    NoCarrier(String),
    /// Another run works on the same replica.
    #[error("\"{path}\": another run is working on this replica, or on one that overlaps it{}; wait for it to end", crate::trees::changes::holder_words(holder.as_ref()))]
    Locked {
        /// Path of the replica.
        path: String,
        /// Who has the lock, as far as that can be told.
        holder: Option<Holder>,
    },
    /// Its lock is not there any more.
    #[error(
        "\"{0}\": the lock of this run was taken away, so another one may be at work there; it ends here, and what it left undone is not equal"
    )]
    Unlocked(String),
    /// A mover may not change the replica.
    #[error("\"{path}\": {why}")]
    NotHeld {
        /// Path of the replica.
        path: String,
        /// Why.
        why: String,
    },
    /// A mover would make something else than its coordinator, whoever asks it.
    #[error("\"{path}\": {why}")]
    Misfit {
        /// Path of the replica.
        path: String,
        /// Why.
        why: String,
    },
    /// Another run has worked on the replica between the first look of this one and its first change.
    #[error(
        "\"{0}\": another run has worked on this replica since this one began to compare it; this one has changed nothing: start it again"
    )]
    Overtaken(String),
    /// The guard refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The movers cannot be reached.
    #[error("{0}")]
    NoMovers(String),
    /// What is known of the shares of a run cannot be kept.
    #[error("cannot keep the record of the run: {0}")]
    Record(#[from] driftless_state::StoreError),
}

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
        replica: (DirRef, CString),
    },
}

/// The root of a replica.
pub enum Replica {
    /// It is there.
    There(DirRef),
    /// It is to be made: where, and its name.
    Missing(DirRef, CString),
}

/// Opens both roots and refuses pairs that make no sense.
pub fn open_roots(options: &Options, pool: &Arc<HandlePool>) -> Result<Roots, RunError> {
    let roots = find(options, pool)?;
    match &roots {
        Roots::Trees { source, replica } => {
            refuse_overlap(options, source, replica)?;
            require(options, source, replica)?;
        }
        Roots::Entries { source: (dir, name), replica: (replica_dir, replica_name) } => {
            require_nothing(options)?;
            if options.is_one_machine() && dir.first_meta().id() == replica_dir.first_meta().id() && name == replica_name {
                return Err(RunError::Same(options.source.to_string()));
            }
        }
    }
    Ok(roots)
}

/// Finds both roots. Whoever uses them knows that they do not overlap where the run goes.
pub fn find(options: &Options, pool: &Arc<HandlePool>) -> Result<Roots, RunError> {
    let source = options.source.locate(Side::Source, pool)?;
    let replica = options.replica.locate(Side::Replica, pool)?;
    match (source, replica) {
        (Place::Missing { .. }, _) => Err(RunError::NoSource(options.source.to_string())),
        (Place::Dir(source), replica) => open_trees(options, source, replica),
        (Place::Entry { parent, name, meta }, replica) => open_entries(options, (parent, name, meta), replica),
    }
}

fn open_trees(options: &Options, source: DirRef, replica: Place) -> Result<Roots, RunError> {
    let replica = match replica {
        Place::Dir(dir) => Replica::There(dir),
        Place::Missing { parent, name } => Replica::Missing(parent, name),
        Place::Entry { meta, .. } => return Err(other_type(options, Kind::Dir, meta.kind, String::new())),
    };
    Ok(Roots::Trees { source, replica })
}

fn open_entries(options: &Options, source: (DirRef, CString, Meta), replica: Place) -> Result<Roots, RunError> {
    let (dir, name, meta) = source;
    let replica = match replica {
        Place::Missing { parent, name } => (parent, name),
        Place::Entry { parent, name, meta: there } if there.kind == meta.kind => (parent, name),
        Place::Entry { meta: there, .. } => return Err(other_type(options, meta.kind, there.kind, String::new())),
        Place::Dir(_) => {
            let meant = options.replica.at(options.replica.path.join(std::ffi::OsStr::from_bytes(name.to_bytes())));
            return Err(other_type(options, meta.kind, Kind::Dir, format!(", such as \"{meant}\"")));
        }
    };
    Ok(Roots::Entries { source: (dir, name), replica })
}

fn other_type(options: &Options, source: Kind, replica: Kind, hint: String) -> RunError {
    RunError::OtherType { source_kind: source.phrase(), replica_kind: replica.phrase(), path: options.replica.to_string(), hint }
}
