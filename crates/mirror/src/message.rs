//! What the thread that owns a mirror hears, from detectors, lanes and whoever asks.

use crate::ask::Asked;
use crate::hands::Outcome;
use crate::snapshots::Told;
use crossbeam_channel::Sender;
use driftless_detect::fanotify::Seen;
use std::time::Duration;

/// What is heard.
pub enum Message {
    /// A detector has heard of changes.
    Heard(Vec<Seen>),
    /// A detector has heard of everything that happened until then.
    HeardUntil(Duration),
    /// A detector has missed something.
    Missed,
    /// A detector hears nothing any more.
    Deaf(String),
    /// Who makes snapshots is done.
    Told(Told),
    /// A lane is done.
    Done(Box<Outcome>),
    /// Somebody asks.
    Asked(Asked),
}

/// Where others send messages to a mirror.
#[derive(Clone)]
pub struct Inbox(Sender<Message>);

impl Inbox {
    /// Sends to whoever receives there.
    pub fn new(outbox: Sender<Message>) -> Inbox {
        Inbox(outbox)
    }

    /// Sends a message; false if the mirror has ended.
    pub fn send(&self, message: Message) -> bool {
        self.0.send(message).is_ok()
    }
}
