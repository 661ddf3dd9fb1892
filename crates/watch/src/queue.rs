//! What was told of one tree, and not every mirror has taken yet.
//!
//! A path that is told many times stands here once. Only renames keep words apart: what was told of
//! a path before a rename and after it may be about two entries, and mirrors follow a rename in the
//! order in which it was told. Nothing here reads a clock or a file.

use driftless_detect::Seen;
use driftless_detect::post::Sort;
use driftless_model::RelPath;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Words that are kept apart; of more, all of the tree is told in their place.
pub const WORDS_MAX: usize = 500_000;
/// Bytes that these may take in memory.
const BYTES_MAX: usize = 256 << 20;
/// What a word takes beside its paths.
const WORD_BYTES: usize = 160;

/// What was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What is said of the path.
    pub sort: Sort,
    /// The path below the tree.
    pub path: RelPath,
    /// Where it stood before, of what was moved.
    pub from: Option<RelPath>,
    /// When it was told first, since 1970.
    pub since: Duration,
}

impl Word {
    /// What was seen at this moment; nothing of what mirrors keep for themselves in a replica, and
    /// what came from there or went there was not renamed.
    pub fn of(seen: Seen, since: Duration) -> Option<Word> {
        let (sort, path, from) = Sort::of(seen);
        let is_file = sort == Sort::MovedFile;
        let (is_here, from) = (
            !path.is_set_aside(),
            from.map(|from| (from.is_set_aside(), from)),
        );
        let (sort, path, from) = match from {
            Some((true, _)) if is_here && is_file => (Sort::Written, path, None),
            Some((true, _)) if is_here => (Sort::Replaced, path, None),
            Some((false, from)) if is_here => (sort, path, Some(from)),
            Some((false, from)) if is_file => (Sort::Entry, from, None),
            Some((false, from)) => (Sort::Subtree, from, None),
            None if is_here => (sort, path, None),
            _ => return None,
        };
        Some(Word {
            sort,
            path,
            from,
            since,
        })
    }

    /// All of the tree may differ.
    pub fn all(since: Duration) -> Word {
        Word {
            sort: Sort::Subtree,
            path: RelPath::root(),
            from: None,
            since,
        }
    }

    fn bytes(&self) -> usize {
        let from = self.from.as_ref().map_or(0, |from| from.as_bytes().len());
        // A path stands here twice.
        WORD_BYTES + 2 * self.path.as_bytes().len() + from
    }
}

/// The words of a tree, by number.
#[derive(Debug, Default)]
pub struct Queue {
    words: BTreeMap<u64, Word>,
    /// The last word of each path.
    last: HashMap<RelPath, u64>,
    last_move: u64,
    /// Words up to this number were saved.
    saved: u64,
    bytes: usize,
    change: Change,
}

/// How words differ from those that were saved last.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Nothing of what was saved waits any more.
    pub is_emptied: bool,
    /// Numbers of words that were saved and wait no more.
    pub gone: Vec<u64>,
    /// Numbers of words that are new or others.
    pub new: BTreeSet<u64>,
}

impl Queue {
    /// What was saved earlier.
    pub fn saved(words: impl IntoIterator<Item = (u64, Word)>) -> Queue {
        let mut queue = Queue::default();
        for (number, word) in words {
            queue.put(number, word);
        }
        queue.take_change();
        queue
    }

    /// How many words wait.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// When the oldest word was told.
    pub fn oldest(&self) -> Option<Duration> {
        self.words.values().map(|word| word.since).min()
    }

    /// Adds a word under a `number` that is larger than all before. Those up to `handed` may have
    /// been handed on.
    pub fn add(&mut self, number: u64, handed: u64, mut word: Word) {
        let last = self.last.get(&word.path).copied();
        // What was told before a rename may be about another entry.
        let known = last.filter(|last| *last > self.last_move);
        let joined = known.and_then(|known| {
            let sort = self.words[&known].sort.join(word.sort)?;
            Some((known, sort))
        });
        match joined {
            Some((known, sort)) if known > handed => return self.change_sort(known, sort),
            Some((known, sort)) => {
                let earlier = self.remove(known);
                (word.sort, word.since) = (sort, earlier.since);
            }
            None => {}
        }
        self.put(number, word);
        if self.words.len() > WORDS_MAX || self.bytes > BYTES_MAX {
            let since = self.oldest().unwrap_or_default();
            self.clear();
            self.put(number, Word::all(since));
        }
    }

    fn change_sort(&mut self, number: u64, sort: Sort) {
        let word = self.words.get_mut(&number).expect("it was looked up");
        if word.sort != sort {
            word.sort = sort;
            self.change.new.insert(number);
        }
    }

    fn put(&mut self, number: u64, word: Word) {
        self.bytes += word.bytes();
        self.last.insert(word.path.clone(), number);
        if word.from.is_some() {
            self.last_move = number;
        }
        self.words.insert(number, word);
        self.change.new.insert(number);
    }

    fn remove(&mut self, number: u64) -> Word {
        let word = self.words.remove(&number).expect("it was looked up");
        self.bytes -= word.bytes();
        if self.last.get(&word.path) == Some(&number) {
            self.last.remove(&word.path);
        }
        self.change.new.remove(&number);
        if number <= self.saved {
            self.change.gone.push(number);
        }
        word
    }

    fn clear(&mut self) {
        *self = Queue {
            change: Change {
                is_emptied: true,
                ..Change::default()
            },
            ..Queue::default()
        };
    }

    /// Words behind the number `after`, up to `until`, at most so many.
    pub fn between(
        &self,
        (after, until): (u64, u64),
        words_max: usize,
    ) -> impl Iterator<Item = (u64, &Word)> {
        let first = after.saturating_add(1);
        let range = (first <= until).then(|| self.words.range(first..=until));
        let words = range.into_iter().flatten().take(words_max);
        words.map(|(number, word)| (*number, word))
    }

    /// Forgets all words up to this number.
    pub fn forget(&mut self, until: u64) {
        while let Some((number, _)) = self.words.first_key_value() {
            let number = *number;
            if number > until {
                break;
            }
            self.remove(number);
        }
    }

    /// What is to be saved; from here on it is taken to be.
    pub fn take_change(&mut self) -> (Change, Vec<(u64, Word)>) {
        let change = std::mem::take(&mut self.change);
        self.saved = self.words.keys().next_back().copied().unwrap_or(self.saved);
        let words = change.new.iter().map(|number| {
            let word = self.words[number].clone();
            (*number, word)
        });
        let words = words.collect();
        (change, words)
    }

    /// Nothing of it was saved.
    pub fn save_all_again(&mut self) {
        self.saved = 0;
        self.change = Change {
            is_emptied: true,
            gone: Vec::new(),
            new: self.words.keys().copied().collect(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Change as Told, Hint};

    fn word(sort: Sort, path: &str) -> Word {
        Word {
            sort,
            path: RelPath::parse(path.as_bytes()).unwrap(),
            from: None,
            since: Duration::ZERO,
        }
    }

    fn moved(from: &str, to: &str) -> Word {
        Word {
            from: Some(RelPath::parse(from.as_bytes()).unwrap()),
            ..word(Sort::Moved, to)
        }
    }

    fn told(queue: &Queue) -> Vec<(u64, Sort, String)> {
        let words = queue.between((0, u64::MAX), usize::MAX);
        let shown = |(number, word): (u64, &Word)| {
            let path = String::from_utf8_lossy(word.path.as_bytes()).into_owned();
            (number, word.sort, path)
        };
        words.map(shown).collect()
    }

    #[test]
    fn what_mirrors_keep_for_themselves_is_not_told() {
        const OWN: &str = ".driftless-tmp-0123456789abcdef0123456789abcdef";
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let of = |change: Told| {
            let told = Word::of(Seen::closed(change), Duration::ZERO)?;
            let from = told.from.map(|from| from.to_string());
            Some((told.sort, told.path.to_string(), from))
        };
        let here = |sort, path: &str| Some((sort, path.to_owned(), None));
        let below = format!("a/{OWN}/b");
        for own in [OWN, &below, ".driftless-trash/x", "a/.driftless-lock"] {
            assert_eq!(of(Told::entry(path(own))), None, "{own}");
            let moved = |from: &str| Hint::MovedFrom(path(from));
            let file = |from, to| of(Told::entry(path(to)).with(moved(from)));
            let dir = |from, to| of(Told::subtree(path(to)).with(moved(from)));
            assert_eq!((file(own, OWN), dir(own, OWN)), (None, None));
            assert_eq!(file(own, "x"), here(Sort::Written, "x"));
            assert_eq!(dir(own, "x"), here(Sort::Replaced, "x"));
            assert_eq!(file("x", own), here(Sort::Entry, "x"));
            assert_eq!(dir("x", own), here(Sort::Subtree, "x"));
            let both = Some((Sort::Moved, "y".into(), Some("x".into())));
            assert_eq!(dir("x", "y"), both);
        }
    }

    #[test]
    fn a_path_that_is_told_many_times_stands_once_with_all_that_was_said() {
        let mut queue = Queue::default();
        queue.add(1, 0, word(Sort::Entry, "a"));
        queue.add(2, 0, word(Sort::Entry, "b"));
        queue.add(3, 0, word(Sort::Written, "a"));
        assert_eq!(
            told(&queue),
            [(1, Sort::Written, "a".into()), (2, Sort::Entry, "b".into())]
        );
        // What may have been handed on is told again.
        queue.add(4, 2, word(Sort::Entry, "a"));
        assert_eq!(
            told(&queue),
            [(2, Sort::Entry, "b".into()), (4, Sort::Written, "a".into())]
        );
    }

    #[test]
    fn a_rename_keeps_what_was_told_before_it_apart_from_what_is_told_after() {
        let mut queue = Queue::default();
        queue.add(1, 0, word(Sort::Written, "a/x"));
        queue.add(2, 0, moved("a", "b"));
        queue.add(3, 0, word(Sort::Written, "a/x"));
        queue.add(4, 0, word(Sort::Written, "b"));
        queue.add(5, 0, moved("b", "c"));
        let numbers: Vec<u64> = told(&queue).iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_is_saved_is_what_waits() {
        let mut rng = fastrand::Rng::with_seed(5);
        let (mut queue, mut saved) = (Queue::default(), BTreeMap::new());
        let mut taken = 0;
        for number in 1..4000 {
            let name = rng.u8(..20).to_string();
            let one = match rng.u8(..12) {
                0 => moved("x", &name),
                1 => word(Sort::Gone, &name),
                _ => word(Sort::Entry, &name),
            };
            queue.add(number, taken, one);
            match rng.u8(..20) {
                0 => {
                    taken = number.saturating_sub(rng.u64(..8));
                    queue.forget(taken);
                }
                1 => queue.save_all_again(),
                2..8 => {
                    let (change, words) = queue.take_change();
                    if change.is_emptied {
                        saved.clear();
                    }
                    change.gone.iter().for_each(|gone| drop(saved.remove(gone)));
                    saved.extend(words);
                    assert_eq!(saved, queue.words, "{number}");
                    let again = Queue::saved(saved.clone());
                    assert_eq!(
                        (again.bytes, again.last_move > 0),
                        (queue.bytes, {
                            queue.words.values().any(|word| word.from.is_some())
                        })
                    );
                }
                _ => {}
            }
        }
    }

    #[test]
    fn of_too_many_paths_all_of_the_tree_is_told() {
        let mut queue = Queue::default();
        for number in 1..=WORDS_MAX as u64 + 1 {
            queue.add(number, 0, word(Sort::Entry, &format!("{number}")));
        }
        let last = WORDS_MAX as u64 + 1;
        assert_eq!(told(&queue), [(last, Sort::Subtree, String::new())]);
        let (change, words) = queue.take_change();
        assert!(change.is_emptied && change.gone.is_empty() && words.len() == 1);
        queue.add(last + 1, 0, word(Sort::Entry, "a"));
        assert_eq!(queue.len(), 2);
    }
}
