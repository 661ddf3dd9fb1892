//! The thread that hears one detector and tells all replicas of a mirror what it has heard.
//!
//! It goes on after a detector was deaf for a while, and says so to the replicas. What all of them
//! are done with, it lets the detector let go of.

use crate::clock::{at, now};
use crate::hearing::Shared;
use crate::message::{Inboxes, Message};
use driftless_detect::{Deaf, Detector};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// A detector that is deaf is tried again after this, then after twice as long.
const DEAF_FIRST: Duration = Duration::from_secs(1);
/// The longest wait for a detector that is deaf.
const DEAF_MAX: Duration = Duration::from_secs(60);

/// Hears a detector.
pub struct Listener {
    /// The detector.
    pub detector: Box<dyn Detector>,
    /// Its number among those of the mirror.
    pub number: usize,
    /// What the replicas know of it.
    pub shared: Arc<Shared>,
    /// The replicas.
    pub inboxes: Inboxes,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
}

impl Listener {
    /// Hears until the mirror is to stop, or nobody listens, or it is no use.
    pub fn run(mut self) {
        let mut acknowledged = self.shared.done();
        if let Some(position) = acknowledged {
            self.detector.resume(position);
        }
        let mut pause = None;
        while !self.stop.load(Relaxed) {
            self.acknowledge(&mut acknowledged);
            match self.hear() {
                Ok(false) => return,
                Ok(true) if pause.is_none() => {}
                Ok(true) => {
                    pause = None;
                    self.tell_deaf(None);
                }
                Err(deaf) => {
                    if pause.is_none() {
                        self.tell_deaf(Some(&deaf));
                    }
                    if deaf.is_final {
                        return;
                    }
                    let time = pause.map_or(DEAF_FIRST, |pause: Duration| pause * 2);
                    pause = Some(time.min(DEAF_MAX));
                    let _it_waits_shorter = self.detector.waker().wait(None, pause);
                }
            }
        }
    }

    fn tell_deaf(&self, deaf: Option<&Deaf>) {
        match deaf {
            Some(deaf) if deaf.is_final => {
                tracing::error!("{deaf}: from now on only full scans find changes");
            }
            Some(deaf) => tracing::error!("{deaf}: trying again"),
            None => tracing::info!("{}: changes are received again", self.detector.name()),
        }
        let what_now = |deaf: &Deaf| match deaf.is_final {
            true => format!("{deaf}; start the mirror again"),
            false => format!("{deaf}; the mirror retries"),
        };
        let (from, why) = (self.number, deaf.map(what_now));
        let why = || why.clone();
        self.inboxes.send(|| Message::Deaf { from, why: why() });
    }

    /// Lets go of what all replicas are done with.
    fn acknowledge(&mut self, last: &mut Option<u64>) {
        let done = self.shared.done();
        let Some(position) = done.filter(|_| done > *last) else {
            return;
        };
        match self.detector.acknowledge(position) {
            Ok(()) => *last = done,
            Err(deaf) => tracing::warn!("{deaf}"),
        }
    }

    /// Hears what there is, or waits; false if nobody listens any more.
    fn hear(&mut self) -> Result<bool, Deaf> {
        let before = now();
        let heard = self.detector.hear()?;
        let from = self.number;
        if let Some(queue) = heard.queue {
            self.inboxes.send(|| Message::Queue(queue));
        }
        if heard.is_nothing() {
            let moment = heard.until.map_or(before, at);
            let is_heard = self.inboxes.send(|| Message::HeardUntil { from, moment });
            self.detector.wait()?;
            return Ok(is_heard);
        }
        // First, so that what is done when all was compared is not taken to be done before.
        if let Some(why) = heard.missed {
            tracing::warn!("{why}: looking for changed entries");
            self.inboxes.send(|| Message::Missed);
        }
        let is_heard = self.inboxes.send(|| Message::Heard {
            from,
            seen: heard.seen.clone(),
            unnamed: heard.unnamed.clone(),
            position: heard.position,
            unread: heard.unread,
        });
        if heard.is_all {
            let moment = before;
            self.inboxes.send(|| Message::HeardUntil { from, moment });
        }
        Ok(is_heard)
    }
}
