//! A replica that is looked at without its source, which may be out of reach for good.

use crate::options::Options;
use crate::trees::error::RunError;
use crate::trees::locks::hold;
use crate::trees::marks::Marks;
use crate::trees::numbers::boot_of;
use crate::trees::precautions::require_in;
use driftless_model::{Fault, Side, Stamp};
use driftless_pool::descriptors;
use driftless_reconcile::{Mark, Scope};
use driftless_tree::{HandlePool, Names, Place, random_id};

/// What a run looks at that looks at nothing.
const NOBODY: Scope = Scope {
    source: 0,
    entries: 0,
    whole: false,
};

/// What can be seen of a replica alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alone {
    /// There is nothing in it.
    pub is_empty: bool,
    /// Which replica it is, by its mark; none that a run has filled, if it has none.
    pub identity: Option<u128>,
    /// Run that has changed it last.
    pub run: Option<u128>,
    /// What was changed since then may not be durable.
    pub doubt: Option<Stamp>,
    /// Since when its mark says that it is the active side of its job, in seconds since 1970.
    pub active: Option<i64>,
}

/// Looks at the replica; nothing is changed, and the source is not asked for.
///
/// # Errors
/// It is not there, is no directory, or cannot be read.
pub fn look_alone(options: &Options) -> Result<Alone, RunError> {
    let unusable = |fault: Fault| RunError::Unusable {
        path: options.replica.to_string(),
        cause: fault.to_string(),
    };
    let pool = HandlePool::new(descriptors().0);
    let dir = match options.replica.locate(Side::Replica, &pool)? {
        Place::Dir(dir) => dir,
        Place::Missing { .. } => return Err(RunError::NoReplica(options.replica.to_string())),
        Place::Entry { .. } => return Err(RunError::NotTrees(options.replica.to_string())),
    };
    let mut names = Names::default();
    let listed = dir.list().and_then(|mut list| list.fill(&mut names, 1));
    listed.map_err(unusable)?;
    let marks = Marks::read(&options.replica, &dir, NOBODY)?;
    let doubt = marks.doubt((0, boot_of(&options.replica)));
    let own = marks.own.as_ref().filter(|mark| mark.run != 0);
    Ok(Alone {
        identity: own.map(|mark| mark.identity),
        run: own.map(|mark| mark.run),
        is_empty: names.is_empty(),
        doubt: doubt.map(|(_, since)| since),
        active: marks.own.as_ref().and_then(|mark| mark.active),
    })
}

/// Refuses a replica that lacks what must be there; the source is not asked for.
///
/// # Errors
/// Something that is required is not there, or the replica cannot be looked at.
pub fn require_alone(options: &Options) -> Result<(), RunError> {
    let pool = HandlePool::new(descriptors().0);
    let Place::Dir(dir) = options.replica.locate(Side::Replica, &pool)? else {
        return Err(RunError::NoReplica(options.replica.to_string()));
    };
    let mut required = options.policy.required.iter();
    required.try_for_each(|path| require_in(&dir, Side::Replica, path))
}

/// Has the mark of the replica say since when it is the active side of its job, in seconds since
/// 1970, or that it is not; durably.
///
/// # Errors
/// A run is at work there, or the mark cannot be written.
pub fn declare_active(options: &Options, since: Option<i64>) -> Result<(), RunError> {
    let unusable = |fault: Fault| RunError::Unusable {
        path: options.replica.to_string(),
        cause: fault.to_string(),
    };
    let pool = HandlePool::new(descriptors().0);
    let Place::Dir(dir) = options.replica.locate_mut(&pool)? else {
        return Err(RunError::NoReplica(options.replica.to_string()));
    };
    let _held = hold(options, &dir, None)?;
    let mark = Marks::read_own(&dir, NOBODY).map_err(unusable)?;
    let mark = mark.unwrap_or_else(|| Mark::new(random_id()));
    if mark.active != since {
        let mark = Mark {
            active: since,
            ..mark
        };
        dir.set_mark(&mark.encode(), true).map_err(unusable)?;
    }
    Ok(())
}

/// Refuses a replica at which another run is at work, as far as its locks tell; nothing is held
/// afterwards.
///
/// # Errors
/// A run is at work there, or it cannot be looked at.
pub fn refuse_busy(options: &Options) -> Result<(), RunError> {
    let pool = HandlePool::new(descriptors().0);
    match options.replica.locate_mut(&pool)? {
        Place::Dir(dir) => hold(options, &dir, None).map(drop),
        _ => Err(RunError::NoReplica(options.replica.to_string())),
    }
}
