//! What marks within the replica, and within an earlier copy, say of the directories that a run
//! comes to.

use crate::sync::nested::{NESTED_MAX, Nested};
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::trees::marks::{earliest, tell_basis, told_as_one};
use crate::trees::numbers::{boot_of, source_number};
use driftless_model::{Stamp, escape};
use driftless_reconcile::{Ending, Rules, Scope};
use driftless_tree::{DirMutRef, DirRef, Done, ROOT_MARK};

impl Run<'_> {
    /// How entries of a directory are compared.
    pub fn rules_in(&self, visit: &Visit) -> Rules {
        Rules {
            suspect_since: earliest(self.rules.suspect_since, visit.suspect_since()),
            ..self.rules
        }
    }

    /// Returns how entries of its earlier copy are compared. A run that reads back what it writes
    /// reads the files that it links to, too.
    pub fn basis_rules_in(&self, visit: &Visit) -> Rules {
        Rules {
            suspect_since: earliest(self.basis_since, visit.doubt.basis),
            checksum: self.rules.checksum || self.options.policy.read_back.is_some(),
            ..self.rules
        }
    }

    /// Takes notice of the marks that a directory has, as its attributes show, which were read when
    /// it was entered.
    pub fn meet_marks(&self, visit: &mut Visit) -> Done {
        if let Some(replica) = visit
            .replica
            .clone()
            .filter(|replica| !visit.is_made() && replica.is_marked())
        {
            visit.doubt.replica =
                earliest(visit.doubt.replica, self.doubt_within(visit, &replica)?);
        }
        if let Some(basis) = visit.basis.clone() {
            match self.doubt_of_basis_dir(&basis) {
                Ok(None) => {}
                Ok(doubt) if visit.doubt.basis.is_some() || self.basis_since.is_some() => {
                    visit.doubt.basis = earliest(visit.doubt.basis, doubt)
                }
                Ok(doubt) => {
                    tell_basis(&escape(visit.path().as_bytes()), self.monitor);
                    visit.doubt.basis = doubt;
                }
                // A copy of which this cannot be told is not linked to.
                Err(_) => visit.basis = None,
            }
        }
        Ok(())
    }

    /// Takes notice of a mark that is a file, if a directory has one, before a part of its entries
    /// is compared.
    pub fn look_for_mark(&self, visit: &Visit) -> Done {
        let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|_| visit.parent.is_some() && !visit.is_made())
        else {
            return Ok(());
        };
        match replica.look(ROOT_MARK) {
            Ok(_) => self.meet_listed_mark(visit, replica),
            Err(fault) if fault.is_missing() => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Takes notice of a mark that a listing of the replica has shown.
    pub fn meet_listed_mark(&self, visit: &Visit, replica: &DirMutRef) -> Done {
        if visit.parent.is_some()
            && let Some(since) = self.doubt_within(visit, replica)?
        {
            visit.doubt_listed(since);
        }
        Ok(())
    }

    fn doubt_within(&self, visit: &Visit, dir: &DirMutRef) -> Done<Option<Stamp>> {
        let (path, texts) = (visit.path(), dir.marks(false)?);
        let scope = Scope {
            source: source_number(self.options, &path),
            entries: 0,
            whole: true,
        };
        let Some(mark) = told_as_one(&texts, scope).filter(|mark| !mark.unsettled.is_empty())
        else {
            return Ok(None);
        };
        let since = mark.suspect_since(0, boot_of(&self.options.replica));
        let mut nested = self.nested.0.lock();
        if since.is_some() && nested.is_empty() {
            let path = escape(path.as_bytes());
            let what = "what was changed there since then is compared by content";
            self.monitor.note(&format!(
                "an earlier run was not made durable, on \"{path}\" in the replica: {what}"
            ));
        }
        if nested.len() < NESTED_MAX {
            nested.insert(
                path,
                Nested {
                    dir: dir.clone(),
                    texts,
                    mark,
                },
            );
        }
        Ok(since)
    }

    fn doubt_of_basis_dir(&self, basis: &DirRef) -> Done<Option<Stamp>> {
        basis.xattrs(&self.options.policy.keep)?;
        if !basis.is_marked() {
            return Ok(None);
        }
        let mark = told_as_one(
            &basis.marks(false)?,
            Scope {
                source: 0,
                entries: 0,
                whole: false,
            },
        );
        Ok(mark.and_then(|mark| mark.suspect_since(0, boot_of(&self.options.replica))))
    }

    /// Says in the marks of replicas within the replica that what this run has compared, now that
    /// it has come to `ending`, is in doubt no longer.
    pub fn settle_nested(&self, ending: &Ending) {
        let nested = std::mem::take(&mut *self.nested.0.lock());
        // What rules leave out is another thing in each directory.
        for (path, nested) in nested.into_iter().filter(|_| ending.scope.whole) {
            let scope = Scope {
                source: source_number(self.options, &path),
                ..ending.scope
            };
            let now = (0, boot_of(&self.options.replica));
            let mark = nested.mark.settled(None, now, &Ending { scope, ..*ending });
            if mark != nested.mark {
                let _it_says_more_than_it_must_if_that_fails = nested.write(&mark);
            }
        }
    }
}
