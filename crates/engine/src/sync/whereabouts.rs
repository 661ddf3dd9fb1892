//! Whether what was made equal is what its name leads to when the run is over.
//!
//! A run works on the directories that it has opened, wherever they are moved meanwhile. Who then
//! finds another one at the path of either tree, or none, must not read that all is equal.

use crate::sync::run::Run;
use driftless_model::{Act, Class, Fault, Meta, RelPath, Side, errno};
use driftless_reconcile::{Agreement, mtimes};
use driftless_tree::{Dir, Done, Endpoint, HandlePool, Place, leads_to};
use std::sync::Arc;

/// What a root is like now, if its path still leads to it.
pub fn where_it_was<D: Dir + ?Sized>(side: Side, path: &Endpoint, root: &Arc<D>) -> Option<Meta> {
    match path.locate(side, &HandlePool::new(1)) {
        Ok(Place::Dir(now)) if now.first_meta().id() == root.first_meta().id() => {
            Some(*now.first_meta())
        }
        _ => None,
    }
}

impl Run<'_> {
    /// A fault if the path of a source on this host leads to another directory by now, or to none:
    /// then what is missed there proves nothing. A snapshot that somebody deletes loses what is in
    /// it bit by bit, while its directories can still be listed.
    pub fn prove_source(&self) -> Done {
        let (path, root) = (&self.options.source, &self.roots.0);
        if path.host.is_some() || self.is_single {
            return Ok(());
        }
        match leads_to(&path.path, root.first_meta().id()) {
            true => Ok(()),
            false => Err(Fault {
                side: Side::Source,
                act: Act::FindAgain,
                errno: errno::ESTALE,
            }),
        }
    }

    /// Looks once more where the paths of both roots lead to, and reports what is not as the run
    /// leaves it.
    pub fn look_again_at_roots(&self) {
        // What is known of a single file is the directory that it is in.
        if self.stopped() || self.is_single {
            return;
        }
        // The next run compares with what is there now.
        let _is_there = self.find_again(
            Side::Source,
            &self.options.source,
            &self.roots.0,
            Class::Changing,
        );
        let found = self.roots.1.as_ref().and_then(|root| {
            self.find_again(Side::Replica, &self.options.replica, root, Class::Skip)
        });
        found.iter().for_each(|now| self.report_touched(now));
    }

    /// What a root is like now, if its path still leads to it. That it does not is a problem of
    /// this class.
    fn find_again<D: Dir + ?Sized>(
        &self,
        side: Side,
        path: &Endpoint,
        root: &Arc<D>,
        class: Class,
    ) -> Option<Meta> {
        match where_it_was(side, path, root) {
            Some(now) => return Some(now),
            None if path.lost().is_some() => {}
            None => self.problem(
                RelPath::root(),
                Fault {
                    side,
                    act: Act::FindAgain,
                    errno: errno::ESTALE,
                },
                class,
            ),
        }
        None
    }

    /// A lock and a mark that are files touch the time of their directory, and only its owner and
    /// root can put it back (utimensat(2)).
    fn report_touched(&self, now: &Meta) {
        let is_others = self
            .ground
            .rights
            .as_ref()
            .is_some_and(|rights| !rights.any_owner && rights.uid != now.uid);
        if !is_others || !self.options.policy.keep.times || !self.options.applies() {
            return;
        }
        let source = self.roots.0.first_meta();
        if mtimes(source, now, self.options.policy.keep.modify_window) == Agreement::Other {
            self.problem(
                RelPath::root(),
                Fault {
                    side: Side::Replica,
                    act: Act::SetTimes,
                    errno: errno::EPERM,
                },
                Class::Partly,
            );
        }
    }
}
