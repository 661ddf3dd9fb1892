//! Looking again at what was changed, where others change the replica at the same time.
//!
//! Another process may have looked at the source before it changed, and give its entry the name
//! after this one did. So whoever has changed something on the replica looks at both trees once
//! more, until a look finds nothing to change: then whoever was last to change an entry has seen
//! the source after that. docs/internals/mirror.md has the argument.

use super::{Ended, Hands, Outcome, chosen};
use crate::gathered::Gathered;
use driftless_engine::{RunError, Trees, now};
use driftless_model::{
    Act, Action, Class, Level, Policy, Problem, RelPath, Scope, Selection, Side, Stamp, Work,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An entry that is changed again so often is tried again later.
const ROUNDS_MAX: usize = 8;
/// A file that was written so short before it was read may have been written again without a later
/// time: that is longer than a tick of a file system's clock, and than the clocks of hosts differ.
const YOUNG_SECONDS: i64 = 1;

/// What is to be looked at again.
#[derive(Default)]
struct Again {
    works: BTreeMap<RelPath, Scope>,
    /// Files whose content was made, and whose times may not tell that it was written again.
    young: BTreeSet<RelPath>,
}

impl Again {
    fn add(&mut self, path: RelPath, scope: Scope) {
        let known = self.works.entry(path).or_insert(scope);
        *known = (*known).max(scope);
    }

    /// What a look has changed, or tried to, with the directories around it: their times were
    /// disturbed by that.
    fn of(gathered: &Gathered, trees: &Trees, began: Stamp) -> Again {
        let mut again = Again::default();
        let is_young = |path: &RelPath| {
            let changed = trees.changed_on_source(path);
            changed.is_some_and(|changed| changed.at.sec >= began.sec - YOUNG_SECONDS)
        };
        for made in gathered.changed.lock().iter() {
            let (path, action) = (&made.path, made.action);
            if matches!(action, Action::Create | Action::Content | Action::Replace)
                && is_young(path)
            {
                again.young.insert(path.clone());
            }
            let scope = match action {
                Action::Delete | Action::Replace => Scope::Subtree,
                _ => Scope::Entry,
            };
            again.add_around(path);
            again.add(path.clone(), scope);
        }
        for problem in gathered.problems.lock().iter() {
            again.add_around(&problem.path);
        }
        again
    }

    fn add_around(&mut self, path: &RelPath) {
        if let Some(dir) = path.above().next() {
            self.add(dir, Scope::Entry);
        }
    }

    fn works(&self) -> Vec<Work> {
        let works = self.works.iter();
        works
            .map(|(path, scope)| Work {
                path: path.clone(),
                scope: *scope,
            })
            .collect()
    }
}

impl Hands {
    /// Looks at what was changed until nothing is changed any more. `began` is when the work did.
    pub(super) fn look_until_equal(
        &self,
        (trees, policy): (&Trees, &Policy),
        outcome: &mut Outcome,
        (gathered, stop): (&Gathered, &AtomicBool),
        began: Stamp,
    ) -> Result<Ended, RunError> {
        let mut again = Again::of(gathered, trees, began);
        if again.works.is_empty() {
            return Ok(Ended::Done);
        }
        if gathered.has_lost_changes() {
            again.works.extend(outcome.works().into_iter().map(pair));
        }
        // An entry that was made by nobody's word may have come and gone beside what was taken.
        for work in outcome.works() {
            again.add_around(&work.path);
        }
        for _ in 0..ROUNDS_MAX {
            let (began, found) = (now(), gathered.of_another_look());
            let young = std::mem::take(&mut again.young);
            let works = again.works();
            let young = works_of(&young);
            for (works, level) in [
                (works, policy.level),
                (young, policy.level.max(Level::Content)),
            ] {
                let policy = Policy {
                    level,
                    ..policy.clone()
                };
                let end = Self::look((trees, &policy), &works, outcome, (&found, stop))?;
                if end != Ended::Done {
                    return Ok(end);
                }
            }
            again = Again::of(&found, trees, began);
            gathered.take_in(&found);
            if again.works.is_empty() {
                return Ok(Ended::Done);
            }
        }
        let changing = |path: &RelPath| Problem {
            path: path.clone(),
            side: Side::Source,
            act: Act::CopyConsistent,
            cause: "it keeps changing".into(),
            class: Class::Changing,
        };
        gathered.add_problems(again.works.keys().map(changing));
        Ok(Ended::Done)
    }

    fn look(
        (trees, policy): (&Trees, &Policy),
        works: &[Work],
        outcome: &mut Outcome,
        (found, stop): (&Gathered, &AtomicBool),
    ) -> Result<Ended, RunError> {
        if works.is_empty() {
            return Ok(Ended::Done);
        }
        let selection: Arc<Selection> = Arc::new(chosen::selection(works));
        let summary = trees.reconcile(&selection, policy, found, stop)?;
        outcome.counts.changed += summary.counts.changed;
        outcome.counts.deleted += summary.counts.deleted;
        outcome.counts.bytes_copied += summary.counts.bytes_copied;
        Ok(Self::not_done(&summary, outcome, found).unwrap_or(Ended::Done))
    }
}

fn pair(work: Work) -> (RelPath, Scope) {
    (work.path, work.scope)
}

fn works_of(paths: &BTreeSet<RelPath>) -> Vec<Work> {
    let paths = paths.iter().cloned();
    paths
        .map(|path| Work {
            path,
            scope: Scope::Entry,
        })
        .collect()
}
