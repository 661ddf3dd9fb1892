//! What the thread that keeps a replica equal hears, from detectors, lanes and whoever asks.

use crate::ask::{Answer, Ask, Asked, Reply};
use crate::hands::Outcome;
use crate::pool::Word;
use crate::snapshots::Told;
use crossbeam_channel::{Receiver, Sender};
use driftless_detect::{Queue, Seen, Unnamed};
use std::time::Duration;

/// What is heard.
pub enum Message {
    /// A detector has heard of changes.
    Heard {
        /// Its number.
        from: usize,
        /// The changes.
        seen: Vec<Seen>,
        /// Files that changed, and of which names are to be found.
        unnamed: Vec<Unnamed>,
        /// What was told until now stands before this position of it.
        position: Option<u64>,
        /// What it could not use.
        unread: u64,
    },
    /// A detector has heard of everything that happened until then.
    HeardUntil {
        /// Its number.
        from: usize,
        /// The moment.
        moment: Duration,
    },
    /// How the queue stands that a detector hears.
    Queue(Queue),
    /// A detector has missed something.
    Missed,
    /// A detector hears nothing any more, or hears again.
    Deaf {
        /// Its number.
        from: usize,
        /// Why.
        why: Option<String>,
    },
    /// Who makes snapshots is done.
    Told(Told),
    /// The short lane has made equal what it was given, and goes on while that is written out.
    CarriedOut,
    /// Others were told of something.
    Announced,
    /// A piece of work is done.
    Done(Box<Outcome>),
    /// Somebody else who works on the replica says something.
    Pool(Box<Word>),
    /// Why nothing is said to them, or heard of them; nothing if it is again.
    Mute(Option<String>),
    /// Somebody asks.
    Asked(Asked),
}

/// Where others send messages to the life of a replica.
#[derive(Clone)]
pub struct Inbox(Sender<Message>);

impl Inbox {
    /// Sends to whoever receives there.
    pub fn new(outbox: Sender<Message>) -> Inbox {
        Inbox(outbox)
    }

    /// Sends a message; false if it has ended.
    pub fn send(&self, message: Message) -> bool {
        self.0.send(message).is_ok()
    }
}

/// Where others send messages to all replicas of a mirror, in the order of its job.
#[derive(Clone)]
pub struct Inboxes(Vec<Inbox>);

impl Inboxes {
    /// Sends to all of these.
    pub fn new(inboxes: Vec<Inbox>) -> Inboxes {
        Inboxes(inboxes)
    }

    /// Sends a message to each; false if all have ended.
    pub fn send(&self, message: impl Fn() -> Message) -> bool {
        let sent = self.0.iter().map(|inbox| inbox.send(message()));
        sent.fold(false, |any, is_sent| any | is_sent)
    }

    /// Asks each; their answers come out there.
    pub fn ask(&self, ask: &Ask) -> Vec<Receiver<Answer>> {
        let asked = self.0.iter().map(|inbox| {
            let (reply, answer) = Reply::new();
            let ask = ask.clone();
            // One that has ended lets go of where its answer would go.
            inbox.send(Message::Asked(Asked { ask, reply }));
            answer
        });
        asked.collect()
    }
}
