//! What the filters protect on the replica, and the source has under another spelling.
//!
//! Rules mind case and Unicode form. Where the replica's file system does not, a name that they
//! take may be that of something which they leave out: it would be overwritten, or all below it
//! deleted. So the rules are asked about the replica's spelling, too, and what they protect stays;
//! that the source's entry cannot be copied is a problem of its path. This has to be known before
//! the first entry of a directory is made equal.

use crate::sync::protected::Spelt;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::trees::folding::{in_other_case, seen};
use driftless_model::{Class, Kind, escape};
use driftless_mover::Trouble;
use driftless_tree::{DirMutRef, Done, Names, windows};
use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

impl Worker<'_> {
    /// Looks through the replica's directory for what is protected under another spelling than that
    /// of one of the source's names, which are `known`, and with which the index was filled.
    pub fn find_protected(&self, visit: &Visit, known: &Names) {
        let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|_| self.asks_about_spellings(visit))
        else {
            return;
        };
        if let Err(fault) = self.scan_protected(visit, replica, known) {
            self.run.problem(visit.path(), fault, Class::Skip);
        }
    }

    fn scan_protected(&self, visit: &Visit, replica: &DirMutRef, known: &Names) -> Done {
        for theirs in windows(replica)? {
            let theirs = theirs?;
            self.note_protected((visit, replica), known, &theirs);
            if minds_spelling(replica, known, &theirs) {
                break;
            }
        }
        Ok(())
    }

    /// Notes what is protected among names of the replica, and is one with a name of the source in
    /// another spelling.
    pub fn note_protected(
        &self,
        (visit, replica): (&Visit, &DirMutRef),
        known: &Names,
        theirs: &Names,
    ) {
        if !self.asks_about_spellings(visit) {
            return;
        }
        for (name, kind) in (0..theirs.len()).map(|number| theirs.get(number)) {
            for number in self
                .index
                .alike(name.to_bytes(), |number| known.bytes(number))
            {
                let (ours, our_kind) = known.get(number);
                if !self.run.takes(visit, ours, our_kind == Some(Kind::Dir))
                    || !may_be_one(replica, name, ours)
                {
                    continue;
                }
                let is_dir = kind.or_else(|| replica.look(name).ok().map(|meta| meta.kind))
                    == Some(Kind::Dir);
                let spelt = Spelt {
                    theirs: name.into(),
                    spared: !self.run.takes(visit, name, is_dir),
                };
                if spelt.spared || is_dir {
                    visit.protected.names.lock().insert(ours.into(), spelt);
                    visit.protected.any.store(true, Relaxed);
                }
            }
        }
    }

    /// Whether the filters may protect something in the replica's directory.
    fn asks_about_spellings(&self, visit: &Visit) -> bool {
        let options = self.run.options;
        options.policy.filter.has_rules() && !options.policy.delete_excluded && !visit.is_made()
    }

    /// Trouble if what stands at a name of the source is protected under the replica's spelling.
    pub fn spared_as_spelt(&self, visit: &Visit, name: &CStr) -> Result<(), Trouble> {
        let spared = visit.protected.at(name, |spelt| {
            spelt.spared.then(|| escape(spelt.theirs.to_bytes()))
        });
        spared.map_or(Ok(()), |theirs| {
            Err(Trouble::InTheWay(format!(
                "the filters protect what stands there as \"{theirs}\""
            )))
        })
    }
}

/// Whether a name that the replica lists is the one of the source as well. In doubt it is.
fn may_be_one(replica: &DirMutRef, theirs: &CStr, ours: &CStr) -> bool {
    !matches!(seen(replica, (theirs, ours)), Ok(None | Some(false)))
}

/// Whether the replica's directory, which lists the names `theirs`, minds in what the source's
/// names can differ from its own. One name tells it of case; of form only names can that are not
/// ASCII.
fn minds_spelling(replica: &DirMutRef, known: &Names, theirs: &Names) -> bool {
    if !(0..known.len()).all(|number| known.bytes(number).is_ascii()) {
        return false;
    }
    let with_letters = (0..theirs.len())
        .map(|number| theirs.get(number).0)
        .find(|name| in_other_case(name).is_some());
    with_letters.is_some_and(|name| {
        in_other_case(name)
            .is_some_and(|other| matches!(seen(replica, (name, &other)), Ok(Some(false))))
    })
}
