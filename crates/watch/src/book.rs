//! What all threads of an agent share: what waits of each tree, which mirrors are known, and how far
//! each of them has been told.
//!
//! Words are handed on when they are durable, and are forgotten when every known mirror that they
//! concern has taken them, and the publisher. A mirror that is away for long is not known any more: it compares all
//! when it begins.

mod publisher;

use crate::posts::{Post, post};
use crate::queue::{Queue, Word};
use crate::status::{self, Counts, GapStatus, MirrorStatus, TreeStatus};
use driftless_detect::Seen;
use driftless_detect::agents::concerns;
use driftless_detect::post::Sort;
use driftless_lock::{Condvar, Mutex};
use driftless_state::StateError;
use driftless_state::watch::{Saved, TreeRow, WaitingRow, WatchState};
use publisher::Publisher;
pub use publisher::Words;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Words that a mirror is told at once.
const WORDS_AT_ONCE: usize = 4096;

/// What is shared.
#[derive(Debug)]
pub struct Book {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// A mirror has taken something, or a round was kept.
    taken: Condvar,
}

#[derive(Debug)]
struct Inner {
    trees: Vec<Tree>,
    mirrors: BTreeMap<PathBuf, Known>,
    publisher: Option<Publisher>,
    /// The number of the last word.
    last: u64,
    /// Words up to this number are durable.
    durable: u64,
    /// Words up to this number may have been handed on.
    handed: u64,
    counts: Counts,
    /// The last round that all threads have reported, and the number of the last word then.
    round: (u64, u64),
    is_over: bool,
}

#[derive(Debug)]
struct Tree {
    row: TreeRow,
    is_row_new: bool,
    /// A gap was counted, and is to be told later.
    has_gap: bool,
    queue: Queue,
}

/// A mirror that was heard from.
#[derive(Debug)]
struct Known {
    job: String,
    source: Vec<u8>,
    /// It has taken everything up to this number.
    taken: u64,
    /// Since when it does not answer, and why.
    away: Option<(Instant, String)>,
}

/// What a mirror is to be told.
#[derive(Debug, Default)]
pub struct Batch {
    /// In the order in which it was told.
    pub posts: Vec<Post>,
    /// The number of the last word that was looked at.
    pub until: u64,
}

impl Book {
    /// What an earlier life has left in a state, for these trees.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn of(state: &WatchState, trees: Vec<TreeRow>) -> Result<Book, StateError> {
        let waiting = state.waiting()?;
        let last = waiting.last().map_or(0, |row| row.id);
        let mut words: BTreeMap<u64, Vec<(u64, Word)>> = BTreeMap::new();
        for row in waiting {
            words.entry(row.tree).or_default().push(word(row));
        }
        let tree = |row: TreeRow| Tree {
            queue: Queue::saved(words.remove(&row.id).unwrap_or_default()),
            is_row_new: false,
            has_gap: false,
            row,
        };
        let inner = Inner {
            trees: trees.into_iter().map(tree).collect(),
            mirrors: BTreeMap::new(),
            publisher: None,
            last,
            durable: last,
            handed: 0,
            counts: Counts::default(),
            round: (0, 0),
            is_over: false,
        };
        Ok(Book {
            inner: Mutex::new(inner),
            changed: Condvar::default(),
            taken: Condvar::default(),
        })
    }

    /// What was seen in trees, by their numbers.
    pub fn add(&self, seen: Vec<(usize, Seen)>, now: Duration) {
        let mut inner = self.inner.lock();
        for (tree, seen) in seen {
            if let Some(word) = Word::of(seen, now) {
                inner.put(tree, word);
            }
        }
    }

    /// Something was missed in a tree.
    pub fn count_gap(&self, tree: usize, now: Duration) {
        let mut inner = self.inner.lock();
        let tree = &mut inner.trees[tree];
        tree.row.gaps += 1;
        tree.row.first_gap = tree.row.first_gap.or(Some(now));
        tree.row.last_gap = Some(now);
        tree.has_gap = true;
        tree.is_row_new = true;
    }

    /// All of a tree is to be told, and with it a gap that was counted.
    pub fn add_all(&self, tree: usize, now: Duration) {
        let mut inner = self.inner.lock();
        inner.trees[tree].has_gap = false;
        inner.put(tree, Word::all(now));
    }

    /// Changes what is counted.
    pub fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.inner.lock().counts);
    }

    /// Makes everything durable that was added, and has it handed on. What cannot be kept is handed
    /// on nevertheless, and kept when that can be.
    ///
    /// # Errors
    /// It is not durable.
    pub fn save(&self, state: &mut WatchState) -> Result<(), StateError> {
        let (saved, last) = {
            let mut inner = self.inner.lock();
            (inner.take_saved(), inner.last)
        };
        let done = if saved.is_empty() {
            Ok(())
        } else {
            state.save(&saved)
        };
        let mut inner = self.inner.lock();
        if done.is_err() {
            inner.save_all_again();
        }
        if inner.durable < last {
            inner.durable = last;
            self.changed.notify_all();
        }
        done
    }

    /// Has everything handed on that was added, while nothing can be made durable.
    pub fn hand_on_unsaved(&self) {
        let mut inner = self.inner.lock();
        inner.durable = inner.last;
        self.changed.notify_all();
    }

    /// A mirror of this socket was heard from; false if it is known, or no tree concerns it.
    pub fn know(&self, socket: &Path, job: &str, source: &[u8]) -> bool {
        let mut inner = self.inner.lock();
        let is_concerned = inner.concerned(source).next().is_some();
        if !is_concerned || inner.mirrors.contains_key(socket) {
            return false;
        }
        let known = Known {
            job: job.to_owned(),
            source: source.to_owned(),
            taken: 0,
            away: None,
        };
        inner.mirrors.insert(socket.to_owned(), known);
        true
    }

    /// Whether a mirror of this socket is known.
    pub fn is_known(&self, socket: &Path) -> bool {
        self.inner.lock().mirrors.contains_key(socket)
    }

    /// A mirror is not known any more.
    pub fn forget(&self, socket: &Path) {
        let mut inner = self.inner.lock();
        inner.mirrors.remove(socket);
        inner.forget_taken();
    }

    /// Waits until there is something for a mirror, or for so long; nothing once all is over.
    pub fn next(&self, socket: &Path, wait: Duration) -> Option<Batch> {
        let mut inner = self.inner.lock();
        let has_some = |inner: &Inner| {
            let known = inner.mirrors.get(socket);
            known.is_some_and(|known| known.taken < inner.durable)
        };
        if !inner.is_over && !has_some(&inner) {
            inner = self.changed.wait_for(inner, wait);
        }
        (!inner.is_over).then(|| inner.batch(socket))
    }

    /// Waits for so long, or until all is over; whether it is.
    pub fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut inner = self.inner.lock();
        while !inner.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            inner = self.changed.wait_for(inner, left);
        }
        true
    }

    /// A mirror has taken everything up to this number.
    pub fn take(&self, socket: &Path, until: u64) {
        let mut inner = self.inner.lock();
        if let Some(known) = inner.mirrors.get_mut(socket) {
            (known.taken, known.away) = (until, None);
        }
        inner.forget_taken();
        self.taken.notify_all();
    }

    /// Notes that everything that was said before a round was added, and handed on.
    pub fn keep_round(&self, round: u64) {
        let mut inner = self.inner.lock();
        inner.round = (round, inner.last);
        self.taken.notify_all();
    }

    /// Waits for so long until a mirror has taken everything that was said before a round; returns
    /// whether it has. A mirror that is not known yet is found soon.
    pub fn is_delivered(&self, socket: &Path, round: u64, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut inner = self.inner.lock();
        // Words of later rounds need not be waited for.
        let mut last = None;
        loop {
            if inner.round.0 >= round {
                let last = *last.get_or_insert(inner.round.1);
                let known = inner.mirrors.get(socket);
                if known.is_some_and(|known| known.taken >= last) {
                    return true;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || inner.is_over {
                return false;
            }
            inner = self.taken.wait_for(inner, left);
        }
    }

    /// Returns which thread hears nothing, and why, if one does.
    pub fn why_undelivered(&self) -> Option<String> {
        let inner = self.inner.lock();
        let deaf = inner.counts.deaf.iter().next();
        deaf.map(|(thread, why)| format!("{thread}: {why}"))
    }

    /// A mirror does not answer; returns for how long.
    pub fn away(&self, socket: &Path, why: String) -> Duration {
        let mut inner = self.inner.lock();
        let Some(known) = inner.mirrors.get_mut(socket) else {
            return Duration::ZERO;
        };
        let since = known
            .away
            .as_ref()
            .map_or(Instant::now(), |(since, _)| *since);
        known.away = Some((since, why));
        since.elapsed()
    }

    /// Whether a mirror has the source that was known of it.
    pub fn is_of(&self, socket: &Path, source: &[u8]) -> bool {
        let inner = self.inner.lock();
        let known = inner.mirrors.get(socket);
        known.is_some_and(|known| known.source == source)
    }

    /// Nothing is handed on any more.
    pub fn end(&self) {
        self.inner.lock().is_over = true;
        self.changed.notify_all();
        self.taken.notify_all();
    }

    /// How it stands.
    pub fn status(&self) -> (Counts, Vec<TreeStatus>, Vec<MirrorStatus>) {
        let inner = self.inner.lock();
        let trees = inner.trees.iter().map(Tree::status).collect();
        let mirrors = inner.mirrors.values().map(|known| MirrorStatus {
            job: known.job.clone(),
            source: String::from_utf8_lossy(&known.source).into_owned(),
            waiting: inner.left(known),
            away: known.away.as_ref().map(|(_, why)| why.clone()),
        });
        (inner.counts.clone(), trees, mirrors.collect())
    }
}

impl Tree {
    fn status(&self) -> TreeStatus {
        TreeStatus {
            path: String::from_utf8_lossy(&self.row.path).into_owned(),
            waiting: self.queue.len() as u64,
            oldest_ms: self.queue.oldest().map(status::millis),
            gaps: GapStatus {
                is_held: self.has_gap,
                ..GapStatus::of(&self.row)
            },
        }
    }
}

impl Inner {
    fn put(&mut self, tree: usize, word: Word) {
        self.last += 1;
        let queue = &mut self.trees[tree].queue;
        queue.add(self.last, self.handed, word);
    }

    fn concerned<'a>(&'a self, source: &'a [u8]) -> impl Iterator<Item = &'a Tree> {
        let trees = self.trees.iter();
        trees.filter(|tree| concerns(&tree.row.path, source))
    }

    /// How many words a mirror has not taken.
    fn left(&self, known: &Known) -> u64 {
        let trees = self.concerned(&known.source);
        let range = (known.taken, u64::MAX);
        let left = trees.map(|tree| tree.queue.between(range, usize::MAX).count());
        left.sum::<usize>() as u64
    }

    fn take_saved(&mut self) -> Saved {
        let mut saved = Saved::default();
        for tree in &mut self.trees {
            let id = tree.row.id;
            let (change, words) = tree.queue.take_change();
            saved.emptied.extend(change.is_emptied.then_some(id));
            saved.gone.extend(change.gone);
            let rows = words
                .into_iter()
                .map(|(number, word)| row(number, id, word));
            saved.waiting.extend(rows);
            if std::mem::take(&mut tree.is_row_new) {
                saved.trees.push(tree.row.clone());
            }
        }
        saved
    }

    fn save_all_again(&mut self) {
        for tree in &mut self.trees {
            tree.queue.save_all_again();
            tree.is_row_new = true;
        }
    }

    /// The next words for a mirror, in the order in which they were told in all trees.
    fn batch(&mut self, socket: &Path) -> Batch {
        let Some(known) = self.mirrors.get(socket) else {
            return Batch::default();
        };
        let range = (known.taken, self.durable);
        let mut words: Vec<(u64, Option<Post>)> = Vec::new();
        // Of a tree with more, what comes behind the last one stays for the next batch.
        let mut until = self.durable;
        for tree in self.concerned(&known.source) {
            let first = words.len();
            let told = tree.queue.between(range, WORDS_AT_ONCE);
            words.extend(told.map(|(number, word)| {
                let post = post(word, &tree.row.path, &known.source);
                (number, post)
            }));
            if words.len() - first == WORDS_AT_ONCE {
                until = until.min(words[words.len() - 1].0);
            }
        }
        words.retain(|(number, _)| *number <= until);
        words.sort_by_key(|(number, _)| *number);
        self.handed = self.handed.max(until);
        Batch {
            posts: words.into_iter().filter_map(|(_, post)| post).collect(),
            until,
        }
    }

    /// Forgets what all known mirrors have taken, and the publisher, if there is one; where there is
    /// nobody, nothing.
    fn forget_taken(&mut self) {
        if !self.knows_all() {
            return;
        }
        let published = self.published();
        for tree in &mut self.trees {
            let mirrors = self.mirrors.values();
            let mirrors = mirrors.filter(|known| concerns(&tree.row.path, &known.source));
            let taken = mirrors.map(|known| known.taken).chain(published);
            if let Some(taken) = taken.min() {
                tree.queue.forget(taken);
            }
        }
    }
}

fn word(row: WaitingRow) -> (u64, Word) {
    let word = Word {
        // A word that is not known is taken for more than any says.
        sort: Sort::of_word(&row.word).unwrap_or(Sort::Replaced),
        path: row.path,
        from: row.from,
        since: row.since,
    };
    (row.id, word)
}

fn row(id: u64, tree: u64, word: Word) -> WaitingRow {
    WaitingRow {
        id,
        tree,
        path: word.path,
        word: word.sort.word().to_owned(),
        from: word.from,
        since: word.since,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Change, RelPath};
    use std::time::Duration;

    pub const NOW: Duration = Duration::from_secs(9);

    pub struct Place {
        _folder: tempfile::TempDir,
        path: PathBuf,
    }

    pub fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        Place {
            _folder: folder,
            path,
        }
    }

    pub fn opened(place: &Place) -> (Book, WatchState) {
        let mut state = WatchState::open(&place.path).unwrap();
        let trees = [&b"/a"[..], b"/b"].map(<[u8]>::to_vec);
        let rows = state.take_trees(&trees, NOW).unwrap();
        let rows = rows.into_iter().map(|(row, _)| row).collect();
        (Book::of(&state, rows).unwrap(), state)
    }

    pub fn seen(tree: usize, path: &str) -> (usize, Seen) {
        let path = RelPath::parse(path.as_bytes()).unwrap();
        (tree, Seen::closed(Change::entry(path)))
    }

    fn next(book: &Book, socket: &str) -> (Vec<String>, u64) {
        let batch = book.next(Path::new(socket), Duration::ZERO).unwrap();
        let text = |post: Post| String::from_utf8(post.path).unwrap();
        (batch.posts.into_iter().map(text).collect(), batch.until)
    }

    #[test]
    fn words_are_handed_on_when_they_are_durable_and_forgotten_when_all_have_them() {
        let place = place();
        let (book, mut state) = opened(&place);
        assert!(book.know(Path::new("1"), "one", b"/a"));
        assert!(book.know(Path::new("2"), "two", b"/"));
        assert!(!book.know(Path::new("2"), "two", b"/"));
        assert!(!book.know(Path::new("3"), "three", b"/c"));
        book.add(vec![seen(0, "x"), seen(1, "y"), seen(0, "z")], NOW);
        assert_eq!(next(&book, "1").0, [""; 0]);
        book.save(&mut state).unwrap();
        let (told, until) = next(&book, "1");
        assert_eq!(told, ["/a/x", "/a/z"]);
        book.take(Path::new("1"), until);
        assert_eq!(state.waiting().unwrap().len(), 3);
        let (told, until) = next(&book, "2");
        assert_eq!(told, ["/a/x", "/b/y", "/a/z"]);
        book.take(Path::new("2"), until);
        book.save(&mut state).unwrap();
        assert_eq!(state.waiting().unwrap(), []);
        assert_eq!(next(&book, "2").0, [""; 0]);
    }

    #[test]
    fn what_no_mirror_has_taken_outlives_the_agent() {
        let place = place();
        let (book, mut state) = opened(&place);
        book.add(vec![seen(0, "x"), seen(1, "y")], NOW);
        book.count_gap(1, NOW);
        book.save(&mut state).unwrap();
        drop((book, state));
        let (book, mut state) = opened(&place);
        assert!(book.know(Path::new("1"), "one", b"/a"));
        let (told, until) = next(&book, "1");
        assert_eq!(told, ["/a/x"]);
        book.take(Path::new("1"), until);
        book.save(&mut state).unwrap();
        assert_eq!(state.waiting().unwrap().len(), 1);
        let (_, trees, mirrors) = book.status();
        assert_eq!((trees[0].waiting, trees[1].waiting), (0, 1));
        assert_eq!((trees[0].gaps.count, trees[1].gaps.count), (0, 1));
        assert_eq!(mirrors[0].waiting, 0);
    }

    #[test]
    fn of_very_many_words_a_mirror_is_told_some_at_a_time_and_in_order() {
        let place = place();
        let (book, mut state) = opened(&place);
        let count = 3 * WORDS_AT_ONCE;
        let all = (0..count).map(|number| seen(number % 3 / 2, &number.to_string()));
        book.add(all.collect(), NOW);
        book.save(&mut state).unwrap();
        book.know(Path::new("1"), "one", b"/");
        let mut told = Vec::new();
        for _ in 0..10 {
            let (more, until) = next(&book, "1");
            told.extend(more);
            book.take(Path::new("1"), until);
        }
        let numbers = told.iter().map(|path| path[3..].parse::<usize>().unwrap());
        assert_eq!(numbers.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
        book.save(&mut state).unwrap();
        assert_eq!(state.waiting().unwrap(), []);
    }
}
