//! Which names a directory of the replica takes for one. Each file system has a table of its own, and some take no heed of case alone or
//! of Unicode form alone: so it is asked about the very names. What it tells apart is known from then on, as far as that says
//! something of other names.

use crate::sync::finish::there;
use crate::sync::run::Run;
use crate::sync::visit::Visit;
use driftless_model::{Kind, Meta};
use driftless_reconcile::{Likeness, likeness, without_case, without_form};
use driftless_tree::{Dir, DirRef, Done, temp_name, windows};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString};

/// Names of a directory that are tried to find out what it takes for one: some may have just gone.
const ASKED_MAX: usize = 16;

/// What is known of a directory.
#[derive(Debug, Default)]
pub struct Folding {
    /// It tells names apart that differ in case.
    minds_case: bool,
    /// It tells names apart that differ in Unicode form.
    minds_form: bool,
    /// It tells names apart that differ in dots and spaces at their end.
    minds_end: bool,
    /// What a dry run has found out by other names.
    judged: HashMap<Likeness, Option<bool>>,
}

impl Folding {
    /// Whether the two names are one in the replica's directory. Nothing is written to find out unless one of them is to be made anyway: a
    /// dry run judges by the names that are there, or in the nearest directory above that has any.
    pub fn takes_for_one(&mut self, run: &Run<'_>, visit: &Visit, names: (&CStr, &CStr)) -> bool {
        let likeness = likeness(names.0.to_bytes(), names.1.to_bytes());
        if self.tells_apart(likeness) {
            return false;
        }
        let is_one = match visit.replica.as_ref().map(|replica| (replica, seen(replica, names))) {
            Some((_, Ok(Some(is_one)))) => Some(is_one),
            Some((replica, _)) if !run.options.dry_run => probe(visit, replica, names).ok(),
            _ => self.by_others(run, visit, likeness),
        };
        if is_one == Some(false) {
            self.learn(likeness, names);
        }
        is_one.unwrap_or(false)
    }

    /// Whether names are one that are as like as that, as far as the nearest names of the replica tell it.
    fn by_others(&mut self, run: &Run<'_>, visit: &Visit, likeness: Likeness) -> Option<bool> {
        let of = |likeness| nearest(run, visit).find_map(|dir| told_by_its_names(dir, likeness));
        *self.judged.entry(likeness).or_insert_with(|| match likeness {
            Likeness::Both => Some(of(Likeness::Case)? && of(Likeness::Form)?),
            one => of(one),
        })
    }

    fn tells_apart(&self, likeness: Likeness) -> bool {
        match likeness {
            Likeness::Case => self.minds_case,
            Likeness::Form => self.minds_form,
            Likeness::End => self.minds_end,
            Likeness::Both => self.minds_case || self.minds_form,
        }
    }

    /// The two names are not one. All tables of case have the letters of ASCII, and all that make forms one know which are canonically
    /// equivalent.
    fn learn(&mut self, likeness: Likeness, names: (&CStr, &CStr)) {
        match likeness {
            Likeness::Case => self.minds_case |= names.0.to_bytes().is_ascii() && names.1.to_bytes().is_ascii(),
            Likeness::Form => self.minds_form = true,
            // Some strip dots and keep spaces.
            Likeness::End => self.minds_end |= [names.0, names.1].iter().all(|name| !name.to_bytes().ends_with(b" ")),
            Likeness::Both => {}
        }
    }
}

/// The replica's directory, or those above it, from the nearest on; where there is no replica yet, the one that it is to be made in.
fn nearest<'a>(run: &'a Run<'_>, visit: &'a Visit) -> impl Iterator<Item = &'a DirRef> {
    let visits = std::iter::successors(Some(visit), |visit| visit.parent.as_deref());
    visits.filter_map(|visit| visit.replica.as_ref()).chain(&run.above)
}

/// Whether a directory takes names for one that are as like as that, as the first of its names tells that has another spelling.
fn told_by_its_names(dir: &DirRef, likeness: Likeness) -> Option<bool> {
    let names = windows(dir).ok()?.next()?.ok()?;
    let other = |name| match likeness {
        Likeness::Form => in_other_form(name),
        Likeness::End => Some(with_other_end(name)),
        _ => in_other_case(name),
    };
    let names = (0..names.len()).map(|number| names.get(number).0);
    names.filter_map(|name| Some((name, other(name)?))).take(ASKED_MAX).find_map(|(name, other)| seen(dir, (name, &other)).ok().flatten())
}

/// Whether two names are one, as far as what is there tells that. The first thread that makes one of them may be at work, so the first
/// name is looked at twice, and so is the other: the first look at a name may be answered from a listing, which has its spellings only.
pub fn seen(replica: &DirRef, (first, later): (&CStr, &CStr)) -> Done<Option<bool>> {
    let looks = [first, later, later, first].map(|name| there(replica.look(name)));
    let [before, _, other, after] = looks;
    let (Some(before), other, Some(after)) = (before?, other?, after?) else { return Ok(None) };
    Ok(match other {
        _ if before.id() != after.id() => None,
        Some(other) if other.id() == before.id() && !is_single(&before) => Some(!are_listed(replica, [first, later])?),
        other => Some(other.is_some_and(|other| other.id() == before.id())),
    })
}

/// Whether an inode can have but one name.
fn is_single(meta: &Meta) -> bool {
    meta.nlink == 1 || meta.kind == Kind::Dir
}

/// Whether a listing has both names, which are one inode's: what takes them for one lists it under one of them, whichever that is.
fn are_listed(dir: &DirRef, wanted: [&CStr; 2]) -> Done<bool> {
    Ok(listed(dir, &BTreeSet::from(wanted))?.len() == wanted.len())
}

/// Which of these names a directory lists, each once.
pub fn listed(dir: &DirRef, wanted: &BTreeSet<&CStr>) -> Done<BTreeSet<CString>> {
    let mut found = BTreeSet::new();
    for names in windows(dir)? {
        let names = names?;
        let met = (0..names.len()).map(|number| names.get(number).0);
        found.extend(met.filter(|name| wanted.contains(name)).map(CString::from));
        if found.len() == wanted.len() {
            break;
        }
    }
    Ok(found)
}

/// In what a directory takes names for one, as one that it lists tells.
pub fn folds(dir: &DirRef, name: &CStr) -> Option<Likeness> {
    let is_one = |other: Option<CString>| other.is_some_and(|other| matches!(seen(dir, (name, &other)), Ok(Some(true))));
    match (is_one(in_other_case(name)), is_one(in_other_form(name))) {
        (true, true) => Some(Likeness::Both),
        (true, false) => Some(Likeness::Case),
        (false, true) => Some(Likeness::Form),
        (false, false) => None,
    }
}

/// A name with each letter of ASCII in the other case, if it has any.
pub fn in_other_case(name: &CStr) -> Option<CString> {
    let swap = |byte: &u8| if byte.is_ascii_lowercase() { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
    let other: Vec<u8> = name.to_bytes().iter().map(swap).collect();
    (other != name.to_bytes()).then(|| CString::new(other).expect("names hold no NUL"))
}

/// A name in another Unicode form, if it has one: decomposed.
fn in_other_form(name: &CStr) -> Option<CString> {
    let other = without_form(name.to_bytes());
    (other != name.to_bytes()).then(|| CString::new(other).expect("names hold no NUL"))
}

/// A name with a dot at its end.
fn with_other_end(name: &CStr) -> CString {
    CString::new([name.to_bytes(), b"."].concat()).expect("names hold no NUL")
}

/// Makes a file of the first name for a moment, in a directory of its own, and looks for it by the other.
fn probe(visit: &Visit, replica: &DirRef, (first, later): (&CStr, &CStr)) -> Done<bool> {
    visit.touch();
    let name = temp_name();
    let room = replica.make_dir(&name)?;
    let is_one = is_found(&*room, first, later);
    let _the_answer_counts = room.remove(first);
    replica.remove_dir(&name)?;
    is_one
}

fn is_found(room: &dyn Dir, made: &CStr, wanted: &CStr) -> Done<bool> {
    let file = room.create_file(made, 0o600)?;
    // Another host answers when the file is there.
    file.meta()?;
    Ok(there(room.look(wanted))?.is_some())
}

/// The first names of a window without case, and without form.
#[derive(Default)]
pub struct Firsts {
    cases: HashMap<Vec<u8>, usize>,
    forms: HashMap<Vec<u8>, usize>,
}

impl Firsts {
    /// Which names before the `later` one, whose first is that one, it may be one with: a file system that takes heed of form has another
    /// first. Numbers of names, each once; all later ones have to come, in their order.
    pub fn of(&mut self, first: (usize, &[u8]), later: (usize, &[u8])) -> Vec<usize> {
        let mut found = vec![first.0];
        for (number, name) in [first, later] {
            let of_case = *self.cases.entry(without_case(name)).or_insert(number);
            let of_form = *self.forms.entry(without_form(name)).or_insert(number);
            found.extend([of_case, of_form].into_iter().filter(|earlier| number == later.0 && *earlier != number));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_against_the_first_of_each_likeness() {
        let names = ["\u{c9}", "\u{e9}", "e\u{301}", "E\u{301}"];
        let mut firsts = Firsts::default();
        let mut of = |later: usize| firsts.of((0, names[0].as_bytes()), (later, names[later].as_bytes()));
        assert_eq!(of(1), [0], "small");
        assert_eq!(of(2), [0, 1], "small, decomposed");
        assert_eq!(of(3), [0, 2], "decomposed");
    }

    #[test]
    fn what_is_told_apart_says_something_of_other_names() {
        let mut folding = Folding::default();
        folding.learn(Likeness::Case, (c"\xc3\x9c", c"\xc3\xbc"));
        folding.learn(Likeness::Both, (c"a", c"b"));
        assert!(!folding.tells_apart(Likeness::Case) && !folding.tells_apart(Likeness::Both), "there may be tables without that letter");
        folding.learn(Likeness::Form, (c"", c""));
        assert!(folding.tells_apart(Likeness::Form) && folding.tells_apart(Likeness::Both) && !folding.tells_apart(Likeness::Case));
        folding.learn(Likeness::Case, (c"A", c"a"));
        assert!(folding.tells_apart(Likeness::Case));
    }
}
