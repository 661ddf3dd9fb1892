//! Which names a directory of the replica takes for one. Each file system has a table of its own,
//! and some take no heed of case alone or of Unicode form alone: so it is asked about the very
//! names. What it tells apart is known from then on, as far as that says something of other names.

use crate::trees::looks::there;
use driftless_model::{Kind, Meta};
use driftless_reconcile::{Likeness, composed, without_form};
use driftless_tree::{Dir, DirRef, Done, windows};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, CString};
use std::sync::Arc;

/// Names of a directory that are tried to find out what it takes for one: some may have just gone.
pub const ASKED_MAX: usize = 16;

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
    pub judged: HashMap<Likeness, Option<bool>>,
}

impl Folding {
    /// Whether it tells names apart that are as like as that.
    pub fn tells_apart(&self, likeness: Likeness) -> bool {
        match likeness {
            Likeness::Case => self.minds_case,
            Likeness::Form => self.minds_form,
            Likeness::End => self.minds_end,
            Likeness::Both => self.minds_case || self.minds_form,
        }
    }

    /// The two names are not one. All tables of case have the letters of ASCII, and all that make
    /// forms one know which are canonically equivalent.
    pub fn learn(&mut self, likeness: Likeness, names: (&CStr, &CStr)) {
        match likeness {
            Likeness::Case => {
                self.minds_case |= names.0.to_bytes().is_ascii() && names.1.to_bytes().is_ascii()
            }
            Likeness::Form => self.minds_form = true,
            // Some strip dots and keep spaces.
            Likeness::End => {
                self.minds_end |= [names.0, names.1]
                    .iter()
                    .all(|name| !name.to_bytes().ends_with(b" "))
            }
            Likeness::Both => {}
        }
    }
}

/// Whether a directory takes names for one that are as like as that, as the first of its names
/// tells that has another spelling.
pub fn told_by_its_names<D: Dir + ?Sized>(dir: &Arc<D>, likeness: Likeness) -> Option<bool> {
    let names = windows(dir).ok()?.next()?.ok()?;
    let other = |name| match likeness {
        Likeness::Form => in_other_form(name),
        Likeness::End => Some(with_other_end(name)),
        _ => in_other_case(name),
    };
    let names = (0..names.len()).map(|number| names.get(number).0);
    names
        .filter_map(|name| Some((name, other(name)?)))
        .take(ASKED_MAX)
        .find_map(|(name, other)| seen(dir, (name, &other)).ok().flatten())
}

/// Whether two names are one, as far as what is there tells that. The first thread that makes one
/// of them may be at work, so the first name is looked at twice, and so is the other: the first
/// look at a name may be answered from a listing, which has its spellings only.
pub fn seen<D: Dir + ?Sized>(
    replica: &Arc<D>,
    (first, later): (&CStr, &CStr),
) -> Done<Option<bool>> {
    let looks = [first, later, later, first].map(|name| there(replica.look(name)));
    let [before, _, other, after] = looks;
    let (Some(before), other, Some(after)) = (before?, other?, after?) else {
        return Ok(None);
    };
    Ok(match other {
        _ if before.id() != after.id() => None,
        Some(other) if other.id() == before.id() && !is_single(&before) => {
            Some(!are_listed(replica, [first, later])?)
        }
        other => Some(other.is_some_and(|other| other.id() == before.id())),
    })
}

/// Whether an inode can have but one name.
fn is_single(meta: &Meta) -> bool {
    meta.nlink == 1 || meta.kind == Kind::Dir
}

/// Whether a listing has both names, which are one inode's: what takes them for one lists it under
/// one of them, whichever that is.
fn are_listed<D: Dir + ?Sized>(dir: &Arc<D>, wanted: [&CStr; 2]) -> Done<bool> {
    Ok(listed(dir, &BTreeSet::from(wanted))?.len() == wanted.len())
}

/// Which of these names a directory lists, each once.
pub fn listed<D: Dir + ?Sized>(dir: &Arc<D>, wanted: &BTreeSet<&CStr>) -> Done<BTreeSet<CString>> {
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
    let is_one = |other: Option<CString>| {
        other.is_some_and(|other| matches!(seen(dir, (name, &other)), Ok(Some(true))))
    };
    match (is_one(in_other_case(name)), is_one(in_other_form(name))) {
        (true, true) => Some(Likeness::Both),
        (true, false) => Some(Likeness::Case),
        (false, true) => Some(Likeness::Form),
        (false, false) => None,
    }
}

/// A name with each letter of ASCII in the other case, if it has any.
pub fn in_other_case(name: &CStr) -> Option<CString> {
    let swap = |byte: &u8| {
        if byte.is_ascii_lowercase() {
            byte.to_ascii_uppercase()
        } else {
            byte.to_ascii_lowercase()
        }
    };
    let other: Vec<u8> = name.to_bytes().iter().map(swap).collect();
    (other != name.to_bytes()).then(|| CString::new(other).expect("names hold no NUL"))
}

/// A name with its letters in another case, if it has any: those of ASCII, which all tables have, or
/// all others.
pub fn in_any_other_case(name: &CStr) -> Option<CString> {
    in_other_case(name).or_else(|| {
        let text = name.to_str().ok()?;
        [text.to_uppercase(), text.to_lowercase()]
            .into_iter()
            .find(|other| other != text)
            .map(|other| CString::new(other).expect("names hold no NUL"))
    })
}

/// A name in another Unicode form, if it has one: decomposed, or composed.
pub fn in_other_form(name: &CStr) -> Option<CString> {
    [without_form(name.to_bytes()), composed(name.to_bytes())]
        .into_iter()
        .find(|other| other != name.to_bytes())
        .map(|other| CString::new(other).expect("names hold no NUL"))
}

/// A name with a dot at its end.
pub fn with_other_end(name: &CStr) -> CString {
    CString::new([name.to_bytes(), b"."].concat()).expect("names hold no NUL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_apart_says_something_of_other_names() {
        let mut folding = Folding::default();
        folding.learn(Likeness::Case, (c"\xc3\x9c", c"\xc3\xbc"));
        folding.learn(Likeness::Both, (c"a", c"b"));
        assert!(
            !folding.tells_apart(Likeness::Case) && !folding.tells_apart(Likeness::Both),
            "there may be tables without that letter"
        );
        folding.learn(Likeness::Form, (c"", c""));
        assert!(
            folding.tells_apart(Likeness::Form)
                && folding.tells_apart(Likeness::Both)
                && !folding.tells_apart(Likeness::Case)
        );
        folding.learn(Likeness::Case, (c"A", c"a"));
        assert!(folding.tells_apart(Likeness::Case));
    }
}
