//! Mirrors one behind the other that would close a ring are not begun, and end where one was closed
//! behind them.
//!
//! The mark of a replica says which trees lead to it. It is read of the source whenever the roots
//! are looked at, and written to the replica's own mark with what leads to the source.

use crate::options::Options;
use crate::trees::changes::Changes;
use crate::trees::error::RunError;
use driftless_model::Side;
use driftless_pool::descriptors;
use driftless_reconcile::{Mark, ring, upstream_by};
use driftless_tree::{DirMutRef, DirRef, Done, HandlePool, Place};

/// The tree that is asked what leads to it: the source, or what the source is a snapshot of.
pub struct Origin(DirRef);

impl Origin {
    /// That of a run, where it is asked for and is there.
    pub fn of(options: &Options, source: &DirRef) -> Option<Origin> {
        let from = options.comes_from.as_ref()?;
        let is_source = from.host.is_none() == options.source.host.is_none()
            && from.to_bytes() == options.source.to_bytes();
        if is_source {
            return Some(Origin(source.clone()));
        }
        let pool = HandlePool::new(descriptors().0);
        match from.locate(Side::Source, &pool) {
            Ok(Place::Dir(dir)) => Some(Origin(dir)),
            _ => None,
        }
    }

    /// The birthmark of its root.
    pub fn birthmark(&self) -> Done<Option<u128>> {
        self.0.birthmark()
    }

    /// What leads to a replica that is filled from it; `None` if that cannot be seen now.
    fn upstream(&self) -> Option<Vec<u128>> {
        let texts = self.0.marks(false).ok()?;
        // What is no mark of ours says nothing of a source: it is a file of its user.
        let marks = texts.iter().filter_map(|found| Mark::decode(&found.text));
        let mark = marks.reduce(|mut mark, other| {
            mark.take_over(other);
            mark
        });
        Some(upstream_by(mark.as_ref(), self.0.birthmark().ok()?))
    }
}

/// Refuses a replica that leads to its own source, and has the mark of any other say what leads to
/// it. `identity` is that of the replica's mark; without `changes` the mark is another's to write.
///
/// # Errors
/// There is a ring.
pub fn refuse_ring(
    options: &Options,
    origin: Option<&Origin>,
    (root, identity): (&DirMutRef, u128),
    changes: Option<&Changes>,
) -> Result<(), RunError> {
    let Some(upstream) = origin.and_then(Origin::upstream) else {
        return Ok(());
    };
    let birthmark = root.birthmark().ok().flatten();
    let own: Vec<u128> = birthmark.into_iter().chain([identity]).collect();
    if let Some(mirrors) = ring(&upstream, &own) {
        return Err(RunError::Ring {
            path: options.replica.to_string(),
            source_path: options.source.to_string(),
            mirrors,
        });
    }
    if let Some(changes) = changes.filter(|_| options.applies()) {
        changes.tell_upstream(&upstream);
    }
    Ok(())
}
