//! Renames of the source are carried out on the replica.

use super::{Hands, Outcome};
use crate::gathered::Silent;
use crate::herald::New;
use driftless_engine::{Renamed, RunError, Trees};
use driftless_model::{self as model, Policy, RelPath, Scope, Selection};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl Hands {
    /// Renames what was renamed, in order.
    pub(super) fn relocate(
        &self,
        (trees, policy): (&Trees, &Policy),
        outcome: &mut Outcome,
        stop: &AtomicBool,
    ) -> Result<(), RunError> {
        let moves = std::mem::take(&mut outcome.taken.moves);
        let done = moves.iter().enumerate().try_for_each(|(index, one)| {
            let goes_on = moves[index + 1..]
                .iter()
                .any(|later| one.to.is_within(&later.from));
            let renamed = Renamed {
                from: one.from.clone(),
                to: one.to.clone(),
                is_dir: one.is_dir,
                goes_on,
            };
            let is_done = trees.relocate(&renamed, policy)?
                || self.make_room((trees, policy), (&renamed, outcome), stop)?
                    && trees.relocate(&renamed, policy)?;
            if !is_done {
                outcome.not_moved.push(one.clone());
            } else if self.tells {
                outcome.news.all.push(New::moved(one));
            }
            Ok(())
        });
        outcome.taken.moves = moves;
        done
    }

    /// Makes the directory that something was renamed into, which may be as new as the rename;
    /// false if it was there.
    fn make_room(
        &self,
        (trees, policy): (&Trees, &Policy),
        (renamed, outcome): (&Renamed, &mut Outcome),
        stop: &AtomicBool,
    ) -> Result<bool, RunError> {
        let Some((dir, _)) = renamed.to.split_last().filter(|(dir, _)| !dir.is_root()) else {
            return Ok(false);
        };
        let work = model::Work {
            path: dir.clone(),
            scope: Scope::Entry,
        };
        let selection = Arc::new(Selection::of(&[work]));
        // Its problems are told when it is looked at by itself.
        let summary = trees.reconcile(&selection, policy, &Silent, stop)?;
        let is_made = summary.counts.changed > 0;
        if is_made && self.tells {
            outcome.news.all.extend(way_to(dir).map(New::dir));
        }
        Ok(is_made)
    }
}

/// A directory and those that it stands in, from the top on.
fn way_to(dir: RelPath) -> impl Iterator<Item = RelPath> {
    let mut way: Vec<RelPath> = dir.above().filter(|above| !above.is_root()).collect();
    way.reverse();
    way.push(dir);
    way.into_iter()
}
