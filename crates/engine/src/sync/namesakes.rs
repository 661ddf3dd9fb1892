//! Names that are several to the source and one to the replica's file system, which takes no heed of case or Unicode form, or strips
//! dots and spaces at their end.
//!
//! Of names that differ in these alone the first is kept, and each later one is a problem of its path: copied, they would take each
//! other's place in every run. What stands on the replica under another spelling than the source's is given the source's; taken
//! for something that the source lacks, it would be deleted, and with it the only copy.

use crate::sync::alike::alike_of;
use crate::sync::entry::{Intent, Verdict};
use crate::sync::finish::{believed_twice, there};
use crate::sync::folding::{Folding, listed};
use crate::sync::visit::Visit;
use crate::sync::worker::Worker;
use crate::tally::add;
use driftless_lock::Mutex;
use driftless_model::{Act, Action, Class, Difference, Fault, Kind, Meta, Problem, Side, What, errno, escape};
use driftless_reconcile::{Likeness, fold, likeness};
use driftless_tree::{Dir, DirRef, Done, Names, between_name, windows};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What is known of such names in a directory. Names are compared within one window of a listing.
#[derive(Default)]
pub struct Namesakes {
    /// Whether there are any.
    any: AtomicBool,
    /// Each later name, with those before it that it may be one with: the first of all, the first that differs in case alone, and the
    /// first that differs in form alone.
    later: Mutex<HashMap<CString, Vec<CString>>>,
    /// What is known of what the replica's directory takes for one.
    folding: Mutex<Folding>,
    /// What stands on the replica under another spelling: that, and the source's.
    misspelt: Mutex<Vec<(CString, CString)>>,
    /// Names of the source that are others to it and one to the replica: the later, and the first, which is kept.
    taken_for_one: Mutex<Vec<(CString, CString)>>,
}

impl Namesakes {
    /// Each later name, with those before it that it may be one with.
    pub fn alike(&self) -> Vec<(CString, Vec<CString>)> {
        self.later.lock().iter().map(|(later, earlier)| (later.clone(), earlier.clone())).collect()
    }

    /// What stands on the replica under another spelling: that, and the source's.
    pub fn misspelt(&self) -> Vec<(CString, CString)> {
        self.misspelt.lock().clone()
    }

    fn add(&self, later: CString, earlier: CString) {
        let (mut all, mut any) = (self.later.lock(), false);
        let known = all.entry(later).or_default();
        if !known.contains(&earlier) {
            known.push(earlier);
            any = true;
        }
        self.any.fetch_or(any, Relaxed);
    }
}

impl Worker<'_> {
    /// Fills the index with a window of the source's names, and notes which of them differ from an earlier one in case, form or end alone. Of
    /// a directory that somebody else has listed, names that are no work of this run count, too.
    pub fn note_names(&mut self, visit: &Visit, names: &Names) {
        for (later, earlier) in alike_of(&mut self.index, names.len(), |number| names.bytes(number)) {
            earlier.into_iter().for_each(|earlier| self.note_pair(visit, names.get(earlier), names.get(later)));
        }
        if !visit.selection.whole {
            for alike in self.run.part.alike_in(visit) {
                alike.earlier.iter().for_each(|earlier| visit.namesakes.add((&alike.name).into(), earlier.into()));
            }
        }
    }

    fn note_pair(&self, visit: &Visit, (first, kind): (&CStr, Option<Kind>), (later, other_kind): (&CStr, Option<Kind>)) {
        let takes = |name, kind| self.run.takes(visit, name, kind == Some(Kind::Dir));
        if takes(first, kind) && takes(later, other_kind) {
            visit.namesakes.add(later.into(), first.into());
        }
    }

    /// Whether `name` is among the source's names of the window that was listed last, which are `known`.
    pub fn indexes(&self, known: &Names, name: &CStr) -> bool {
        self.index.contains(name.to_bytes(), |number| known.bytes(number))
    }

    /// What comes of an entry whose name is that of another to the replica: a problem, told once.
    pub fn namesake(&self, visit: &Visit, name: &CStr) -> Option<Verdict> {
        if !visit.namesakes.any.load(Relaxed) {
            return None;
        }
        let earlier = visit.namesakes.later.lock().get(name).cloned()?;
        // One thread at a time: a directory is listed by one alone.
        let mut folding = visit.namesakes.folding.lock();
        let first = earlier.iter().find(|first| folding.takes_for_one(self.run, visit, (first, name)))?;
        visit.namesakes.taken_for_one.lock().push((name.into(), first.clone()));
        if visit.pass() > 0 {
            return Some(Verdict::Same);
        }
        self.run.report(&Problem {
            path: visit.path_of(name),
            side: Side::Replica,
            act: Act::TellApart,
            cause: format!("\"{}\" is the same name to its file system", escape(first.to_bytes())),
            class: Class::Skip,
        });
        Some(Verdict::Reported)
    }

    /// Takes out of `extras`, names of the replica that the source lacks, what the source has under another spelling, and keeps it in
    /// mind.
    pub fn keep_misspelt(&self, visit: &Visit, names: (Option<&Names>, &Names), extras: &mut Vec<CString>) -> Done {
        let found = self.misspelt(visit, names, extras)?;
        extras.retain(|extra| found.binary_search_by(|(misspelt, _)| misspelt.cmp(extra)).is_err());
        visit.namesakes.misspelt.lock().extend(found.into_iter().filter(|(misspelt, name)| can_be_respelt(misspelt, name)));
        Ok(())
    }

    /// Which of `extras` the source has under another spelling, and under which, in their order. `known` are all names of the source, if
    /// one window holds them; `there` are the replica's names among which the extras are.
    pub fn misspelt(&self, visit: &Visit, (known, there): (Option<&Names>, &Names), extras: &[CString]) -> Done<Vec<(CString, CString)>> {
        let replica = visit.replica.as_ref().expect("its names were listed");
        let is_there = |wanted: &CStr| (0..there.len()).any(|number| there.get(number).0 == wanted);
        let folded: HashMap<Vec<u8>, CString> = extras.iter().map(|name| (fold(name.to_bytes()).into_owned(), name.clone())).collect();
        let mut found = Vec::new();
        let mut compare = |names: &Names| {
            for name in (0..names.len()).map(|number| names.get(number).0) {
                if let Some(extra) = folded.get(&*fold(name.to_bytes())).filter(|extra| !is_there(name) && is_same(replica, extra, name)) {
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

    /// Gives what a killed run left between two spellings the name that it was to have, where the source has that and the replica does not.
    /// Returns whether `between` is no more. `known` are all names of the source, if one window holds them.
    pub fn respell_on(&self, visit: &Visit, between: &CStr, known: Option<&Names>) -> Done<bool> {
        let (Some(replica), false) = (&visit.replica, self.run.options.dry_run) else { return Ok(false) };
        let Some(to) =
            meant_by(visit, between, known)?.filter(|to| believed_twice(|| replica.look(to)).is_err_and(|fault| fault.is_missing()))
        else {
            return Ok(false);
        };
        let meta = replica.look(between)?;
        visit.touch();
        replica.rename(between, &to)?;
        add(&self.run.tally.respelt, 1);
        self.run.receipt(|| visit.path_of(&to), respelling(&meta, between, &to));
        Ok(true)
    }

    /// Gives what is misspelt on the replica the source's spelling, when all else in the directory is done.
    pub fn respell(&mut self, visit: &Arc<Visit>) {
        let mut misspelt = std::mem::take(&mut *visit.namesakes.misspelt.lock());
        if visit.left.is_some() {
            self.take_over_names(visit, &mut misspelt);
        }
        misspelt.retain(|(from, _)| there(visit.source.look(from)).is_ok_and(|meta| meta.is_none()));
        misspelt.extend(misnamed(visit));
        // Each look at the directory finds them.
        misspelt.sort_unstable();
        misspelt.dedup();
        let Some(replica) = visit.replica.as_ref() else { return };
        for (from, to) in misspelt {
            let Some(meta) = replica.look(&from).ok().filter(|_| is_same(replica, &from, &to)) else { continue };
            if !self.run.options.dry_run {
                visit.touch();
                if let Err(fault) = respell(&**replica, &from, &to) {
                    self.run.problem(visit.path_of(&to), fault, Class::Partly);
                    continue;
                }
            }
            add(&self.run.tally.respelt, 1);
            self.run.receipt(|| visit.path_of(&to), respelling(&meta, &from, &to));
        }
    }

    /// Adds what whoever has listed a directory found in another spelling, and has those looked at that may be one: they were met elsewhere.
    fn take_over_names(&self, visit: &Visit, misspelt: &mut Vec<(CString, CString)>) {
        let part = &self.run.part;
        misspelt.extend(part.misspelt_in(visit).iter().map(|misspelt| ((&misspelt.from).into(), (&misspelt.to).into())));
        let pairs = part.alike_in(visit).iter().flat_map(|alike| alike.earlier.iter().map(|first| ((&alike.name).into(), first.into())));
        visit.namesakes.taken_for_one.lock().extend(pairs);
    }
}

/// The name of the source on the way to which an entry of the replica has the name `between`.
fn meant_by(visit: &Visit, between: &CStr, known: Option<&Names>) -> Done<Option<CString>> {
    let find =
        |names: &Names| (0..names.len()).map(|number| names.get(number).0).find(|name| *between_name(name) == *between).map(CString::from);
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

/// What the replica has under the later of names that it takes for one: the first was copied there, so that what another name of the
/// source says of itself is told by it.
fn misnamed(visit: &Visit) -> Vec<(CString, CString)> {
    let mut pairs = std::mem::take(&mut *visit.namesakes.taken_for_one.lock());
    pairs.retain(|(later, first)| can_be_respelt(later, first));
    let Some(replica) = visit.replica.as_ref().filter(|_| !pairs.is_empty()) else { return pairs };
    let wanted = pairs.iter().flat_map(|(later, first)| [&**later, &**first]).collect();
    let listed = listed(replica, &wanted).unwrap_or_default();
    pairs.retain(|(later, first)| listed.contains(later) && !listed.contains(first));
    pairs
}

/// Whether a file system that takes two names for one may keep either: an end that it does not keep it strips off again.
fn can_be_respelt(from: &CStr, to: &CStr) -> bool {
    likeness(from.to_bytes(), to.to_bytes()) != Likeness::End
}

/// For an index: a number that nobody knows beforehand.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(())
}

fn respelling(meta: &Meta, from: &CStr, to: &CStr) -> Intent {
    let mut what = What::default();
    what.add_if(true, What::NAME);
    let [source, replica] = [to, from].map(|name| escape(name.to_bytes()));
    let values = vec![Difference { property: "name", source, replica }];
    Intent { values, ..Intent::new(Action::Meta, what, meta) }
}

/// By way of another name: between two names of one inode a rename does nothing (rename(2)). Whoever is killed meanwhile leaves that, and
/// the next run goes on from there.
fn respell(dir: &dyn Dir, from: &CStr, to: &CStr) -> Result<(), Fault> {
    let between = between_name(to);
    if there(dir.look(&between))?.is_some() {
        return Err(Fault { side: Side::Replica, act: Act::Rename, errno: errno::EEXIST });
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

fn is_same(dir: &DirRef, a: &CStr, b: &CStr) -> bool {
    let looks = [a, b].map(|name| dir.look(name).ok().map(|meta| meta.id()));
    looks[0].is_some() && looks[0] == looks[1]
}
