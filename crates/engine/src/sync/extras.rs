//! What a directory of the replica has that the source lacks: it is found while the directory is
//! listed and goes into the plan of deletes. Unfinished entries of earlier runs are found with it.

use crate::shared::unfinished::Unfinished;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use crate::trees::looks::there;
use driftless_model::{Act, Class, Fault, Kind, Side, errno};
use driftless_tree::{
    DirMutRef, Done, NameHashes, Names, ROOT_MARK, is_between_name, is_root_name, is_temp_name,
    windows,
};
use std::ffi::CStr;
use std::sync::Arc;

impl Worker<'_> {
    /// Finds entries of the replica that the source lacks. `known` are all names of the source, if
    /// one window holds them.
    ///
    /// In a second look at a directory, too: what was there in the first may have vanished since.
    pub fn find_extras(&mut self, visit: &Arc<Visit>, known: Option<&Names>) {
        let Some(replica) = visit
            .replica
            .as_ref()
            .filter(|_| self.looks_for_extras(visit))
        else {
            return;
        };
        if visit.is_repeated() {
            self.run.deletes.forget(visit.path());
        }
        if let Err(fault) = self.scan_extras(visit, replica, known) {
            self.run.problem(visit.path(), fault, Class::Skip);
        }
    }

    /// Whether the source lacks a chosen name now; then the name goes into the plan of deletes if
    /// the replica has it, unless nothing is deleted. Where the source does not tell, the answer is no: the name is met
    /// like any other, and what fails is told then.
    pub fn is_gone(&mut self, visit: &Arc<Visit>, name: &CStr) -> bool {
        let options = self.run.options;
        if !options.removes_chosen
            || is_temp_name(name)
            || visit.is_beside(name)
            || self.run.is_stub(visit)
            || !matches!(there(visit.source.look(name)), Ok(None))
        {
            return false;
        }
        // What the replica has there stays, and that was told.
        if self.run.hides_mount(visit, name) || self.is_shown_otherwise(visit, name) {
            return true;
        }
        let Some(replica) = visit.replica.as_ref().filter(|_| options.policy.delete) else {
            return true;
        };
        let standing = match there(replica.look(name)) {
            Ok(standing) => standing,
            Err(fault) => {
                self.run.problem(visit.path_of(name), fault, Class::Skip);
                return true;
            }
        };
        if standing.is_some_and(|meta| meta.kind == Kind::Dir) && self.keeps_unasked(visit, name) {
            return true;
        }
        if let Some(meta) = standing
            && (options.policy.delete_excluded
                || self.run.takes(visit, name, meta.kind == Kind::Dir))
        {
            add(&self.run.tally.replica_seen, 1);
            self.run.deletes.add(&visit.path(), &[name.into()]);
        }
        true
    }

    /// Whether a directory that is none on the source stays, because only the directory itself was
    /// chosen, or something in it, and the replica has something in it: the source may have renamed
    /// it, and the rename is still to be heard of.
    pub fn keeps_unasked(&mut self, visit: &Visit, name: &CStr) -> bool {
        let chosen = visit.selection.children.get(name.to_bytes());
        let replica = visit.replica.as_ref().expect("it was looked at there");
        if chosen.is_none_or(|chosen| chosen.whole) {
            return false;
        }
        let is_filled = replica.enter(name).and_then(|dir| {
            let mut names = Names::default();
            dir.list()?.fill(&mut names, 1)?;
            Ok(!names.is_empty())
        });
        if is_filled.is_ok_and(|is_filled| is_filled) {
            let fault = Fault {
                side: Side::Replica,
                act: Act::RemoveDirectory,
                errno: errno::ENOTEMPTY,
            };
            self.run
                .problem(visit.path_of(name), fault, Class::Changing);
            return true;
        }
        false
    }

    /// Whether the replica's directory is listed together with the source's.
    pub fn looks_for_extras(&self, visit: &Visit) -> bool {
        !visit.borrowed
            && if visit.pass() == 0 {
                !visit.is_made()
            } else {
                self.run.may_delete(visit)
            }
    }

    /// Finds unfinished entries in a directory that another mover has listed, and looks for nothing
    /// else there.
    pub fn find_leftovers(&mut self, visit: &Arc<Visit>, left: &Unfinished, replica: &DirMutRef) {
        if left.unlisted {
            visit.mark_unlisted();
        }
        if let Err(fault) = self.scan_extras(visit, replica, None) {
            self.run.problem(visit.path(), fault, Class::Skip);
        }
    }

    fn scan_extras(
        &mut self,
        visit: &Arc<Visit>,
        replica: &DirMutRef,
        known: Option<&Names>,
    ) -> Done {
        let windows = windows(replica)?;
        let met = self.run.recall_names(visit);
        for names in windows {
            let names = names?;
            if !visit.is_repeated() {
                add(&self.run.tally.replica_seen, names.len() as u64);
            }
            if let Some(known) = known {
                self.note_protected((visit, replica), known, &names);
            }
            let (mut extras, mut kept) = (Vec::new(), Vec::new());
            for (name, kind) in (0..names.len()).map(|index| names.get(index)) {
                if is_between_name(name) && self.respell_on(visit, name, known)? {
                    continue;
                }
                match self.is_extra((visit, replica), (name, kind), (known, &met)) {
                    // The lock of a replica within this one is its own business.
                    Ok(true) if name == ROOT_MARK => self.run.meet_listed_mark(visit, replica)?,
                    Ok(true) if is_root_name(name) => {}
                    Ok(true) if is_temp_name(name) => visit.leftovers.lock().push(name.into()),
                    Ok(false) if !self.is_kept((visit, replica), (name, kind), (known, &met)) => {}
                    Ok(_) if self.run.hides_mount(visit, name) => {}
                    Ok(true) => extras.push(name.into()),
                    Ok(false) => kept.push(name.into()),
                    Err(fault) => self.run.problem(visit.path_of(name), fault, Class::Skip),
                }
            }
            if !extras.is_empty() {
                self.keep_misspelt(visit, (known, &names), &mut extras)?;
            }
            if !extras.is_empty() {
                self.run.deletes.add(&visit.path(), &extras);
            }
            if !kept.is_empty() && !visit.is_repeated() {
                let misspelt = self.misspelt(visit, (known, &names), &kept)?;
                add(
                    &self.run.tally.only_on_replica,
                    (kept.len() - misspelt.len()) as u64,
                );
                self.note_doubt_of_kept((visit, replica), &kept);
            }
        }
        Ok(())
    }

    /// Whether an entry of the replica is to go. Nothing goes on doubt: a look that fails for
    /// another reason than absence is a fault.
    fn is_extra(
        &self,
        (visit, replica): (&Arc<Visit>, &DirMutRef),
        (name, kind): (&CStr, Option<Kind>),
        (known, met): (Option<&Names>, &NameHashes),
    ) -> Done<bool> {
        // Entries of the source that have such a name are not copied, so this is none of theirs.
        if is_temp_name(name) {
            return Ok(true);
        }
        if !self.run.may_delete(visit) {
            return Ok(false);
        }
        if self.run.options.policy.filter.has_rules() {
            let Some(kind) = kind_there(replica, name, kind)? else {
                return Ok(false);
            };
            if !self.run.takes(visit, name, kind == Kind::Dir) {
                return Ok(self.run.options.policy.delete_excluded
                    && !self.is_taken_otherwise(visit, name, known)?);
            }
        }
        match known {
            Some(known) => Ok(!self.indexes(known, name)),
            None => Ok(!met.contains(name) && there(visit.source.look(name))?.is_none()),
        }
    }

    /// Whether the rules take what the source has at this name, which is of another kind than the
    /// replica's entry that they leave out: then it takes that entry's place.
    fn is_taken_otherwise(
        &self,
        visit: &Arc<Visit>,
        name: &CStr,
        known: Option<&Names>,
    ) -> Done<bool> {
        if known.is_some_and(|known| !self.indexes(known, name)) {
            return Ok(false);
        }
        Ok(there(visit.source.look(name))?
            .is_some_and(|meta| self.run.takes(visit, name, meta.kind == Kind::Dir)))
    }
}

/// The kind of an entry, which not every file system tells in a listing; `None` if it is gone.
fn kind_there(dir: &DirMutRef, name: &CStr, listed: Option<Kind>) -> Done<Option<Kind>> {
    listed.map_or_else(
        || Ok(there(dir.look(name))?.map(|meta| meta.kind)),
        |kind| Ok(Some(kind)),
    )
}
