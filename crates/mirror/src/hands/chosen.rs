//! What of both trees is looked at.

use driftless_model::{RelPath, Scope, Selection, Work};
use std::collections::BTreeSet;

/// The same with the names of each directory that holds some of it: whoever was cut off in the gap
/// may have left unfinished entries there.
pub(super) fn with_names_around(mut works: Vec<Work>) -> Vec<Work> {
    let dirs: BTreeSet<RelPath> = works
        .iter()
        .filter_map(|work| work.path.above().next())
        .collect();
    let names = |path| Work {
        path,
        scope: Scope::Names,
    };
    works.extend(dirs.into_iter().map(names));
    works
}

/// All that was taken, or the whole tree.
pub(super) fn selection(works: &[Work]) -> Selection {
    let is_all = works
        .iter()
        .any(|work| work.path.is_root() && work.scope == Scope::Subtree);
    if is_all {
        Selection::all()
    } else {
        Selection::of(works)
    }
}
