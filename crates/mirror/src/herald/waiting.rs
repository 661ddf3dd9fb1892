//! What waits to be told others, within bounds. No clock, no threads.

use crate::dirty::Move;
use crate::gathered::Made;
use crate::link_names::{InodeId, Linked};
use driftless_model::{Action, RelPath};
use std::collections::{HashMap, VecDeque};

/// Changes that wait at most: with more, one word stands for all of them.
const WAITING_MAX: usize = 100_000;
/// Bytes of their paths at most.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// Something that has changed on the replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum New {
    /// An entry was made, changed or removed.
    Entry {
        /// Where.
        path: RelPath,
        /// It is, or was, a directory.
        is_dir: bool,
        /// It was removed, or what is below it was.
        is_removed: bool,
        /// Another name of the file that it was made a link of.
        of: Option<RelPath>,
    },
    /// An entry was renamed.
    Moved {
        /// From there.
        from: RelPath,
        /// To there.
        to: RelPath,
        /// It is a directory.
        is_dir: bool,
    },
}

impl New {
    /// A rename that was carried out.
    pub(crate) fn moved(one: &Move) -> New {
        New::Moved {
            from: one.from.clone(),
            to: one.to.clone(),
            is_dir: one.is_dir,
        }
    }

    /// A directory that was made.
    pub(crate) fn dir(path: RelPath) -> New {
        New::Entry {
            path,
            is_dir: true,
            is_removed: false,
            of: None,
        }
    }

    fn bytes(&self) -> usize {
        let length = |path: &RelPath| path.as_bytes().len();
        match self {
            New::Entry { path, of, .. } => length(path) + of.as_ref().map_or(0, length),
            New::Moved { from, to, .. } => length(from) + length(to),
        }
    }
}

/// What one piece of work has changed on the replica, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// What is known.
    pub all: Vec<New>,
    /// More has changed than that.
    pub is_more: bool,
}

impl News {
    /// Entries that were changed, and names of files that have several.
    pub(crate) fn of(made: &[Made], linked: &[Linked]) -> News {
        let others = OtherNames::of(made, linked);
        let made = made.iter().map(|one| New::Entry {
            path: one.path.clone(),
            is_dir: one.is_dir,
            // What a directory took the place of may have been another one before that.
            is_removed: matches!(one.action, Action::Delete | Action::Replace),
            of: others.of_link(one),
        });
        News {
            all: made.collect(),
            is_more: false,
        }
    }
}

/// Under which other names files were met that have several.
struct OtherNames<'a> {
    files: HashMap<&'a RelPath, InodeId>,
    names: HashMap<InodeId, Vec<&'a RelPath>>,
}

impl<'a> OtherNames<'a> {
    fn of(made: &[Made], linked: &'a [Linked]) -> OtherNames<'a> {
        let mut found = OtherNames {
            files: HashMap::new(),
            names: HashMap::new(),
        };
        if made.iter().any(|one| one.action == Action::Link) {
            for one in linked {
                found.files.insert(&one.path, one.inode);
                found.names.entry(one.inode).or_default().push(&one.path);
            }
        }
        found
    }

    fn of_link(&self, made: &Made) -> Option<RelPath> {
        let file = self
            .files
            .get(&made.path)
            .filter(|_| made.action == Action::Link)?;
        let mut others = self.names[file].iter();
        let other = others.find(|name| ***name != made.path)?;
        Some((*other).clone())
    }
}

/// What is to be told next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    /// What; `None` is all of the replica.
    pub(crate) news: Option<Vec<New>>,
    /// When it has arrived, everything that was pushed until then has.
    pub(crate) until: u64,
}

/// What waits to be told.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    queue: VecDeque<New>,
    bytes: usize,
    /// Entries in the queue that are looked at when their turn comes, and their numbers: a second time
    /// tells no more than that one was removed meanwhile.
    entries: HashMap<RelPath, u64>,
    /// The number of the first in the queue.
    first: u64,
    /// All of the replica, in the place of what would be too much.
    is_all: bool,
    /// What may not be durable yet, or was changed by an earlier life and may never have been told.
    postponed: News,
    pushed: u64,
    taken: u64,
}

impl Waiting {
    /// What was changed earlier is not known.
    pub(crate) fn after_unknown() -> Waiting {
        Waiting {
            postponed: News {
                all: Vec::new(),
                is_more: true,
            },
            ..Waiting::default()
        }
    }

    /// This was changed, and may not be durable.
    pub(crate) fn postpone(&mut self, news: News) {
        self.postponed.all.extend(news.all);
        self.postponed.is_more |= news.is_more || self.postponed.all.len() > WAITING_MAX;
        if self.postponed.is_more {
            self.postponed.all = Vec::new();
        }
    }

    /// All that was changed until now is durable, this included.
    pub(crate) fn push(&mut self, news: News) {
        let earlier = std::mem::take(&mut self.postponed);
        for news in [earlier, news] {
            news.all.into_iter().for_each(|one| self.push_one(one));
            if news.is_more {
                self.push_all();
            }
        }
    }

    fn push_one(&mut self, new: New) {
        if self.is_all {
            self.pushed += 1;
            return;
        }
        let number = self.first + self.queue.len() as u64;
        if let New::Entry {
            path,
            is_removed,
            is_dir,
            ..
        } = &new
        {
            if let Some(number) = self.entries.get(path) {
                let index = usize::try_from(number - self.first).unwrap_or(usize::MAX);
                if let Some(New::Entry {
                    is_removed: was_removed,
                    is_dir: was_dir,
                    ..
                }) = self.queue.get_mut(index)
                {
                    *was_removed |= *is_removed || is_dir != was_dir;
                }
                return;
            }
            self.entries.insert(path.clone(), number);
        } else {
            // What is told behind a rename is told of another entry.
            self.entries.clear();
        }
        self.pushed += 1;
        self.bytes += new.bytes();
        self.queue.push_back(new);
        if self.queue.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX {
            self.push_all();
        }
    }

    fn push_all(&mut self) {
        self.pushed += 1;
        self.is_all = true;
        self.queue = VecDeque::new();
        self.entries = HashMap::new();
        self.bytes = 0;
    }

    /// What is to be told next: at most so many changes.
    pub(crate) fn take(&mut self, max: usize) -> Option<Batch> {
        if std::mem::take(&mut self.is_all) {
            self.taken = self.pushed;
            return Some(Batch {
                news: None,
                until: self.taken,
            });
        }
        let count = self.queue.len().min(max);
        if count == 0 {
            return None;
        }
        let news: Vec<New> = self.queue.drain(..count).collect();
        self.first += count as u64;
        for new in &news {
            self.bytes -= new.bytes();
            if let New::Entry { path, .. } = new {
                self.entries.remove(path);
            }
        }
        self.taken += count as u64;
        Some(Batch {
            news: Some(news),
            until: self.taken,
        })
    }

    /// How many were ever pushed: once all of these have arrived, so has everything until now.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Whether there is nothing to tell.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.is_all
    }

    /// Whether nothing is left untold either of what may not be durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_empty() && self.postponed == News::default()
    }

    /// Nothing that was pushed or postponed until now is told any more.
    pub(crate) fn forget(&mut self) {
        *self = Waiting {
            first: self.first + self.queue.len() as u64,
            pushed: self.pushed,
            taken: self.pushed,
            ..Waiting::default()
        };
    }

    /// The whole replica may differ, for what cannot be looked at.
    pub(crate) fn doubt(&mut self) {
        self.push_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn entry(text: &str) -> New {
        New::Entry {
            path: path(text),
            is_dir: false,
            is_removed: false,
            of: None,
        }
    }

    fn moved(from: &str, to: &str) -> New {
        New::Moved {
            from: path(from),
            to: path(to),
            is_dir: false,
        }
    }

    fn news(all: &[New]) -> News {
        News {
            all: all.to_vec(),
            is_more: false,
        }
    }

    #[test]
    fn what_waits_is_told_once_and_in_order() {
        let mut waiting = Waiting::default();
        waiting.push(news(&[entry("a"), entry("b"), entry("a")]));
        waiting.push(news(&[moved("b", "c"), entry("b"), entry("a")]));
        assert_eq!(waiting.pushed(), 5);
        let batch = waiting.take(2).unwrap();
        assert_eq!(batch.news, Some(vec![entry("a"), entry("b")]));
        assert_eq!(batch.until, 2);
        waiting.push(news(&[entry("a")]));
        let batch = waiting.take(100).unwrap();
        // Behind the rename it may be told once too often.
        let all = vec![moved("b", "c"), entry("b"), entry("a"), entry("a")];
        assert_eq!((batch.news, batch.until), (Some(all), 6));
        assert!(waiting.is_empty() && waiting.take(1).is_none());
        waiting.push(news(&[entry("a")]));
        assert_eq!(waiting.take(1).unwrap().until, 7);
    }

    #[test]
    fn what_was_another_entry_meanwhile_is_told_as_removed() {
        let of = |is_dir, is_removed| New::Entry {
            path: path("d"),
            is_dir,
            is_removed,
            of: None,
        };
        for (pushed, is_removed) in [
            (vec![of(true, false), of(true, false)], false),
            (vec![of(true, false), of(true, true), of(true, false)], true),
            (
                vec![of(true, false), of(false, false), of(true, false)],
                true,
            ),
        ] {
            let mut waiting = Waiting::default();
            waiting.push(news(&pushed));
            waiting.push(news(&[moved("b", "c")]));
            let told = vec![of(true, is_removed), moved("b", "c")];
            assert_eq!(waiting.take(9).unwrap().news, Some(told), "{pushed:?}");
        }
    }

    #[test]
    fn too_much_becomes_one_word_for_all() {
        let mut waiting = Waiting::default();
        for number in 0..=WAITING_MAX {
            waiting.push(news(&[entry(&number.to_string())]));
        }
        waiting.push(news(&[entry("during")]));
        let until = waiting.pushed();
        assert_eq!(waiting.take(9), Some(Batch { news: None, until }));
        waiting.push(news(&[entry("after")]));
        let batch = waiting.take(9).unwrap();
        assert_eq!(batch.news, Some(vec![entry("after")]));
        assert_eq!(batch.until, waiting.pushed());
    }

    #[test]
    fn what_may_not_be_durable_is_told_when_something_is() {
        let mut waiting = Waiting::default();
        waiting.postpone(news(&[entry("a")]));
        assert!(waiting.is_empty() && !waiting.is_settled());
        waiting.push(news(&[entry("b")]));
        let batch = waiting.take(9).unwrap();
        assert_eq!(batch.news, Some(vec![entry("a"), entry("b")]));
        assert!(waiting.is_settled());
        let mut waiting = Waiting::after_unknown();
        waiting.postpone(news(&[entry("a")]));
        waiting.push(News::default());
        assert_eq!(waiting.take(9).unwrap().news, None);
        assert!(waiting.is_settled());
    }

    #[test]
    fn what_is_forgotten_is_not_told_and_what_comes_later_is() {
        let mut waiting = Waiting::after_unknown();
        waiting.postpone(news(&[entry("a")]));
        waiting.forget();
        assert!(waiting.is_settled());
        waiting.push(news(&[entry("a"), entry("b")]));
        waiting.postpone(news(&[entry("c")]));
        waiting.forget();
        assert!(waiting.is_settled() && waiting.take(9).is_none());
        let pushed = waiting.pushed();
        waiting.push(news(&[entry("b"), entry("b")]));
        let batch = waiting.take(9).unwrap();
        assert_eq!(batch.news, Some(vec![entry("b")]));
        assert_eq!(batch.until, pushed + 1);
        assert_eq!(waiting.pushed(), batch.until);
    }

    #[test]
    fn a_link_is_told_with_another_name_of_its_file() {
        let made = |text: &str, action| Made {
            path: path(text),
            action,
            is_dir: false,
        };
        let linked = |text: &str, inode| Linked {
            path: path(text),
            inode: (1, inode),
            names: 2,
        };
        let news = News::of(
            &[made("a", Action::Create), made("b", Action::Link)],
            &[linked("c", 7), linked("b", 8), linked("a", 8)],
        );
        let of = |new: &New| match new {
            New::Entry { of, .. } => of.clone(),
            New::Moved { .. } => None,
        };
        assert_eq!(of(&news.all[0]), None);
        assert_eq!(of(&news.all[1]), Some(path("a")));
    }
}
