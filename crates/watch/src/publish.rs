//! The thread that announces through a broker what the agent hears.
//!
//! It takes words in order, looks at what stands at each path, and sends messages without waiting
//! for each: only what the broker has confirmed is taken from the book. A broker that is away holds
//! up nobody but this thread, which tries again until all is over.

use crate::book::{Book, Words};
use crate::clock::now;
use crate::look::Root;
use crate::queue::Word;
use crate::status::PublisherStatus;
use crate::tell::{Told, told};
use driftless_announce::Publisher;
use driftless_model::Stamp;
use driftless_sarracenia::{BaseUrl, Message};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it is waited for words, when nothing waits to be confirmed.
const IDLE: Duration = Duration::from_secs(5);
/// How often it is looked what is confirmed.
const TURN: Duration = Duration::from_millis(4);
/// The longest wait for the broker before it is looked what else is to be done.
const WAIT: Duration = Duration::from_secs(1);
/// After so long without a confirm the connection is looked after.
const QUIET: Duration = Duration::from_millis(200);
/// A broker that confirms nothing for so long is away.
const AWAY: Duration = Duration::from_secs(3);
/// Messages that are sent before it is looked what is confirmed.
const LOOK_EVERY: u64 = 256;
/// What was sent is waited for so long at the end.
const END: Duration = Duration::from_secs(2);

/// Where changes are announced, and as what.
pub struct Announcing {
    /// The exchange of a broker. It connects by itself.
    pub publisher: Publisher,
    /// What messages call the trees, in their order.
    pub bases: Vec<BaseUrl>,
    /// The broker, for people.
    pub broker: String,
    /// The exchange, for people.
    pub exchange: String,
}

impl Announcing {
    /// How it stands at the beginning.
    pub fn status(&self) -> PublisherStatus {
        PublisherStatus {
            broker: self.broker.clone(),
            exchange: self.exchange.clone(),
            ..PublisherStatus::default()
        }
    }
}

/// A tree: where it is, and which directory was there when it was last looked at.
struct Tree {
    path: PathBuf,
    id: Option<(u64, u64)>,
}

impl Tree {
    fn at(path: PathBuf) -> Tree {
        Tree {
            id: Root::open(&path).ok().map(|root| root.id()),
            path,
        }
    }

    /// What is announced of words of it. Where another directory stands at its path by now, such as
    /// while its file system is not mounted, nothing is said to be gone.
    fn told(&mut self, words: &[&Word]) -> Vec<Told> {
        let root = match Root::open(&self.path) {
            Ok(root) => root,
            Err(why) => {
                let path = self.path.display();
                tracing::warn!("{path}: {why}: all of it may differ");
                return vec![Told::hidden_tree()];
            }
        };
        let before = self.id.replace(root.id());
        if before.is_some_and(|before| before != root.id()) {
            let path = self.path.display();
            tracing::warn!("{path}: another directory is there: all of it may differ");
            return vec![Told::hidden_tree()];
        }
        told(words.iter().copied(), |path| root.look(path))
    }
}

/// The thread's own.
pub struct Announcer {
    announcing: Announcing,
    trees: Vec<Tree>,
    book: Arc<Book>,
    /// The last word that was read.
    read: u64,
    /// How many messages were sent, and how many confirmed.
    sent: u64,
    confirmed: u64,
    /// What is on its way: the number of a word, and of messages up to it.
    waiting: VecDeque<(u64, u64)>,
    /// When something was confirmed last, or began to wait.
    heard: Instant,
    is_away: bool,
}

/// All is over.
struct Over;

impl Announcer {
    /// One that has not begun.
    pub fn new(announcing: Announcing, trees: Vec<PathBuf>, book: Arc<Book>) -> Announcer {
        Announcer {
            announcing,
            trees: trees.into_iter().map(Tree::at).collect(),
            book,
            read: 0,
            sent: 0,
            confirmed: 0,
            waiting: VecDeque::new(),
            heard: Instant::now(),
            is_away: false,
        }
    }

    /// Announces until all is over, and what was told before.
    pub fn run(mut self) {
        let _all_is_over = self.work();
        let _what_is_left_is_announced_again = self.announcing.publisher.flush(END);
        self.note_confirms();
    }

    fn work(&mut self) -> Result<(), Over> {
        self.connect()?;
        loop {
            let wait = if self.waiting.is_empty() { IDLE } else { TURN };
            let words = self.book.next_to_publish(self.read, wait).ok_or(Over)?;
            if words.until > self.read {
                self.announce(words)?;
            }
            self.settle();
        }
    }

    /// What the broker refuses is told at once, and not with the first word.
    fn connect(&mut self) -> Result<(), Over> {
        while let Err(why) = self.announcing.publisher.connect(WAIT) {
            self.note_away(why.to_string());
            if self.book.pause(WAIT) {
                return Err(Over);
            }
        }
        self.note_back();
        Ok(())
    }

    fn announce(&mut self, words: Words) -> Result<(), Over> {
        for tree in 0..self.trees.len() {
            let own = words.words.iter().filter(|(number, _)| *number == tree);
            let own: Vec<&Word> = own.map(|(_, word)| word).collect();
            if own.is_empty() {
                continue;
            }
            for told in self.trees[tree].told(&own) {
                let message = told.message(&self.announcing.bases[tree], moment());
                self.send(&message)?;
            }
        }
        self.read = words.until;
        if self.waiting.is_empty() {
            self.heard = Instant::now();
        }
        self.waiting.push_back((words.until, self.sent));
        Ok(())
    }

    /// Sends a message, and tries again until it is accepted.
    fn send(&mut self, message: &Message) -> Result<(), Over> {
        loop {
            match self.announcing.publisher.send(message, WAIT) {
                Ok(number) => {
                    self.sent = number + 1;
                    if self.sent.is_multiple_of(LOOK_EVERY) {
                        self.note_confirms();
                    }
                    return Ok(());
                }
                Err(why) => {
                    self.note_confirms();
                    self.note_away(why.to_string());
                    if self.book.pause(TURN) {
                        return Err(Over);
                    }
                }
            }
        }
    }

    /// Takes note of what is confirmed. Where nothing is for a while, it is seen to that there is a
    /// connection.
    fn settle(&mut self) {
        self.note_confirms();
        if self.waiting.is_empty() || self.heard.elapsed() < QUIET {
            return;
        }
        let publisher = &self.announcing.publisher;
        // While a connection stands, this waits for nothing.
        let done = match self.heard.elapsed() < AWAY {
            true => publisher.connect(QUIET),
            false => publisher.flush(WAIT),
        };
        self.note_confirms();
        if let (Err(why), true) = (done, self.heard.elapsed() >= AWAY) {
            self.note_away(why.to_string());
        }
    }

    fn note_confirms(&mut self) {
        let confirmed = self.announcing.publisher.confirmed();
        if confirmed > self.confirmed {
            self.confirmed = confirmed;
            self.heard = Instant::now();
            self.note_back();
        }
        let mut taken = None;
        while let Some((word, _)) = self.waiting.front().filter(|one| one.1 <= confirmed) {
            taken = Some(*word);
            self.waiting.pop_front();
        }
        if let Some(word) = taken {
            self.book.take_published(word);
        }
        let unheard = self.announcing.publisher.unheard();
        self.book.count_published(|status| {
            (status.sent, status.unheard) = (confirmed, unheard);
        });
    }

    fn note_away(&mut self, why: String) {
        if !std::mem::replace(&mut self.is_away, true) {
            tracing::error!("cannot publish: {why}; changes are kept and retried");
        }
        self.book.count_published(|status| status.away = Some(why));
    }

    fn note_back(&mut self) {
        if std::mem::take(&mut self.is_away) {
            tracing::warn!("{}: publishing again", self.announcing.broker);
        }
        self.book.count_published(|status| status.away = None);
    }
}

fn moment() -> Stamp {
    let since = now();
    Stamp {
        sec: i64::try_from(since.as_secs()).unwrap_or_default(),
        nsec: since.subsec_nanos(),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "folders of these tests")]
mod tests {
    use super::*;
    use driftless_detect::post::Sort;
    use driftless_model::RelPath;
    use driftless_sarracenia::Became;
    use std::fs;

    #[test]
    fn of_a_tree_that_is_not_there_nothing_is_told_to_be_gone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tree");
        fs::create_dir(&path).unwrap();
        let mut tree = Tree::at(path.clone());
        let word = Word {
            sort: Sort::Entry,
            path: RelPath::parse(b"a").unwrap(),
            from: None,
            since: Duration::ZERO,
        };
        let mut is_gone = || {
            let mut told = tree.told(&[&word]);
            let told = told.pop().unwrap();
            if told != Told::hidden_tree() {
                assert!(matches!(told.announced.became, Became::Gone { .. }));
            }
            told.is_known
        };
        assert!(is_gone());
        fs::rename(&path, place.path().join("away")).unwrap();
        assert!(!is_gone(), "nothing is there");
        fs::create_dir(&path).unwrap();
        assert!(!is_gone(), "another one is there");
        assert!(is_gone(), "that was told");
    }
}
