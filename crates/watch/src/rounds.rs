//! Rounds of deliveries: a mirror asks the agent to post everything that was said before.
//!
//! A round has a number. Each thread that hears looks at the number first, hears until nothing is
//! left, and then reports the number behind everything that it has heard. When all threads have
//! reported, and what they heard is kept, the mirror has to take all words up to the last one.

use crate::book::Book;
use crate::heard::Heard;
use crate::status::{Deliver, Tell};
use driftless_detect::Waker;
use driftless_detect::agents::Delivery;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Interval in which a mirror that waits for a delivery is told that it goes on.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Numbers of the rounds that were asked for.
#[derive(Debug, Default)]
pub struct Asked {
    last: AtomicU64,
    awaited: AtomicU64,
}

impl Asked {
    /// Returns the number of the last round.
    pub fn last(&self) -> u64 {
        self.last.load(SeqCst)
    }

    fn next(&self, is_awaited: bool) -> u64 {
        let round = self.last.fetch_add(1, SeqCst) + 1;
        if is_awaited {
            self.awaited.fetch_max(round, SeqCst);
        }
        round
    }
}

/// The way from a thread that hears to the agent.
pub struct Outlet {
    heard: SyncSender<Heard>,
    asked: Arc<Asked>,
    /// Number of the thread.
    hearer: usize,
    /// Number of the last round that it has reported.
    reported: u64,
}

impl Outlet {
    /// Returns that of the thread of this number.
    pub fn of(heard: SyncSender<Heard>, asked: Arc<Asked>, hearer: usize) -> Outlet {
        Outlet {
            heard,
            asked,
            hearer,
            reported: 0,
        }
    }

    /// Sends what was heard; false if the agent has ended.
    pub fn send(&self, heard: Heard) -> bool {
        self.heard.send(heard).is_ok()
    }

    /// Returns the number of a round that the thread has not reported; the second value says that a
    /// user waits for it.
    pub fn asked(&self) -> Option<(u64, bool)> {
        let round = self.asked.last();
        let is_awaited = self.asked.awaited.load(SeqCst) > self.reported;
        (round > self.reported).then_some((round, is_awaited))
    }

    /// Reports that everything was heard that was said before a round, if one was asked for; false if
    /// the agent has ended.
    pub fn report(&mut self, asked: Option<(u64, bool)>) -> bool {
        let Some((round, _)) = asked else {
            return true;
        };
        self.reported = round;
        self.send(Heard {
            reached: Some((self.hearer, round)),
            ..Heard::default()
        })
    }
}

/// The last rounds that each thread has reported.
#[derive(Debug, Default)]
pub struct Reached {
    threads: Vec<u64>,
    kept: u64,
}

impl Reached {
    /// Counts one more thread; returns its number.
    pub fn add(&mut self) -> usize {
        self.threads.push(0);
        self.threads.len() - 1
    }

    /// Notes that a thread has reported a round.
    pub fn note(&mut self, (hearer, round): (usize, u64)) {
        self.threads[hearer] = round;
    }

    /// Returns the last round that all threads have reported, unless it was returned before.
    pub fn take(&mut self) -> Option<u64> {
        let all = self.threads.iter().copied().min()?;
        let is_new = all > self.kept;
        self.kept = all;
        is_new.then_some(all)
    }
}

/// Delivers to mirrors, for those who ask.
#[derive(Clone)]
pub struct Deliverer {
    pub(crate) book: Arc<Book>,
    pub(crate) asked: Arc<Asked>,
    pub(crate) wakers: Vec<Arc<Waker>>,
}

impl Deliver for Deliverer {
    fn deliver(&self, mirror: &Path, is_awaited: bool, tell: &mut Tell<'_>) -> io::Result<()> {
        let round = self.asked.next(is_awaited);
        for waker in &self.wakers {
            waker.wake();
        }
        while !self.book.is_delivered(mirror, round, TELL_EVERY) {
            let why = self.book.why_undelivered();
            tell(&Delivery::Waiting { why })?;
        }
        tell(&Delivery::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_reached_when_all_threads_have_reported_it() {
        let mut reached = Reached::default();
        let (first, second) = (reached.add(), reached.add());
        reached.note((first, 3));
        assert_eq!(reached.take(), None);
        reached.note((second, 2));
        assert_eq!(reached.take(), Some(2));
        assert_eq!(reached.take(), None);
        reached.note((second, 7));
        assert_eq!(reached.take(), Some(3));
    }
}
