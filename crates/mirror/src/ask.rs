//! What a mirror that runs can be asked, and what it answers.

use crate::status::{Status, Trouble};
use crossbeam_channel::{Receiver, Sender, bounded};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// How is it?
    Status,
    /// Which paths have a problem?
    Problems,
    /// Stop working, and go on hearing of changes.
    Pause,
    /// Go on working.
    Resume,
    /// Compare all.
    SyncNow {
        /// Answer when all of it is on the replica.
        wait: bool,
    },
    /// Answer when everything that happened before is on the replica.
    Barrier {
        /// Or when so much time has passed.
        timeout: Option<Duration>,
    },
    /// Try at once what has failed.
    Retry {
        /// At this path and below; all without it.
        path: Option<Vec<u8>>,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", content = "with", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done.
    Done,
    /// So many paths are tried again.
    Retried(u64),
    /// How it is.
    Status(Box<Status>),
    /// Which paths have a problem.
    Problems(Vec<Trouble>),
    /// All is on the replica, but for what has a problem.
    Reached {
        /// Paths that have one.
        problems: u64,
    },
    /// The time was over before.
    Late {
        /// Paths that are left.
        left: u64,
    },
    /// The question makes no sense.
    Refused(String),
}

/// Where an answer goes.
#[derive(Debug, Clone)]
pub struct Reply(Sender<Answer>);

impl Reply {
    /// For one answer, and where it comes out.
    pub fn new() -> (Reply, Receiver<Answer>) {
        let (reply, answers) = bounded(1);
        (Reply(reply), answers)
    }

    /// Answers; nobody may listen any more.
    pub fn give(&self, answer: Answer) {
        let _who_asked_may_be_gone = self.0.try_send(answer);
    }
}

/// A question, and where its answer goes.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What is asked.
    pub ask: Ask,
    /// Where the answer goes.
    pub reply: Reply,
}
