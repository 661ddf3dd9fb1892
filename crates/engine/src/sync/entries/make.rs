//! Entries that the replica does not have, made anew or linked to an earlier copy, and those that
//! get other attributes.

use super::Ready;
use crate::sync::entry::{Intent, Met, Pair, Reconciled, Verdict};
use crate::sync::files::LARGE_BYTES;
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use driftless_model::{Act, Action, Entry, Fault, Kind, Level, Meta, Side, Unkept, What, errno};
use driftless_mover::{Compared, Comparison, Moved, Opened, Spot, Trouble, kind_changed};
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
        let Met { visit, meta, .. } = met;
        if let Some(basis) = visit.basis.as_ref().filter(|_| meta.kind == Kind::File)
            && let Some(verdict) = self.link_basis(met, basis)?
        {
            return Ok(verdict);
        }
        self.copy_new(met, opened)
    }

    /// Makes an entry that the replica lacks from the source's.
    fn copy_new(&mut self, met: Met<'_>, opened: Option<Opened>) -> Reconciled {
        let Met {
            visit, name, meta, ..
        } = met;
        let intent = Intent::new(Action::Create, What::default(), meta);
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
    /// is not kept. With `--checksum`, or where what is written is read back, its content is read
    /// first.
    fn link_basis(&mut self, met: Met<'_>, basis: &DirRef) -> Result<Option<Verdict>, Trouble> {
        let Met {
            visit, name, meta, ..
        } = met;
        let Ok(earlier) = basis.look(name) else {
            return Ok(None);
        };
        let replica = Entry {
            meta: earlier,
            xattrs: basis
                .xattrs_of(name, &self.run.options.policy.keep)
                .unwrap_or_default(),
        };
        let pair = Pair {
            source: self.source_entry(visit, name, meta)?,
            replica,
            targets: None,
        };
        let attainable = self
            .run
            .attainable_entry(&pair.source, &pair.replica, Some(basis));
        let rules = self.run.basis_rules_in(visit);
        let own = visit.replica.as_ref().map_or(0, |replica| replica.user().0);
        if opens_more(&pair.source, &pair.replica, &rules.keep, own) {
            return Ok(None);
        }
        match decide(&attainable, &pair.replica, &rules, true) {
            Step::Same => self.link_earlier(met, basis, &earlier),
            Step::CompareContent(what)
                if what.is_empty() && rules.checksum && !rules.suspects(&earlier) =>
            {
                self.compare_basis(met, basis, pair)
            }
            _ => Ok(None),
        }
    }

    /// Reads the source's file and the one of the earlier copy, and links to that if their content
    /// is the same. Returns `None` if the file is to be copied.
    fn compare_basis(
        &mut self,
        met: Met<'_>,
        basis: &DirRef,
        pair: Pair,
    ) -> Result<Option<Verdict>, Trouble> {
        let Ok(earlier) = basis.open_file(met.name) else {
            return Ok(None);
        };
        let source = if self.run.options.applies() {
            self.mover.open(&Spot {
                only: met.only(),
                ..met.visit.spot(met.name)
            })?
        } else {
            Opened::of(&*met.visit.source, met.name, met.only())?
        };
        // A source that does not come to rest is copied, as it is without an earlier copy.
        if source.young || !source.meta.unchanged(met.meta) {
            return Ok(None);
        }
        let level = self.run.options.policy.read_back.unwrap_or(Level::Content);
        let comparison = match Comparison::with_copy(source, Some(earlier.into()), level) {
            Err(trouble) if is_of_copy(&trouble) => return Ok(None),
            comparison => comparison?,
        };
        if met.meta.size >= LARGE_BYTES {
            let differs = (pair, What::default());
            self.begin_compare(met, comparison, differs, Some(basis.clone()));
            return Ok(Some(Verdict::Large));
        }
        let content = self.mover.compare_all(&comparison);
        add(&self.run.tally.bytes_compared, met.meta.size);
        if is_same(&content)? {
            self.link_earlier(met, basis, &pair.replica.meta)
        } else {
            Ok(None)
        }
    }

    /// Does what follows when a large file was compared with the one of the earlier copy.
    pub fn compared_basis(
        &mut self,
        met: Met<'_>,
        basis: &DirRef,
        pair: &Pair,
        content: Result<Compared, Trouble>,
    ) -> Reconciled {
        if is_same(&content)?
            && let Some(verdict) = self.link_earlier(met, basis, &pair.replica.meta)?
        {
            return Ok(verdict);
        }
        self.copy_new(met, None)
    }

    /// Links to the file of the earlier copy, which is equal. Returns `None` if that cannot be.
    fn link_earlier(
        &mut self,
        Met {
            visit, name, meta, ..
        }: Met<'_>,
        basis: &DirRef,
        earlier: &Meta,
    ) -> Result<Option<Verdict>, Trouble> {
        if !self.claim_basis(earlier, meta)? {
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

    /// Sets attributes of an entry that stays otherwise as it is.
    pub(super) fn set_meta(
        &mut self,
        visit: &Arc<Visit>,
        name: &CStr,
        pair: &Pair,
        intent: Intent,
    ) -> Reconciled {
        if !self.run.options.applies() {
            return Ok(Verdict::Changed(intent, Moved::default()));
        }
        visit.narrow();
        let moved = self
            .mover
            .set_meta(&visit.spot(name), &pair.source, &pair.replica.meta)?;
        Ok(Verdict::Changed(
            intent,
            Moved {
                unkept: Run::unkept_between(&pair.source, &pair.replica.meta),
                ..moved
            },
        ))
    }
}

/// Whether reading the file of an earlier copy failed, which then is not linked to.
fn is_of_copy(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Failed(fault) if fault.side == Side::Replica && !fault.is_cut_off())
}

/// Whether a file of an earlier copy, whose content was compared, is the source's. One that cannot
/// be read is not.
fn is_same(content: &Result<Compared, Trouble>) -> Result<bool, Trouble> {
    match content {
        Ok(content) => Ok(content.differs.is_empty()),
        Err(trouble) if is_of_copy(trouble) => Ok(false),
        Err(trouble) => Err(trouble.clone()),
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
