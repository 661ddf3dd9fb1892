//! What is said of a path, in a letter for the wire and a word for people.

use crate::detector::Seen;
use driftless_model::{Change, Hint, RelPath, Scope};

/// What is said of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// The entry may differ.
    Entry,
    /// Its content was written, by somebody who has closed it.
    Written,
    /// Its content was written, and somebody still has it open.
    Open,
    /// The entry and all below it may differ.
    Subtree,
    /// The directory is gone, with all below it.
    Gone,
    /// Another entry stands there, with all below it.
    Replaced,
    /// A directory, or what may be one, stood at another path before.
    Moved,
    /// A file stood at another path before.
    MovedFile,
}

/// All of them, with their letters and words.
const SORTS: [(Sort, u8, &str); 8] = [
    (Sort::Entry, b'e', "entry"),
    (Sort::Written, b'w', "written"),
    (Sort::Open, b'o', "open"),
    (Sort::Subtree, b's', "subtree"),
    (Sort::Gone, b'g', "gone"),
    (Sort::Replaced, b'x', "replaced"),
    (Sort::Moved, b'm', "moved"),
    (Sort::MovedFile, b'f', "moved file"),
];

impl Sort {
    /// What was seen, and where it stood before if it was moved. Of ranges of bytes, only that
    /// content was written.
    pub fn of(seen: Seen) -> (Sort, RelPath, Option<RelPath>) {
        let Change { path, scope, hint } = seen.change;
        let is_entry = scope == Scope::Entry;
        let is_written = seen.is_written || matches!(hint, Some(Hint::Ranges(_)));
        match hint {
            Some(Hint::MovedFrom(from)) if is_entry => (Sort::MovedFile, path, Some(from)),
            Some(Hint::MovedFrom(from)) => (Sort::Moved, path, Some(from)),
            _ if is_entry && seen.is_open => (Sort::Open, path, None),
            _ if is_entry && is_written => (Sort::Written, path, None),
            _ if is_entry => (Sort::Entry, path, None),
            _ if is_written => (Sort::Replaced, path, None),
            _ if seen.is_gone => (Sort::Gone, path, None),
            _ => (Sort::Subtree, path, None),
        }
    }

    /// What a mirror takes it for. What stands at the old path of what was moved is looked at, too:
    /// the word of it may be wrong.
    pub(super) fn seen(self, path: RelPath, from: Option<RelPath>) -> Vec<Seen> {
        let moved = |scope| {
            let old = from.clone().map(|path| Change {
                path,
                scope,
                hint: None,
            });
            let change = Change {
                path: path.clone(),
                scope,
                hint: from.clone().map(Hint::MovedFrom),
            };
            let both = [Some(change), old].into_iter().flatten();
            both.map(Seen::closed).collect()
        };
        let one = |change, is_written| Seen {
            is_written,
            ..Seen::closed(change)
        };
        match self {
            Sort::Moved => return moved(Scope::Subtree),
            Sort::MovedFile => return moved(Scope::Entry),
            _ => {}
        }
        vec![match self {
            Sort::Written => one(Change::entry(path), true),
            Sort::Open => Seen {
                is_open: true,
                ..one(Change::entry(path), true)
            },
            Sort::Gone => Seen {
                is_gone: true,
                ..one(Change::subtree(path), false)
            },
            Sort::Subtree => one(Change::subtree(path), false),
            Sort::Replaced => one(Change::subtree(path), true),
            _ => one(Change::entry(path), false),
        }]
    }

    /// What of it costs a mirror no more than the word of any user may.
    pub(super) fn without_trust(self) -> Sort {
        match self {
            Sort::Entry | Sort::Written | Sort::Open => Sort::Entry,
            Sort::Subtree | Sort::Gone | Sort::Replaced => Sort::Subtree,
            moved => moved,
        }
    }

    /// Whether it has an old path, too.
    pub fn is_moved(self) -> bool {
        matches!(self, Sort::Moved | Sort::MovedFile)
    }

    /// Whether a mirror looks at all below it.
    pub fn is_deep(self) -> bool {
        use Sort::{Gone, Moved, Replaced, Subtree};
        matches!(self, Subtree | Gone | Replaced | Moved)
    }

    /// What stands for this and for what is said of the same path later; none of what was moved.
    pub fn join(self, later: Sort) -> Option<Sort> {
        if self.is_moved() || later.is_moved() {
            return None;
        }
        let both = [self, later];
        let has = |sorts: &[Sort]| both.iter().any(|one| sorts.contains(one));
        let is_written = has(&[Sort::Written, Sort::Open, Sort::Replaced]);
        let is_deep = both.iter().any(|one| one.is_deep());
        Some(match (is_deep, is_written) {
            (true, true) => Sort::Replaced,
            (true, false) if both == [Sort::Gone, Sort::Gone] => Sort::Gone,
            (true, false) => Sort::Subtree,
            (false, _) if later == Sort::Open => Sort::Open,
            (false, true) => Sort::Written,
            (false, false) => Sort::Entry,
        })
    }

    fn row(self) -> (Sort, u8, &'static str) {
        let row = SORTS.into_iter().find(|(sort, ..)| *sort == self);
        row.expect("all are among them")
    }

    pub(super) fn letter(self) -> u8 {
        self.row().1
    }

    pub(super) fn of_letter(letter: u8) -> Option<Sort> {
        let row = SORTS.into_iter().find(|(_, other, _)| *other == letter);
        row.map(|(sort, ..)| sort)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        self.row().2
    }

    /// That of a word.
    pub fn of_word(word: &str) -> Option<Sort> {
        let row = SORTS.into_iter().find(|(.., other)| *other == word);
        row.map(|(sort, ..)| sort)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> RelPath {
        RelPath::parse(bytes).unwrap()
    }

    #[test]
    fn what_was_seen_is_what_is_said_of_it() {
        for (sort, letter, word) in SORTS {
            assert_eq!(Sort::of_letter(letter), Some(sort));
            assert_eq!(Sort::of_word(word), Some(sort));
            let from = sort.is_moved().then(|| path(b"old"));
            let seen = sort.seen(path(b"new"), from.clone());
            let (first, rest) = seen.split_first().unwrap();
            assert_eq!(Sort::of(first.clone()), (sort, path(b"new"), from.clone()));
            let old: Vec<RelPath> = rest.iter().map(|seen| seen.change.path.clone()).collect();
            assert_eq!(old, from.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_stands_for_two_words_says_all_of_both() {
        use Sort::{Entry, Gone, Moved, Open, Replaced, Subtree, Written};
        for (first, later, both) in [
            (Entry, Entry, Some(Entry)),
            (Entry, Written, Some(Written)),
            (Written, Entry, Some(Written)),
            (Open, Written, Some(Written)),
            (Written, Open, Some(Open)),
            (Entry, Gone, Some(Subtree)),
            (Gone, Gone, Some(Gone)),
            (Written, Subtree, Some(Replaced)),
            (Replaced, Entry, Some(Replaced)),
            (Moved, Entry, None),
            (Entry, Moved, None),
        ] {
            assert_eq!(first.join(later), both, "{first:?} {later:?}");
        }
    }
}
