//! Entries that the replica does not have: made anew, or linked to an earlier copy.

use super::Ready;
use crate::sync::entry::{Intent, Met, Reconciled, Verdict};
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use driftless_model::{Act, Action, Entry, Fault, Kind, Side, Unkept, What, errno};
use driftless_mover::{Moved, Opened, Spot, Trouble, kind_changed};
use driftless_reconcile::{Step, decide, opens_more};
use driftless_tree::DirRef;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Worker<'_> {
    /// The short way for a file in a new directory: nothing to compare with, and one look through
    /// the open file.
    pub(super) fn new_file(&mut self, visit: &Arc<Visit>, name: &CStr, weight: u64) -> Reconciled {
        if self.submit_fetch_new(visit, name, weight) {
            return Ok(Verdict::Submitted);
        }
        let opened = visit.spot(name).open()?;
        self.new_opened(visit, name, weight, opened)
    }

    /// A file in a new directory that is open, or at hand.
    pub fn new_opened(
        &mut self,
        visit: &Arc<Visit>,
        name: &CStr,
        weight: u64,
        opened: Opened,
    ) -> Reconciled {
        if opened.meta.kind != Kind::File {
            return Err(Trouble::Vanished);
        }
        if let Some(reason) = self.unwanted(&opened.meta) {
            return Ok(Verdict::Skipped(reason));
        }
        let meta = opened.meta;
        self.grouped(
            Met {
                visit,
                name,
                meta: &meta,
                leads: false,
                whole: None,
                weight,
            },
            Some(opened),
        )
    }

    pub(super) fn create(&mut self, met: Met<'_>, opened: Option<Opened>) -> Reconciled {
        let Met {
            visit, name, meta, ..
        } = met;
        let intent = Intent::new(Action::Create, What::default(), meta);
        if let Some(basis) = visit.basis.as_ref().filter(|_| meta.kind == Kind::File)
            && let Some(verdict) = self.link_basis(met, basis)?
        {
            return Ok(verdict);
        }
        if !self.run.options.applies() {
            return Ok(Verdict::Changed(
                intent,
                Moved {
                    unkept: meta.unkept,
                    ..Moved::default()
                },
            ));
        }
        if meta.kind == Kind::File {
            return self.make_file(met, opened, None, intent);
        }
        let source = self.source_entry(visit, name, meta)?;
        self.make(met, &source, Ready::default(), intent)
    }

    /// Links to the file of an earlier copy, if that is equal in everything, and opens nothing by what
    /// is not kept.
    fn link_basis(
        &mut self,
        Met {
            visit, name, meta, ..
        }: Met<'_>,
        basis: &DirRef,
    ) -> Result<Option<Verdict>, Trouble> {
        let Ok(earlier) = basis.look(name) else {
            return Ok(None);
        };
        let source = self.source_entry(visit, name, meta)?;
        let basis_entry = Entry {
            meta: earlier,
            xattrs: basis
                .xattrs_of(name, &self.run.options.policy.keep)
                .unwrap_or_default(),
        };
        let attainable = self
            .run
            .attainable_entry(&source, &basis_entry, Some(basis));
        let equal = decide(
            &attainable,
            &basis_entry,
            &self.run.basis_rules_in(visit),
            true,
        );
        let keep = &self.run.options.policy.keep;
        let own = visit.replica.as_ref().map_or(0, |replica| replica.user().0);
        let opens = opens_more(&source, &basis_entry, keep, own);
        if equal != Step::Same || opens || !self.claim_basis(&earlier, meta)? {
            return Ok(None);
        }
        let intent = Intent::new(Action::Link, What::default(), meta);
        if !self.run.options.applies() {
            return Ok(Some(Verdict::Changed(
                intent,
                Moved {
                    unkept: meta.unkept,
                    ..Moved::default()
                },
            )));
        }
        let made = self
            .mover
            .make_link(&visit.touched_spot(name), (&**basis, name), earlier.id());
        Ok(made.ok().map(|moved| Verdict::Changed(intent, moved)))
    }

    pub(super) fn make(
        &mut self,
        met: Met<'_>,
        source: &Entry,
        ready: Ready,
        intent: Intent,
    ) -> Reconciled {
        if !self.run.options.applies() {
            return Ok(Verdict::Changed(intent, Moved::default()));
        }
        if source.meta.kind == Kind::File {
            return self.make_file(met, ready.opened, ready.patch, intent);
        }
        self.run.refuse_append_only(met.visit)?;
        let spot = Spot {
            room: intent.room,
            stood: intent.stood,
            ..met.visit.touched_spot(met.name)
        };
        let target = if source.meta.kind == Kind::Symlink {
            Some(
                spot.source
                    .read_link(spot.source_name)
                    .map_err(kind_changed)?,
            )
        } else {
            None
        };
        if self.submit_special(&met, source, target.as_deref(), &intent) {
            return Ok(Verdict::Submitted);
        }
        let moved = self.mover.make_special(&spot, source, target.as_deref())?;
        Ok(Verdict::Changed(intent, moved))
    }
}

impl Run<'_> {
    /// In a directory that is append-only, an unfinished entry can be made, and neither be given
    /// its name nor be removed (chattr(1)): once one was met, nothing more is made in such a
    /// directory.
    pub fn refuse_append_only(&self, visit: &Visit) -> Result<(), Trouble> {
        if !self.ground.has_append_only.load(Relaxed) {
            return Ok(());
        }
        let dir = visit.replica.as_ref().filter(|_| !visit.is_fresh());
        let meta = dir.map(|dir| dir.meta()).transpose()?;
        match meta.is_some_and(|meta| meta.unkept.has(Unkept::APPEND_ONLY)) {
            false => Ok(()),
            true => Err(Trouble::Failed(Fault {
                side: Side::Replica,
                act: Act::Rename,
                errno: errno::EPERM,
            })),
        }
    }
}
