//! Names that are several to the source and one to the replica's file system, which takes no heed
//! of case or Unicode form, or strips dots and spaces at their end.
//!
//! Of names that differ in these alone the first is kept, and each later one is a problem of its
//! path: copied, they would take each other's place in every run. What stands on the replica under
//! another spelling than the source's is given the source's; taken for something that the source
//! lacks, it would be deleted, and with it the only copy.

use crate::sync::entry::{Intent, Verdict};
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use crate::trees::alike::alike_of;
use crate::trees::folding::{Folding, listed, seen, told_by_its_names};
use crate::trees::looks::{believed_twice, there};
use driftless_model::{
    Act, Action, Class, Difference, Fault, Kind, Meta, Problem, Side, What, errno, escape,
};
use driftless_reconcile::{Likeness, fold, likeness};
use driftless_tree::{DirMut, DirMutRef, Done, Names, between_name, temp_name, windows};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Run<'_> {
    /// Whether the two names are one in the replica's directory. Nothing is written to find out
    /// unless one of them is to be made anyway: a dry run judges by the names that are there, or in
    /// the nearest directory above that has any.
    pub fn takes_for_one(
        &self,
        folding: &mut Folding,
        visit: &Visit,
        names: (&CStr, &CStr),
    ) -> bool {
        let likeness = likeness(names.0.to_bytes(), names.1.to_bytes());
        if folding.tells_apart(likeness) {
            return false;
        }
        let is_one = match visit
            .replica
            .as_ref()
            .map(|replica| (replica, seen(replica, names)))
        {
            Some((_, Ok(Some(is_one)))) => Some(is_one),
            Some((replica, _)) if self.options.applies() => probe(visit, replica, names).ok(),
            _ => self.told_by_others(folding, visit, likeness),
        };
        if is_one == Some(false) {
            folding.learn(likeness, names);
        }
        is_one.unwrap_or(false)
    }

    /// Whether names are one that are as like as that, as far as the nearest names of the replica
    /// tell it.
    fn told_by_others(
        &self,
        folding: &mut Folding,
        visit: &Visit,
        likeness: Likeness,
    ) -> Option<bool> {
        let of = |likeness| nearest(self, visit).find_map(|dir| told_by_its_names(dir, likeness));
        *folding
            .judged
            .entry(likeness)
            .or_insert_with(|| match likeness {
                Likeness::Both => Some(of(Likeness::Case)? && of(Likeness::Form)?),
                one => of(one),
            })
    }
}

impl Worker<'_> {
    /// Fills the index with a window of the source's names, and notes which of them differ from an
    /// earlier one in case, form or end alone. Of a directory that another mover has listed, names
    /// that are no work of this run count, too.
    pub fn note_names(&mut self, visit: &Visit, names: &Names) {
        for (later, earlier) in alike_of(&mut self.index, names.len(), |number| names.bytes(number))
        {
            earlier
                .into_iter()
                .for_each(|earlier| self.note_pair(visit, names.get(earlier), names.get(later)));
        }
        if !visit.selection.is_listed() {
            for alike in self.run.part.alike_in(visit) {
                alike
                    .earlier
                    .iter()
                    .for_each(|earlier| visit.namesakes.add((&alike.name).into(), earlier.into()));
            }
        }
    }

    fn note_pair(
        &self,
        visit: &Visit,
        (first, kind): (&CStr, Option<Kind>),
        (later, other_kind): (&CStr, Option<Kind>),
    ) {
        let takes = |name, kind| self.run.takes(visit, name, kind == Some(Kind::Dir));
        if takes(first, kind) && takes(later, other_kind) {
            visit.namesakes.add(later.into(), first.into());
        }
    }

    /// Whether `name` is among the source's names of the window that was listed last, which are
    /// `known`.
    pub fn indexes(&self, known: &Names, name: &CStr) -> bool {
        self.index
            .contains(name.to_bytes(), |number| known.bytes(number))
    }

    /// Reports, once, that the replica takes an entry's name for that of another entry.
    pub fn namesake(&self, visit: &Visit, name: &CStr) -> Option<Verdict> {
        if !visit.namesakes.any.load(Relaxed) {
            return None;
        }
        let earlier = visit.namesakes.later.lock().get(name).cloned()?;
        // One thread at a time: a directory is listed by one alone.
        let mut folding = visit.namesakes.folding.lock();
        let first = earlier
            .iter()
            .find(|first| self.run.takes_for_one(&mut folding, visit, (first, name)))?;
        visit
            .namesakes
            .taken_for_one
            .lock()
            .push((name.into(), first.clone()));
        if visit.pass() > 0 {
            return Some(Verdict::Same);
        }
        self.run.report(&Problem {
            path: visit.path_of(name),
            side: Side::Replica,
            act: Act::TellApart,
            cause: format!(
                "\"{}\" is the same name to its file system",
                escape(first.to_bytes())
            ),
            class: Class::Skip,
        });
        Some(Verdict::Reported)
    }

    /// Takes out of `extras`, names of the replica that the source lacks, what the source has under
    /// another spelling, and keeps it in mind.
    pub fn keep_misspelt(
        &self,
        visit: &Visit,
        names: (Option<&Names>, &Names),
        extras: &mut Vec<CString>,
    ) -> Done {
        let found = self.misspelt(visit, names, extras)?;
        extras.retain(|extra| {
            found
                .binary_search_by(|(misspelt, _)| misspelt.cmp(extra))
                .is_err()
        });
        visit.namesakes.misspelt.lock().extend(
            found
                .into_iter()
                .filter(|(misspelt, name)| can_be_respelt(misspelt, name)),
        );
        Ok(())
    }

    /// Which of `extras` the source has under another spelling, and under which, in their order.
    /// `known` are all names of the source, if one window holds them; `there` are the replica's
    /// names among which the extras are.
    pub fn misspelt(
        &self,
        visit: &Visit,
        (known, there): (Option<&Names>, &Names),
        extras: &[CString],
    ) -> Done<Vec<(CString, CString)>> {
        let replica = visit.replica.as_ref().expect("its names were listed");
        let is_there = |wanted: &CStr| (0..there.len()).any(|number| there.get(number).0 == wanted);
        let folded: HashMap<Vec<u8>, CString> = extras
            .iter()
            .map(|name| (fold(name.to_bytes()).into_owned(), name.clone()))
            .collect();
        let mut found = Vec::new();
        let mut compare = |names: &Names| {
            for name in (0..names.len()).map(|number| names.get(number).0) {
                if let Some(extra) = folded
                    .get(&*fold(name.to_bytes()))
                    .filter(|extra| !is_there(name) && is_same(replica, extra, name))
                {
                    found.push((extra.clone(), CString::from(name)));
                }
            }
        };
        match known {
            Some(known) => compare(known),
            None => {
                for names in windows(&visit.source)? {
                    compare(&names?);
                }
            }
        }
        found.sort_unstable();
        found.dedup_by(|later, first| later.0 == first.0);
        Ok(found)
    }

    /// Gives what a killed run left between two spellings the name that it was to have, where the
    /// source has that and the replica does not. Returns whether `between` is no more. `known` are
    /// all names of the source, if one window holds them.
    pub fn respell_on(&self, visit: &Visit, between: &CStr, known: Option<&Names>) -> Done<bool> {
        let (Some(replica), true) = (&visit.replica, self.run.options.applies()) else {
            return Ok(false);
        };
        let Some(to) = meant_by(visit, between, known)?.filter(|to| {
            believed_twice(|| replica.look(to)).is_err_and(|fault| fault.is_missing())
        }) else {
            return Ok(false);
        };
        let meta = replica.look(between)?;
        visit.touch();
        replica.rename(between, &to)?;
        add(&self.run.tally.respelt, 1);
        self.run
            .receipt(|| visit.path_of(&to), respelling(&meta, between, &to));
        Ok(true)
    }

    /// Gives what is misspelt on the replica the source's spelling, when all else in the directory
    /// is done.
    pub fn respell(&mut self, visit: &Arc<Visit>) {
        let mut misspelt = std::mem::take(&mut *visit.namesakes.misspelt.lock());
        if visit.left.is_some() {
            self.take_over_names(visit, &mut misspelt);
        }
        misspelt
            .retain(|(from, _)| there(visit.source.look(from)).is_ok_and(|meta| meta.is_none()));
        misspelt.extend(misnamed(visit));
        // Each look at the directory finds them.
        misspelt.sort_unstable();
        misspelt.dedup();
        let Some(replica) = visit.replica.as_ref() else {
            return;
        };
        for (from, to) in misspelt {
            let Some(meta) = replica
                .look(&from)
                .ok()
                .filter(|_| is_same(replica, &from, &to))
            else {
                continue;
            };
            if self.run.options.applies() {
                visit.touch();
                if let Err(fault) = respell(&**replica, &from, &to) {
                    self.run.problem(visit.path_of(&to), fault, Class::Partly);
                    continue;
                }
            }
            self.run.foretell_change(visit);
            add(&self.run.tally.respelt, 1);
            self.run
                .receipt(|| visit.path_of(&to), respelling(&meta, &from, &to));
        }
    }

    /// Adds what the thread that has listed a directory found in another spelling, and has those
    /// looked at that may be one: they were met elsewhere.
    fn take_over_names(&self, visit: &Visit, misspelt: &mut Vec<(CString, CString)>) {
        let part = &self.run.part;
        misspelt.extend(
            part.misspelt_in(visit)
                .iter()
                .map(|misspelt| ((&misspelt.from).into(), (&misspelt.to).into())),
        );
        let pairs = part.alike_in(visit).iter().flat_map(|alike| {
            alike
                .earlier
                .iter()
                .map(|first| ((&alike.name).into(), first.into()))
        });
        visit.namesakes.taken_for_one.lock().extend(pairs);
    }
}

/// The name of the source on the way to which an entry of the replica has the name `between`.
fn meant_by(visit: &Visit, between: &CStr, known: Option<&Names>) -> Done<Option<CString>> {
    let find = |names: &Names| {
        (0..names.len())
            .map(|number| names.get(number).0)
            .find(|name| *between_name(name) == *between)
            .map(CString::from)
    };
    if let Some(known) = known {
        return Ok(find(known));
    }
    for names in windows(&visit.source)? {
        if let Some(found) = find(&names?) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// What the replica has under the later of names that it takes for one: the first was copied there,
/// so that what another name of the source says of itself is told by it.
fn misnamed(visit: &Visit) -> Vec<(CString, CString)> {
    let mut pairs = std::mem::take(&mut *visit.namesakes.taken_for_one.lock());
    pairs.retain(|(later, first)| can_be_respelt(later, first));
    let Some(replica) = visit.replica.as_ref().filter(|_| !pairs.is_empty()) else {
        return pairs;
    };
    let wanted = pairs
        .iter()
        .flat_map(|(later, first)| [&**later, &**first])
        .collect();
    let listed = listed(replica, &wanted).unwrap_or_default();
    pairs.retain(|(later, first)| listed.contains(later) && !listed.contains(first));
    pairs
}

/// Whether a file system that takes two names for one may keep either: an end that it does not keep
/// it strips off again.
pub fn can_be_respelt(from: &CStr, to: &CStr) -> bool {
    likeness(from.to_bytes(), to.to_bytes()) != Likeness::End
}

fn respelling(meta: &Meta, from: &CStr, to: &CStr) -> Intent {
    let mut what = What::default();
    what.add_if(true, What::NAME);
    let [source, replica] = [to, from].map(|name| escape(name.to_bytes()));
    let values = vec![Difference {
        property: "name",
        source,
        replica,
    }];
    Intent {
        values,
        ..Intent::new(Action::Meta, what, meta)
    }
}

/// By way of another name: between two names of one inode a rename does nothing (rename(2)).
/// A run that is killed meanwhile leaves that, and the next run goes on from there.
pub fn respell(dir: &dyn DirMut, from: &CStr, to: &CStr) -> Result<(), Fault> {
    let between = between_name(to);
    if there(dir.look(&between))?.is_some() {
        return Err(Fault {
            side: Side::Replica,
            act: Act::Rename,
            errno: errno::EEXIST,
        });
    }
    dir.rename(from, &between)?;
    if let Err(fault) = dir.rename(&between, to) {
        let _the_first_error_counts = dir.rename(&between, from);
        return Err(fault);
    }
    // Where both were names of one inode after all, it is there still.
    let _gone_as_a_rule = dir.remove(&between);
    Ok(())
}

fn is_same(dir: &DirMutRef, a: &CStr, b: &CStr) -> bool {
    let looks = [a, b].map(|name| dir.look(name).ok().map(|meta| meta.id()));
    looks[0].is_some() && looks[0] == looks[1]
}

/// The replica's directory, or those above it, from the nearest on; where there is no replica yet,
/// the one that it is to be made in.
fn nearest<'a>(run: &'a Run<'_>, visit: &'a Visit) -> impl Iterator<Item = &'a DirMutRef> {
    let visits = std::iter::successors(Some(visit), |visit| visit.parent.as_deref());
    visits
        .filter_map(|visit| visit.replica.as_ref())
        .chain(&run.above)
}

/// Makes a file of the first name for a moment, in a directory of its own, and looks for it by the
/// other.
fn probe(visit: &Visit, replica: &DirMutRef, (first, later): (&CStr, &CStr)) -> Done<bool> {
    visit.touch();
    let name = temp_name();
    let room = replica.make_dir(&name)?;
    let is_one = is_found(&*room, first, later);
    let _the_answer_counts = room.remove(first);
    replica.remove_dir(&name)?;
    is_one
}

fn is_found(room: &dyn DirMut, made: &CStr, wanted: &CStr) -> Done<bool> {
    let file = room.create_file(made, 0o600)?;
    // Another host answers when the file is there.
    file.meta()?;
    Ok(there(room.look(wanted))?.is_some())
}
