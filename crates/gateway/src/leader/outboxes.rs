//! Outboxes of jobs, as the nodes listed them.

use crate::distribution::{NodeAnswer, OutboxState};
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// Lists of outboxes, by the marks of their jobs.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    /// Time of the last list.
    pub asked: HashMap<String, Instant>,
    /// Lists that wait for a younger answer of the batch system.
    pub listed: HashMap<String, OutboxList>,
    /// Jobs that ended, and whose outboxes are empty.
    pub empty: HashSet<String>,
}

/// Outboxes of a job at one time.
#[derive(Debug)]
pub(crate) struct OutboxList {
    /// Time after the last node answered.
    pub ended: Instant,
    /// Whether all tasks had ended then.
    pub is_final: bool,
    /// Answers of the nodes.
    pub answers: Vec<NodeAnswer<OutboxState>>,
}

impl Outboxes {
    /// Returns whether all results of a job that ended were collected.
    pub fn is_empty(&self, mark: &str) -> bool {
        self.empty.contains(mark)
    }

    /// Looks at the outboxes again before a job is closed.
    pub fn look_again(&mut self, mark: &str) {
        self.empty.remove(mark);
    }

    /// Takes a list that a thread brought.
    pub fn note(&mut self, mark: String, list: OutboxList) {
        self.listed.insert(mark, list);
    }
}
