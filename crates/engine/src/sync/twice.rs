//! Directories that a tree shows at two places.
//!
//! On the replica, one may be mounted at the other (`mount --bind`).
//!
//! If the source has two directories there, each pass would make the one equal by making the other
//! different. So one of the places is not entered, and that is a problem of its path. Where the run
//! comes to one of them only, there is nothing to tell.
//!
//! On the source, a server that follows links may show a directory in itself, and so without end.

use crate::options::Options;
use crate::sync::visit::Visit;
use crate::trees::overlap::leaves_out;
use driftless_model::RelPath;
use driftless_tree::{DirMutRef, DirRef, Level, descend, descend_mut, shown_twice};
use std::collections::BTreeSet;

/// Why a directory of the replica is not entered.
pub const SHOWN_TWICE: &str = "it is another directory of this replica, which is mounted there, too, and cannot be equal to two; unmount one, or exclude it";

/// Why a directory of the source is not entered.
pub const ENDLESS: &str =
    "it is a directory that it lies in, so it contains itself without end; exclude it";

/// Returns whether a directory of the source contains itself.
pub fn is_endless(parent: &Visit, source: &DirRef) -> bool {
    let above = std::iter::successors(Some(parent), |visit| visit.parent.as_deref());
    Level::of(source).is_endless(above.map(|visit| Level::of(&visit.source)))
}

/// Those of a replica on this host that the run would come to twice.
pub fn doubles(
    options: &Options,
    (source, replica): (&DirRef, Option<&DirMutRef>),
) -> BTreeSet<RelPath> {
    let Some(replica) = replica.filter(|_| options.replica.host.is_none()) else {
        return BTreeSet::new();
    };
    let pairs = shown_twice(&options.replica.plain_path()).into_iter();
    pairs
        .filter(|(at, other)| comes_to(options, source, other) && is_same(replica, at, other))
        .map(|(at, _)| at)
        .collect()
}

/// Whether the run comes to a directory of the source with this path.
fn comes_to(options: &Options, source: &DirRef, path: &RelPath) -> bool {
    !leaves_out(options, &path.names().collect::<Vec<_>>()) && descend(source, path).is_ok()
}

fn is_same(replica: &DirMutRef, one: &RelPath, other: &RelPath) -> bool {
    let id = |path| descend_mut(replica, path).map(|dir| dir.first_meta().id());
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}
