//! Which names a directory of the replica takes for one. Each file system has a table of its own, and some take no heed of case alone or
//! of Unicode form alone: so it is asked about the very names. What it tells apart is known from then on, as far as that says
//! something of other names.

use crate::finish::there;
use crate::job::DirJob;
use driftless_model::{Kind, Meta};
use driftless_reconcile::{Likeness, likeness, without_case, without_form};
use driftless_tree::{Dir, DirRef, Done, Names, temp_name};
use std::collections::HashMap;
use std::ffi::CStr;

/// Names that are listed at a time.
const WINDOW_NAMES: usize = 16 * 1024;

/// What is known of a directory.
#[derive(Debug, Default)]
pub struct Folding {
    /// It tells names apart that differ in case.
    minds_case: bool,
    /// It tells names apart that differ in Unicode form.
    minds_form: bool,
}

impl Folding {
    /// Whether the two names are one in the replica's directory. Nothing is written to find out unless one of them is to be made anyway.
    pub fn takes_for_one(&mut self, (job, replica): (&DirJob, &DirRef), names: (&CStr, &CStr), dry_run: bool) -> bool {
        let likeness = likeness(names.0.to_bytes(), names.1.to_bytes());
        if self.tells_apart(likeness) {
            return false;
        }
        let is_one = match seen(replica, names) {
            Ok(Some(is_one)) => Some(is_one),
            _ if dry_run => None,
            _ => probe(job, replica, names).ok(),
        };
        if is_one == Some(false) {
            self.learn(likeness, names);
        }
        is_one.unwrap_or(false)
    }

    fn tells_apart(&self, likeness: Likeness) -> bool {
        match likeness {
            Likeness::Case => self.minds_case,
            Likeness::Form => self.minds_form,
            Likeness::Both => self.minds_case || self.minds_form,
        }
    }

    /// The two names are not one. All tables of case have the letters of ASCII, and all that make forms one know which are canonically
    /// equivalent.
    fn learn(&mut self, likeness: Likeness, names: (&CStr, &CStr)) {
        match likeness {
            Likeness::Case => self.minds_case |= names.0.to_bytes().is_ascii() && names.1.to_bytes().is_ascii(),
            Likeness::Form => self.minds_form = true,
            Likeness::Both => {}
        }
    }
}

/// What can be told from what is there. The first thread that makes one of them may be at work, so the first name is looked at
/// twice, and so is the other: the first look at a name may be answered from a listing, which has its spellings only.
fn seen(replica: &DirRef, (first, later): (&CStr, &CStr)) -> Done<Option<bool>> {
    let looks = [first, later, later, first].map(|name| there(replica.look(name)));
    let [before, _, other, after] = looks;
    let (Some(before), other, Some(after)) = (before?, other?, after?) else { return Ok(None) };
    Ok(match other {
        _ if before.id() != after.id() => None,
        Some(other) if other.id() == before.id() && !is_single(&before) => Some(!is_listed(replica, later)?),
        other => Some(other.is_some_and(|other| other.id() == before.id())),
    })
}

/// Whether an inode can have but one name.
fn is_single(meta: &Meta) -> bool {
    meta.nlink == 1 || meta.kind == Kind::Dir
}

fn is_listed(dir: &DirRef, wanted: &CStr) -> Done<bool> {
    let (mut stream, mut more) = (dir.list()?, true);
    while more {
        let mut names = Names::default();
        more = stream.fill(&mut names, WINDOW_NAMES)?;
        if (0..names.len()).any(|number| names.get(number).0 == wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes a file of the first name for a moment, in a directory of its own, and looks for it by the other.
fn probe(job: &DirJob, replica: &DirRef, (first, later): (&CStr, &CStr)) -> Done<bool> {
    job.touch();
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
