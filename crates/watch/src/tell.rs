//! What is announced of words: pure, but for what stands at a path, which is looked up when it is
//! needed.
//!
//! A word says that something may differ; what is announced says what stands there now. So a file
//! that was written and then renamed is told under its new name, behind the rename, and what is
//! gone is told to be gone only if no rename of the same words took it away.

use crate::look::There;
use crate::queue::Word;
use driftless_detect::post::Sort;
use driftless_model::{RelPath, Stamp};
use driftless_sarracenia::{About, Announced, BaseUrl, Became, Message, Standing, announce};
use std::collections::BTreeSet;

/// What is announced of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What became of it.
    pub announced: Announced,
    /// What is said of it beside its path is so: it could be looked at.
    pub is_known: bool,
}

/// Of what could not be looked at.
const UNKNOWN: About = About {
    size: 0,
    mode: 0,
    mtime: Stamp { sec: 0, nsec: 0 },
    atime: Stamp { sec: 0, nsec: 0 },
};

impl Told {
    fn so(path: RelPath, became: Became) -> Told {
        Told {
            announced: Announced { path, became },
            is_known: true,
        }
    }

    /// All of a tree may differ, which cannot be looked at.
    pub fn hidden_tree() -> Told {
        Told::hidden(RelPath::root(), true)
    }

    fn hidden(path: RelPath, is_deep: bool) -> Told {
        let became = match is_deep {
            true => Became::Below(UNKNOWN),
            false => Became::Here(Standing::File(UNKNOWN)),
        };
        Told {
            is_known: false,
            ..Told::so(path, became)
        }
    }

    /// The message of it, published at `now`.
    pub fn message(&self, base: &BaseUrl, now: Stamp) -> Message {
        let message = announce(&self.announced, base, now);
        match self.is_known {
            true => message,
            false => Message {
                size: None,
                mode: None,
                mtime: None,
                atime: None,
                ..message
            },
        }
    }
}

/// What is announced of words of one tree, in the order in which they were told.
pub fn told<'w>(
    words: impl Iterator<Item = &'w Word>,
    look: impl Fn(&RelPath) -> There,
) -> Vec<Told> {
    let words: Vec<&Word> = words.collect();
    let moves = words.iter().enumerate();
    let moves = moves.filter_map(|(at, word)| {
        let from = word.from.as_ref()?;
        let to = &word.path;
        Some(Move { at, from, to })
    });
    let mut teller = Teller {
        moves: moves.collect(),
        look,
        told: Vec::new(),
        late: BTreeSet::new(),
    };
    for (at, word) in words.into_iter().enumerate() {
        match &word.from {
            Some(from) => teller.tell_move(at, word, from),
            None => teller.tell(at, &word.path, word.sort),
        }
    }
    teller.end()
}

/// A rename: the number of its word, and both paths.
struct Move<'w> {
    at: usize,
    from: &'w RelPath,
    to: &'w RelPath,
}

struct Teller<'w, Look> {
    moves: Vec<Move<'w>>,
    look: Look,
    told: Vec<Told>,
    /// Where entries went that words were about.
    late: BTreeSet<RelPath>,
}

impl<Look: Fn(&RelPath) -> There> Teller<'_, Look> {
    fn say(&mut self, path: &RelPath, became: Became) {
        let told = Told::so(path.clone(), became);
        if self.told.last() != Some(&told) {
            self.told.push(told);
        }
    }

    /// What a word says that is no rename.
    fn tell(&mut self, at: usize, path: &RelPath, sort: Sort) {
        let is_deep = sort.is_deep();
        let was_directory = is_deep;
        match (self.look)(path) {
            There::Standing(Standing::Directory(about)) if is_deep => {
                self.say(path, Became::Below(about));
            }
            There::Standing(standing) => {
                if sort == Sort::Gone {
                    self.say(path, Became::Gone { was_directory });
                }
                self.say(path, Became::Here(standing));
            }
            // What stands there has no message: what it took the place of is gone.
            There::Other => self.say(path, Became::Gone { was_directory }),
            There::Hidden => self.told.push(Told::hidden(path.clone(), is_deep)),
            There::Nothing => self.tell_nothing(at, path, was_directory),
        }
    }

    /// Nothing stands at a path: the entry was renamed, or is gone.
    fn tell_nothing(&mut self, at: usize, path: &RelPath, was_directory: bool) {
        let was_moved = |one: &Move<'_>| one.at < at && one.from == path;
        if let Some(now) = self.moved(at, path) {
            self.late.insert(now);
        } else if !self.moves.iter().any(was_moved) {
            self.say(path, Became::Gone { was_directory });
        }
    }

    fn tell_move(&mut self, at: usize, word: &Word, from: &RelPath) {
        let now = match (self.look)(&word.path) {
            There::Nothing => self.moved(at, &word.path).map(|now| (self.look)(&now)),
            there => Some(there),
        };
        if let Some(There::Standing(now)) = now {
            let from = from.clone();
            return self.say(&word.path, Became::Moved { from, now });
        }
        // What came of the rename cannot be announced, or is gone by now.
        let sort = match word.sort {
            Sort::MovedFile => Sort::Entry,
            _ => Sort::Subtree,
        };
        for path in [from, &word.path] {
            self.tell(at, path, sort);
        }
    }

    /// Where later renames took what stood at a path.
    fn moved(&self, at: usize, path: &RelPath) -> Option<RelPath> {
        let later = self.moves.iter().filter(|one| one.at > at);
        later.fold(None, |now, one| {
            let place = now.as_ref().unwrap_or(path);
            match place.is_within(one.from) {
                true => Some(place.rebased(one.from, one.to)),
                false => now,
            }
        })
    }

    fn end(mut self) -> Vec<Told> {
        for path in std::mem::take(&mut self.late) {
            // No rename is later than all words.
            self.tell(usize::MAX, &path, Sort::Entry);
        }
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ABOUT: About = About { size: 7, ..UNKNOWN };

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn word(sort: Sort, to: &str, from: Option<&str>) -> Word {
        Word {
            sort,
            path: path(to),
            from: from.map(path),
            since: Duration::ZERO,
        }
    }

    /// What is told where files, and directories with a slash behind them, stand; `|` is a pipe,
    /// `?` cannot be looked at.
    fn told_where(there: &[&str], words: &[Word]) -> Vec<String> {
        let look = |path: &RelPath| {
            let path = path.to_string();
            let has = |end: &str| there.contains(&format!("{path}{end}").as_str());
            match () {
                () if has("") => There::Standing(Standing::File(ABOUT)),
                () if has("/") || path == "." => There::Standing(Standing::Directory(ABOUT)),
                () if has("|") => There::Other,
                () if has("?") => There::Hidden,
                () => There::Nothing,
            }
        };
        let shown = |told: Told| {
            let unknown = if told.is_known { "" } else { "?" };
            let path = told.announced.path;
            match told.announced.became {
                Became::Here(Standing::Directory(_)) => format!("{path}/{unknown}"),
                Became::Here(_) => format!("{path}{unknown}"),
                Became::Moved { from, .. } => format!("{from} -> {path}"),
                Became::Gone { was_directory } if was_directory => format!("-{path}/"),
                Became::Gone { .. } => format!("-{path}"),
                Became::Below(_) => format!("{path}/**{unknown}"),
                Became::Linked { .. } => panic!("nobody tells a link"),
            }
        };
        told(words.iter(), look).into_iter().map(shown).collect()
    }

    #[test]
    fn what_stands_there_now_is_what_is_told() {
        use Sort::{Entry, Gone, Replaced, Subtree, Written};
        for (sort, there, expected) in [
            (Written, "a", &["a"][..]),
            (Entry, "a/", &["a/"]),
            (Entry, "", &["-a"]),
            (Written, "a|", &["-a"]),
            (Written, "a?", &["a?"]),
            (Gone, "", &["-a/"]),
            (Gone, "a", &["-a/", "a"]),
            (Gone, "a/", &["a/**"]),
            (Gone, "a|", &["-a/"]),
            (Subtree, "a/", &["a/**"]),
            (Subtree, "a", &["a"]),
            (Replaced, "", &["-a/"]),
            (Subtree, "a?", &["a/**?"]),
        ] {
            let told = told_where(&[there], &[word(sort, "a", None)]);
            assert_eq!(told, expected, "{sort:?} {there}");
        }
        let all = told_where(&[], &[word(Subtree, "", None)]);
        assert_eq!(all, ["./**"]);
    }

    #[test]
    fn a_rename_is_told_as_one_and_what_was_written_before_under_the_new_name() {
        use Sort::{Entry, Moved, MovedFile, Subtree, Written};
        let words = [
            word(Written, "tmp", None),
            word(MovedFile, "file", Some("tmp")),
            word(Entry, "tmp", None),
            word(Entry, "", None),
        ];
        let told = told_where(&["file"], &words);
        assert_eq!(told, ["tmp -> file", "./", "file"]);
        let words = [
            word(Written, "d/f", None),
            word(Moved, "e", Some("d")),
            word(Subtree, "d", None),
            word(Moved, "g/e", Some("e")),
            word(Written, "d/f", None),
        ];
        let told = told_where(&["g/", "g/e/", "g/e/f"], &words);
        assert_eq!(told, ["d -> e", "e -> g/e", "-d/f", "g/e/f"]);
    }

    #[test]
    fn of_a_rename_whose_end_is_gone_both_names_are_looked_at() {
        use Sort::{Moved, MovedFile};
        let moved = [word(MovedFile, "b", Some("a"))];
        assert_eq!(told_where(&[], &moved), ["-a", "-b"]);
        assert_eq!(told_where(&["a"], &moved), ["a", "-b"]);
        assert_eq!(told_where(&["b|"], &moved), ["-a", "-b"]);
        assert_eq!(told_where(&["b?"], &moved), ["-a", "b?"]);
        let there_and_back = [word(Moved, "b", Some("a")), word(Moved, "a", Some("b"))];
        assert_eq!(told_where(&["a/"], &there_and_back), ["a -> b", "b -> a"]);
        let lost = [
            word(MovedFile, "b", Some("a")),
            word(MovedFile, "c", Some("b")),
        ];
        assert_eq!(told_where(&[], &lost), ["-a", "-b", "-c"]);
    }

    #[test]
    fn of_what_cannot_be_looked_at_only_the_path_is_told() {
        let base = BaseUrl::parse("file:/src").unwrap();
        let message = Told::hidden_tree().message(&base, Stamp::default());
        assert!(message.is_below && message.mode.is_none() && message.mtime.is_none());
        let message = Told::hidden(path("a"), false).message(&base, Stamp::default());
        assert!(message.size.is_none() && message.file_op.is_none());
    }
}
