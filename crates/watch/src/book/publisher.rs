//! The publisher as one more of those who take words: of all trees, in the order in which they were
//! told, and only once. A word that was announced and not confirmed is the publisher's; it says what
//! is confirmed.

use super::{Book, Inner};
use crate::queue::Word;
use crate::status::{PublisherStatus, millis};
use std::time::{Duration, Instant};

/// Words that are announced at once.
const WORDS_AT_ONCE: usize = 1024;
/// A mirror of this host that listens is known by then, whatever else this host is busy with.
const KNOWN_AFTER: Duration = Duration::from_secs(60);

/// What is known of the publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    /// All up to this number is confirmed.
    pub(super) taken: u64,
    status: PublisherStatus,
    began: Instant,
    /// Mirrors that were there from the beginning are known.
    has_looked: bool,
}

impl Publisher {
    fn knows_mirrors(&self) -> bool {
        self.has_looked || self.began.elapsed() >= KNOWN_AFTER
    }
}

/// What is to be announced, each word with the number of its tree.
#[derive(Debug, Default)]
pub struct Words {
    /// In the order in which they were told.
    pub words: Vec<(usize, Word)>,
    /// The number of the last word that was looked at.
    pub until: u64,
}

impl Book {
    /// Everything is announced from here on, as `status` says.
    pub fn publish(&self, status: PublisherStatus) {
        self.inner.lock().publisher = Some(Publisher {
            taken: 0,
            status,
            began: Instant::now(),
            has_looked: false,
        });
    }

    /// Mirrors that listened before were all heard from.
    pub fn has_looked(&self) {
        let mut inner = self.inner.lock();
        let publisher = inner.publisher.as_mut();
        let is_new = publisher.is_some_and(|one| !std::mem::replace(&mut one.has_looked, true));
        if is_new {
            inner.forget_taken();
        }
    }

    /// Waits for so long until there are words behind the number `after`; nothing once all is over
    /// and no word is left.
    pub fn next_to_publish(&self, after: u64, wait: Duration) -> Option<Words> {
        let mut inner = self.inner.lock();
        if !inner.is_over && inner.durable <= after {
            inner = self.changed.wait_for(inner, wait);
        }
        let is_left = inner.durable > after;
        (is_left || !inner.is_over).then(|| inner.words(after))
    }

    /// All up to this number is confirmed.
    pub fn take_published(&self, until: u64) {
        let mut inner = self.inner.lock();
        if let Some(publisher) = &mut inner.publisher {
            publisher.taken = until;
        }
        inner.forget_taken();
    }

    /// Changes how the publisher stands.
    pub fn count_published(&self, change: impl FnOnce(&mut PublisherStatus)) {
        if let Some(publisher) = &mut self.inner.lock().publisher {
            change(&mut publisher.status);
        }
    }

    /// How the publisher stands, if there is one.
    pub fn publisher_status(&self) -> Option<PublisherStatus> {
        let inner = self.inner.lock();
        let publisher = inner.publisher.as_ref()?;
        let range = (publisher.taken, u64::MAX);
        let trees = inner.trees.iter();
        let words = trees.flat_map(|tree| tree.queue.between(range, usize::MAX));
        let (waiting, oldest) = words.fold((0, None), |(waiting, oldest), (_, word)| {
            let since = oldest.map_or(word.since, |oldest: Duration| oldest.min(word.since));
            (waiting + 1, Some(since))
        });
        Some(PublisherStatus {
            waiting,
            oldest_ms: oldest.map(millis),
            ..publisher.status.clone()
        })
    }
}

impl Inner {
    /// What the publisher has taken, as one of those who take words; `None` if there is none.
    pub(super) fn published(&self) -> Option<u64> {
        self.publisher.as_ref().map(|one| one.taken)
    }

    /// Whether all are known who take words: a mirror that listens is found some moments after the
    /// agent begins, and the publisher may be faster.
    pub(super) fn knows_all(&self) -> bool {
        self.publisher.as_ref().is_none_or(Publisher::knows_mirrors)
    }

    fn words(&mut self, after: u64) -> Words {
        let range = (after, self.durable);
        let mut words: Vec<(u64, usize, Word)> = Vec::new();
        for (number, tree) in self.trees.iter().enumerate() {
            let told = tree.queue.between(range, WORDS_AT_ONCE);
            words.extend(told.map(|(at, word)| (at, number, word.clone())));
        }
        words.sort_by_key(|(at, ..)| *at);
        let has_more = words.len() >= WORDS_AT_ONCE;
        words.truncate(WORDS_AT_ONCE);
        let last = words.last().map(|(at, ..)| *at);
        let until = last.filter(|_| has_more).unwrap_or(self.durable);
        self.handed = self.handed.max(until);
        Words {
            words: words
                .into_iter()
                .map(|(_, tree, word)| (tree, word))
                .collect(),
            until: until.max(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, opened, place, seen};
    use super::*;
    use std::path::Path;

    fn next(book: &Book, after: u64) -> (Vec<String>, u64) {
        let words = book.next_to_publish(after, Duration::ZERO).unwrap();
        let text = |(tree, word): (usize, Word)| format!("{tree}:{}", word.path);
        (words.words.into_iter().map(text).collect(), words.until)
    }

    #[test]
    fn words_are_kept_until_they_are_confirmed_and_mirrors_have_them() {
        let place = place();
        let (book, mut state) = opened(&place);
        book.publish(PublisherStatus::default());
        assert!(book.know(Path::new("1"), "one", b"/a"));
        book.has_looked();
        book.add(vec![seen(0, "x"), seen(1, "y"), seen(0, "z")], NOW);
        assert_eq!(next(&book, 0).0, [""; 0], "they are not durable");
        book.save(&mut state).unwrap();
        let (told, until) = next(&book, 0);
        assert_eq!(told, ["0:x", "1:y", "0:z"]);
        assert_eq!(next(&book, until), (vec![], until), "they are told once");
        let status = book.publisher_status().unwrap();
        assert_eq!((status.waiting, status.oldest_ms), (3, Some(millis(NOW))));
        book.take_published(until);
        book.save(&mut state).unwrap();
        assert_eq!(state.waiting().unwrap().len(), 2, "the mirror has none");
        assert_eq!(book.publisher_status().unwrap().oldest_ms, None);
        let batch = book.next(Path::new("1"), Duration::ZERO).unwrap();
        book.take(Path::new("1"), batch.until);
        book.save(&mut state).unwrap();
        assert_eq!(state.waiting().unwrap(), []);
        // What is told while it waits to be confirmed is told again.
        book.add(vec![seen(0, "x")], NOW);
        book.save(&mut state).unwrap();
        let (told, until) = next(&book, until);
        assert_eq!(told, ["0:x"]);
        book.add(vec![seen(0, "x")], NOW);
        book.save(&mut state).unwrap();
        assert_eq!(next(&book, until).0, ["0:x"]);
    }

    #[test]
    fn what_an_earlier_life_left_waits_until_mirrors_are_known() {
        let place = place();
        let (book, mut state) = opened(&place);
        book.add(vec![seen(0, "x")], NOW);
        book.save(&mut state).unwrap();
        drop((book, state));
        let (book, _state) = opened(&place);
        book.publish(PublisherStatus::default());
        let (told, until) = next(&book, 0);
        assert_eq!(told, ["0:x"]);
        book.take_published(until);
        assert!(book.know(Path::new("1"), "one", b"/a"));
        book.has_looked();
        let batch = book.next(Path::new("1"), Duration::ZERO).unwrap();
        assert_eq!(batch.posts.len(), 1);
    }

    #[test]
    fn of_very_many_words_some_are_announced_at_a_time_and_in_order() {
        let place = place();
        let (book, mut state) = opened(&place);
        book.publish(PublisherStatus::default());
        let count = 3 * WORDS_AT_ONCE;
        let all = (0..count).map(|number| seen(number % 3 / 2, &number.to_string()));
        book.add(all.collect(), NOW);
        book.save(&mut state).unwrap();
        book.end();
        let (mut told, mut until) = (Vec::new(), 0);
        while let Some(words) = book.next_to_publish(until, Duration::ZERO) {
            let numbers = words.words.iter().map(|(_, word)| word.path.to_string());
            told.extend(numbers.map(|text| text.parse::<usize>().unwrap()));
            until = words.until;
        }
        assert_eq!(told, (0..count).collect::<Vec<_>>());
    }
}
